"""Which nodes leave together, from how often they did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SAID_TOGETHER = 0.6
SAID_EVENTS = 2
"""What a pair is believed to have done before it was seen: less than leaving together
every other time, so that strangers are not put into one cluster (facts of six days of
Summit: within a group 0.04 of pairs of low affinity leave together, 0.5 of high)."""


_LEFT_BITS = 16
_LEFT, _TOGETHER = 1 << _LEFT_BITS, 1
"""What an event adds to the number of a pair: the first left, and both did. To pick
pairs out of a large table takes longest, so that they share one number."""
_MOST = (1 << _LEFT_BITS) - 1
_HALVES = np.uint32((_MOST >> 1) * (_LEFT + _TOGETHER))
"""What is left of both counts of a number when it is shifted by one bit."""


class Affinity:
    """Counts, for every pair of nodes, departures of either and of both.

    Eight bytes a pair of nodes ever seen: 90 MB for 4,734 nodes. Once a node has left
    tens of thousands of times all counts are halved, as no more fit.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, 0), dtype=np.uint32)
        self._room = _MOST  # so many events are certain to fit yet

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        self._reach(int(idle.max()) + 1)
        if not self._room:
            self._make_room()
        self._room -= 1
        # Adding to whole rows takes less than picking out of them who was idle.
        once = np.zeros(len(self._counts), dtype=np.uint32)
        once[idle] = _LEFT
        once[np.asarray(left, dtype=np.intp)] = _LEFT + _TOGETHER
        for node in left:
            # Into the row itself: ``self._counts[node] += once`` copies it back, too.
            row = self._counts[node]
            row += once

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*.

        ::

            S = (0.6 + times left together) / (2 + events in which either left)

        where both were idle at the events that count. Symmetric, above 0, below 1.
        """
        return affinity_of(*self.counts(nodes))

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what ``affinity_of`` takes, by pair of *nodes*."""
        self._reach(max(nodes, default=-1) + 1)
        places = np.asarray(nodes, dtype=np.intp)
        counts = self._counts.take(places, axis=0).take(places, axis=1)
        return counts >> _LEFT_BITS, counts & (_LEFT - 1)

    def _make_room(self) -> None:
        """Halve all counts where one is near the most; all, as pairs have two."""
        most = int(self._counts.diagonal().max()) >> _LEFT_BITS
        if most > _MOST // 2:
            self._counts >>= 1
            self._counts &= _HALVES
            most //= 2
        self._room = _MOST - most

    def _reach(self, nodes: int) -> None:
        known = len(self._counts)
        if nodes <= known:
            return
        more = max(nodes, known * 5 // 4) - known
        self._counts = np.pad(self._counts, (0, more))


def affinity_of(
    left: NDArray[Any],
    together: NDArray[Any],
    *,
    said: float | NDArray[np.float64] = SAID_TOGETHER,
) -> NDArray[np.float64]:
    """Return the affinity S of pairs from their counts.

    Args:
        left: Events at which the first left while the second was idle, by pair.
        together: Events at which both left, by pair.
        said: What pairs are believed to have done together before, by pair.
    """
    # As integers as long as may be: large groups take a fifth of the time.
    events = left + left.T
    events -= together
    events += SAID_EVENTS
    affinity: NDArray[np.float64] = np.add(together, said, dtype=np.float64)
    affinity /= events
    return affinity
