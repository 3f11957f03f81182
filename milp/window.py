"""Planning by expected lives: the problem, its objective, checks and bounds of plans.

Nodes that are expected to leave together form a class; a plan says how many nodes of
which class each trainer has. W0 to W2 are in docs/notes/lookahead.md, M1 to M5 and W3
to W8 in docs/reference/model.md. ``milp.window_search`` finds a plan quickly,
``milp.window_planner`` a better one in the time that a tick has.

The second half bounds what any plan of a window can gain (W3). Nodes of class k cost
λ_k each. At any prices λ >= 0 every trainer chooses its best size by itself, as if no
other wanted the same nodes; no plan exceeds what all gain then plus what the nodes
cost. :class:`BoundedClasses` and :class:`SizeRows` hold the classes and every size of
every trainer as arrays, :func:`relax` lets all trainers choose, and :func:`first_bound`
and :func:`tighten` look for prices that make the bound low. Prices also rule sizes out
(:func:`rows_within`); :func:`variables` tells how large a program of the rest would be.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from milp.answer import gap
from milp.problem import SOLVER_TOLERANCE, is_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from milp.problem import Curve

Holding: TypeAlias = "Mapping[int, int]"
"""Nodes by class, none of them 0."""


class WindowClass(NamedTuple):
    """A class of nodes, and what is expected of it until the horizon.

    Attributes:
        nodes: [m_k] Nodes that are idle now, held ones included; above 0.
        life_s: [L_k] Mean seconds until the horizon that one of them stays.
        hit: [p_k] Probability that at least one leaves before the horizon.
        share: [f_k] Share that leaves with a hit, above 0, to 1.
    """

    nodes: int
    life_s: float
    hit: float
    share: float

    def hits(self) -> list[float]:
        """Return [h_k] the expected hits on 0 .. m_k of its nodes (W1).

        Nodes of a class leave together, so that many are hit hardly more often than
        few: h(x) = p (1 - (1-f)^x) / (1 - (1-f)^m), which is p for all of them.
        """
        touched = hit_probabilities(self.share, self.nodes)
        return [self.hit * part / touched[-1] for part in touched]

    def until(self, reach_s: float) -> WindowClass:
        """Return the class with a horizon of *reach_s*.

        A class with a longer mean life then lives so long and is not hit.
        """
        if self.life_s <= reach_s:
            return self
        return self._replace(life_s=reach_s, hit=0.0)


def hit_probabilities(share: float, nodes: int) -> list[float]:
    """Return [1 - (1-f)^x] for x = 0 .. *nodes*, f being *share*.

    The probability that any of x nodes leaves with a hit, if each leaves by itself.
    """
    stays = 1.0 - share
    return [1.0 - stays**few for few in range(nodes + 1)]


@dataclass(frozen=True, slots=True)
class WindowTrainer:
    """A trainer as the look-ahead planner sees it.

    Attributes:
        curve: [O_j] Its worth by node count.
        held: [C_jk] Nodes it holds now, by class.
        up_s: [Rup_j] Seconds of its present worth that growing costs.
        down_s: [Rdw_j] Seconds of its present worth that shrinking costs.
        start_s: [Rst_j] Seconds of its new worth that starting from 0 costs.
        loss_s: [D_j] Seconds of its worth that losing nodes costs.
        new_hit_share: [s_jk] By class, 0 to 1: the share of its hits that hit no other
            node of this trainer; 1 where not named. It is below 1 where nodes that
            leave together are in several classes: the second class continues the curve
            of the first, h(o + x) = h(o) + (1-f)^o h(x).
    """

    curve: Curve
    held: Holding
    up_s: float
    down_s: float
    start_s: float
    loss_s: float
    new_hit_share: Mapping[int, float] = field(default_factory=dict)


class AlikeClasses(NamedTuple):
    """Classes of which the same is expected; no trainer holds a node of most of them.

    Attributes:
        each: What is expected of each.
        numbers: Ascending; the classes that the window names, too, are not part of it.
        total: How many are part of it; above 0.
    """

    each: WindowClass
    numbers: Sequence[int]
    total: int

    def has(self, k: int) -> bool:
        """Tell whether *k* is one of the numbers."""
        at = bisect_left(self.numbers, k)
        return at < len(self.numbers) and self.numbers[at] == k


@dataclass(frozen=True, slots=True)
class Window:
    """Which trainer gets how many nodes of which class, given expected lives.

    Attributes:
        classes: [K] By number.
        free: Nodes that no trainer holds, by class.
        trainers: [J] A plan has a holding for each, in this order.
        hit_weight: [κ] Weight of a foreseeable loss.
        change_weight: [η] Weight of a change; above 1 for hysteresis.
        alike: Classes besides those of ``classes``, all of whose nodes are free: of
            thousands that are alike a search looks at a few.
        order: Sort key of classes: where takes gain alike, the first one is made.
    """

    classes: Mapping[int, WindowClass]
    free: Holding
    trainers: tuple[WindowTrainer, ...]
    hit_weight: float
    change_weight: float
    alike: Sequence[AlikeClasses] = ()
    order: Callable[[int], int] = int

    @property
    def free_nodes(self) -> int:
        """How many nodes no trainer holds."""
        alike = [own.total * own.each.nodes for own in self.alike]
        return sum(self.free.values()) + sum(alike)

    def free_of(self, k: int) -> int:
        """Return how many nodes of class *k* no trainer holds."""
        if k in self.classes:
            return self.free.get(k, 0)
        return next((own.each.nodes for own in self.alike if own.has(k)), 0)

    def to_keep(self) -> Window:
        """Return the window for a later time: numbers of alike classes may change."""
        alike = [own._replace(numbers=tuple(own.numbers)) for own in self.alike]
        return replace(self, alike=alike, order=int)

    def with_all_named(self) -> Window:
        """Return the same window with every class in ``classes``, by number."""
        if not self.alike:
            return self
        more = {
            k: own.each
            for own in self.alike
            for k in own.numbers
            if k not in self.classes
        }
        every = dict(sorted([*self.classes.items(), *more.items()]))
        free = {**self.free, **{k: each.nodes for k, each in more.items()}}
        return replace(self, classes=every, free=free, alike=())


def gain(window: Window, place: int, holding: Holding) -> float:
    """Return the gain of trainer *place* with *holding* until the horizon (W0).

    ::

        O(n) (Σ x_k L_k / n - κ D Σ s_k h_k(x_k))
            - η O(C) (Rup [n > C] + Rdw [n < C]) - [C = 0] Rst O(n)

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
    classes, new_share = window.classes, trainer.new_hit_share
    life_s = sum([n * classes[k].life_s for k, n in holding.items()]) / nodes
    hits = sum(
        [new_share.get(k, 1.0) * classes[k].hits()[n] for k, n in holding.items()]
    )
    useful_s = life_s - window.hit_weight * trainer.loss_s * hits
    if held == 0:
        useful_s -= trainer.start_s
    return worth.item(nodes) * useful_s - cost


