"""Ratings as the planner takes them: it knows curves, and neither floors nor ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milp.curve import custom, weighted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.priority.interface import Rating
    from milp.problem import Curve

BACKGROUND = 1e-4
"""What a node is worth at most to a trainer in the background, over what it is worth
at most to one that is not: so it gets what others have next to no use for."""

FLOOR = 4.0
"""What a node below a floor is worth, over what one is worth at most above. Above 1 it
comes first; much above it, a trainer that holds its floor would never be changed again,
because the planner counts a change in seconds of the present worth."""


LEFTOVER = 1e-6
"""What a node is worth at least to who wants any, over what one is worth at most:
idle nodes go also to a trainer that gains nothing on so few. One that never runs never
shows that the expectation was wrong. A curve of zeros wants none."""


def planned_curves(ratings: Sequence[Rating]) -> tuple[Curve, ...]:
    """Return the curve of each of *ratings*, floors and background worked in.

    A rating that has neither, and some worth at every size, keeps its very curve.
    """
    dearest = _dearest(ratings, is_background=False)
    behind = _dearest(ratings, is_background=True)
    share = BACKGROUND * dearest / behind if dearest * behind else 1.0
    planned = [_planned(rating, dearest, share) for rating in ratings]
    return tuple(_never_for_nothing(curve, dearest or 1.0) for curve in planned)


def _dearest(ratings: Sequence[Rating], *, is_background: bool) -> float:
    """Return the most that a node is worth to one of those in one of the ranks."""
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
    """Return *curve*, raised to the least that nodes are worth to anybody."""
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
