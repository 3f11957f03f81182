"""Trainers under search: what they hold, and what a change would bring, in no time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from milp.window import gone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milp.problem import Curve
    from milp.window import Holder, Stay, Window

_MOST_CURVES = 10_000

_NO_ROOM = (-math.inf, 0)


class Worths:
    """What is derived from curves and from shares, kept from one plan to the next."""

    def __init__(self) -> None:
        self._known: dict[Curve, list[float]] = {}
        self._gone: dict[tuple[float, int], list[float]] = {}

    def of(self, curve: Curve) -> list[float]:
        """Return the worth at 0 .. the largest size, -inf at what is not a size."""
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

    def hits(self, stay: Stay) -> list[float]:
        """Return ``stay.hits()``; shares change seldom, and powers take long."""
        known = self._gone.get((stay.share, stay.nodes))
        if known is None:
            if len(self._gone) >= _MOST_CURVES:
                self._gone.clear()
            known = self._gone[stay.share, stay.nodes] = gone(stay.share, stay.nodes)
        return stay.hits_of(known)


class Chances:
    """Lives and hits by class, worked out once in a search; and the seats at first.

    Attributes:
        life_s: Mean seconds that a node stays, by class.
        hits: Expected hits on 0 .. all nodes of a class, by class.
        untouched: What is expected of classes of which nobody holds any.
        seats: Everybody's, with what is held now; never to be moved. Trainers that
            hold nothing and are equal otherwise share one: half of 40 trainers on
            Summit wait.
    """

    def __init__(self, window: Window, worths: Worths) -> None:
        self.life_s = {k: stay.life_s for k, stay in window.stays.items()}
        self.hits: Mapping[int, list[float]] = _Hits(window.stays, worths)
        self.untouched = {
            k: window.stays[k]
            for k, nodes in window.free.items()
            if nodes == window.stays[k].nodes
        }
        self.seats = self._seats(window, worths)

    def _seats(self, window: Window, worths: Worths) -> tuple[Seat, ...]:
        seats = []
        waiting: dict[tuple[Curve, float, float], Seat] = {}
        for trainer in window.trainers:
            key = trainer.curve, trainer.start_s, trainer.loss_s
            seat = None if trainer.held else waiting.get(key)
            if seat is None:
                seat = Seat(trainer, window, self, worths.of(trainer.curve))
                if not trainer.held:
                    waiting[key] = seat
            seats.append(seat)
        return tuple(seats)


class _Hits(dict[int, list[float]]):
    """Makes a class's hits when they are asked for first."""

    def __init__(self, stays: Mapping[int, Stay], worths: Worths) -> None:
        super().__init__()
        self._stays = stays
        self._worths = worths

    def __missing__(self, k: int) -> list[float]:
        made = self[k] = self._worths.hits(self._stays[k])
        return made


class Seat:
    """One trainer's nodes in a plan under search; several may share one that waits.

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
        "_gift",
        "_hits",
        "_hits_of",
        "_known",
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
        held = self.held = trainer.held
        self.mine = dict(held)
        self.before = self.nodes = sum(held.values())
        self.most = len(worth) - 1
        self._worth = worth
        life_of, hits_of = self._life_of, self._hits_of = chances.life_s, chances.hits
        # What it holds after a loss may be no size; it trained on it all the same.
        present = trainer.curve.value_per_s.item(self.before) * window.change_weight
        self._up, self._down = present * trainer.up_s, present * trainer.down_s
        self._start_s = window.change_weight * trainer.start_s if not held else 0.0
        self._loss_s = window.hit_weight * trainer.loss_s
        life_s = hits = 0.0
        for k, nodes in held.items():
            life_s += nodes * life_of[k]
            hits += hits_of[k][nodes]
        self._life_s, self._hits = life_s, hits
        self._above = self._below = 0
        self.value = self._value(self.nodes, life_s, hits)
        self._gift: tuple[float, int, int] | None = None
        self._known: dict[tuple[int, int], tuple[float, int]] = {}

    def copy(self) -> Seat:
        """Return a seat that moves apart from this one."""
        made = object.__new__(Seat)
        for slot in self.__slots__:
            setattr(made, slot, getattr(self, slot))
        made.mine, made._known = dict(self.mine), {}
        return made

    def fallback(self) -> int:
        """Return the largest size that is no more than its nodes, or 0."""
        nodes, worth = min(self.nodes, self.most), self._worth
        while worth[nodes] == -math.inf:
            nodes -= 1
        return nodes

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

        The formula of ``_value`` is written out: this is the innermost step.
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

    def with_up_to(self, k: int, nodes: int) -> tuple[float, int]:
        """Return its value with as many of *nodes* of class *k* as it has room for.

        Kept until it moves: a search asks for the same again and again.

        Returns:
            What it would gain, and how many it takes; minus infinity and 0 where it
            has no room.
        """
        known = self._known.get((k, nodes))
        if known is None:
            taken = min(nodes, self.most - self.nodes)
            if self._below:
                taken = min(taken, self.held.get(k, 0) - self.mine.get(k, 0))
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

    def best_gift(self) -> tuple[float, int, int]:
        """Return the best of giving all of a class that it may give.

        Returns:
            What is gained, the class, and how many nodes; zeros where nothing gains.
        """
        if self._gift is None:
            best = 0.0, -1, 0
            for k in self.mine:
                spare = self.spare(k)
                if spare > 0:
                    gained = self.with_more(k, -spare) - self.value
                    if gained > best[0]:
                        best = gained, k, spare
            self._gift = best
        return self._gift

    def move(self, k: int, more: int) -> None:
        """Take *more* nodes of class *k*, or give some."""
        self._gift = None
        self._known.clear()
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
