"""Trainers under search: what they hold, and what a change would bring, in no time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milp.problem import Curve
    from milp.window import Holder, Stay, Window

_MOST_CURVES = 10_000


class Worths:
    """Worth by node count of each curve as a list, -inf at what is not a size."""

    def __init__(self) -> None:
        self._known: dict[Curve, list[float]] = {}

    def of(self, curve: Curve) -> list[float]:
        """Return the worth at 0 .. the largest size."""
        known = self._known.get(curve)
        if known is None:
            if len(self._known) >= _MOST_CURVES:
                self._known.clear()
            values, sizes = curve.value_per_s.tolist(), {0, *curve.sizes}
            known = self._known[curve] = [
                values[n] if n in sizes else -math.inf
                for n in range(curve.sizes[-1] + 1)
            ]
        return known


class Chances:
    """Lives and hits by class, worked out once in a search.

    Attributes:
        life_s: Mean seconds that a node stays, by class.
        hits: Expected hits on 0 .. all nodes of a class, by class.
    """

    def __init__(self, window: Window) -> None:
        self.life_s = {k: stay.life_s for k, stay in window.stays.items()}
        self.hits: Mapping[int, list[float]] = _Hits(window.stays)


class _Hits(dict[int, list[float]]):
    """Makes a class's hits when they are asked for first."""

    def __init__(self, stays: Mapping[int, Stay]) -> None:
        super().__init__()
        self._stays = stays

    def __missing__(self, k: int) -> list[float]:
        made = self[k] = self._stays[k].hits()
        return made


class Seat:
    """One trainer's nodes in a plan under search.

    Attributes:
        held: Nodes it holds now, by class.
        mine: Nodes it has in the plan, by class.
        nodes: How many these are.
        before: How many it holds now.
        most: Its largest size.
        value: What it gains by ``mine``.
    """

    __slots__ = (
        "_above",
        "_below",
        "_down",
        "_hits",
        "_hits_of",
        "_life_of",
        "_life_s",
        "_loss_s",
        "_start_s",
        "_up",
        "_worth",
        "before",
        "held",
        "mine",
        "most",
        "nodes",
        "value",
    )

    def __init__(
        self, trainer: Holder, window: Window, chances: Chances, worth: list[float]
    ) -> None:
        self.held = trainer.held
        self.mine = dict(trainer.held)
        self.before = self.nodes = sum(trainer.held.values())
        self.most = len(worth) - 1
        self._worth = worth
        self._life_of, self._hits_of = chances.life_s, chances.hits
        # What it holds after a loss may be no size; it trained on it all the same.
        present = trainer.curve.value_per_s.item(self.before) * window.change_weight
        self._up, self._down = present * trainer.up_s, present * trainer.down_s
        self._start_s = window.change_weight * trainer.start_s if not self.before else 0
        self._loss_s = window.hit_weight * trainer.loss_s
        self._life_s = self._hits = 0.0
        for k, nodes in self.mine.items():
            self._life_s += nodes * chances.life_s[k]
            self._hits += chances.hits[k][nodes]
        self._above = self._below = 0
        self.value = self._value(self.nodes, self._life_s, self._hits)

    def _value(self, nodes: int, life_s: float, hits: float) -> float:
        before = self.before
        cost = self._up if nodes > before else self._down if nodes < before else 0.0
        if not nodes:
            return -cost
        if nodes > self.most:
            return -math.inf
        useful_s = life_s / nodes - self._loss_s * hits - self._start_s
        worth = self._worth[nodes]
        # Off its sizes it gains nothing, however bad the prospects.
        return worth * useful_s - cost if worth > -math.inf else worth

    def room(self, k: int) -> int:
        """Return how many nodes of class *k* it may take without migrating (M4)."""
        room = self.most - self.nodes
        if self._below:
            room = min(room, self.held.get(k, 0) - self.mine.get(k, 0))
        return room

    def spare(self, k: int) -> int:
        """Return how many nodes of class *k* it may give without migrating (M4)."""
        mine = self.mine.get(k, 0)
        return mine - self.held.get(k, 0) if self._above else mine

    def taken(self) -> list[int]:
        """Return the classes of which it has more than it holds now."""
        if not self._above:
            return []
        return [k for k, n in self.mine.items() if n > self.held.get(k, 0)]

    def with_more(self, k: int, more: int) -> float:
        """Return what it would gain with *more* nodes of class *k*, or fewer.

        The innermost step of the search: the formula of ``_value`` is written out.
        """
        mine, before, hits = self.mine.get(k, 0), self.before, self._hits_of[k]
        nodes = self.nodes + more
        cost = self._up if nodes > before else self._down if nodes < before else 0.0
        if not nodes:
            return -cost
        worth = self._worth[nodes]
        if worth == -math.inf:
            return worth
        life_s = (self._life_s + more * self._life_of[k]) / nodes
        hit = self._hits + hits[mine + more] - hits[mine]
        return worth * (life_s - self._loss_s * hit - self._start_s) - cost

    def best_take(self, free: Mapping[int, int]) -> tuple[float, int, int]:
        """Return the best of taking all free nodes of a class that there is room for.

        What ``room`` and ``with_more`` say, class after class, written out: two
        thirds of a search are spent here.

        Returns:
            What is gained, the class, and how many nodes; zeros where nothing gains.
        """
        best_gain, best_k, best_more = 0.0, -1, 0
        present, before, worth = self.value, self.nodes, self._worth
        life_s, hits_now, mine = self._life_s, self._hits, self.mine
        life_of, hits_of, loss_s = self._life_of, self._hits_of, self._loss_s
        room = self.most - before
        for k, more in free.items():
            here = mine.get(k, 0)
            if self._below:
                more = min(more, self.held.get(k, 0) - here)  # noqa: PLW2901
            more = min(more, room)  # noqa: PLW2901
            if more <= 0:
                continue
            nodes, hits = before + more, hits_of[k]
            held = self.before
            cost = self._up if nodes > held else self._down if nodes < held else 0.0
            useful_s = (life_s + more * life_of[k]) / nodes - self._start_s
            useful_s -= loss_s * (hits_now + hits[here + more] - hits[here])
            if worth[nodes] == -math.inf:
                continue
            gained = worth[nodes] * useful_s - cost - present
            if gained > best_gain:
                best_gain, best_k, best_more = gained, k, more
        return best_gain, best_k, best_more

    def move(self, k: int, more: int) -> None:
        """Take *more* nodes of class *k*, or give some."""
        mine, held = self.mine.get(k, 0), self.held.get(k, 0)
        hits = self._hits_of[k]
        self._above += (mine + more > held) - (mine > held)
        self._below += (mine + more < held) - (mine < held)
        self.nodes += more
        self._life_s += more * self._life_of[k]
        self._hits += hits[mine + more] - hits[mine]
        if mine + more:
            self.mine[k] = mine + more
        else:
            del self.mine[k]
        self.value = self._value(self.nodes, self._life_s, self._hits)
