"""Planning by expected lives: the problem, its objective, and how a plan is judged.

Nodes that are expected to leave together form a class; a plan says how many nodes of
which class each trainer has. Symbols in brackets are those of docs/lookahead.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from milp.problem import gap
from milp.solver import NEVER
from milp.verify import is_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from milp.problem import Curve
    from milp.solver import Deadline


# ----------------------------------------------------------------------
# Planning by expected lives: the problem, its objective, and how a plan is judged.

Holding: TypeAlias = "Mapping[int, int]"
"""Nodes by class, none of them 0."""


class Stay(NamedTuple):
    """A class of nodes, and what is expected of it until the horizon.

    Attributes:
        nodes: [m_k] How many are idle now, held ones included; above 0.
        life_s: [L_k] Mean seconds until the horizon that one of them stays.
        hit: [p_k] Probability that at least one leaves before the horizon.
        share: [f_k] Share that leaves with a hit, above 0, to 1.
    """

    nodes: int
    life_s: float
    hit: float
    share: float

    def hits(self) -> list[float]:
        """Return [h_k] the expected hits on 0 .. m_k of its nodes.

        Nodes of a class leave together, so that many are hit hardly more often than
        few: h(x) = p (1 - (1-f)^x) / (1 - (1-f)^m), which is p for all of them.
        """
        some = gone(self.share, self.nodes)
        return [self.hit * one / some[-1] for one in some]

    def until(self, reach_s: float) -> Stay:
        """Return the same where nothing counts that comes after *reach_s*.

        Who lives longer in the mean is not hit before.
        """
        if self.life_s <= reach_s:
            return self
        return self._replace(life_s=reach_s, hit=0.0)


def gone(share: float, nodes: int) -> list[float]:
    """Return [1 - (1-f)^x] on 0 .. *nodes* nodes, of which *share* leaves with a hit.

    It is the probability that one of x leaves, if each does by itself.
    """
    stays = 1.0 - share
    return [1.0 - stays**few for few in range(nodes + 1)]


@dataclass(frozen=True, slots=True)
class Holder:
    """A trainer as the look-ahead planner sees it.

    Attributes:
        curve: [O_j] Its worth by node count.
        held: [C_jk] Nodes it holds now, by class.
        up_s: [Rup_j] Seconds of its present worth that growing costs.
        down_s: [Rdw_j] Seconds of its present worth that shrinking costs.
        start_s: [Rst_j] Seconds of its new worth that starting from 0 costs.
        loss_s: [D_j] Seconds of its worth that losing nodes costs.
        fresh: [s_jk] By class, 0 to 1: what share of the hits on it hits no other node
            of this trainer's; 1 where not named. Where nodes that leave together are of
            several classes, the later of them go on where the earlier ones end:
            h(o + x) = h(o) + (1-f)^o h(x).
    """

    curve: Curve
    held: Holding
    up_s: float
    down_s: float
    start_s: float
    loss_s: float
    fresh: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """Who gets how many nodes of which class, as lives are expected.

    Attributes:
        stays: [K] Classes by number.
        free: Nodes that nobody holds, by class.
        trainers: [J] In order of admission.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts; above 1 for hysteresis.
    """

    stays: Mapping[int, Stay]
    free: Holding
    trainers: tuple[Holder, ...]
    hit_weight: float
    change_weight: float


def gain(window: Window, place: int, holding: Holding) -> float:
    """Return what trainer *place* gains by *holding* until the horizon [W0].

    ::

        O(n) (Σ x_k L_k / n - κ D Σ s_k h_k(x_k))
            - η O(C) (Rup [n > C] + Rdw [n < C]) - [C = 0] η Rst O(n)

    Returns:
        Objective units; below 0 where changing and losing cost more than is gained.
    """
    trainer = window.trainers[place]
    nodes, held = sum(holding.values()), sum(trainer.held.values())
    worth = trainer.curve.value_per_s
    change_s = trainer.up_s if nodes > held else trainer.down_s if nodes < held else 0.0
    cost = window.change_weight * worth.item(held) * change_s
    if not nodes:
        return -cost
    stays, fresh = window.stays, trainer.fresh
    life_s = sum([n * stays[k].life_s for k, n in holding.items()]) / nodes
    hits = sum([fresh.get(k, 1.0) * stays[k].hits()[n] for k, n in holding.items()])
    useful_s = life_s - window.hit_weight * trainer.loss_s * hits
    if held == 0:
        useful_s -= window.change_weight * trainer.start_s
    return worth.item(nodes) * useful_s - cost


def total_gain(window: Window, plan: Sequence[Holding]) -> float:
    """Return what all trainers gain together."""
    return sum([gain(window, place, holding) for place, holding in enumerate(plan)])


# ----------------------------------------------------------------------
# How much any plan of a window can gain at most (docs/model.md, W3).

if TYPE_CHECKING:
    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]


_STEPS_window_bound = 120
"""Twice as many lower the bound of 100 trainers on 1,000 nodes by 0.2 % at most."""

_FIRST_STEPS = 12
"""On the way to prices that are in proportion to lives."""

_PATIENCE = 5
"""Steps without progress after which they become shorter."""

_SHORTER = 0.6

_PROGRESS = 1e-4


class Dual(NamedTuple):
    """A bound, and where it was found.

    Attributes:
        value: No plan gains more.
        prices: [λ_k] Of a node by class.
    """

    value: float
    prices: Vector


class Asked(NamedTuple):
    """What trainers would do at prices.

    Attributes:
        value: What no plan exceeds.
        chosen: By trainer: the row of the options that it likes best.
        losses: By row: what choosing it would lose to its trainer.
        takes: By row: nodes by class.
    """

    value: float
    chosen: Places
    losses: Vector
    takes: Places

    def over(self, nodes: Places) -> Vector:
        """Return by how much all together want more of each class than there is."""
        wanted = self.takes[self.chosen].sum(axis=0)
        over: Vector = (wanted - nodes).astype(np.float64)
        return over


def loose_bound(window: Window) -> float:
    """Return what all trainers gain if nodes abound, live longest and are never hit.

    Where a worth is below 0, losses are a gain: then as if every class was hit. And
    where the present worth is, so is a change.
    """
    lives_s = max([stay.life_s for stay in window.stays.values()], default=0.0)
    hits = sum([stay.hit for stay in window.stays.values()])
    total = 0.0
    for one in window.trainers:
        worth = one.curve.value_per_s[list(one.curve.sizes)]
        start_s = 0.0 if one.held else window.change_weight * one.start_s
        lost_s = window.hit_weight * one.loss_s * hits
        best = np.maximum(worth * (lives_s - start_s), -worth * (lost_s + start_s))
        present = window.change_weight * one.curve.value_per_s[sum(one.held.values())]
        change = max(0.0, -float(present) * max(one.up_s, one.down_s))
        total += max(0.0, float(best.max())) + change
    return total


def ask(options: Options, prices: Vector) -> Asked:
    """Return what trainers choose at *prices*, and what that says of all plans.

    Nodes of class k cost λ_k each, for everybody, and nobody minds what others take.
    That is a relaxation for any λ >= 0, so that nothing rests on how λ was found.
    """
    values, takes = options.best(prices)
    ends = options.ends
    best = np.maximum.reduceat(values, options.first)
    losses = np.repeat(best, ends - options.first) - values
    chosen = [
        first + int(losses[first:end].argmin())
        for first, end in zip(options.first, ends, strict=True)
    ]
    value = float(best[options.kind].sum() + prices @ options.pool.nodes)
    return Asked(value, np.array(chosen, dtype=np.intp)[options.kind], losses, takes)


def first(options: Options, deadline: Deadline = NEVER) -> Dual:
    """Return a bound to begin from: the best prices in proportion to lives."""
    pool = options.pool
    best = Dual(np.inf, np.zeros(len(pool.nodes)))
    least, most = 0.0, np.inf
    scale = 0.0
    for _ in range(_FIRST_STEPS):
        prices = scale * pool.life_s
        asked = ask(options, prices)
        if asked.value < best.value:
            best = Dual(asked.value, prices)
        if deadline.passed():
            break
        if asked.over(pool.nodes) @ pool.life_s > 0.0:
            least = scale
        else:
            most = scale
        if not most:
            break
        if np.isfinite(most):
            scale = (least + most) / 2.0
        else:
            scale = 2.0 * scale or abs(asked.value) / float(pool.nodes @ pool.life_s)
    return best


def tighten(
    options: Options,
    start: Dual,
    *,
    reached: float,
    steps: int = _STEPS_window_bound,
    deadline: Deadline = NEVER,
) -> Dual:
    """Lower the bound by subgradients, with Polyak's steps towards what is reached.

    Args:
        options: Sizes of all trainers.
        start: Where to go on from.
        reached: A gain that is known to be possible, or a guess of it; the bound
            holds for any.
        steps: How many to make at most.
        deadline: When to stop; one step is always made.
    """
    pool, best, pace, stalled = options.pool, start, 1.0, 0
    prices, over_best = start.prices, np.zeros(len(options.pool.nodes))
    for _ in range(steps):
        asked = ask(options, prices)
        stalled = 0 if asked.value < best.value * (1.0 - _PROGRESS) else stalled + 1
        if asked.value <= best.value:
            best, over_best = Dual(asked.value, prices), asked.over(pool.nodes)
        over, distance = asked.over(pool.nodes), asked.value - reached
        if stalled >= _PATIENCE:
            pace, stalled = pace * _SHORTER, 0
            prices, over, distance = best.prices, over_best, best.value - reached
        over[(prices <= 0.0) & (over < 0.0)] = 0.0
        length = float(over @ over)
        if not length or distance <= 0.0 or deadline.passed():
            break
        prices = np.maximum(0.0, prices + pace * distance / length * over)
    return best


# ----------------------------------------------------------------------
# What every size of every trainer gains at most, nodes of a class at a price.

if TYPE_CHECKING:
    _Kind = tuple[Places, Places, Places, Vector, Vector]


class Options(NamedTuple):
    """Sizes of trainers, one below the other; what they gain is linear in nodes.

    Trainers that do not differ, and hold the same, are one kind and have the same
    rows. Shapes are (rows,) and (rows, classes) if not said.

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

    pool: Pool
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

    def of(self, place: int) -> Options:
        """Return the rows of trainer *place* alone."""
        kind = self.kind[place]
        is_last = kind + 1 == len(self.first)
        end = len(self.size) if is_last else self.first[kind + 1]
        rows = slice(self.first[kind], end)
        return Options(
            self.pool,
            _ONE,
            _ONE,
            self.size[rows],
            self.least[rows],
            self.room[rows],
            self.base[rows],
            self.slope[rows],
        )

    def best(self, prices: Vector) -> tuple[Vector, Places]:
        """Return what each row gains at most at *prices*, and the nodes it takes.

        Shapes (rows,) and (rows, classes); -inf where its nodes are not to be had.
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


_ONE = np.zeros(1, dtype=np.intp)


def options_of(window: Window, pool: Pool) -> Options:
    """Return all sizes of the trainers, each allowed whatever the others leave."""
    kinds: dict[object, int] = {}
    made: list[_Kind] = []
    kind = []
    for one in window.trainers:
        by_class = frozenset(one.held.items()), frozenset(one.fresh.items())
        costs = one.up_s, one.down_s, one.start_s, one.loss_s
        known = kinds.setdefault((one.curve, *by_class, *costs), len(made))
        if known == len(made):
            made.append(_rows(window, pool, one))
        kind.append(known)
    lengths = [len(rows[0]) for rows in made]
    first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
    size, least, room, base, slope = [
        np.concatenate(column) for column in zip(*made, strict=True)
    ]
    numbered = np.array(kind, dtype=np.intp)
    return Options(pool, numbered, first, size, least, room, base, slope)


def _rows(window: Window, pool: Pool, trainer: Holder) -> _Kind:
    """Return one kind's columns of :class:`Options` from the sizes on."""
    size = np.array((0, *trainer.curve.sizes), dtype=np.intp)
    least, most = _ranges(pool, pool.row(trainer.held), size)
    held = sum(trainer.held.values())
    worth = trainer.curve.value_per_s[size]
    fresh = pool.fresh(trainer)
    hits = fresh * pool.hits[np.arange(len(pool.nodes)), least]
    rise = fresh * _rise(pool, least, most, worth)
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


