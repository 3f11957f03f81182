"""Who holds which node; every move costs time in proportion to what moves."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.replay.runs import Run


class Pool:
    """The idle nodes of a replay.

    Attributes:
        free: Idle nodes that no trainer holds, by index, ascending.
        since_s: By node: when it last became idle, seconds from the start of
            the replay; meaningless for nodes that are not idle.
        idle_nodes: How many nodes are idle, held or free.
    """

    def __init__(self, nodes: int) -> None:
        self.free: list[int] = []
        self.since_s = [0.0] * nodes
        self.idle_nodes = 0
        self._holder: list[Run | None] = [None] * nodes

    @property
    def used_nodes(self) -> int:
        """How many nodes trainers hold."""
        return self.idle_nodes - len(self.free)

    def join(self, nodes: Iterable[int], now_s: float) -> None:
        """Let *nodes* be idle from now on."""
        for node in nodes:
            insort(self.free, node)
            self.since_s[node] = now_s
            self.idle_nodes += 1

    def leave(self, nodes: Iterable[int]) -> set[Run]:
        """Take *nodes* away and return the runs that held any of them."""
        hit = set()
        for node in nodes:
            self.idle_nodes -= 1
            holder = self._holder[node]
            if holder is None:
                self._unfree(node)
            else:
                self._holder[node] = None
                holder.held.remove(node)
                hit.add(holder)
        return hit

    def drop(self, run: Run, nodes: Iterable[int]) -> None:
        """Let *run* give *nodes* up.

        Raises:
            ValueError: It does not hold one of them.
        """
        for node in nodes:
            if self._holder[node] is not run:
                raise ValueError(f"{run.spec.name} drops node {node}, not its own")
            self._holder[node] = None
            run.held.remove(node)
            insort(self.free, node)

    def take(self, run: Run, nodes: Iterable[int]) -> None:
        """Let *run* have *nodes*.

        Raises:
            ValueError: One of them is not free.
        """
        for node in nodes:
            self._unfree(node, wanted_by=run)
            self._holder[node] = run
            run.held.add(node)

    def _unfree(self, node: int, wanted_by: Run | None = None) -> None:
        place = bisect_left(self.free, node)
        if place == len(self.free) or self.free[place] != node:
            who = wanted_by.spec.name if wanted_by else "the machine"
            raise ValueError(f"{who} takes node {node}, which is not free")
        del self.free[place]
