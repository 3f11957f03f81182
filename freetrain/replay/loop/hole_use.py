"""How much of each hole was used, and of the long ones together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LONG_S = 600.0
"""Holes of ten minutes and more are looked at apart."""


@dataclass(frozen=True, slots=True)
class HoleFigures:
    """Holes and their use; docs/replay.md defines each.

    Attributes:
        holes: How many there were.
        node_s: Their node-seconds.
        long_holes: Those of 600 s and more.
        long_node_s: Their node-seconds.
        long_used_node_s: Node-seconds of these that a trainer held.
    """

    holes: int
    node_s: float
    long_holes: int
    long_node_s: float
    long_used_node_s: float

    @property
    def long_use(self) -> float | None:
        """The share of long holes that was used; None where there were none."""
        return self.long_used_node_s / self.long_node_s if self.long_node_s else None


class HoleUse:
    """Counts, node by node, how long it is idle and how long a trainer holds it."""

    def __init__(self, nodes: int) -> None:
        self._since_s = np.zeros(nodes)
        self._used_s = np.zeros(nodes)
        self._idle = np.zeros(nodes, np.bool_)
        self._used = np.zeros(nodes, np.bool_)
        self._at_s = 0.0
        self._holes = 0
        self._long_holes = 0
        self._node_s = 0.0
        self._long_node_s = 0.0
        self._long_used_node_s = 0.0

    def until(self, now_s: float) -> None:
        """Count the time until *now_s*."""
        if now_s > self._at_s:
            self._used_s[self._used] += now_s - self._at_s
            self._at_s = now_s

    def moved(self, joined: Sequence[int], left: Sequence[int]) -> None:
        """Close the holes of *left* and open those of *joined*, now."""
        if left:
            self._close(np.asarray(left))
        if joined:
            opened = np.asarray(joined)
            self._since_s[opened] = self._at_s
            self._used_s[opened] = 0.0
            self._idle[opened] = True

    def free(self, nodes: Sequence[int]) -> None:
        """Let all idle nodes but *nodes* be used from now on."""
        self._used = self._idle.copy()
        self._used[np.asarray(nodes, np.intp)] = False

    def held(self, nodes: Sequence[int]) -> None:
        """Let *nodes* be used from now on."""
        self._used[np.asarray(nodes, np.intp)] = True

    def given_up(self, nodes: Sequence[int]) -> None:
        """Let *nodes* be idle and unused from now on."""
        self._used[np.asarray(nodes, np.intp)] = False

    def figures(self, end_s: float) -> HoleFigures:
        """Close every hole at *end_s* and return the sums."""
        self.until(end_s)
        self._close(np.flatnonzero(self._idle))
        return HoleFigures(
            self._holes,
            self._node_s,
            self._long_holes,
            self._long_node_s,
            self._long_used_node_s,
        )

    def _close(self, nodes: NDArray[np.intp]) -> None:
        length_s = self._at_s - self._since_s[nodes]
        is_long = length_s >= LONG_S
        self._holes += int((length_s > 0).sum())
        self._node_s += float(length_s.sum())
        self._long_holes += int(is_long.sum())
        self._long_node_s += float(length_s[is_long].sum())
        self._long_used_node_s += float(self._used_s[nodes][is_long].sum())
        self._idle[nodes] = False
        self._used[nodes] = False