def total_gain(window: Window, plan: Sequence[Holding]) -> float:
    """Return the gain of a plan: the sum of all trainers'."""
    return sum([gain(window, place, holding) for place, holding in enumerate(plan)])


# Checks of a plan in plain Python, whatever a search or a solver claimed.

_ROUNDING = 1e-9


def violations(
    window: Window, holdings: Sequence[Holding], *, claimed: float, least: float
) -> tuple[str, ...]:
    """Return what is wrong with a plan, in sentences; empty for a sound one.

    M1 to M4, over the trainers that change; a window has no M5.

    Args:
        window: The problem.
        holdings: The plan.
        claimed: Its gain (W0) by the search or solver.
        least: The gain of the present plan.
    """
    pairs = enumerate(zip(window.trainers, holdings, strict=True))
    moved = [
        (place, trainer, new)
        for place, (trainer, new) in pairs
        if new is not trainer.held and new != trainer.held
    ]
    broken = [fault for changed in moved for fault in _trainer_violations(*changed)]
    broken += _over_stock(window, moved)
    if not broken and claimed < least - _ROUNDING * (1.0 + abs(least)):
        broken = [f"W0: gains {claimed!r}, and keeping the present plan {least!r}"]
    return tuple(broken)


def _trainer_violations(
    place: int, trainer: WindowTrainer, new: Holding
) -> Iterator[str]:
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


