"""Corrects probabilities by what came of those said before."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from freetrain.forecast.kept import amounts, amounts_above_0, check_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST, _STEP = 7.0, 0.5
_ODDS = tuple(-_MOST + _STEP * place for place in range(29))
"""Log-odds of the knots. Much of what is said is near 0, where nodes stand at the end
of a line that leaves first, or near 1, where machines are nearly empty: there a step of
probability, however fine, holds what fares quite differently."""

_KNOTS = tuple(1.0 / (1.0 + math.exp(-odds)) for odds in _ODDS)

_SAID = 50.0
"""What every knot is believed to have seen come out as said, in nodes' weight."""

_KEPT = 0.9999
"""Of what was learned, at each lesson: half is forgotten after 6,931 of them, two days
of the first 1,024 nodes of Summit, as machines change their ways."""

_MOST_FRESH = 1e6
_LEAST = 1.0
"""A knot never counts less, so that what nobody said for months stays a number."""


class Calibration:
    """A map from probabilities as said to probabilities as they came; never falling.

    It goes through 0 and 1, and straight between the means of its knots, so that a
    survival that falls with its horizon falls still.

    Args:
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._said = [_SAID * knot for knot in _KNOTS]
        self._came = list(self._said)
        self._count = [_SAID] * len(_KNOTS)
        # Lessons weigh more and more, instead of all that was learned less and less.
        self._fresh = 1.0
        self._curve: tuple[list[float], list[float]] | None = None
        if state is not None:
            self._said = amounts(state["said"], len(_KNOTS))
            self._came = amounts(state["came"], len(_KNOTS))
            self._count = amounts_above_0(state["count"], len(_KNOTS))
            (self._fresh,) = amounts_above_0([state["fresh"]], 1)
            check_shares(self._said, self._count)
            check_shares(self._came, self._count)

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        sums = {"said": self._said, "came": self._came, "count": self._count}
        return {name: list(values) for name, values in sums.items()} | {
            "fresh": self._fresh
        }

    def learn(self, said: float, *, came: int, of: int) -> None:
        """Take note that *came* of *of* came true that were given *said* each.

        They fare alike, so that they weigh less than as many that do not: the root
        of their number. The knots on both sides learn, the nearer one more.
        """
        self._fresh /= _KEPT
        place, beyond = _between(said)
        weight = self._fresh * math.sqrt(of)
        self._add(place, weight * (1.0 - beyond), said, came / of)
        self._add(place + 1, weight * beyond, said, came / of)
        self._curve = None
        if self._fresh > _MOST_FRESH:
            self._scale_down()

    def of(self, said: float) -> float:
        """Return what *said* should have been."""
        if self._curve is None:
            self._curve = self._corners()
        xs, ys = self._curve
        right = min(bisect_right(xs, said), len(xs) - 1)
        left = right - 1
        weight = (said - xs[left]) / (xs[right] - xs[left])
        return min(1.0, max(0.0, ys[left] + weight * (ys[right] - ys[left])))

    def _add(self, place: int, weight: float, said: float, came: float) -> None:
        self._said[place] += said * weight
        self._came[place] += came * weight
        self._count[place] += weight

    def _scale_down(self) -> None:
        """Let the next lesson weigh 1 again, before numbers grow too large."""
        for place, count in enumerate(self._count):
            scale = max(count / self._fresh, _LEAST) / count
            for sums in (self._said, self._came, self._count):
                sums[place] *= scale
        self._fresh = 1.0

    def _corners(self) -> tuple[list[float], list[float]]:
        """Pool adjacent knots until they ascend (isotonic regression)."""
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


def _between(said: float) -> tuple[int, float]:
    """Return the knot below *said*, and how far it is from there to the next, 0 to 1.

    What is below the first knot or above the last counts as that one.
    """
    if said <= _KNOTS[0]:
        return 0, 0.0
    if said >= _KNOTS[-1]:
        return len(_KNOTS) - 2, 1.0
    steps = (math.log(said / (1.0 - said)) + _MOST) / _STEP
    place = min(int(steps), len(_KNOTS) - 2)
    return place, steps - place
