"""How much any plan of a window can gain at most (docs/reference/model.md, W3).

Nodes of class k cost λ_k each. At any prices λ >= 0 every trainer chooses its best size
by itself, as if no other wanted the same nodes; what all gain then, and what the nodes
cost, no plan exceeds. :class:`BoundedClasses` and :class:`SizeRows` hold the classes
and every size of every trainer as arrays, :func:`relax` lets all trainers choose, and
:func:`first_bound` and :func:`tighten` look for prices that make the bound low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from milp.answer import gap
from milp.window import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from milp.window import Holding, SearchDeadline, Window, WindowTrainer

Vector: TypeAlias = "NDArray[np.float64]"
Places: TypeAlias = "NDArray[np.intp]"


class BoundedClasses(NamedTuple):
    """The classes of a window as arrays.

    Attributes:
        place: Of each class in the arrays, by its number.
        nodes: By place: free or held by a trainer of the window.
        life_s: [L_k] By place.
        hits: [h_k] By place and node count, the last one repeated.
    """

    place: Mapping[int, int]
    nodes: Places
    life_s: Vector
    hits: Vector

    @classmethod
    def of(cls, window: Window) -> BoundedClasses:
        """Return the classes of *window*, in the order of their numbers."""
        numbers = sorted(window.classes)
        nodes = np.array([_stock(window, k) for k in numbers], dtype=np.intp)
        life_s = np.array([window.classes[k].life_s for k in numbers], dtype=np.float64)
        hits = np.zeros((len(numbers), int(nodes.max(initial=0)) + 2))
        for place, k in enumerate(numbers):
            row = window.classes[k].hits()[: hits.shape[1]]
            hits[place, : len(row)] = row
            hits[place, len(row) :] = row[-1]
        return cls({k: place for place, k in enumerate(numbers)}, nodes, life_s, hits)

    def merged(self, most: int) -> BoundedClasses:
        """Return at most *most* classes, made of classes with similar lives.

        Each node of a merged class lives as long as the longest-lived, and is hit no
        more than a node of all of the least hit class. So no plan gains less, as long
        as no worth is below 0.
        """
        order = np.argsort(self.life_s, kind="stable")
        before = np.cumsum(self.nodes[order]) - self.nodes[order]
        group = np.empty(len(order), dtype=np.intp)
        group[order] = most * before // max(1, int(self.nodes.sum()))
        used = np.unique(group)
        group = np.searchsorted(used, group)
        nodes = np.zeros(len(used), dtype=np.intp)
        np.add.at(nodes, group, self.nodes)
        life_s = np.zeros(len(used))
        np.maximum.at(life_s, group, self.life_s)
        whole = self.hits[np.arange(len(order)), self.nodes]
        each = np.full(len(used), np.inf)
        np.minimum.at(each, group, whole / np.maximum(self.nodes, 1))
        hits = np.outer(each, np.arange(int(nodes.max(initial=0)) + 2)).astype(
            np.float64
        )
        place = {k: int(group[own]) for k, own in self.place.items()}
        return BoundedClasses(place, nodes, life_s, hits)

    def new_hit_share(self, trainer: WindowTrainer) -> Vector:
        """Return [s_jk] by place; of merged classes the least."""
        row = np.ones(len(self.nodes))
        for k, share in trainer.new_hit_share.items():
            row[self.place[k]] = min(row[self.place[k]], share)
        return row

    def row(self, holding: Holding) -> Places:
        """Return nodes by place, zeros among them."""
        row = np.zeros(len(self.nodes), dtype=np.intp)
        for k, nodes in holding.items():
            row[self.place[k]] += nodes
        return row

    def rows(self, plan: Sequence[Holding]) -> Places:
        """Return nodes by trainer and place, zeros among them."""
        rows = [self.row(own) for own in plan]
        return np.array(rows, dtype=np.intp).reshape(len(plan), len(self.nodes))

    def holdings(self, counts: Sequence[Sequence[int]]) -> tuple[Holding, ...]:
        """Return the plan of *counts*, by trainer and place."""
        return tuple(
            {k: row[place] for k, place in self.place.items() if row[place]}
            for row in counts
        )


def _stock(window: Window, k: int) -> int:
    held = sum([trainer.held.get(k, 0) for trainer in window.trainers])
    return window.free.get(k, 0) + held


class SizeRows(NamedTuple):
    """Every size of every trainer as a row; its gain is at most linear in the nodes.

    Trainers that do not differ, and hold the same, are one kind and share their rows.
    Shapes are (rows,) and (rows, classes) if not said.

    Attributes:
        pool: The classes.
        kind: Of each trainer, (trainers,).
        first: Where each kind's rows begin, (kinds,).
        size: [n] Nodes; 0 is each kind's first.
        least: [lo] Nodes by class at least.
        room: [hi - lo] Nodes by class above that, at most.
        base: Gain of the least nodes.
        slope: Gain of each node above them, at most.
    """

    pool: BoundedClasses
    kind: Places
    first: Places
    size: Places
    least: Places
    room: Places
    base: Vector
    slope: Vector

    @property
    def ends(self) -> Places:
        """Where each kind's rows end, (kinds,)."""
        return np.append(self.first[1:], len(self.size))

    def of(self, place: int) -> SizeRows:
        """Return the rows of trainer *place* alone."""
        kind = self.kind[place]
        is_last = kind + 1 == len(self.first)
        end = len(self.size) if is_last else self.first[kind + 1]
        rows = slice(self.first[kind], end)
        return SizeRows(
            self.pool,
            _ONE_KIND,
            _ONE_KIND,
            self.size[rows],
            self.least[rows],
            self.room[rows],
            self.base[rows],
            self.slope[rows],
        )

    def best(self, prices: Vector) -> tuple[Vector, Places]:
        """Return the most that each row gains at *prices*, and the nodes it takes.

        Shapes (rows,) and (rows, classes); -inf where there are not enough nodes.
        """
        net = self.slope - prices
        order = np.argsort(-net, axis=1, kind="stable")
        room = np.take_along_axis(self.room, order, axis=1)
        wanted = (self.size - self.least.sum(axis=1))[:, None]
        taken = np.clip(wanted - np.cumsum(room, axis=1) + room, 0, room)
        value = self.base - self.least @ prices
        value += (taken * np.take_along_axis(net, order, axis=1)).sum(axis=1)
        value[taken.sum(axis=1) < wanted[:, 0]] = -np.inf
        takes = self.least.copy()
        np.put_along_axis(
            takes, order, taken + np.take_along_axis(takes, order, axis=1), axis=1
        )
        return value, takes


