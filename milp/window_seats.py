"""Trainers under search: what they hold, and what a change would bring, in no time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from milp.window import Holding
    from milp.window_worths import Expected, Terms

Gift: TypeAlias = tuple[float, int, int]
"""What a trainer gains by giving nodes of a class: gain, class, nodes."""

_NO_ROOM = (-inf, 0)


class Seat:
    """One trainer's nodes in a plan under search; several may share one that waits.

    Attributes:
        held: Nodes it holds now, by class.
        mine: Nodes it has in the plan, by class; another mapping once it moves.
        nodes: How many these are.
        value: What it gains by ``mine``; -inf where they are no size.
    """

    __slots__ = (
        "_above",
        "_below",
        "_expected",
        "_gifts",
        "_hits",
        "_known",
        "_life_s",
        "_terms",
        "held",
        "mine",
        "nodes",
        "value",
    )

    def __init__(self, terms: Terms, expected: Mapping[int, Expected]) -> None:
        self._terms, self._expected = terms, expected
        self.held: Holding = terms.held
        self.mine: Holding = terms.held
        life_s = hits = 0.0
        for k, nodes in terms.held.items():
            stays_s, hit, whole, gone = expected[k]
            life_s += nodes * stays_s
            hits += hit * gone[nodes] / whole
        self._life_s, self._hits = life_s, hits
        self._above = self._below = 0
        self.nodes = terms.before
        self.value = self._value()
        self._gifts: list[Gift] | None = None
        self._known: dict[tuple[int, int], tuple[float, int]] = {}

    def copy(self) -> Seat:
        """Return a seat that moves apart from this one."""
        made = object.__new__(Seat)
        made._terms, made.held, made.mine = self._terms, self.held, self.mine
        made._expected = self._expected
        made._life_s, made._hits = self._life_s, self._hits
        made._above, made._below = self._above, self._below
        made.nodes, made.value = self.nodes, self.value
        made._gifts, made._known = self._gifts, {}
        return made

    def fallback(self) -> int:
        """Return the largest size that is no more than its nodes, or 0."""
        worth = self._terms.worth
        nodes = min(self.nodes, self._terms.most)
        while worth[nodes] == -inf:
            nodes -= 1
        return nodes

    def _value(self) -> float:
        terms, nodes = self._terms, self.nodes
        before = terms.before
        cost = terms.up if nodes > before else terms.down if nodes < before else 0.0
        if not nodes:
            return -cost
        if nodes > terms.most:
            return -inf
        useful_s = self._life_s / nodes - terms.loss_s * self._hits - terms.start_s
        worth = terms.worth[nodes]
        # Off its sizes it gains nothing, however bad the prospects.
        return worth * useful_s - cost if worth > -inf else worth

    @property
    def takes(self) -> bool:
        """Whether it has more of a class than it holds now."""
        return self._above > 0

    def with_more(self, k: int, more: int) -> float:
        """Return what it would gain with *more* nodes of class *k*, or fewer.

        The formula of ``_value`` is written out: this is the innermost step.
        """
        terms, nodes = self._terms, self.nodes + more
        before = terms.before
        cost = terms.up if nodes > before else terms.down if nodes < before else 0.0
        if not nodes:
            return -cost
        worth = terms.worth[nodes]
        if worth == -inf:
            return worth
        mine = self.mine.get(k, 0)
        stays_s, hit, whole, gone = self._expected[k]
        life_s = (self._life_s + more * stays_s) / nodes
        hits = self._hits + hit * gone[mine + more] / whole
        if mine:
            hits -= hit * gone[mine] / whole
        return worth * (life_s - terms.loss_s * hits - terms.start_s) - cost

    def with_up_to(self, k: int, nodes: int) -> tuple[float, int]:
        """Return its value with as many of *nodes* of class *k* as it has room for.

        Kept until it moves: a search asks for the same again and again.

        Returns:
            What it would gain, and how many it takes; minus infinity and 0 where it
            has no room.
        """
        known = self._known.get((k, nodes))
        if known is None:
            room = self._terms.most - self.nodes
            if self._below:
                room = min(room, self.held.get(k, 0) - self.mine.get(k, 0))
            # Here ``min`` takes as long as half of what is worked out.
            taken = nodes if nodes < room else room  # noqa: FURB136
            known = (self.with_more(k, taken), taken) if taken > 0 else _NO_ROOM
            self._known[k, nodes] = known
        return known

    def best_take(self, free: Mapping[int, int]) -> tuple[float, int, int]:
        """Return the best of taking all free nodes of a class that there is room for.

        Returns:
            What is gained, the class, and how many nodes; zeros where nothing gains.
        """
        best, present = (0.0, -1, 0), self.value
        for k, nodes in free.items():
            value, more = self.with_up_to(k, nodes)
            if value - present > best[0]:
                best = value - present, k, more
        return best

    def gifts(self) -> Sequence[Gift]:
        """Return what it gains by giving all that it may of a class, by class.

        Who takes gives no more than it takes (M4); what is no gain as a gift may be one
        where another takes it. Of who takes nothing, gifts that are no gain are left
        out. Kept until it moves.

        Returns:
            What is gained, the class, and how many nodes, above 0.
        """
        if self._gifts is None:
            value = self.value
            self._gifts = [
                (self.with_more(k, -spare) - value, k, spare)
                for k, spare in (self._taken() if self._above else self._doubtful())
            ]
        return self._gifts

    def _taken(self) -> list[tuple[int, int]]:
        """Return how many more nodes it has than it holds now, by class."""
        before = self.held.get
        return [
            (k, mine - before(k, 0))
            for k, mine in self.mine.items()
            if mine > before(k, 0)
        ]

    def _doubtful(self) -> list[tuple[int, int]]:
        """Return all it has of the classes without which it might gain more.

        Of most that is ruled out even if what is left was never hit.
        """
        terms, expected, life_s = self._terms, self._expected, self._life_s
        nodes, worths, least = self.nodes, terms.worth, self.value + terms.down
        doubtful = []
        for k, mine in self.mine.items():
            left = nodes - mine
            worth = worths[left]
            # Where work is worth less than nothing, hits are a gain.
            if (
                worth * (life_s - mine * expected[k][0]) > least * left
                or worth < 0.0
                or least < 0.0
            ):
                doubtful.append((k, mine))
        return doubtful

    def move(self, k: int, more: int) -> None:
        """Take *more* nodes of class *k*, or give some."""
        self._gifts = None
        self._known.clear()
        mine, held = self.mine.get(k, 0), self.held.get(k, 0)
        after = mine + more
        stays_s, hit, whole, gone = self._expected[k]
        self._above += (after > held) - (mine > held)
        self._below += (after < held) - (mine < held)
        self.nodes += more
        self._life_s += more * stays_s
        self._hits += hit * gone[after] / whole - hit * gone[mine] / whole
        changed = {**self.mine, k: after}
        if not after:
            del changed[k]
        self.mine = changed
        self.value = self._value()
