"""How far a trainer's losses can be reckoned with."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.priority.interface import Contender
    from freetrain.quality.outlook import Outlook

FEWEST_POINTS = 4
"""Values told before an outlook is believed: as many as SLAQ's curves have unknowns."""

PLATEAU = 0.01
"""Quality that twice the work done must be expected to bring, to be learning."""

FEWEST_FOR_PLATEAU = 10
LEAST_FOR_PLATEAU = 0.5
"""Values told, and share of the whole training done, before a plateau is believed.

Who is put in the background may tell nothing more for long, so that a mistake there is
not found out. With few values, back-testing has nothing to hold against "no further
gain"; and early on many a curve pauses."""


class Standing(StrEnum):
    """What a trainer's losses say of it; words for people."""

    LEARNING = "learning"
    NO_LOSS = "no usable loss, so it has its smallest size, and counts by its speed-up"
    NO_AIM = (
        "no target given, and no end known, so it has its smallest size, and counts "
        "by its speed-up"
    )
    DIVERGING = "diverging, so it gets what others leave"
    DOUBTFUL = "seems on a plateau, so it has its smallest size to show otherwise"
    PLATEAUED = "on a plateau, so it gets what others leave"


def standing(contender: Contender) -> Standing:
    """Return how *contender* stands.

    Who has told too little has no usable loss yet. On a plateau is who is not
    expected to gain :data:`PLATEAU` by doing once more the work that it has done: a
    question without seconds or samples, as it has to suit trainings of minutes and
    of weeks.
    """
    outlook = contender.outlook
    if outlook is None:
        return Standing.NO_LOSS
    if outlook.is_diverging:
        return Standing.DIVERGING
    if len(outlook.points) < FEWEST_POINTS:
        return Standing.NO_LOSS
    done = done_samples(contender, outlook)
    if quality_after(outlook, 2 * done) - quality_after(outlook, done) < PLATEAU:
        is_sure = len(outlook.points) >= FEWEST_FOR_PLATEAU
        is_late = done >= LEAST_FOR_PLATEAU * (contender.total_samples or 0.0)
        return Standing.PLATEAUED if is_sure and is_late else Standing.DOUBTFUL
    return Standing.LEARNING


def quality_after(outlook: Outlook, samples: float) -> float:
    """Return the quality expected after *samples* in all."""
    return outlook.quality(outlook.expected(samples).value)


def done_samples(contender: Contender, outlook: Outlook) -> float:
    """Return the work done as far as anybody told; predictions begin there."""
    return max(contender.done_samples, outlook.points[-1].samples)
