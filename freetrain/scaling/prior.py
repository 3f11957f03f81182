"""What is assumed of a trainer's speed before it has run on a size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from freetrain.scaling.assumed import ASSUMED_EXPONENT
from freetrain.scaling.median import spread, weighted_median
from freetrain.scaling.pooled import pool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.scaling.learned import LearnedScaling

ASSUMED_EXPONENT_SD = 0.1
ASSUMED_LOG_SD = 0.1
"""Twice of what was measured on Summit: exponents of seven networks lie between 0.82
and 0.98, and each doubling strays from the power law by 0.04, in AlexNet 0.09."""

_ASSUMED_WEIGHT = 3.0
"""The assumptions count as much as three trainers that were seen to scale."""

_VARIANCE = ASSUMED_LOG_SD**2
_MOST_VARIANCE = 0.25
_DOUBLING = math.log(2.0)

_LEAST_SD = 0.3
_WIDE_SD = 3.0
_FEW_TRAINERS = 3
_LEAST_SPAN = _DOUBLING * 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Speeds that are expected of a trainer: one node's, times nodes ** exponent.

    Attributes:
        one_node_per_s: Samples a second on one node.
        one_node_log_sd: Standard deviation of its logarithm.
        exponent: Of the power law.
        exponent_sd: Its standard deviation.
        log_sd_per_doubling: By how much the logarithm of speed strays from the power
            law at each doubling of nodes.
    """

    one_node_per_s: float = 1.0
    one_node_log_sd: float = _WIDE_SD
    exponent: float = ASSUMED_EXPONENT
    exponent_sd: float = ASSUMED_EXPONENT_SD
    log_sd_per_doubling: float = ASSUMED_LOG_SD


@dataclass(frozen=True, slots=True)
class Shown:
    """What one trainer tells of others: how large and how steep its speeds are.

    Attributes:
        one_node_per_s: Samples a second on one node, measured or extrapolated.
        exponent: Of a power law through its speeds; None where it ran on sizes that
            are less than a doubling apart.
        log_variance: By which the logarithm of speed strays from that law, each
            doubling of nodes; None likewise.
    """

    one_node_per_s: float
    exponent: float | None = None
    log_variance: float | None = None


def shown_by(learned: LearnedScaling, *, now_s: float) -> Shown | None:
    """Return what *learned* tells of others; None before any speed was seen."""
    if not learned.seen:
        return None
    points = [
        (math.log(nodes), pool(seen, now_s=now_s).log_speed)
        for nodes, seen in sorted(learned.seen.items())
    ]
    at, level = points[0]
    if points[-1][0] - at < _LEAST_SPAN:
        return Shown(math.exp(level - ASSUMED_EXPONENT * at))
    slope = _slope(points)
    return Shown(math.exp(level - slope * at), slope, _strays(points, slope))


def _slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the straight line through *points*."""
    x, y = fmean(at for at, _ in points), fmean(level for _, level in points)
    over = sum((at - x) * (level - y) for at, level in points)
    return over / sum((at - x) ** 2 for at, _ in points)


def _strays(points: list[tuple[float, float]], slope: float) -> float:
    """Return the variance about the line through *points*, each doubling."""
    strayed = sum(
        (later_level - level - slope * (later - at)) ** 2 / (later - at)
        for (at, level), (later, later_level) in pairwise(points)
    )
    # The line is made of the points: two of them stray from it by nothing.
    free = len(points) - 2
    return min(_MOST_VARIANCE, strayed * _DOUBLING / free) if free else _VARIANCE


def site_prior(trainers: Iterable[Shown]) -> Prior:
    """Return what to expect of a trainer at a site where *trainers* were seen.

    Medians, so that no single trainer decides; scales are taken to differ by at
    least a third from one trainer to the next, however much alike those seen were.
    """
    shown = list(trainers)
    if not shown:
        return Prior()
    logs = [math.log(one.one_node_per_s) for one in shown]
    even = [1.0] * len(logs)
    scale = weighted_median(logs, even)
    scale_sd = max(_LEAST_SD, spread(logs, even, scale))
    exponent, exponent_sd = _exponents([one.exponent for one in shown])
    return Prior(
        one_node_per_s=math.exp(scale),
        one_node_log_sd=_WIDE_SD if len(logs) < _FEW_TRAINERS else scale_sd,
        exponent=exponent,
        exponent_sd=exponent_sd,
        log_sd_per_doubling=math.sqrt(_variance([one.log_variance for one in shown])),
    )


def _exponents(shown: list[float | None]) -> tuple[float, float]:
    """Return the median exponent and how far trainers are from it."""
    known = [one for one in shown if one is not None]
    weights = [_ASSUMED_WEIGHT, *([1.0] * len(known))]
    centre = weighted_median([ASSUMED_EXPONENT, *known], weights)
    squares = _ASSUMED_WEIGHT * ASSUMED_EXPONENT_SD**2
    squares += sum(min((one - centre) ** 2, _MOST_VARIANCE) for one in known)
    return centre, math.sqrt(squares / sum(weights))


def _variance(shown: list[float | None]) -> float:
    known = [one for one in shown if one is not None]
    return (_ASSUMED_WEIGHT * _VARIANCE + sum(known)) / (_ASSUMED_WEIGHT + len(known))
