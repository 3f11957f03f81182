"""The leases that the broker holds, and what it may lease."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, KeysView, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.loop.settings import LoopSettings


class PlannedStart(NamedTuple):
    """A start that the scheduler plans, as the broker sees it.

    Attributes:
        start_s: When, seconds of the replay; in the past where it is overdue.
        job: Whose.
        nodes: On which nodes, one boolean a node.
    """

    start_s: float
    job: int
    nodes: NDArray[np.bool_]


class Leases:
    """One lease a node, each with the time at which it ends by itself.

    A lease ends with its time limit, or the margin before the start that was planned
    on its node when the broker looked last: each look tells the agents anew.

    Attributes:
        claimed: Nodes that waiting jobs could start on now; nothing for us.
        booked_s: When nodes are booked for jobs that must wait for others, by node,
            seconds of the replay; a lease that begins now ends before that.
    """

    def __init__(self, nodes: int, settings: LoopSettings) -> None:
        self.claimed: frozenset[int] = frozenset()
        self.booked_s: Mapping[int, float] = {}
        self._settings = settings
        self._planned_s = [math.inf] * nodes
        self._planned_by = [0] * nodes
        self._latest_s = [math.inf] * nodes
        self._limit_s: dict[int, float] = {}
        self._next_end_s = math.inf

    @property
    def nodes(self) -> KeysView[int]:
        """The nodes that are leased."""
        return self._limit_s.keys()

    @property
    def next_end_s(self) -> float:
        """When the next lease ends by itself, ``inf`` for never."""
        return self._next_end_s

    def see(self, planned: Iterable[PlannedStart]) -> None:
        """Take note of what is planned now; leases end sooner where they must."""
        nodes = len(self._planned_s)
        start_s, by = np.full(nodes, math.inf), np.zeros(nodes, np.int64)
        for one in planned:
            sooner = one.nodes & (start_s > one.start_s)
            start_s[sooner] = one.start_s
            by[sooner] = one.job
        self._planned_s, self._planned_by = start_s.tolist(), by.tolist()
        if self._settings.margin_s is not None:
            self._latest_s = (start_s - self._settings.margin_s).tolist()
        self._look()

    def planned(self, nodes: Iterable[int]) -> dict[int, tuple[float, int]]:
        """Return when which job is planned to take each of *nodes*, if any is."""
        return {
            node: (self._planned_s[node], self._planned_by[node])
            for node in nodes
            if self._planned_s[node] < math.inf
        }

    def usable_until_s(self, node: int) -> float:
        """Return when the lease of *node* ends, or would if it were taken now."""
        limit_s = self._limit_s.get(node)
        end_s = self._booked_s(node) if limit_s is None else limit_s
        return min(end_s, self._latest_s[node])

    def open(self, nodes: Iterable[int], now_s: float) -> list[int]:
        """Return those of *nodes* whose hole is worth a lease."""
        least_s = now_s + self._settings.shortest_s
        return [
            node
            for node in nodes
            if self.usable_until_s(node) >= least_s and node not in self.claimed
        ]

    def limit(self, nodes: Iterable[int], until_s: float) -> None:
        """Let the leases of *nodes* end at *until_s*, whatever is planned later."""
        self._limit_s.update(dict.fromkeys(nodes, until_s))

    def keep(self, held: Iterable[int], now_s: float) -> None:
        """Lease what is *held*, and nothing else, from now on."""
        longest_s, before = now_s + self._settings.longest_s, self._limit_s
        self._limit_s = {
            node: before.get(node, min(longest_s, self._booked_s(node)))
            for node in held
        }
        self._look()

    def drop(self, nodes: Sequence[int]) -> None:
        """Let the leases of *nodes* end now."""
        if self._limit_s.keys().isdisjoint(nodes):
            return
        for node in nodes:
            self._limit_s.pop(node, None)
        self._look()

    def due(self, now_s: float) -> set[int]:
        """Return the nodes whose leases end by *now_s*."""
        if now_s < self._next_end_s:
            return set()
        return {node for node in self._limit_s if self.usable_until_s(node) <= now_s}

    def _booked_s(self, node: int) -> float:
        """Return when a lease of *node* that begins now should have ended."""
        return self.booked_s.get(node, math.inf) - (self._settings.margin_s or 0.0)

    def _look(self) -> None:
        self._next_end_s = min(
            map(self.usable_until_s, self._limit_s), default=math.inf
        )
