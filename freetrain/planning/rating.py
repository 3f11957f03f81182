"""Rate trainers by a priority, and make its ratings curves for the planner."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from milp.problem import custom, weighted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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
    """Return what *priority* says of the trainers in *inputs*.

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


# Floors and the background as curves: the planner knows neither

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
