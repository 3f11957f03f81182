"""What trainers are worth to the planner, as a priority says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.priority.base import planned_curves

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from freetrain.priority.base import (
        Contender,
        Memory,
        Priority,
        Rating,
        RatingInputs,
    )
    from milp.problem import Curve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratings:
    """What a priority says of trainers, each by its name.

    Attributes:
        priority: The priority's name.
        contenders: The trainers, as they were rated.
        curves: Their worth to the planner, by node count.
        reasons: Why, for people.
        background: Names of trainers that get only what the others leave; none where
            that is worked into the curves.
        memory: What the priority is to be given next time.
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
    """Return what *priority* says of the trainers in *look*.

    Args:
        inputs: The trainers at this moment.
        priority: What rates.
        memory: What the last rating returned; empty at the first.
        background: Names of trainers that are in the background whatever their
            rating, where the background is planned after the others, as in ticks: it
            then needs no lower curves, and keeps its order. None where all trainers
            are planned together, as in replays: curves then say who comes last.

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