def _ranges(pool: Pool, held: Places, size: Places) -> tuple[Places, Places]:
    """Return the nodes by class that no migration (M4) leaves each size."""
    change = (size - held.sum())[:, None]
    least = np.where(change >= 0, held, np.maximum(0, held + change))
    most = np.where(change <= 0, held, np.minimum(pool.nodes, held + change))
    return least, np.maximum(most, least)


def _rise(
    pool: Pool,
    least: Places,
    most: Places,
    worth: Vector,
) -> Vector:
    """Return hits a node above the least, never more than true in the gain (W3).

    h is concave: over a range its chord lies below, and the line through its first
    node above, which is what counts where the worth is negative.
    """
    end = np.where((worth >= 0.0)[:, None], most, least + 1)
    classes = np.arange(len(pool.nodes))
    rise = pool.hits[classes, end] - pool.hits[classes, least]
    chord: Vector = rise / np.maximum(end - least, 1)
    return chord


# ----------------------------------------------------------------------
# The classes of a window as arrays, all of them or put together.


class Pool(NamedTuple):
    """Classes as arrays.

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
    def of(cls, window: Window) -> Pool:
        """Return the classes of *window*, in the order of their numbers."""
        numbers = sorted(window.stays)
        nodes = np.array([_stock(window, k) for k in numbers], dtype=np.intp)
        life_s = np.array([window.stays[k].life_s for k in numbers], dtype=np.float64)
        hits = np.zeros((len(numbers), int(nodes.max(initial=0)) + 2))
        for place, k in enumerate(numbers):
            row = window.stays[k].hits()[: hits.shape[1]]
            hits[place, : len(row)] = row
            hits[place, len(row) :] = row[-1]
        return cls({k: place for place, k in enumerate(numbers)}, nodes, life_s, hits)

    def merged(self, most: int) -> Pool:
        """Return at most *most* classes of classes with lives close to each other.

        Each node is as good as the best of them: it lives longest, and is hit no more
        than a node of all of the least hit class. So no plan gains less, as long as no
        worth is below 0.
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
        return Pool(place, nodes, life_s, hits)

    def fresh(self, trainer: Holder) -> Vector:
        """Return [s_jk] by place; of classes put together the least."""
        row = np.ones(len(self.nodes))
        for k, share in trainer.fresh.items():
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
    held = sum([one.held.get(k, 0) for one in window.trainers])
    return window.free.get(k, 0) + held


