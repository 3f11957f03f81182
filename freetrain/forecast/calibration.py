"""Corrects probabilities by what came of those said before."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from freetrain.forecast.kept import amounts, amounts_above_0

if TYPE_CHECKING:
    from collections.abc import Mapping

_BINS = 20
_SAID = 150.0
"""What every bin is believed to have seen come out as said, in nodes' weight."""

_KEPT = 0.9999
"""Of what was learned, at each lesson: half is forgotten after 6,931 of them, two days
of the first 1,024 nodes of Summit, as machines change their ways."""


class Calibration:
    """A map from probabilities as said to probabilities as they came; never falling.

    It goes through 0 and 1, and straight between the means of its bins, so that a
    survival that falls with its horizon falls still.

    Args:
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        middles = [(place + 0.5) / _BINS for place in range(_BINS)]
        self._said = [_SAID * middle for middle in middles]
        self._came = list(self._said)
        self._count = [_SAID] * _BINS
        self._curve: tuple[list[float], list[float]] | None = None
        if state is not None:
            self._said = amounts(state["said"], _BINS)
            self._came = amounts(state["came"], _BINS)
            self._count = amounts_above_0(state["count"], _BINS)

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        sums = {"said": self._said, "came": self._came, "count": self._count}
        return {name: list(values) for name, values in sums.items()}

    def learn(self, said: float, *, came: int, of: int) -> None:
        """Take note that *came* of *of* came true that were given *said* each.

        They fare alike, so that they weigh less than as many that do not: the root
        of their number.
        """
        for sums in (self._said, self._came, self._count):
            sums[:] = [_KEPT * value for value in sums]
        place, weight = min(int(said * _BINS), _BINS - 1), math.sqrt(of)
        self._said[place] += said * weight
        self._came[place] += came / of * weight
        self._count[place] += weight
        self._curve = None

    def of(self, said: float) -> float:
        """Return what *said* should have been."""
        if self._curve is None:
            self._curve = self._corners()
        xs, ys = self._curve
        right = min(bisect_right(xs, said), len(xs) - 1)
        left = right - 1
        weight = (said - xs[left]) / (xs[right] - xs[left])
        return min(1.0, max(0.0, ys[left] + weight * (ys[right] - ys[left])))

    def _corners(self) -> tuple[list[float], list[float]]:
        """Pool adjacent bins until they ascend (isotonic regression)."""
        pools: list[tuple[float, float, float]] = []
        for pool in zip(self._said, self._came, self._count, strict=True):
            merged = pool
            while pools and pools[-1][1] / pools[-1][2] >= merged[1] / merged[2]:
                last = pools.pop()
                said, came, count = (a + b for a, b in zip(last, merged, strict=True))
                merged = said, came, count
            pools.append(merged)
        xs = [0.0, *(said / count for said, _, count in pools), 1.0]
        ys = [0.0, *(came / count for _, came, count in pools), 1.0]
        kept = [0, *(b for a, b in pairwise(range(len(xs))) if xs[b] > xs[a])]
        return [xs[k] for k in kept], [ys[k] for k in kept]
