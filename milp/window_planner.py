"""The look-ahead planner of a tick: one call, never late, its plan verified.

:func:`answer_window` runs the quick search of a replay (``milp.window_search``), then a
longer search with the prices of the bound (:func:`improve`), and gives small windows to
an integer program (``milp.program``) for a better plan or a proof. The longer search
improves the prices, rounds the trainers' choices at them to a plan (:func:`rounded`),
and exchanges nodes until nothing improves it (:class:`Exchange`); this repeats. At last
a few trainers at a time choose again (:func:`repair`). docs/reference/model.md,
"Windows", has the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.answer import PlanStatus, gap
from milp.problem import SOLVER_TOLERANCE
from milp.window import (
    BoundedClasses,
    BoundedPlan,
    Dual,
    SearchDeadline,
    first_bound,
    loose_bound,
    relax,
    rows_within,
    size_rows,
    tighten,
    total_gain,
    variables,
    violations,
)
from milp.window_search import WindowPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from milp.program import ModelSolver
    from milp.window import Holding, Places, SizeRows, Vector, Window
    from milp.window_search import WindowPlan

_QUICK_SHARE = 0.1
"""Share of the limit that the quick search may take."""

_SEARCH_SHARE = 0.8
"""Share of the rest that the longer search may take."""

_MOST_VARIABLES = 5_000
"""CBC proves most windows of that size within a second; with twice as many it finds
nothing in five."""

_LEAST_S = 0.3
"""With less left, starting a solver and importing PuLP does not pay."""

_NO_PRICES = "searched; no time, or too many sizes and classes, for prices"


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """A plan that has been verified, and how far from the best it can be.

    Attributes:
        holdings: Nodes by trainer and class; no constraint is broken.
        gain: Their gain, W0.
        kept_gain: Gain of the present plan; never more than ``gain``.
        bound: No plan gains more; never less than ``gain``.
        outcome: As of ``Answer``.
        reason: Why, where there is more to say; for people.
    """

    holdings: tuple[Holding, ...]
    gain: float
    kept_gain: float
    bound: float
    outcome: PlanStatus
    reason: str = ""

    @property
    def gap(self) -> float:
        """How far it is below the bound at most; see ``milp.answer.gap``."""
        return gap(self.gain, self.bound)


def answer_window(
    window: Window,
    starts: Sequence[Sequence[int]] = (),
    *,
    limit_s: float,
    clock: Callable[[], float],
    solver: ModelSolver | None = None,
) -> WindowAnswer:
    """Return the best plan of *window* that is found and verified within *limit_s*.

    Args:
        window: The problem.
        starts: Node counts by trainer to begin from as well as from the present plan,
            for example the published planner's.
        limit_s: Seconds that all of this may take; at 0 the plan is the present one or
            the result of the first moves.
        clock: Seconds that only go up, for example ``time.monotonic``.
        solver: Runs the integer program where the window is small enough; None for
            CBC, which is loaded only if it is needed.
    """
    deadline = SearchDeadline(clock() + limit_s, clock)
    plan = WindowPlanner().plan(
        window, starts, stop=deadline.share(_QUICK_SHARE).passed
    )
    if plan.refused:
        return _kept(window, plan, plan.refused)
    better = improve(window, plan.holdings, plan.kept, deadline.share(_SEARCH_SHARE))
    gain = total_gain(window, better.holdings)
    broken = violations(window, better.holdings, claimed=gain, least=plan.kept_gain)
    if broken or gain > better.bound + SOLVER_TOLERANCE * abs(gain):
        why = f"W3: gains {gain!r}, more than the bound {better.bound!r}"
        return _kept(window, plan, broken or (why,))
    known = BoundedPlan(better.holdings, gain, better.bound, "")
    if not _is_proven(known):
        known = _solved(window, known, better, solver=solver, deadline=deadline)
    # The same holdings may add up to another last digit in another order.
    least = min(plan.kept_gain, known.gain)
    most = max(known.bound, known.gain)
    outcome = PlanStatus.PROVEN if _is_proven(known) else PlanStatus.INCUMBENT
    return WindowAnswer(known.holdings, known.gain, least, most, outcome, known.reason)


def _is_proven(known: BoundedPlan) -> bool:
    return known.bound - known.gain <= 2.0 * SOLVER_TOLERANCE * abs(known.gain)


def _solved(
    window: Window,
    known: BoundedPlan,
    searched: SearchResult,
    *,
    solver: ModelSolver | None,
    deadline: SearchDeadline,
) -> BoundedPlan:
    """Improve or prove *known* by the integer program, if that is small enough.

    Args:
        window: The problem.
        known: The best plan and bound so far.
        searched: The sizes and prices of the search.
        solver: Runs the program; None for CBC.
        deadline: When to stop.
    """
    rows, dual = searched.rows, searched.dual
    if rows is None or dual is None:
        return known._replace(reason=_NO_PRICES)
    chosen = rows_within(rows, dual, known)
    size = variables(window, rows, chosen, enough=_MOST_VARIABLES)
    if size > _MOST_VARIABLES:
        return known._replace(
            reason=f"searched; {size} variables or more are too many for a program"
        )
    if deadline.left_s() < _LEAST_S:
        return known._replace(reason="searched; no time was left for a program")
    # PuLP takes 0.1 s to import, which a tick with nothing to prove is spared.
    from milp.program import prove, window_program  # noqa: PLC0415

    program = window_program(window, rows, chosen)
    return prove(window, program, known, solver=solver, deadline=deadline)


def _kept(window: Window, plan: WindowPlan, why: Sequence[str]) -> WindowAnswer:
    gain = plan.kept_gain
    most = max(gain, loose_bound(window))
    reason = f"the search's plan was refused: {'; '.join(why)}. The present plan stays."
    return WindowAnswer(plan.kept, gain, gain, most, PlanStatus.KEPT, reason)


# The longer search.

_ROUNDS = 5
"""Of improving prices and rounding; a sixth seldom helps."""

_STEPS = 15
"""Of improving the prices in a round."""

_LAST_STEPS = 40
"""Of improving the prices, once there is a plan."""

_ATTEMPTS = 1.5
"""At repairing the best plan, a trainer."""

_MOST_CELLS = 2_000_000
"""Sizes times classes; one relaxation of so many takes 0.1 s and 100 MB."""

_FEW_CLASSES = 16
"""Where there are too many cells, classes are merged to so many for the bound."""

_CLOSE = 1e-7


class SearchResult(NamedTuple):
    """The plan and bound of the longer search.

    Attributes:
        holdings: The plan, no worse than the one that it began from.
        bound: No plan gains more.
        rows: Sizes of all trainers; None without time, or for too many cells.
        dual: The prices that give the bound; None where ``rows`` is.
    """

    holdings: tuple[Holding, ...]
    bound: float
    rows: SizeRows | None
    dual: Dual | None


def improve(
    window: Window,
    holdings: Sequence[Holding],
    kept: Sequence[Holding],
    deadline: SearchDeadline,
) -> SearchResult:
    """Return a plan no worse than *holdings*, and a bound, by *deadline*.

    Args:
        window: The problem.
        holdings: A sound plan.
        kept: The present plan, with every trainer on one of its sizes.
        deadline: When to stop.
    """
    pool, most = BoundedClasses.of(window), loose_bound(window)
    sizes = sum([len(trainer.curve.sizes) + 1 for trainer in window.trainers])
    cells = sizes * len(pool.nodes)
    if not cells or deadline.passed():
        return SearchResult(tuple(holdings), most, None, None)
    if cells > _MOST_CELLS:
        return _improve_many(window, pool, (holdings, kept), most, deadline)
    rows = size_rows(window, pool)
    search = _Search(window, rows, pool.rows(holdings))
    search.improve(pool.rows(kept), deadline)
    value = min(most, search.dual.value)
    return SearchResult(pool.holdings(search.counts.tolist()), value, rows, search.dual)


def _improve_many(
    window: Window,
    pool: BoundedClasses,
    plans: Sequence[Sequence[Holding]],
    most: float,
    deadline: SearchDeadline,
) -> SearchResult:
    """Return the best of *plans* after exchanges, and a bound by merged classes.

    Args:
        window: The problem.
        pool: Its classes.
        plans: Sound plans to begin from.
        most: A bound.
        deadline: When to stop.
    """
    changes = (exchange := Exchange(window, pool)).changes
    gain, best = -np.inf, pool.rows(plans[0])
    for plan in plans:
        changes.load(pool.rows(plan))
        exchange.run(deadline.share(0.5))
        if changes.gain > gain:
            gain, best = changes.gain, changes.counts.copy()
    if all(float(t.curve.value_per_s.min()) >= 0.0 for t in window.trainers):
        rows = size_rows(window, pool.merged(_FEW_CLASSES))
        dual = first_bound(rows, deadline)
        dual = tighten(rows, dual, reached=gain, steps=_LAST_STEPS, deadline=deadline)
        most = min(most, dual.value)
    return SearchResult(pool.holdings(best.tolist()), most, None, None)


class _Search:
    """The best plan so far, nodes by trainer and class, and the best bound."""

    def __init__(self, window: Window, rows: SizeRows, counts: Places) -> None:
        self._rows = rows
        self._exchange = Exchange(window, rows.pool)
        self._gain = -np.inf
        self.counts = counts
        self.dual = Dual(np.inf, np.zeros(len(rows.pool.nodes)))

    def improve(self, kept: Places, deadline: SearchDeadline) -> None:
        """Search from the plan, from *kept*, and from trainers' choices at prices."""
        rows = self._rows
        self._try(self.counts, deadline)
        if (kept != self.counts).any():
            self._try(kept, deadline)
        self.dual = first_bound(rows, deadline)
        for _ in range(_ROUNDS):
            if self._is_done() or deadline.passed():
                return
            self._tighten(_STEPS, deadline)
            self._try(rounded(rows, self.dual, kept), deadline)
        self._exchange.changes.load(self.counts)
        half, rounds = deadline.share(0.5), int(_ATTEMPTS * len(self.counts))
        repair(self._exchange, rows, self.dual, rounds=rounds, deadline=half)
        self._take()
        self._tighten(_LAST_STEPS, deadline)

    def _tighten(self, steps: int, deadline: SearchDeadline) -> None:
        self.dual = tighten(
            self._rows,
            self.dual,
            reached=self._gain,
            steps=steps,
            deadline=deadline,
        )

    def _is_done(self) -> bool:
        return self.dual.value - self._gain <= _CLOSE * abs(self._gain)

    def _try(self, counts: Places, deadline: SearchDeadline) -> None:
        self._exchange.changes.load(counts)
        self._exchange.run(deadline)
        self._take()

    def _take(self) -> None:
        changes = self._exchange.changes
        if changes.gain > self._gain:
            self._gain, self.counts = changes.gain, changes.counts.copy()


