"""Trainers' losses: whether they can be used, and ratings made of them.

Shared by the priorities that look at losses (``slaq``, ``tradl``, ``specon``). Where
losses can be used, the priority claims a worth in a unit of its own; ``ratings`` makes
claims comparable with trainers that have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from freetrain.priority.base import Rating

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, CurveCache

FEWEST_POINTS = 4
"""Values before a forecast is used: as many as SLAQ's curves have unknowns."""


class LossStatus(StrEnum):
    """The status of a trainer by its losses; the values are reasons for people."""

    LEARNING = "learning"
    NO_LOSS = "no usable loss, so it has its smallest size, and counts by its speed-up"
    NO_AIM = (
        "no target given, and no end known, so it has its smallest size, and counts "
        "by its speed-up"
    )
    DIVERGING = "diverging, so it gets what others leave"
    NO_GAIN = "no more gain is expected, so it gets what others leave"


def loss_status(contender: Contender) -> LossStatus:
    """Return the status of *contender*: with few values it has no usable loss yet."""
    forecast = contender.forecast
    if forecast is None:
        return LossStatus.NO_LOSS
    if forecast.is_diverging:
        return LossStatus.DIVERGING
    few = len(forecast.points) < FEWEST_POINTS
    return LossStatus.NO_LOSS if few else LossStatus.LEARNING


def quality_after(forecast: LossForecast, samples: float) -> float:
    """Return the quality expected after *samples* in all."""
    return forecast.quality(forecast.expected(samples).value)


def done_samples(contender: Contender, forecast: LossForecast) -> float:
    """Return the work done by the newest report; predictions begin there."""
    return max(contender.done_samples, forecast.points[-1].samples)


# Ratings from claims

DIVERGING_WORTH = 0.01
"""Worth of a diverging trainer over that of another in the background: it is last."""

_UNKNOWN = {LossStatus.NO_LOSS, LossStatus.NO_AIM}


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """The worth of a trainer by its losses.

    Attributes:
        worth: By node count, in a unit that all claims have in common; shape
            (largest size + 1,), 0 or more, entry 0 is 0.
        reason: Why, for people.
    """

    worth: NDArray[np.float64]
    reason: str


Assessment: TypeAlias = "Claim | Rating | LossStatus"
"""A claim, a rating that needs no comparison, or why there is no claim."""


def ratings(
    contenders: Sequence[Contender],
    assessments: Sequence[Assessment],
    curves: CurveCache,
) -> tuple[Rating, ...]:
    """Return a rating for each contender.

    Claims are divided by the *typical worth*: the median of a node's worth on the
    smallest size, over the trainers with a claim. So a node is worth about 1, as it is
    in speed-up, and a trainer without a claim counts by its speed-up: it gets as much
    as a middling trainer with a claim. Its smallest size is a floor: without training
    it would never report a loss, and a trainer that reports none is not starved.

    Args:
        contenders: The trainers.
        assessments: The priority's assessment of each, in their order.
        curves: Makes the curves.

    Raises:
        MalformedProblemError: A contender does no work on its smallest size.
    """
    pairs = list(zip(contenders, assessments, strict=True))
    unit = _typical_worth(pairs)
    return tuple(
        [
            _rating(contender, assessment, unit, curves)
            for contender, assessment in pairs
        ]
    )


def _typical_worth(pairs: Sequence[tuple[Contender, Assessment]]) -> float:
    """Return the median worth of a node; 1 where no claim is above 0."""
    found = [
        assessment.worth.item(contender.sizes[0]) / contender.sizes[0]
        for contender, assessment in pairs
        if isinstance(assessment, Claim)
    ]
    above_0 = [worth for worth in found if worth > 0]
    return median(above_0) if above_0 else 1.0


def _rating(
    contender: Contender, assessment: Assessment, unit: float, curves: CurveCache
) -> Rating:
    if isinstance(assessment, Rating):
        return assessment
    if isinstance(assessment, Claim):
        curve = curves.custom(assessment.worth / unit, contender.sizes)
        return Rating(curve=curve, reason=assessment.reason)
    return rating_by_speed_up(contender, assessment, curves)


def rating_by_speed_up(
    contender: Contender, status: LossStatus, curves: CurveCache
) -> Rating:
    """Return the rating by speed-up of a trainer with this status."""
    curve = curves.speed_up(contender)
    if status is LossStatus.DIVERGING:
        curve = curves.weighted(curve, DIVERGING_WORTH)
    return Rating(
        curve=curve,
        floor=contender.sizes[0] if status in _UNKNOWN else 0,
        is_background=status in {LossStatus.DIVERGING, LossStatus.NO_GAIN},
        reason=status.value,
    )
