"""Who holds which node; a move costs time in proportion to what moves."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.runs import Run

# One insertion into a sorted list costs about 0.5 µs, sorting two runs into one
# or filtering about 10 ns a node of the whole list.
_FEW = 8


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

    def holder(self, node: int) -> Run | None:
        """Return who holds *node*; None where it is free or not idle."""
        return self._holder[node]

    def join(self, nodes: Sequence[int], now_s: float) -> None:
        """Let *nodes* be idle from now on."""
        self.idle_nodes += len(nodes)
        for node in nodes:
            self.since_s[node] = now_s
        self._put(nodes)

    def leave(self, nodes: Sequence[int]) -> set[Run]:
        """Take *nodes* away and return the runs that held any of them."""
        self.idle_nodes -= len(nodes)
        hit, unheld = set(), []
        for node in nodes:
            holder = self._holder[node]
            if holder is None:
                unheld.append(node)
            else:
                self._holder[node] = None
                holder.held.remove(node)
                hit.add(holder)
        self._pull(unheld)
        return hit

    def drop(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* give *nodes* up.

        Raises:
            ValueError: It does not hold one of them.
        """
        for node in nodes:
            if self._holder[node] is not run:
                raise ValueError(f"{run.spec.name} drops node {node}, not its own")
            self._holder[node] = None
        run.held.difference_update(nodes)
        self._put(nodes)

    def take(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* have *nodes*.

        Raises:
            ValueError: One of them is not free.
        """
        self._pull(nodes)
        for node in nodes:
            self._holder[node] = run
        run.held.update(nodes)

    def _put(self, nodes: Sequence[int]) -> None:
        if len(nodes) > _FEW:
            self.free.extend(nodes)
            self.free.sort()
            return
        for node in nodes:
            insort(self.free, node)

    def _pull(self, nodes: Sequence[int]) -> None:
        """Remove *nodes* from the free ones.

        Raises:
            ValueError: One of them is not free.
        """
        if len(nodes) > _FEW:
            self._pull_many(nodes)
            return
        for node in nodes:
            place = bisect_left(self.free, node)
            if place == len(self.free) or self.free[place] != node:
                raise ValueError(f"node {node} is taken, which is not free")
            del self.free[place]

    def _pull_many(self, nodes: Sequence[int]) -> None:
        if self.free[-len(nodes) :] == list(nodes):
            del self.free[-len(nodes) :]
            return
        pulled = set(nodes)
        kept = [node for node in self.free if node not in pulled]
        if len(kept) + len(nodes) != len(self.free):
            missing = sorted(pulled - set(self.free))
            raise ValueError(f"nodes {missing} are taken, which are not free")
        self.free[:] = kept