# Exchange: any number of nodes of one class change hands at a time.


class Columns(NamedTuple):
    """A column for every class and node count, 0 .. all nodes of the class.

    Attributes:
        first: First column of each class.
        k: Class of each column.
        nodes: Its node count.
        most: All nodes of its class.
        life_s: Life of its class.
    """

    first: Places
    k: Places
    nodes: Places
    most: Places
    life_s: Vector

    @classmethod
    def of(cls, pool: BoundedClasses) -> Columns:
        """Return the columns of the classes of *pool*."""
        lengths = pool.nodes + 1
        first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
        k = np.repeat(np.arange(len(lengths)), lengths)
        return cls(
            first, k, np.arange(len(k)) - first[k], pool.nodes[k], pool.life_s[k]
        )


class ChangeTable:
    """A plan under search, and the added gain of giving or taking nodes of one class.

    Attributes:
        counts: [x_jk] Nodes by trainer and class.
        gains: By trainer, W0.
        gives: By trainer and column: added gain of giving so many; -inf where M2 or
            M4 forbid it.
        takes: The same for taking, from the free nodes or another trainer.
    """

    def __init__(self, window: Window, pool: BoundedClasses, columns: Columns) -> None:
        trainers, weight = window.trainers, window.change_weight
        self._pool, self._columns = pool, columns
        self._held = pool.rows([trainer.held for trainer in trainers])
        self._before = self._held.sum(axis=1)
        self._most = max([len(t.curve.value_per_s) for t in trainers], default=1)
        self._worth = np.zeros((len(trainers), self._most + 1))
        self._sized = np.zeros(self._worth.shape, dtype=np.bool_)
        for place, trainer in enumerate(trainers):
            sizes = [0, *trainer.curve.sizes]
            self._worth[place, sizes] = trainer.curve.value_per_s[sizes]
            self._sized[place, sizes] = True
        present = [
            weight * trainer.curve.value_per_s.item(n)
            for trainer, n in zip(trainers, self._before.tolist(), strict=True)
        ]
        self._up = np.array([trainer.up_s for trainer in trainers]) * present
        self._down = np.array([trainer.down_s for trainer in trainers]) * present
        self._start_s = np.where(self._before > 0, 0.0, [t.start_s for t in trainers])
        self._new_share = [pool.new_hit_share(t) for t in trainers]
        self._loss_s = np.array([window.hit_weight * t.loss_s for t in trainers])
        self.counts = self._held.copy()
        self.gains = np.zeros(len(trainers))
        self.gives = np.full((len(trainers), len(columns.k)), -np.inf)
        self.takes = self.gives.copy()

    @property
    def gain(self) -> float:
        """The plan's gain."""
        return float(self.gains.sum())

    def load(self, counts: Places) -> None:
        """Make *counts*, a sound plan, the plan."""
        self.counts[:] = counts
        for place in range(len(counts)):
            self.refresh(place)

    def without_taken(self, place: int) -> Places:
        """Return a trainer's nodes without those that it took in this plan."""
        counts, held = self.counts[place], self._held[place]
        is_size = self._sized[place, self._before[place]]
        least: Places = np.minimum(counts, held) if is_size else counts.copy()
        return least

    def refresh(self, place: int) -> None:
        """Recompute the gain of trainer *place*, and those of its changes."""
        pool, columns, counts = self._pool, self._columns, self.counts[place]
        new_share = self._new_share[place]
        nodes, life_s = int(counts.sum()), float(counts @ pool.life_s)
        hits_of = new_share * pool.hits[np.arange(len(counts)), counts]
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
                others + new_share[columns.k] * pool.hits[columns.k, mine + more],
            )
            kept[place] = np.where(allowed, row - now[0], -np.inf)

    def _giveable(self, place: int) -> Places:
        """Return the nodes by class that it may give; M4 forbids below and above."""
        counts, held = self.counts[place], self._held[place]
        over = np.maximum(counts - held, 0)
        if not over.any():
            mine: Places = counts
            return mine
        # A trainer above in one class only can get below by giving of that class.
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
        self,
        place: int,
        nodes: Places,
        life_s: Vector,
        hits: Vector,
    ) -> Vector:
        """Return W0 of trainer *place* for many holdings; -inf off its sizes."""
        before = self._before[place]
        useful_s = life_s / np.maximum(nodes, 1) - self._loss_s[place] * hits
        gain = self._worth[place, nodes] * (useful_s - self._start_s[place])
        gain -= np.where(nodes > before, self._up[place], 0.0)
        gain -= np.where(nodes < before, self._down[place], 0.0)
        allowed: Vector = np.where(self._sized[place, nodes], gain, -np.inf)
        return allowed


