"""Which nodes leave together, from how often they did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SAID_TOGETHER = 0.6
SAID_EVENTS = 2.0
"""What a pair is believed to have done before it was seen: less than leaving together
every other time, so that strangers are not put into one cluster (facts of six days of
Summit: within a group 0.04 of pairs of low affinity leave together, 0.5 of high)."""


_LEFT, _TOGETHER = 1 << 16, 1
"""What an event adds to the number of a pair: the first left, and both did. To pick
pairs out of a large table takes longest, so that they share one number."""


class Affinity:
    """Counts, for every pair of nodes, departures of either and of both.

    Eight bytes a pair of nodes ever seen: 90 MB for 4,734 nodes.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, 0), dtype=np.uint32)

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        self._reach(int(idle.max()) + 1)
        # Adding to whole rows takes less than picking out of them who was idle.
        once = np.zeros(len(self._counts), dtype=np.uint32)
        once[idle] = _LEFT
        once[np.asarray(left, dtype=np.intp)] += _TOGETHER
        for node in left:
            self._counts[node] += once

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
        pairs = places[:, None] * len(self._counts) + places
        counts = self._counts.take(pairs)
        return counts // _LEFT, counts % _LEFT

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
    both, either = together.astype(np.float64), left.astype(np.float64)
    events = either + either.T
    events -= both
    events += SAID_EVENTS
    both += said
    both /= events
    return both
