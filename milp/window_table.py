"""All seats and the free nodes of a plan under search."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from milp.window import Holding, Stay, Window
    from milp.window_chances import Chances

_Rank: TypeAlias = tuple[int, float, int]
"""Of a class that is free: nodes, life, number."""

_FEW = 3
"""Classes that are looked at sooner than compared."""


class Table:
    """A plan under search, at first what is held now.

    Attributes:
        chances: What is expected.
        seats: By trainer; those that did not move are shared with other tables.
        free: Nodes that nobody has, by class; none of them 0.
        moved: Trainers whose seats moved.
    """

    def __init__(self, window: Window, chances: Chances) -> None:
        self.chances = chances
        self.free = dict(window.free)
        self.seats = list(chances.seats)
        self.moved: set[int] = set()
        self._alike: dict[Stay | int, list[tuple[int, int]]] = {}
        self._turns: dict[int, int] = {}
        self._turn = count()

    @property
    def value(self) -> float:
        """What the plan gains."""
        return sum([seat.value for seat in self.seats])

    def holdings(self) -> tuple[Holding, ...]:
        """Return nodes by trainer and class; equal where everybody has the same."""
        return tuple([seat.mine for seat in self.seats])

    def offers(self) -> Mapping[int, int]:
        """Return free nodes by class; of classes that are alike the first alone.

        Alike are those of equal chances that are free altogether, now and in the plan:
        whoever gains by one gains as much by another. Strangers are many such: a search
        asks after each move, and finds them in no time once they are told apart.
        """
        free = self.free
        if len(free) <= _FEW:
            return free
        if not self._alike:
            # Which of them is the first stays so, as in the order of ``free``.
            self._turns = dict(zip(free, self._turn, strict=False))
            for k, turn in self._turns.items():
                self._alike.setdefault(self._kind(k, free[k]), []).append((turn, k))
        firsts = sorted([alike[0] for alike in self._alike.values()])
        return {k: free[k] for _, k in firsts}

    def move(self, place: int, k: int, more: int) -> None:
        """Let trainer *place* take *more* free nodes of class *k*, or give some."""
        if place not in self.moved:
            self.moved.add(place)
            self.seats[place] = self.seats[place].copy()
        self.seats[place].move(k, more)
        before = self.free.get(k, 0)
        left = before - more
        if left:
            self.free[k] = left
        else:
            del self.free[k]
        if self._alike:
            self._tell_apart(k, before, left)

    def _tell_apart(self, k: int, before: int, left: int) -> None:
        """Keep up who is alike, now that *left* nodes of class *k* are free."""
        if before:
            kind = self._kind(k, before)
            alike = self._alike[kind]
            del alike[bisect_left(alike, (self._turns[k], k))]
            if not alike:
                del self._alike[kind]
        else:
            self._turns[k] = next(self._turn)
        if left:
            alike = self._alike.setdefault(self._kind(k, left), [])
            insort(alike, (self._turns[k], k))

    def _kind(self, k: int, nodes: int) -> Stay | int:
        """Return what those share who are alike, of whom *nodes* are free."""
        stay = self.chances.untouched.get(k)
        return k if stay is None or nodes < stay.nodes else stay

    def settle(self) -> None:
        """Let trainers that hold what is not a size fall back to the next below."""
        for place, seat in enumerate(self.seats):
            if seat.value == -math.inf:
                self.shed(place, seat.nodes - seat.fallback())

    def reach(self, counts: Sequence[int]) -> None:
        """Give each trainer as many nodes as *counts* says, whole classes first."""
        for place, nodes in enumerate(counts):
            surplus = self.seats[place].nodes - nodes
            if surplus > 0:
                self.shed(place, surplus)
        pairs = enumerate(zip(counts, self.seats, strict=True))
        short = [(n - seat.nodes, -j) for j, (n, seat) in pairs if n > seat.nodes]
        if not short:
            return
        expected = self.chances.expected
        ranks = sorted([(n, expected[k][0], k) for k, n in self.free.items()])
        for wanted, place in sorted(short, reverse=True):
            self._fill(-place, wanted, ranks)

    def shed(self, place: int, surplus: int) -> None:
        """Let a trainer give whole classes that fit, the shortest-lived first."""
        expected = self.chances.expected
        while surplus:
            mine = self.seats[place].mine
            fitting = [k for k, n in mine.items() if n <= surplus]
            k = min(fitting or mine, key=lambda k: (expected[k][0], -mine[k], k))
            given = min(mine[k], surplus)
            surplus -= given
            self.move(place, k, -given)

    def _fill(self, place: int, wanted: int, ranks: list[_Rank]) -> None:
        """Let a trainer take whole classes that fit: its own, then the largest.

        Where none fits, it takes part of its own, or of the longest-lived.

        Args:
            place: The trainer.
            wanted: How many nodes it takes.
            ranks: The classes that are free, ascending; kept up.
        """
        free, expected = self.free, self.chances.expected
        while wanted:
            mine = self.seats[place].mine
            own = [k for k in mine if free.get(k, math.inf) <= wanted]
            fitting = bisect_left(ranks, (wanted + 1,))
            if own:
                k = max(own, key=lambda k: (free[k], expected[k][0], k))
            elif fitting:
                k = ranks[fitting - 1][2]
            else:
                k = max(free, key=lambda k: (k in mine, expected[k][0], k))
            nodes, life_s = free[k], expected[k][0]
            taken = min(nodes, wanted)
            wanted -= taken
            self.move(place, k, taken)
            del ranks[bisect_left(ranks, (nodes, life_s, k))]
            if nodes > taken:
                insort(ranks, (nodes - taken, life_s, k))