def _over_stock(
    window: Window, moved: Sequence[tuple[int, WindowTrainer, Holding]]
) -> Iterator[str]:
    """M3: no more nodes of a class than were free or are given up."""
    more: dict[int, int] = {}
    for _, trainer, new in moved:
        for k, count in new.items():
            more[k] = more.get(k, 0) + count
        for k, count in trainer.held.items():
            more[k] = more.get(k, 0) - count
    for k, count in more.items():
        if count > 0 and count > window.free_of(k):
            yield f"M3: {count} more nodes of class {k}, of which fewer are free"


# A bound on the gain of any plan.

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
        """Return at most *most* classes, each of classes with similar lives.

        A node of a merged class lives as long as the longest-lived of them, and is hit
        as a node of the least hit of them. So no plan gains less, if no worth is
        below 0.
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
        """Return [s_jk] by place; the least of merged classes."""
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
    """Every size of every trainer as a row, with an upper bound of its gain.

    The bound is linear: ``base`` for the least nodes of each class that M4 demands, and
    ``slope`` for each node above. Equal trainers with equal holdings are one kind and
    share rows. Shapes are (rows,) or (rows, classes) where not given.

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
    """Return all sizes of all trainers; each may be possible for the others' nodes."""
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
    start_s = 0.0 if held else trainer.start_s
    useful_s = (least * each_s - loss_s * hits).sum(axis=1) - start_s
    change_s = np.where(
        size > held, trainer.up_s, np.where(size < held, trainer.down_s, 0.0)
    )
    present = window.change_weight * trainer.curve.value_per_s.item(held)
    base = worth * useful_s - present * change_s
    return size, least, most - least, base, worth[:, None] * (each_s - loss_s * rise)


def _ranges(pool: BoundedClasses, held: Places, size: Places) -> tuple[Places, Places]:
    """Return the least and most nodes by class that M4 allows each size."""
    change = (size - held.sum())[:, None]
    least = np.where(change >= 0, held, np.maximum(0, held + change))
    most = np.where(change <= 0, held, np.minimum(pool.nodes, held + change))
    return least, np.maximum(most, least)


def _rise(pool: BoundedClasses, least: Places, most: Places, worth: Vector) -> Vector:
    """Return hits for each node above the least, so that no gain is underrated.

    h is concave. Its chord over a range lies below it; where the worth is negative, the
    line through the range's first two points is used, which lies above it.
    """
    end = np.where((worth >= 0.0)[:, None], most, least + 1)
    classes = np.arange(len(pool.nodes))
    rise = pool.hits[classes, end] - pool.hits[classes, least]
    chord: Vector = rise / np.maximum(end - least, 1)
    return chord


class Relaxation(NamedTuple):
    """The trainers' choices at prices.

    Attributes:
        value: No plan gains more.
        chosen: By trainer: its best row.
        losses: By row: how much less than the best row it gains its trainer (R3).
        takes: By row: nodes by class.
    """

    value: float
    chosen: Places
    losses: Vector
    takes: Places

    def excess(self, nodes: Places) -> Vector:
        """Return by how much the choices exceed the *nodes* of each class."""
        wanted = self.takes[self.chosen].sum(axis=0)
        excess: Vector = (wanted - nodes).astype(np.float64)
        return excess


