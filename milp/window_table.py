"""All seats and the free nodes of a plan under search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from milp.window import Holding, Stay, Window
    from milp.window_chances import Chances


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
        whoever gains by one gains as much by another. Strangers are many such.
        """
        if len(self.free) <= _FEW:
            return self.free
        first: dict[Stay | int, int] = {}
        for k, nodes in self.free.items():
            stay = self.chances.untouched.get(k)
            first.setdefault(k if stay is None or nodes < stay.nodes else stay, k)
        return {k: self.free[k] for k in first.values()}

    def move(self, place: int, k: int, more: int) -> None:
        """Let trainer *place* take *more* free nodes of class *k*, or give some."""
        if place not in self.moved:
            self.moved.add(place)
            self.seats[place] = self.seats[place].copy()
        self.seats[place].move(k, more)
        left = self.free.get(k, 0) - more
        if left:
            self.free[k] = left
        else:
            del self.free[k]

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
        for wanted, place in sorted(short, reverse=True):
            self._fill(-place, wanted)

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

    def _fill(self, place: int, wanted: int) -> None:
        """Let a trainer take whole classes that fit: its own, then the largest.

        Where none fits, it takes part of its own, or of the longest-lived.
        """
        free, expected = self.free, self.chances.expected
        while wanted:
            mine = self.seats[place].mine
            fitting = [k for k, n in free.items() if n <= wanted]
            known = [k for k in fitting if k in mine]
            if fitting:
                k = max(known or fitting, key=lambda k: (free[k], expected[k][0], k))
            else:
                k = max(free, key=lambda k: (k in mine, expected[k][0], k))
            taken = min(free[k], wanted)
            wanted -= taken
            self.move(place, k, taken)
