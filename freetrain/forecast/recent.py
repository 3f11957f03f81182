"""Affinity from the latest departures alone, for where it must be kept between ticks.

Counts of all pairs of 10,000 nodes take 400 MB. The departures that they were counted
from are a bit a node and event: 2,048 of them take 5 MB, a tick adds one at most, and
the counts of any few nodes can be had from them at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.forecast.affinity import affinity_of
from freetrain.forecast.bits import bits_of, packed
from freetrain.forecast.departure import Departure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

KEPT = 2_048
"""Departures; at one a minute a day and a half, at Summit's rate four days."""


class RecentAffinity:
    """The affinity S of pairs, counted over the last 2,048 departures.

    Args:
        load: Returns departures seen before, the oldest first; asked for once, and
            only when an affinity is.
    """

    def __init__(self, load: Callable[[], Iterable[Departure]] = tuple) -> None:
        self._load = load
        self._seen: list[Departure] | None = None
        self.fresh: list[Departure] = []
        """Departures that were not loaded, the oldest first."""

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        nodes = int(idle.max()) + 1
        gone = np.asarray(left, dtype=np.intp)
        self.fresh.append(
            Departure(packed(gone, nodes).tobytes(), packed(idle, nodes).tobytes())
        )

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*; as ``Affinity`` has it."""
        return affinity_of(*self.counts(nodes))

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what ``affinity_of`` takes, by pair of *nodes*."""
        if self._seen is None:
            self._seen = list(self._load())
        events = [*self._seen, *self.fresh][-KEPT:]
        places = np.asarray(nodes, dtype=np.intp)
        left = _columns([event.left for event in events], places)
        idle = _columns([event.idle for event in events], places)
        return left.T @ idle, left.T @ left


def _columns(rows: Sequence[bytes], nodes: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the bits of *nodes*, shape (rows, nodes); whoever was unknown has 0."""
    most = max(map(len, rows), default=0)
    width = max(most, int(nodes.max(initial=0)) // 8 + 1)
    table = np.frombuffer(b"".join(row.ljust(width, b"\0") for row in rows), np.uint8)
    return bits_of(table.reshape(len(rows), width), nodes)