_ONE_KIND = np.zeros(1, dtype=np.intp)

_KindRows: TypeAlias = "tuple[Places, Places, Places, Vector, Vector]"
"""One kind's columns of :class:`SizeRows` from ``size`` on."""


def size_rows(window: Window, pool: BoundedClasses) -> SizeRows:
    """Return all sizes of the trainers, each allowed whatever the others leave."""
    kinds: dict[object, int] = {}
    made: list[_KindRows] = []
    kind = []
    for trainer in window.trainers:
        by_class = (
            frozenset(trainer.held.items()),
            frozenset(trainer.new_hit_share.items()),
        )
        costs = trainer.up_s, trainer.down_s, trainer.start_s, trainer.loss_s
        known = kinds.setdefault((trainer.curve, *by_class, *costs), len(made))
        if known == len(made):
            made.append(_kind_rows(window, pool, trainer))
        kind.append(known)
    lengths = [len(rows[0]) for rows in made]
    first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
    size, least, room, base, slope = [
        np.concatenate(column) for column in zip(*made, strict=True)
    ]
    numbered = np.array(kind, dtype=np.intp)
    return SizeRows(pool, numbered, first, size, least, room, base, slope)


def _kind_rows(
    window: Window, pool: BoundedClasses, trainer: WindowTrainer
) -> _KindRows:
    size = np.array((0, *trainer.curve.sizes), dtype=np.intp)
    least, most = _ranges(pool, pool.row(trainer.held), size)
    held = sum(trainer.held.values())
    worth = trainer.curve.value_per_s[size]
    new_share = pool.new_hit_share(trainer)
    hits = new_share * pool.hits[np.arange(len(pool.nodes)), least]
    rise = new_share * _rise(pool, least, most, worth)
    each_s = pool.life_s / np.maximum(size, 1)[:, None]
    loss_s = window.hit_weight * trainer.loss_s
    start_s = 0.0 if held else window.change_weight * trainer.start_s
    useful_s = (least * each_s - loss_s * hits).sum(axis=1) - start_s
    change_s = np.where(
        size > held, trainer.up_s, np.where(size < held, trainer.down_s, 0.0)
    )
    present = window.change_weight * trainer.curve.value_per_s.item(held)
    base = worth * useful_s - present * change_s
    return size, least, most - least, base, worth[:, None] * (each_s - loss_s * rise)