def relax(rows: SizeRows, prices: Vector) -> Relaxation:
    """Let every trainer choose at *prices* as if it were alone.

    The value is a bound for any prices of 0 or more.
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


@dataclass(frozen=True, slots=True)
class SearchDeadline:
    """The moment at which planning must have an answer.

    Attributes:
        end_s: The deadline on *clock*.
        clock: Seconds that only go up.
    """

    end_s: float
    clock: Callable[[], float]

    def left_s(self) -> float:
        """Return the seconds that are left; below 0 where it has passed."""
        return self.end_s - self.clock()

    def passed(self) -> bool:
        """Tell whether no time is left."""
        return self.left_s() <= 0.0

    def share(self, part: float) -> SearchDeadline:
        """Return an earlier deadline, after *part* of the time that is left."""
        now_s = self.clock()
        return SearchDeadline(now_s + part * max(0.0, self.end_s - now_s), self.clock)


NEVER = SearchDeadline(math.inf, float)
"""For callers with all the time there is."""


_FIRST_STEPS = 12
"""To find the best prices in proportion to lives."""


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


_STEPS = 120
"""Twice as many lower the bound of 100 trainers on 1,000 nodes by 0.2 % at most."""


_PATIENCE = 5
"""Steps without progress after which they become shorter."""


_SHORTER = 0.6


_PROGRESS = 1e-4


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
        reached: The gain of a known plan, or a guess; the bound holds for any.
        steps: The most to make.
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
    """Return the gain if nodes abounded, lived longest and were never hit.

    Where a worth is below 0, hits are a gain: then as if every class was hit. Where the
    present worth is below 0, a change is a gain.
    """
    lives_s = max([known.life_s for known in window.classes.values()], default=0.0)
    hits = sum([known.hit for known in window.classes.values()])
    total = 0.0
    for trainer in window.trainers:
        worth = trainer.curve.value_per_s[list(trainer.curve.sizes)]
        start_s = 0.0 if trainer.held else trainer.start_s
        lost_s = window.hit_weight * trainer.loss_s * hits
        best = np.maximum(worth * (lives_s - start_s), -worth * (lost_s + start_s))
        held = sum(trainer.held.values())
        present = window.change_weight * trainer.curve.value_per_s[held]
        change = max(0.0, -float(present) * max(trainer.up_s, trainer.down_s))
        total += max(0.0, float(best.max())) + change
    return total


_GAP_STEPS = 40
"""Six times as many lower the mean gap of six days of Summit from 0.08 to 0.07 %."""


_MOST_CELLS = 250_000
"""Sizes times classes; one relaxation of so many takes 10 ms."""


_FEWEST = 16
"""Classes are merged to no fewer."""


def window_gap(window: Window, gain: float) -> float:
    """Return the ``gap`` of a plan of *window* that gains *gain*."""
    return gap(gain, bound(window.with_all_named(), gain))


def bound(window: Window, reached: float) -> float:
    """Return a gain that no plan of *window* exceeds.

    Args:
        window: The problem.
        reached: The gain of a known plan, or a guess, to find the prices faster; the
            bound holds for any.
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


# What an integer program would look like (W5), so that PuLP is loaded only for one that
# is small enough.


class BoundedPlan(NamedTuple):
    """The best plan and bound so far.

    Attributes:
        holdings: Nodes by trainer and class.
        gain: Their gain, W0.
        bound: No plan gains more.
        reason: Why nothing better is known; for people.
    """

    holdings: tuple[Holding, ...]
    gain: float
    bound: float
    reason: str


def rows_within(rows: SizeRows, dual: Dual, known: BoundedPlan) -> list[list[int]]:
    """Return by trainer the rows of a plan better than *known* (R4), and its own."""
    losses = relax(rows, dual.prices).losses
    slack = SOLVER_TOLERANCE * abs(known.bound)
    within = losses <= dual.value - known.gain + slack
    ends = rows.ends
    chosen = []
    for kind, own in zip(rows.kind.tolist(), known.holdings, strict=True):
        numbers = np.arange(rows.first[kind], ends[kind])
        mine = rows.size[numbers] == sum(own.values())
        chosen.append(numbers[within[numbers] | mine].tolist())
    return chosen