_WORTH_IT = 1e-9
"""Relative to the plan's value; less is rounding."""

NO_TRAINER = -1


class _Trade(NamedTuple):
    """A giver gives nodes of a class and a taker takes nodes of it.

    The difference comes from the free nodes or joins them; either trainer may be
    ``NO_TRAINER``.
    """

    gain: float
    k: int
    giver: int
    given: int
    taker: int
    taken: int


class Exchange:
    """Improves plans of one window by one trade after the other, the best each time.

    In a trade one trainer or none gives any number of nodes of a class, and one or none
    takes any number of these and of the free ones.
    """

    def __init__(self, window: Window, pool: BoundedClasses) -> None:
        self._pool, self._columns = pool, Columns.of(pool)
        self.changes = ChangeTable(window, pool, self._columns)

    def free(self) -> Places:
        """Return the nodes by class that no trainer has in the plan."""
        free: Places = self._pool.nodes - self.changes.counts.sum(axis=0)
        return free

    def run(self, deadline: SearchDeadline) -> int:
        """Trade until nothing improves the plan; return the number of trades."""
        changes, free, moves = self.changes, self.free(), 0
        if not changes.gives.size:
            return 0
        while not deadline.passed():
            move = self._best(free)
            if move.gain <= _WORTH_IT * (1.0 + float(np.abs(changes.gains).sum())):
                break
            self._make(move, free)
            moves += 1
        return moves

    def _make(self, move: _Trade, free: Places) -> None:
        for place, more in ((move.giver, -move.given), (move.taker, move.taken)):
            if place != NO_TRAINER:
                self.changes.counts[place, move.k] += more
                free[move.k] -= more
                self.changes.refresh(place)

    def _best(self, free: Places) -> _Trade:
        """Return the best trade between two trainers, or of one with the free nodes."""
        gives, takes = self.changes.gives, self.changes.takes
        best = self._pair(gives, takes, free)
        if best.giver != best.taker or best.giver == NO_TRAINER:
            return best
        without = gives.copy(), takes.copy()
        for gains in without:
            gains[best.giver] = -np.inf
        either = (
            self._pair(without[0], takes, free),
            self._pair(gives, without[1], free),
        )
        apart = [move for move in either if move.giver != move.taker]
        return max(apart, default=_Trade(0.0, 0, NO_TRAINER, 0, NO_TRAINER, 0))

    def _pair(
        self,
        gives: Vector,
        takes: Vector,
        free: Places,
    ) -> _Trade:
        columns = self._columns
        given, taken = gives.max(axis=0), takes.max(axis=0)
        given[columns.first] = taken[columns.first] = 0.0
        for start, nodes in zip(columns.first, self._pool.nodes, strict=True):
            run = taken[start : start + nodes + 1]
            np.maximum.accumulate(run, out=run)
        reach = np.minimum(columns.nodes + free[columns.k], columns.most)
        both = given + taken[columns.first[columns.k] + reach]
        column = int(both.argmax())
        k, count = int(columns.k[column]), int(columns.nodes[column])
        giver = int(gives[:, column].argmax()) if count else NO_TRAINER
        first = int(columns.first[k])
        within = takes[:, first : first + int(reach[column]) + 1]
        taker, most = divmod(int(within.argmax()), within.shape[1])
        if not most or within[taker, most] <= 0.0:
            taker, most = NO_TRAINER, 0
        return _Trade(float(both[column]), k, giver, count, taker, most)