def _ranges(pool: BoundedClasses, held: Places, size: Places) -> tuple[Places, Places]:
    """Return the nodes by class, at least and at most, that M4 leaves each size."""
    change = (size - held.sum())[:, None]
    least = np.where(change >= 0, held, np.maximum(0, held + change))
    most = np.where(change <= 0, held, np.minimum(pool.nodes, held + change))
    return least, np.maximum(most, least)


def _rise(pool: BoundedClasses, least: Places, most: Places, worth: Vector) -> Vector:
    """Return hits for each node above the least: never more than true in the gain.

    h is concave: over a range its chord lies below it, and the line through its first
    node lies above, which is what counts where the worth is negative.
    """
    end = np.where((worth >= 0.0)[:, None], most, least + 1)
    classes = np.arange(len(pool.nodes))
    rise = pool.hits[classes, end] - pool.hits[classes, least]
    chord: Vector = rise / np.maximum(end - least, 1)
    return chord


class Relaxation(NamedTuple):
    """What every trainer chooses at prices, by itself.

    Attributes:
        value: No plan gains more.
        chosen: By trainer: its best row.
        losses: By row: what choosing it would lose to its trainer (R3).
        takes: By row: nodes by class.
    """

    value: float
    chosen: Places
    losses: Vector
    takes: Places

    def excess(self, nodes: Places) -> Vector:
        """Return by how much all together want more of each class than there is."""
        wanted = self.takes[self.chosen].sum(axis=0)
        excess: Vector = (wanted - nodes).astype(np.float64)
        return excess


def relax(rows: SizeRows, prices: Vector) -> Relaxation:
    """Let every trainer choose at *prices* as if no other wanted the same nodes.

    That is a relaxation for any λ >= 0, so that the bound does not depend on how λ
    was found.
    """
    values, takes = rows.best(prices)
    ends = rows.ends
    best = np.maximum.reduceat(values, rows.first)
    losses = np.repeat(best, ends - rows.first) - values
    chosen = [
        first + int(losses[first:end].argmin())
        for first, end in zip(rows.first, ends, strict=True)
    ]
    value = float(best[rows.kind].sum() + prices @ rows.pool.nodes)
    return Relaxation(value, np.array(chosen, dtype=np.intp)[rows.kind], losses, takes)


class Dual(NamedTuple):
    """A bound and its prices.

    Attributes:
        value: No plan gains more.
        prices: [λ_k] Of a node by class.
    """

    value: float
    prices: Vector


_FIRST_STEPS = 12
"""On the way to prices that are in proportion to lives."""

_STEPS = 120
"""Twice as many lower the bound of 100 trainers on 1,000 nodes by 0.2 % at most."""

_PATIENCE = 5
"""Steps without progress after which they become shorter."""

_SHORTER = 0.6

_PROGRESS = 1e-4


def first_bound(rows: SizeRows, deadline: SearchDeadline = NEVER) -> Dual:
    """Return a bound to begin from: the best prices in proportion to lives."""
    pool = rows.pool
    best = Dual(np.inf, np.zeros(len(pool.nodes)))
    least, most = 0.0, np.inf
    scale = 0.0
    for _ in range(_FIRST_STEPS):
        prices = scale * pool.life_s
        relaxed = relax(rows, prices)
        if relaxed.value < best.value:
            best = Dual(relaxed.value, prices)
        if deadline.passed():
            break
        if relaxed.excess(pool.nodes) @ pool.life_s > 0.0:
            least = scale
        else:
            most = scale
        if not most:
            break
        if np.isfinite(most):
            scale = (least + most) / 2.0
        else:
            scale = 2.0 * scale or abs(relaxed.value) / float(pool.nodes @ pool.life_s)
    return best