MOST_ERROR = 1e-6
"""How many hits a segment may lie below the curve: under a millionth of the gain, as a
hit costs less than a node's life."""


class Segment(NamedTuple):
    """A chord of the curve of hits by node count.

    Attributes:
        start: Nodes above the least ones at its beginning.
        nodes: How many more at its end.
        hits: Hits above those of the least nodes at its beginning.
        slope: Hits a node.
    """

    start: int
    nodes: int
    hits: float
    slope: float


class Segments:
    """Cuts the hits of classes into straight segments, and keeps their ends.

    A chord of a concave curve lies below it, here by at most ``MOST_ERROR``: a gain is
    never underrated, so that a bound stays one.

    Args:
        hits: [h_k] By class and node count.
    """

    def __init__(self, hits: Sequence[Sequence[float]]) -> None:
        self._hits = hits
        self._ends: dict[tuple[int, int], list[int]] = {}

    def count(self, k: int, least: int, most: int, *, exact: bool = False) -> int:
        """Return how many segments :meth:`of` makes."""
        if exact or most <= least:
            return most - least
        return bisect_left(self._ends_from(k, least), most) + 1

    def of(
        self, k: int, least: int, most: int, *, exact: bool = False
    ) -> list[Segment]:
        """Return the fewest segments of class *k* from *least* to *most* nodes.

        With *exact* every node is a segment of its own, without any error.
        """
        count = self.count(k, least, most, exact=exact)
        if exact:
            ends = list(range(least + 1, most + 1))
        else:
            ends = [*self._ends_from(k, least)[: count - 1], most] if count else []
        hits, starts = self._hits[k], [least, *ends][: len(ends)]
        return [
            Segment(
                start - least,
                end - start,
                hits[start] - hits[least],
                (hits[end] - hits[start]) / (end - start),
            )
            for start, end in zip(starts, ends, strict=True)
        ]

    def _ends_from(self, k: int, least: int) -> list[int]:
        known = self._ends.get((k, least))
        if known is None:
            known = self._ends[k, least] = _ends(self._hits[k], least)
        return known


def _ends(hits: Sequence[float], least: int) -> list[int]:
    """Return the ends of the longest segments that are close enough to the curve.

    Found by bisection: a shorter segment from the same beginning is closer.
    """
    ends, start, last = [], least, len(hits) - 1
    while start < last:
        near, far = start + 1, last
        while near < far:
            middle = (near + far + 1) // 2
            if _error(hits, start, middle) <= MOST_ERROR:
                near = middle
            else:
                far = middle - 1
        ends.append(near)
        start = near
    return ends


def _error(hits: Sequence[float], start: int, end: int) -> float:
    begin, slope = hits[start], (hits[end] - hits[start]) / (end - start)
    return max(
        [hits[n] - begin - slope * (n - start) for n in range(start + 1, end)],
        default=0.0,
    )


def variables(
    window: Window, rows: SizeRows, chosen: Sequence[Sequence[int]], *, enough: int
) -> int:
    """Return the number of variables of a program of the *chosen* rows by trainer.

    It stops counting above *enough*.
    """
    numbers = [row for own in chosen for row in own]
    least = len(numbers) + int((rows.room[numbers] > 0).sum())
    if least > enough:
        return least
    segments = Segments(rows.pool.hits.tolist())
    curves = [
        (trainer.curve, row)
        for trainer, own in zip(window.trainers, chosen, strict=True)
        for row in own
    ]
    for curve, row in curves:
        exact = curve.value_per_s.item(int(rows.size[row])) < 0.0
        froms, rooms = rows.least[row].tolist(), rows.room[row].tolist()
        counts = [
            segments.count(k, start, start + room, exact=exact)
            for k, (start, room) in enumerate(zip(froms, rooms, strict=True))
        ]
        # A single segment needs no variable that chooses it.
        least += sum([2 * n - 1 for n in counts if n > 1])
        if least > enough:
            break
    return least
