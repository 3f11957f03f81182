"""What every trainer would gain by giving or taking any number of nodes of a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from milp.window import Window
    from milp.window_pool import Pool

    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]


class Columns(NamedTuple):
    """Counts of every class, one after the other: 0 .. all nodes of it.

    Attributes:
        first: Where each class begins.
        k: Class of a column.
        nodes: How many of it.
        most: All nodes of that class.
        life_s: Its life.
    """

    first: Places
    k: Places
    nodes: Places
    most: Places
    life_s: Vector

    @classmethod
    def of(cls, pool: Pool) -> Columns:
        """Return the columns of *pool*."""
        lengths = pool.nodes + 1
        first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
        k = np.repeat(np.arange(len(lengths)), lengths)
        return cls(
            first, k, np.arange(len(k)) - first[k], pool.nodes[k], pool.life_s[k]
        )


class Ledger:
    """A plan under search, and what one more or one fewer class of nodes would bring.

    Attributes:
        counts: [x_jk] Nodes by trainer and class.
        gains: By trainer, W0.
        gives: By trainer and column: what giving so many would add; -inf where M2
            or M4 forbid it.
        takes: The same for taking, whoever has them now.
    """

    def __init__(self, window: Window, pool: Pool, columns: Columns) -> None:
        trainers, weight = window.trainers, window.change_weight
        self._pool, self._columns = pool, columns
        self._held = pool.rows([one.held for one in trainers])
        self._before = self._held.sum(axis=1)
        self._most = max([len(one.curve.value_per_s) for one in trainers], default=1)
        self._worth = np.zeros((len(trainers), self._most + 1))
        self._sized = np.zeros(self._worth.shape, dtype=np.bool_)
        for place, one in enumerate(trainers):
            sizes = [0, *one.curve.sizes]
            self._worth[place, sizes] = one.curve.value_per_s[sizes]
            self._sized[place, sizes] = True
        present = [
            weight * one.curve.value_per_s.item(n)
            for one, n in zip(trainers, self._before.tolist(), strict=True)
        ]
        self._up = np.array([one.up_s for one in trainers]) * present
        self._down = np.array([one.down_s for one in trainers]) * present
        self._start_s = np.where(
            self._before > 0, 0.0, [weight * one.start_s for one in trainers]
        )
        self._fresh = [pool.fresh(one) for one in trainers]
        self._loss_s = np.array([window.hit_weight * one.loss_s for one in trainers])
        self.counts = self._held.copy()
        self.gains = np.zeros(len(trainers))
        self.gives = np.full((len(trainers), len(columns.k)), -np.inf)
        self.takes = self.gives.copy()

    @property
    def gain(self) -> float:
        """What the plan gains."""
        return float(self.gains.sum())

    def load(self, counts: Places) -> None:
        """Take *counts* for the plan; all of them are sizes and break nothing."""
        self.counts[:] = counts
        for place in range(len(counts)):
            self.refresh(place)

    def lay_down(self, place: int) -> Places:
        """Return what a trainer has if it gives all that it took in this plan."""
        counts, held = self.counts[place], self._held[place]
        is_size = self._sized[place, self._before[place]]
        least: Places = np.minimum(counts, held) if is_size else counts.copy()
        return least

    def refresh(self, place: int) -> None:
        """Work out anew what trainer *place* gains, now and by any change."""
        pool, columns, counts = self._pool, self._columns, self.counts[place]
        fresh = self._fresh[place]
        nodes, life_s = int(counts.sum()), float(counts @ pool.life_s)
        hits_of = fresh * pool.hits[np.arange(len(counts)), counts]
        hits = float(hits_of.sum())
        now = self._values(
            place, np.array([nodes]), np.array([life_s]), np.array([hits])
        )
        self.gains[place] = now[0]
        mine, others = counts[columns.k], hits - hits_of[columns.k]
        for sign, kept, most in (
            (-1, self.gives, self._giveable(place)),
            (1, self.takes, self._takeable(place)),
        ):
            allowed = columns.nodes <= most[columns.k]
            more = np.where(allowed, sign * columns.nodes, 0)
            row = self._values(
                place,
                nodes + more,
                life_s + more * columns.life_s,
                others + fresh[columns.k] * pool.hits[columns.k, mine + more],
            )
            kept[place] = np.where(allowed, row - now[0], -np.inf)

    def _giveable(self, place: int) -> Places:
        """Return the nodes by class that may be given: never below and above (M4)."""
        counts, held = self.counts[place], self._held[place]
        over = np.maximum(counts - held, 0)
        if not over.any():
            mine: Places = counts
            return mine
        # Whoever is above in one class only can get below by giving of that class.
        most: Places = np.where(over == over.sum(), counts, over)
        return most

    def _takeable(self, place: int) -> Places:
        counts, held = self.counts[place], self._held[place]
        room: Places = np.minimum(
            self._pool.nodes - counts, self._most - 1 - int(counts.sum())
        ).clip(0)
        under = np.maximum(held - counts, 0)
        if not under.any():
            return room
        most: Places = np.where(under == under.sum(), room, np.minimum(room, under))
        return most

    def _values(
        self, place: int, nodes: Places, life_s: Vector, hits: Vector
    ) -> Vector:
        """Return W0 of trainer *place* for many holdings; -inf at what is no size."""
        before = self._before[place]
        useful_s = life_s / np.maximum(nodes, 1) - self._loss_s[place] * hits
        gain = self._worth[place, nodes] * (useful_s - self._start_s[place])
        gain -= np.where(nodes > before, self._up[place], 0.0)
        gain -= np.where(nodes < before, self._down[place], 0.0)
        allowed: Vector = np.where(self._sized[place, nodes], gain, -np.inf)
        return allowed
