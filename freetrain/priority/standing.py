"""How far a trainer's losses can be reckoned with."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.priority.interface import Contender
    from freetrain.quality.outlook import Outlook

FEWEST_POINTS = 4
"""Values told before an outlook is believed: one more than SLAQ's curves bend by."""

PLATEAU = 0.01
"""Quality that twice the work done must be expected to bring, to be learning."""


class Standing(StrEnum):
    """What a trainer's losses say of it; words for people."""

    LEARNING = "learning"
    YOUNG = "too young for an outlook, so it is tried on its smallest size"
    NO_LOSS = "no usable loss, so it counts by its speed-up"
    DIVERGING = "diverging, so it gets what others leave"
    PLATEAUED = "on a plateau, so it gets what others leave"


def standing(contender: Contender, t_fwd_s: float) -> Standing:
    """Return how *contender* stands.

    One that tells no loss is young until it has done a look-ahead's work on its
    smallest size. On a plateau is who is not expected to gain :data:`PLATEAU` by
    doing once more the work that it has done: a question without seconds or samples,
    as it has to suit trainings of minutes and of weeks.

    Args:
        contender: The trainer.
        t_fwd_s: [T_fwd] The planner's look-ahead, seconds.
    """
    outlook = contender.outlook
    if outlook is None:
        first = contender.samples_per_s[contender.sizes[0]] * t_fwd_s
        is_young = contender.done_samples < first
        return Standing.YOUNG if is_young else Standing.NO_LOSS
    if outlook.is_diverging:
        return Standing.DIVERGING
    if len(outlook.points) < FEWEST_POINTS:
        return Standing.YOUNG
    done = done_samples(contender, outlook)
    if quality_after(outlook, 2 * done) - quality_after(outlook, done) < PLATEAU:
        return Standing.PLATEAUED
    return Standing.LEARNING


def quality_after(outlook: Outlook, samples: float) -> float:
    """Return the quality expected after *samples* in all."""
    return outlook.quality(outlook.expected(samples).value)


def done_samples(contender: Contender, outlook: Outlook) -> float:
    """Return the work done as far as anybody told; predictions begin there."""
    return max(contender.done_samples, outlook.points[-1].samples)
