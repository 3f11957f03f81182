"""What nodes are worth to each trainer: speeds from its past, rated by a priority.

``learned_speeds`` turns what a trainer showed into speeds and costs. ``rate`` asks a
priority, and works floors and the background into curves, as the planner knows neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.scaling import (
    ASSUMED_RESCALE_S,
    ASSUMED_START_S,
    Rescale,
    Stake,
    cautious,
    curve_values,
    estimate,
)
from milp.problem import custom, weighted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.priority.base import (
        Contender,
        Memory,
        Priority,
        Rating,
        RatingInputs,
    )
    from freetrain.scaling import LearnedScaling, Profiling, SpeedPrior
    from milp.problem import Curve


RescaleCostsS = tuple[float, float, float]
"""Seconds without training at growing, at shrinking and at starting."""

ASSUMED_COSTS_S: RescaleCostsS = (ASSUMED_RESCALE_S, ASSUMED_RESCALE_S, ASSUMED_START_S)
_KINDS = (Rescale.GROW, Rescale.SHRINK, Rescale.START)


def learned_costs_s(
    known: LearnedScaling, assumed_s: RescaleCostsS = ASSUMED_COSTS_S
) -> RescaleCostsS:
    """Return the costs of rescales: as seen, or *assumed_s*."""
    grow_s, shrink_s, start_s = (
        known.cost_s(kind, assumed_s=cost_s)
        for kind, cost_s in zip(_KINDS, assumed_s, strict=True)
    )
    return grow_s, shrink_s, start_s


def start_cost_s(start_s: float, *, stay_s: float, reach_s: float) -> float:
    """Return how much of a start is charged to a plan, in seconds of its new worth.

    A start takes its time out of a service that lasts for the stay in the mean, and
    may end before it has begun to train: the share 1 - exp(-start / stay) of service
    is lost, and a plan has ``min(reach, stay)`` seconds of it. So a start is spread
    over the stay, about start * min(1, reach / stay), and never costs more than a
    node that would be idle otherwise earns.
    """
    return min(reach_s, stay_s) * -math.expm1(-start_s / stay_s)


def start_loss_s(lost_s: float, start_s: float, *, stay_s: float) -> float:
    """Return what losing nodes costs a trainer that waits, in seconds of its worth.

    Where its first nodes leave, no others pause, and it loses work only if its start
    was over: exp(-start / stay) of all stays are longer than a start.

    Args:
        lost_s: Seconds of its work that it loses at a loss, without the pause.
        start_s: Seconds that its start takes.
        stay_s: How long trainers keep nodes in the mean, seconds.
    """
    return lost_s * math.exp(-start_s / stay_s)


def is_scarce(largest: Sequence[int], nodes: int) -> bool:
    """Return whether several trainers, given their *largest* sizes, want more nodes."""
    return len(largest) > 1 and sum(largest) > nodes


def learned_speeds(  # noqa: PLR0913 - one fact each
    known: LearnedScaling,
    sizes: Sequence[int],
    *,
    held: int,
    now_s: float,
    prior: SpeedPrior,
    deviations: float,
    profiling: Profiling | None = None,
    remaining_samples: float,
    costs_s: RescaleCostsS,
    is_scarce: bool = False,
    stated: Mapping[int, float] | None = None,
) -> NDArray[np.float64]:
    """Return samples/s at 0 .. the largest of *sizes*, for the planner.

    The estimate from the trainer's past. Where the trainer waits it is lowered by its
    uncertainty; where the trainer is to try a size it is raised.

    Args:
        known: What the trainer showed.
        sizes: Node counts that it can use, ascending.
        held: Nodes that it holds now.
        now_s: On the clock of *known*.
        prior: What is expected of trainers here.
        deviations: By how many standard deviations speeds of a trainer that waits are
            lowered.
        profiling: How eager trainers are to try sizes; None for not at all.
        remaining_samples: Work until it is finished; inf where that is not known.
        costs_s: Costs of its rescales.
        is_scarce: Whether trainers contend for nodes.
        stated: Samples a second by node count, as its user says.

    Returns:
        Shape (largest size + 1,), float64, read-only; entry 0 is 0.
    """
    curve = estimate(known, sizes[-1], now_s=now_s, prior=prior, user=stated)
    curve = cautious(curve, held=held, deviations=deviations)
    stake = Stake(
        sizes=sizes,
        held=held,
        remaining_samples=remaining_samples,
        trained_s=known.trained_s,
        rescale_s=max(costs_s[:2]),
        is_scarce=is_scarce,
    )
    return curve_values(curve, profiling=profiling, stake=stake)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratings:
    """A priority's ratings of trainers, each by its name.

    Attributes:
        priority: The priority's name.
        contenders: The trainers, as they were rated.
        curves: Their worth to the planner, by node count.
        reasons: Why, for people.
        background: Names of trainers that get only what the others leave; none where
            that is worked into the curves.
        memory: For the next call of the priority.
    """

    priority: str
    contenders: Mapping[str, Contender] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    background: frozenset[str] = frozenset()
    memory: Memory = field(default_factory=dict)


def rate(
    inputs: RatingInputs,
    priority: Priority,
    memory: Memory,
    *,
    background: Collection[str] | None = None,
) -> Ratings:
    """Return the ratings of the trainers in *inputs* by *priority*.

    Args:
        inputs: The trainers at this moment.
        priority: The priority.
        memory: The memory of the last rating; empty at the first.
        background: Names of trainers that are in the background whatever their
            rating, where the background is planned after the others, as in ticks: its
            curves are then not lowered. None where all trainers are planned together,
            as in replays: then the curves of the background are lowered.

    Raises:
        MalformedProblemError: A trainer's speeds make no sense.
    """
    rated = priority.rate(inputs, memory)
    names = [contender.name for contender in inputs.contenders]
    by_name = dict(zip(names, rated.ratings, strict=True))
    last: frozenset[str] = frozenset()
    if background is None:
        curves = dict(zip(names, planned_curves(rated.ratings), strict=True))
    else:
        rank = {name for name, rating in by_name.items() if rating.is_background}
        last = frozenset(rank.union(background))
        curves = _curves_apart(by_name, last)
    return Ratings(
        priority=priority.name,
        contenders=dict(zip(names, inputs.contenders, strict=True)),
        curves=curves,
        reasons={name: rating.reason for name, rating in by_name.items()},
        background=last,
        memory=rated.memory,
    )


def _curves_apart(
    ratings: Mapping[str, Rating], last: Collection[str]
) -> dict[str, Curve]:
    """Return curves with floors worked in, those of the background on their own."""
    curves: dict[str, Curve] = {}
    for is_last in (False, True):
        names = [name for name in ratings if (name in last) is is_last]
        alike = [replace(ratings[name], is_background=False) for name in names]
        curves |= zip(names, planned_curves(alike), strict=True)
    return curves


BACKGROUND = 1e-4
"""The most that a node is worth to a trainer in the background, over the most that it
is worth to another: so the background gets nodes that others hardly use."""

FLOOR = 4.0
"""The worth of a node below a floor, over the most that a node is worth above it. Above
1 floors come first; much above 1, a trainer that holds its floor would never be changed
again, because the planner counts a change in seconds of the present worth."""

LEFTOVER = 1e-6
"""The least that a node is worth, over the most: idle nodes go also to a trainer that
gains nothing on so few. A trainer that never runs never shows that the forecast was
wrong. A curve of zeros wants no nodes and stays."""


def planned_curves(ratings: Sequence[Rating]) -> tuple[Curve, ...]:
    """Return the curve of each of *ratings*, with floors and background worked in.

    A rating that has neither, and some worth at every size, keeps its curve object.
    """
    dearest = _dearest(ratings, is_background=False)
    behind = _dearest(ratings, is_background=True)
    share = BACKGROUND * dearest / behind if dearest * behind else 1.0
    planned = [_planned(rating, dearest, share) for rating in ratings]
    return tuple(_never_for_nothing(curve, dearest or 1.0) for curve in planned)


def _dearest(ratings: Sequence[Rating], *, is_background: bool) -> float:
    """Return the most that a node is worth to a trainer in or out of the background."""
    own = [_steepest(r.curve) for r in ratings if r.is_background is is_background]
    return max(own, default=0.0)


def _planned(rating: Rating, dearest: float, share: float) -> Curve:
    curve = rating.curve
    if rating.is_background:
        return weighted(curve, share) if share != 1.0 else curve
    if not rating.floor or not dearest:
        return curve
    below = np.minimum(np.arange(len(curve.value_per_s)), rating.floor)
    return custom(curve.value_per_s + FLOOR * dearest * below, curve.sizes)


def _never_for_nothing(curve: Curve, dearest: float) -> Curve:
    """Return *curve*, raised to the least that nodes are worth."""
    least = LEFTOVER * dearest * np.arange(len(curve.value_per_s))
    sizes = list(curve.sizes)
    values = curve.value_per_s[sizes]
    if (values >= least[sizes]).all() or not values.any():
        return curve
    return custom(np.maximum(curve.value_per_s, least), curve.sizes)


def _steepest(curve: Curve) -> float:
    """Return the most that a node adds between neighbouring sizes, at least 0."""
    sizes = np.array([0, *curve.sizes])
    slopes = np.diff(curve.value_per_s[sizes]) / np.diff(sizes)
    return max(0.0, float(slopes.max()))
