"""Ratings from claims: what losses say, made comparable with those who tell none."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from freetrain.priority.interface import Rating
from freetrain.priority.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.priority.curves import Curves
    from freetrain.priority.interface import Contender
    from milp.problem import Curve

DIVERGING_WORTH = 0.01
"""Of a diverging trainer, over another one in the background: it comes last."""

_UNTOLD = {Standing.NO_LOSS, Standing.NO_AIM}

DOUBTFUL_BEYOND = 0.01
"""Worth of a node above the smallest size to who seems on a plateau."""


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """What a trainer is worth by its losses.

    Attributes:
        worth: By node count, in a unit that all claims of a look have in common;
            shape (largest size + 1,), 0 or more, entry 0 is 0.
        reason: Why, for people.
    """

    worth: NDArray[np.float64]
    reason: str


Answer: TypeAlias = "Claim | Rating | Standing"
"""A claim, a rating that needs no comparing, or why there is no claim."""


def ratings(
    contenders: Sequence[Contender], answers: Sequence[Answer], curves: Curves
) -> tuple[Rating, ...]:
    """Return a rating for each contender.

    Claims are divided by the *typical worth*: the median, over the trainers that
    claim, of what a node is worth on their smallest size. So a node is worth about
    1, as it is in speed-up, and a trainer without a claim counts by its speed-up: it
    gets what a middling one of the others gets. Its smallest size is a floor: without
    training nobody comes to tell a loss, and who never tells one is not starved.

    Args:
        contenders: The trainers.
        answers: What a priority says of each, in their order.
        curves: Makes the curves.

    Raises:
        MalformedProblemError: A contender does no work on its smallest size.
    """
    pairs = list(zip(contenders, answers, strict=True))
    unit = typical_worth(pairs)
    return tuple([_rating(one, answer, unit, curves) for one, answer in pairs])


def typical_worth(pairs: Sequence[tuple[Contender, Answer]]) -> float:
    """Return the median worth of a node; 1 where no claim is above 0."""
    found = [
        answer.worth.item(one.sizes[0]) / one.sizes[0]
        for one, answer in pairs
        if isinstance(answer, Claim)
    ]
    above_0 = [worth for worth in found if worth > 0]
    return median(above_0) if above_0 else 1.0


def _rating(one: Contender, answer: Answer, unit: float, curves: Curves) -> Rating:
    if isinstance(answer, Rating):
        return answer
    if isinstance(answer, Claim):
        curve = curves.custom(answer.worth / unit, one.sizes)
        return Rating(curve=curve, reason=answer.reason)
    return plain(one, answer, curves)


def plain(contender: Contender, standing: Standing, curves: Curves) -> Rating:
    """Return the rating by speed-up of a trainer that stands so."""
    curve = curves.speed_up(contender)
    if standing is Standing.DOUBTFUL:
        curve = up_to_smallest(contender, DOUBTFUL_BEYOND, curves)
    if standing is Standing.DIVERGING:
        curve = curves.weighted(curve, DIVERGING_WORTH)
    return Rating(
        curve=curve,
        floor=contender.sizes[0] if standing in _UNTOLD else 0,
        is_background=standing in {Standing.DIVERGING, Standing.PLATEAUED},
        reason=standing.value,
    )


def up_to_smallest(contender: Contender, beyond: float, curves: Curves) -> Curve:
    """Return the speed-up, of which only *beyond* counts above the smallest size."""
    worth = curves.speed_up(contender).value_per_s
    least = contender.sizes[0]
    less = worth.copy()
    less[least:] = worth[least] + beyond * (worth[least:] - worth[least])
    return curves.custom(less, contender.sizes)