# From prices to plans, and larger changes of a plan that no exchange improves.


def rounded(rows: SizeRows, dual: Dual, held: Places) -> Places:
    """Return a sound plan near the trainers' choices at *dual*'s prices.

    Trainers that choose to shrink do. The others choose again in turn, those with the
    largest gain a node first, each among the nodes that are left.

    Args:
        rows: Sizes of all trainers.
        dual: Prices.
        held: A sound plan near the present one.
    """
    relaxed = relax(rows, dual.prices)
    takes, counts = relaxed.takes[relaxed.chosen], held.copy()
    waits_loses = relaxed.losses[rows.first][rows.kind]
    wanted, before = takes.sum(axis=1), held.sum(axis=1)
    shrinking = (wanted < before) & (takes <= held).all(axis=1)
    counts[shrinking] = takes[shrinking]
    free = rows.pool.nodes - counts.sum(axis=0)
    gained = waits_loses / np.maximum(wanted, 1)
    growing = np.flatnonzero(wanted > before)
    choose_again(
        rows, dual.prices, growing[np.argsort(-gained[growing])], counts, free=free
    )
    return counts


def choose_again(
    rows: SizeRows,
    prices: Vector,
    places: Iterable[int],
    counts: Places,
    *,
    free: Places,
) -> None:
    """Let the trainers of *places* choose again in turn, each from the nodes left.

    *counts* and *free* are changed.
    """
    for place in places:
        own = rows.of(place)
        within = counts[place] + free
        fitting = (own.least <= within).all(axis=1)
        room = np.minimum(own.room, (within - own.least).clip(0))
        values, takes = own._replace(room=room).best(prices)
        values[~fitting] = -np.inf
        row = int(values.argmax())
        if values[row] > -np.inf:
            free += counts[place] - takes[row]
            counts[place] = takes[row]


