"""Affinity in memory that is bounded, however many nodes there are.

Counts of all pairs take four bytes an ordered pair: 1.6 GB for 20,000 nodes, and 3.2
while they grow. From some size on the latest departures are kept instead, a bit a node:
10 MB for as many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.forecast.affinity import Affinity, affinity_of
from freetrain.forecast.bits import bits_of, packed
from freetrain.forecast.recent import KEPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


MOST_COUNTED = 8_000
"""Nodes whose pairs are all counted, in 256 MB."""


class BoundedAffinity:
    """Counts of all pairs for as long as nodes are few, the latest departures after.

    It changes over where it first hears of a node of a higher number, which is at the
    first event of a large machine that is idle in part; what was counted until then is
    forgotten.

    Args:
        most: Nodes whose pairs are all counted.
    """

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self._most = most
        self._pairs: Affinity | LatestAffinity = Affinity()

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        self._reach(int(idle.max()))
        self._pairs.saw(left, idle)

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*; as ``Affinity`` has it."""
        return affinity_of(*self.counts(nodes))

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what ``affinity_of`` takes, by pair of *nodes*."""
        self._reach(max(nodes, default=-1))
        return self._pairs.counts(nodes)

    def _reach(self, node: int) -> None:
        if node >= self._most and isinstance(self._pairs, Affinity):
            self._pairs = LatestAffinity()


class LatestAffinity:
    """The affinity S of pairs, counted over the last departures.

    Unlike ``RecentAffinity`` it keeps them in one table, out of which a few nodes are
    picked a thousand times as often as in a tick.

    Args:
        kept: How many departures.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._left = np.zeros((kept, 0), dtype=np.uint8)
        self._idle = np.zeros((kept, 0), dtype=np.uint8)
        self._seen = 0

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        self._reach(int(idle.max()))
        row = self._seen % len(self._left)
        self._seen += 1
        for table, nodes in ((self._left, left), (self._idle, idle)):
            table[row] = packed(nodes, 8 * table.shape[1])

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what ``affinity_of`` takes, by pair of *nodes*."""
        self._reach(max(nodes, default=0))
        places = np.asarray(nodes, dtype=np.intp)
        left = bits_of(self._left[: self._seen], places)
        idle = bits_of(self._idle[: self._seen], places)
        return left.T @ idle, left.T @ left

    def _reach(self, node: int) -> None:
        """Make room for nodes of a number up to *node*, and for some more."""
        more = node // 8 + 1 - self._left.shape[1]
        if more > 0:
            wider = (0, 0), (0, max(more, self._left.shape[1] // 4))
            self._left, self._idle = (
                np.pad(self._left, wider),
                np.pad(self._idle, wider),
            )