def tighten(
    rows: SizeRows,
    start: Dual,
    *,
    reached: float,
    steps: int = _STEPS,
    deadline: SearchDeadline = NEVER,
) -> Dual:
    """Lower the bound by subgradients, with Polyak's steps towards *reached*.

    Args:
        rows: Sizes of all trainers.
        start: The bound to go on from.
        reached: A gain that is known to be possible, or a guess of it; the bound
            holds for any.
        steps: How many to make at most.
        deadline: When to stop; one step is always made.
    """
    pool, best, pace, stalled = rows.pool, start, 1.0, 0
    prices, best_excess = start.prices, np.zeros(len(rows.pool.nodes))
    for _ in range(steps):
        relaxed = relax(rows, prices)
        stalled = 0 if relaxed.value < best.value * (1.0 - _PROGRESS) else stalled + 1
        if relaxed.value <= best.value:
            best, best_excess = Dual(relaxed.value, prices), relaxed.excess(pool.nodes)
        excess, distance = relaxed.excess(pool.nodes), relaxed.value - reached
        if stalled >= _PATIENCE:
            pace, stalled = pace * _SHORTER, 0
            prices, excess, distance = best.prices, best_excess, best.value - reached
        excess[(prices <= 0.0) & (excess < 0.0)] = 0.0
        length = float(excess @ excess)
        if not length or distance <= 0.0 or deadline.passed():
            break
        prices = np.maximum(0.0, prices + pace * distance / length * excess)
    return best


def loose_bound(window: Window) -> float:
    """Return what all trainers gain if nodes abound, live longest and are never hit.

    Where a worth is below 0, losses are a gain: then as if every class was hit. Where
    the present worth is below 0, a change is a gain.
    """
    lives_s = max([known.life_s for known in window.classes.values()], default=0.0)
    hits = sum([known.hit for known in window.classes.values()])
    total = 0.0
    for trainer in window.trainers:
        worth = trainer.curve.value_per_s[list(trainer.curve.sizes)]
        start_s = 0.0 if trainer.held else window.change_weight * trainer.start_s
        lost_s = window.hit_weight * trainer.loss_s * hits
        best = np.maximum(worth * (lives_s - start_s), -worth * (lost_s + start_s))
        held = sum(trainer.held.values())
        present = window.change_weight * trainer.curve.value_per_s[held]
        change = max(0.0, -float(present) * max(trainer.up_s, trainer.down_s))
        total += max(0.0, float(best.max())) + change
    return total


class BoundedPlan(NamedTuple):
    """A plan and the bound that is known.

    Attributes:
        holdings: Nodes by trainer and class.
        gain: Their gain, W0.
        bound: No plan gains more.
        reason: Why nothing better is known; empty where there is nothing to say.
    """

    holdings: tuple[Holding, ...]
    gain: float
    bound: float
    reason: str


# The gap of a replay's plan, worked out now and then.

_GAP_STEPS = 40
"""Six times as many lower the mean gap of six days of Summit from 0.08 to 0.07 %."""

_MOST_CELLS = 250_000
"""Sizes times classes; one relaxation of so many takes 10 ms."""

_FEWEST = 16
"""Classes are merged to no fewer."""


def window_gap(window: Window, gain: float) -> float:
    """Return how far *gain* is below what any plan of *window* gains, as ``gap``."""
    return gap(gain, bound(window, gain))


def bound(window: Window, reached: float) -> float:
    """Return a gain that no plan of *window* exceeds.

    Args:
        window: The problem.
        reached: A gain that a plan is known to have, or a guess of it: the prices are
            sought near it. The bound holds for any.
    """
    most = loose_bound(window)
    if not window.classes or not window.trainers:
        return most
    pool = BoundedClasses.of(window)
    sizes = sum([len(trainer.curve.sizes) + 1 for trainer in window.trainers])
    if sizes * len(pool.nodes) > _MOST_CELLS:
        if any(float(t.curve.value_per_s.min()) < 0.0 for t in window.trainers):
            return most
        pool = pool.merged(max(_FEWEST, _MOST_CELLS // sizes))
    rows = size_rows(window, pool)
    dual = tighten(rows, first_bound(rows), reached=reached, steps=_GAP_STEPS)
    return min(most, dual.value)