_TOGETHER = 8
"""Trainers that choose again together; 3 and 20 find less in the same time."""

_GOLDEN = 0.618034

_PROGRESS = 1e-9


def repair(
    exchange: Exchange,
    rows: SizeRows,
    dual: Dual,
    *,
    rounds: int,
    deadline: SearchDeadline,
) -> int:
    """Let a few trainers at a time give the nodes that they took and choose again.

    Nodes are then exchanged until nothing improves; the result is kept if it is better.

    Args:
        exchange: Has the plan, which only gets better.
        rows: Sizes of all trainers.
        dual: Prices of nodes: their worth to the other trainers.
        rounds: How many attempts to make at most.
        deadline: When to stop.

    Returns:
        How many attempts were kept.
    """
    changes, kept = exchange.changes, 0
    for places in _few_at_a_time(len(changes.counts), rounds):
        if deadline.passed():
            break
        before, gain = changes.counts.copy(), changes.gain
        for place in places:
            changes.counts[place] = changes.without_taken(place)
        choose_again(rows, dual.prices, places, changes.counts, free=exchange.free())
        changed = (changes.counts != before).any(axis=1)
        for place in np.flatnonzero(changed).tolist():
            changes.refresh(place)
        exchange.run(deadline)
        if changes.gain > gain + _PROGRESS * abs(gain):
            kept += 1
            continue
        moved = np.flatnonzero((changes.counts != before).any(axis=1)).tolist()
        changes.counts[:] = before
        for place in moved:
            changes.refresh(place)
    return kept


def _few_at_a_time(trainers: int, rounds: int) -> Iterator[list[int]]:
    """Yield a few evenly spread trainers, others each time, by the golden ratio."""
    few = min(_TOGETHER, trainers)
    for number in range(rounds if trainers else 0):
        begin = number * few
        places = [
            int(trainers * (((begin + i) * _GOLDEN + number * 0.017) % 1.0))
            for i in range(few)
        ]
        yield list(dict.fromkeys(places))