# ----------------------------------------------------------------------
# How far plans of windows are below the bound, for those who ask now and then.

_STEPS_window_gap = 40
"""Six times as many lower the mean gap of six days of Summit from 0.08 to 0.07 %."""

_MOST_CELLS = 250_000
"""Sizes times classes; a look at so many takes 10 ms."""

_FEWEST = 16
"""Classes are merged to no fewer."""


def window_gap(window: Window, gain: float) -> float:
    """Return how far *gain* is below what any plan of *window* gains, as ``gap``."""
    return gap(gain, bound(window, gain))


def bound(window: Window, reached: float) -> float:
    """Return a gain that no plan of *window* exceeds (docs/model.md, W3).

    Args:
        window: The problem.
        reached: What a plan is known to gain, or a guess of it: where to look for
            prices. The bound holds for any.
    """
    most = loose_bound(window)
    if not window.stays or not window.trainers:
        return most
    pool = Pool.of(window)
    sizes = sum([len(one.curve.sizes) + 1 for one in window.trainers])
    if sizes * len(pool.nodes) > _MOST_CELLS:
        if any(float(one.curve.value_per_s.min()) < 0.0 for one in window.trainers):
            return most
        pool = pool.merged(max(_FEWEST, _MOST_CELLS // sizes))
    options = options_of(window, pool)
    dual = tighten(options, first(options), reached=reached, steps=_STEPS_window_gap)
    return min(most, dual.value)


# ----------------------------------------------------------------------
# Checks of a window's plan in plain Python, whatever a search or solver claimed.

if TYPE_CHECKING:
    _Moved: TypeAlias = tuple[int, Holder, Holding]


_ROUNDING = 1e-9


def violations(
    window: Window, holdings: Sequence[Holding], *, claimed: float, least: float
) -> tuple[str, ...]:
    """Return what is wrong with a plan, in sentences; empty for a sound one.

    M1 to M4, over the trainers that change; a window has no M5.

    Args:
        window: The problem.
        holdings: The plan.
        claimed: What it is said to gain, W0.
        least: What keeping the present plan gains.
    """
    pairs = enumerate(zip(window.trainers, holdings, strict=True))
    moved = [
        (place, trainer, new)
        for place, (trainer, new) in pairs
        if new is not trainer.held and new != trainer.held
    ]
    broken = [one for changed in moved for one in _trainer_violations(*changed)]
    broken += _over_stock(window, moved)
    if not broken and claimed < least - _ROUNDING * (1.0 + abs(least)):
        broken = [f"W0: gains {claimed!r}, and keeping the present plan {least!r}"]
    return tuple(broken)


def _trainer_violations(place: int, trainer: Holder, new: Holding) -> Iterator[str]:
    held = trainer.held
    before, nodes = sum(held.values()), sum(new.values())
    if nodes and not is_size(nodes, trainer.curve.sizes):
        yield f"M2: trainer {place}: {nodes} nodes is not a size it can use"
    for k, count in new.items():
        if type(count) is not int or count < 0:
            yield f"M1: trainer {place}: {count!r} is not a whole number of nodes"
        if nodes <= before and count > held.get(k, 0):
            yield _migrates(place, before, nodes, k)
    if nodes >= before:
        for k, count in held.items():
            if count > new.get(k, 0):
                yield _migrates(place, before, nodes, k)


def _migrates(place: int, before: int, nodes: int, k: int) -> str:
    way = "more" if nodes <= before else "fewer"
    return f"M4: trainer {place}: {before} to {nodes} nodes, but {way} of class {k}"


def _over_stock(window: Window, moved: Sequence[_Moved]) -> Iterator[str]:
    """M3: no more of a class is given than was free or is given up."""
    more: dict[int, int] = {}
    for _, trainer, new in moved:
        for k, count in new.items():
            more[k] = more.get(k, 0) + count
        for k, count in trainer.held.items():
            more[k] = more.get(k, 0) - count
    for k, count in more.items():
        if count > window.free.get(k, 0):
            yield f"M3: {count} more nodes of class {k}, of which fewer are free"


# ----------------------------------------------------------------------
# What holds from one window to the next: worths, costs, shares of classes.

_MOST_CURVES = 10_000

Expected: TypeAlias = tuple[float, float, float, list[float]]
"""Of a class: life, hit and, of all its nodes and of 0 .. all, what ``gone`` says.

As few nodes of it are ever asked for, ``Stay.hits`` would take longer.
"""

_Alike: TypeAlias = "tuple[Curve, float, float, frozenset[tuple[int, float]]]"


class Terms:
    """What a trainer's nodes are worth to it, however long they stay.

    Kept while the trainer stays as it is, and weighed anew for every window: what
    losses and changes count for is learned, and never twice the same.

    Attributes:
        held: Nodes it holds now, by class.
        before: How many these are.
        worth: By node count; -inf at what is not a size.
        most: Its largest size.
        up: What growing costs, in objective units.
        down: What shrinking costs.
        start_s: Seconds of its new worth that starting costs; 0 if it holds nodes.
        loss_s: Seconds of its worth that a hit costs.
        fresh: What share of the hits on a class counts, where that is not all.
    """

    __slots__ = (
        "_present",
        "_trainer",
        "before",
        "down",
        "fresh",
        "held",
        "loss_s",
        "most",
        "start_s",
        "up",
        "worth",
    )

    def __init__(self, trainer: Holder, worth: list[float]) -> None:
        self.held, self.before = trainer.held, sum(trainer.held.values())
        self.worth, self.most = worth, len(worth) - 1
        self.fresh = trainer.fresh
        self._trainer = trainer
        # What it holds after a loss may be no size; it trained on it all the same.
        self._present = trainer.curve.value_per_s.item(self.before)
        self.up = self.down = self.start_s = self.loss_s = 0.0

    def weigh(self, hit_weight: float, change_weight: float) -> None:
        """Let losses and changes count for so much from now on."""
        trainer, present = self._trainer, self._present * change_weight
        self.up = present * trainer.up_s
        self.down = present * trainer.down_s
        self.start_s = 0.0 if self.held else change_weight * trainer.start_s
        self.loss_s = hit_weight * trainer.loss_s


class Worths:
    """What is derived from curves, trainers and shares, kept between windows."""

    def __init__(self) -> None:
        self._known: dict[Curve, list[float]] = {}
        self._gone: dict[tuple[float, int], list[float]] = {}
        self._waiting: dict[_Alike, Terms] = {}
        self._trainers: tuple[Holder, ...] = ()
        self._terms: list[Terms] = []

    def terms(self, window: Window) -> list[Terms]:
        """Return the terms of each trainer; they hold until the next window's.

        Few are others than in the last window. Those that hold nothing and are equal
        otherwise have the same.
        """
        known = len(window.trainers)
        self._terms = [
            terms if trainer is before else self._made(trainer)
            for trainer, before, terms in zip_longest(
                window.trainers, self._trainers[:known], self._terms[:known]
            )
        ]
        self._trainers = window.trainers
        for terms in self._terms:
            terms.weigh(window.hit_weight, window.change_weight)
        return self._terms

    def _made(self, trainer: Holder) -> Terms:
        worth = self.of(trainer.curve)
        if trainer.held:
            return Terms(trainer, worth)
        fresh = frozenset(trainer.fresh.items())
        key = trainer.curve, trainer.start_s, trainer.loss_s, fresh
        known = self._waiting.get(key)
        if known is None:
            if len(self._waiting) >= _MOST_CURVES:
                self._waiting.clear()
            known = self._waiting[key] = Terms(trainer, worth)
        return known

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

    def expected(self, stays: Mapping[int, Stay]) -> dict[int, Expected]:
        """Return what is expected of classes; shares change seldom."""
        expected = {}
        for k, (nodes, life_s, hit, share) in stays.items():
            known = self._gone.get((share, nodes))
            if known is None:
                if len(self._gone) >= _MOST_CURVES:
                    self._gone.clear()
                known = self._gone[share, nodes] = gone(share, nodes)
            expected[k] = life_s, hit, known[-1], known
        return expected
