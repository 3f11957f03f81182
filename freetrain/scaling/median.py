"""Weighted medians: one absurd value never moves them far.

In plain Python: they are taken of a handful of values, hundreds of times a look, and
NumPy takes 70 µs for what takes 5 µs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NORMAL_MAD = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value with half of the weight on either side.

    Between two values it is interpolated, so that two of equal weight meet halfway.

    Args:
        values: At least one, finite.
        weights: One for each value, 0 or more, not all of them 0.
    """
    half = sum(weights) / 2
    below, at_below, passed = min(values), 0.0, 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        middle = passed + weight / 2
        if middle >= half:
            if passed <= 0 or middle <= at_below:
                return value
            return below + (value - below) * (half - at_below) / (middle - at_below)
        below, at_below, passed = value, middle, passed + weight
    return below


def spread(values: Sequence[float], weights: Sequence[float], centre: float) -> float:
    """Return a robust standard deviation of *values* about *centre*."""
    return NORMAL_MAD * weighted_median([abs(v - centre) for v in values], weights)
