"""The published planner: one call from a problem to an answer that can be acted on.

:class:`Planner` solves one node class by the dynamic program of ``milp.exact``, and
several, or all where another solver is asked for, by counts (:func:`plan_counts`,
docs/reference/model.md, "Class by class"). Solvers time out, crash and make false
claims. Whatever happens, the answer is a plan that breaks no constraint: the solver's
if it verifies, else the present plan.

Nodes of one class are interchangeable, so a variable of the count model counts leases
instead of naming nodes. First the nodes are priced by a relaxation, which bounds the
gain and rules out most sizes (:class:`Reduction`), and a greedy plan is made. Where
that leaves something to decide, a solver gets the model of ``milp.program`` over the
sizes left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from milp.answer import (
    Answer,
    Plan,
    PlanStatus,
    SolverFailedError,
    SolverStatus,
    SolverUnavailableError,
)
from milp.exact import (
    ExactSolver,
    Limit,
    cells,
    corners,
    hull_of,
    node_price,
    price_sizes,
    search,
    stretched,
)
from milp.problem import (
    SOLVER_TOLERANCE,
    Problem,
    as_one_class,
    check_problem,
    constraint_violations,
    drop,
    gains,
    keep,
    plan_gain,
    units_used,
    violations,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import ProblemTrainer
    from milp.program import ModelSolver


class SolverName(StrEnum):
    """The solvers of problems, by name.

    ``exact`` is the dynamic program for one node class, and CBC for several. The others
    solve the count model; they are started only where its reduction and the search of
    one class leave something to decide.
    """

    EXACT = "exact"
    CBC = "cbc"
    HIGHS = "highs"


class Planner:
    """Plans problem after problem; the exact solver keeps terms between two.

    Args:
        solver: How to solve.
        limit_s: Seconds that all solver calls may take together for one problem; the
            dynamic program needs none.
        model_solver: Runs the MILPs instead of the one that *solver* names.
        verifies: Whether problems, and plans of the dynamic program, are checked; False
            only in replays, whose engine checks every change, and where a search begins
            from these plans and its own plan is verified. Plans of other solvers are
            always checked.

    Raises:
        SolverUnavailableError: HiGHS is asked for and not installed.
    """

    def __init__(
        self,
        solver: SolverName = SolverName.EXACT,
        *,
        limit_s: float = 10.0,
        model_solver: ModelSolver | None = None,
        verifies: bool = True,
    ) -> None:
        self.solver = solver
        self.limit_s = limit_s
        self._verifies = verifies
        self._exact = ExactSolver() if solver is SolverName.EXACT else None
        self._model_solver = model_solver
        if model_solver is None and solver is not SolverName.EXACT:
            self._model_solver = _model_solver(solver)

    def plan(self, problem: Problem) -> Answer:
        """Return the best plan that can be trusted.

        Raises:
            MalformedProblemError: The problem contradicts itself.
        """
        if self._verifies:
            check_problem(problem)
        if self._exact is not None and len(problem.classes) == 1:
            answer = Answer(self._exact.solve(problem), PlanStatus.PROVEN)
            return _checked(problem, answer) if self._verifies else answer
        if self._model_solver is None:
            self._model_solver = _model_solver(SolverName.CBC)
        try:
            answer = plan_counts(problem, self._model_solver, limit_s=self.limit_s)
        except (SolverFailedError, SolverUnavailableError) as error:
            return _kept(problem, str(error))
        return _checked(problem, answer)


def _model_solver(name: SolverName) -> ModelSolver:
    # PuLP takes 0.1 s to import, which a replay by the exact solver is spared.
    from milp.program import COUNT_OPTIONS, Cbc, Highs  # noqa: PLC0415

    return Highs() if name is SolverName.HIGHS else Cbc(options=COUNT_OPTIONS)


def _checked(problem: Problem, answer: Answer) -> Answer:
    broken = violations(problem, answer.plan)
    if broken:
        return _kept(problem, f"the solver's plan was refused: {'; '.join(broken)}.")
    return answer


def _kept(problem: Problem, why: str) -> Answer:
    return Answer(keep(problem), PlanStatus.KEPT, f"{why} The present plan stays.")


# Planning by counts.

_STAGES = ((1 / 16, 0.25), (1.0, 0.5))
"""Of each stage: the share of the gap that its sizes may lose, and its share of the
time. The prices of several classes take the rest."""


_PRICE_TIME = 0.25


_FEW_OPTIONS = 600
"""For so few, starting a solver costs more than the first stage saves."""


_MOST_OPTIONS = 5000
"""With more, CBC finds nothing in a few seconds, and PuLP writes for a second."""


_SEARCH_STAGES = (1 / 64, 1 / 16, 1 / 4, 1.0)
"""Shares of the gap for the search of one class, which is quick at the first."""


_MOST_CELLS = 200_000_000
"""A sum takes about 4 ns."""


_AT_LIMIT = "the best of the greedy plan and what the solver found within its limit"


_NO_SOLVER = "as good as its bound, so that no integer program was needed"


_SEARCHED = "proven by a search of all that can beat it, without an integer program"


def plan_counts(problem: Problem, solver: ModelSolver, *, limit_s: float) -> Answer:
    """Plan by counts; exact where a search or *solver* proves an optimum.

    The plan is not verified yet. Of the plans with its sizes it is one in which leases
    are in the classes named first (:func:`in_named_order`).

    Several classes are planned as one first, which is exact where the nodes can then be
    handed out. One class is searched if that takes less than a second. Else the model
    is solved over the options that lose little against the bound. A plan that itself
    loses no more than that is optimal (model.md, R6); otherwise it rules out more
    options for a second, final model. All solver calls together keep within *limit_s*.

    Raises:
        SolverFailedError: The solver crashed or returned no usable point.
        SolverUnavailableError: The solver is not installed.
    """
    rows = feasible_gains(problem)
    if len(problem.classes) == 1:
        return _plan_priced(problem, rows, solver, limit_s=limit_s)
    answer = _planned_as_one_class(problem, rows)
    if answer is not None:
        return answer
    answer = _plan_priced(problem, rows, solver, limit_s=limit_s)
    counts = in_named_order(problem, rows, answer.plan.counts)
    return replace(answer, plan=replace(answer.plan, counts=counts))


def _plan_priced(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    solver: ModelSolver,
    *,
    limit_s: float,
) -> Answer:
    """Plan by a bound from prices, a greedy plan, and a search or *solver*."""
    prices, relaxed = _relax(
        problem,
        rows,
        solver,
        limit_s=limit_s * _PRICE_TIME,
    )
    reduction = reduce(problem, rows, prices, relaxed)
    if reduction.is_proof:
        return Answer(reduction.plan(proven=True), PlanStatus.PROVEN, _NO_SOLVER)
    if len(problem.classes) == 1:
        reduction, is_proof = _search(problem, reduction, prices[0])
        if is_proof:
            return Answer(reduction.plan(proven=True), PlanStatus.PROVEN, _SEARCHED)
    return _solve(problem, reduction, solver, limit_s=limit_s)


def _planned_as_one_class(
    problem: Problem, rows: Sequence[NDArray[np.float64]]
) -> Answer | None:
    """Plan as if all nodes were of one class; None if that plan cannot be handed out.

    No plan for several classes gains more, so that one whose nodes can be handed out by
    class is optimal.
    """
    best = ExactSolver().solve(as_one_class(problem))
    targets = [nodes for (nodes,) in best.counts]
    if any(row[nodes] == -math.inf for row, nodes in zip(rows, targets, strict=True)):
        return None
    counts = greedy(problem, rows, targets=targets, price=[0.0] * len(problem.classes))
    if [sum(own) for own in counts] != targets:
        return None
    plan = Plan(tuple(map(tuple, counts)), best.gain, best.gain)
    return Answer(plan, PlanStatus.PROVEN, _NO_SOLVER)


def _relax(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    solver: ModelSolver,
    *,
    limit_s: float,
) -> tuple[list[float], list[list[float]]]:
    """Solve the linear relaxation over hull corners.

    Any prices give a valid bound and any counts a start, so that a solver's mistake
    here only costs time.

    Returns:
        Price of a unit of each class, the dual of its capacity (M3), and the
        relaxed counts by trainer and class, or nothing.
    """
    if len(problem.classes) == 1:
        hulls = [hull_of(row) for row in _by_units(problem, rows)]
        return [node_price(hulls, problem.classes[0].nodes)], []
    options = [
        {n: float(row[n]) for n in _corner_sizes(row, sum(trainer.held))}
        for trainer, row in zip(problem.trainers, rows, strict=True)
    ]
    from milp.program import count_model  # noqa: PLC0415

    model = count_model(problem, options, is_relaxed=True)
    if solver.solve(model.model, limit_s=limit_s) is not SolverStatus.OPTIMUM:
        return [0.0] * len(problem.classes), []
    return model.prices(), model.relaxed_counts()


def _by_units(
    problem: Problem, rows: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Return the gains of a problem of one class by units instead of leases."""
    return [
        stretched(row, trainer.width(0))
        for trainer, row in zip(problem.trainers, rows, strict=True)
    ]


def _corner_sizes(row: NDArray[np.float64], held: int) -> list[int]:
    sizes = {n for n, _ in corners(row)}
    return sorted(sizes | {held} if row[held] > -math.inf else sizes)


def _search(
    problem: Problem, reduction: Reduction, price: float
) -> tuple[Reduction, bool]:
    """Search one class for better plans, and tell whether the best is proven."""
    by_units = _by_units(problem, reduction.rows)
    priced = [price_sizes(row, price) for row in by_units]
    for share in _SEARCH_STAGES:
        within = reduction.gap * share
        limit = Limit(within, price, problem.classes[0].nodes)
        if cells(priced, limit) > _MOST_CELLS:
            break
        found, value = search(priced, limit)
        if value > reduction.gain:
            counts = [
                (n // trainer.width(0),)
                for trainer, n in zip(problem.trainers, found, strict=True)
            ]
            reduction = reduction.improved(tuple(counts), value)
        if reduction.gap <= within:
            return reduction, True
    return reduction, False


def _solve(
    problem: Problem,
    reduction: Reduction,
    solver: ModelSolver,
    *,
    limit_s: float,
) -> Answer:
    from milp.program import count_model  # noqa: PLC0415

    few = sum(map(len, reduction.options(reduction.gap))) <= _FEW_OPTIONS
    for share, time in _STAGES[1:] if few else _STAGES:
        within = reduction.gap * share
        options = reduction.options(within)
        if sum(map(len, options)) > _MOST_OPTIONS:
            break
        model = count_model(problem, options)
        found = solver.solve(model.model, limit_s=limit_s * time)
        if found is SolverStatus.INFEASIBLE:
            raise SolverFailedError(
                f"the solver claims: {found}; it has a plan, so the solver is wrong."
            )
        if found is not SolverStatus.NOTHING:
            reduction = _with_point(problem, reduction, model.counts(), found)
        if reduction.is_proof or (
            found is SolverStatus.OPTIMUM and reduction.gap <= within
        ):
            return Answer(reduction.plan(proven=True), PlanStatus.PROVEN)
    return Answer(reduction.plan(proven=False), PlanStatus.INCUMBENT, _AT_LIMIT)


def _with_point(
    problem: Problem,
    reduction: Reduction,
    counts: tuple[tuple[int, ...], ...],
    found: SolverStatus,
) -> Reduction:
    """Use the solver's point if it is sound and no worse than it should be.

    Raises:
        SolverFailedError: It breaks a constraint, or is called optimal though a
            better plan was among those to choose from.
    """
    broken = constraint_violations(problem, counts)
    if broken:
        raise SolverFailedError(f"the solver's point was refused: {'; '.join(broken)}.")
    gain = plan_gain(problem, counts)
    short = reduction.gain - gain
    if found is SolverStatus.OPTIMUM and short > SOLVER_TOLERANCE * abs(reduction.gain):
        raise SolverFailedError(
            f"the solver calls a gain of {gain:g} optimal, but {reduction.gain:g} is "
            f"known to be possible. Its answer was not used."
        )
    return reduction.improved(counts, gain)


# A bound that rules options out, and a plan to start from.

_ROUNDING = 1e-9
"""Far above the rounding of a sum of gains, relative to its magnitude (R5)."""


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A bound, the best plan known, and how much each option loses.

    Attributes:
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not possible.
        losses: How far each lies under its trainer's best at the prices.
        bound: No plan gains more.
        rounding: Differences up to this may be rounding.
        counts: The best plan known, shape (trainers, classes).
        gain: Its gain.
    """

    rows: Sequence[NDArray[np.float64]]
    losses: Sequence[NDArray[np.float64]]
    bound: float
    rounding: float
    counts: tuple[tuple[int, ...], ...]
    gain: float

    @property
    def gap(self) -> float:
        """How much a better plan can still gain, rounding included."""
        return self.bound - self.gain + self.rounding

    @property
    def is_proof(self) -> bool:
        """Whether the plan known is as good as the bound."""
        return self.bound - self.gain <= self.rounding

    def options(self, within: float) -> list[dict[int, float]]:
        """Gains of the sizes that lose up to *within*, and the known plan's sizes."""
        chosen = []
        for row, lost, counts in zip(self.rows, self.losses, self.counts, strict=True):
            sizes = {int(n) for n in np.flatnonzero(lost <= within)} | {sum(counts)}
            chosen.append({n: float(row[n]) for n in sorted(sizes)})
        return chosen

    def improved(self, counts: tuple[tuple[int, ...], ...], gain: float) -> Reduction:
        """The same with *counts* as the plan known, if they gain more."""
        return replace(self, counts=counts, gain=gain) if gain > self.gain else self

    def plan(self, *, proven: bool) -> Plan:
        """The plan known, as its own bound where it is proven optimal."""
        bound = self.gain if proven else max(self.gain, self.bound)
        return Plan(self.counts, self.gain, bound)


def reduce(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    prices: Sequence[float],
    relaxed: Sequence[Sequence[float]],
) -> Reduction:
    """Bound the problem at *prices*, and find a greedy plan.

    Args:
        problem: The problem.
        rows: From :func:`feasible_gains`.
        prices: [lambda_k] Gain of a unit of each class, 0 or more.
        relaxed: A relaxed plan's counts to start from, or nothing.
    """
    paid = [
        row - node_costs(trainer, problem, prices)[: len(row)]
        for trainer, row in zip(problem.trainers, rows, strict=True)
    ]
    best = np.array([float(row.max()) for row in paid])
    worth = sum(p * c.nodes for p, c in zip(prices, problem.classes, strict=True))
    bound = float(best.sum()) + worth
    rounding = _ROUNDING * (float(np.abs(best).sum()) + worth)
    priced = [float(row.argmax()) for row in paid]
    counts = _incumbent(problem, rows, priced, prices, relaxed)
    losses = [top - row for row, top in zip(paid, best, strict=True)]
    gain = plan_gain(problem, counts)
    return Reduction(rows, losses, bound, rounding, counts, gain)


def feasible_gains(problem: Problem) -> list[NDArray[np.float64]]:
    """Gains by trainer, ``-inf`` where no plan can have that size (M2-M5)."""
    rows = []
    free = [0.0] * len(problem.classes)
    for trainer in problem.trainers:
        row = gains(trainer, problem.t_fwd_s).copy()
        row[~np.isfinite(node_costs(trainer, problem, free))] = -np.inf
        rows.append(row)
    return rows


def node_costs(
    trainer: ProblemTrainer, problem: Problem, prices: Sequence[float]
) -> NDArray[np.float64]:
    """Least price of 0 .. max leases for *trainer* without migration (M4, M5).

    Below what it holds it keeps its cheapest leases; above, it keeps all and
    adds the cheapest ones. ``inf`` where there are not that many.
    """
    usable = range(len(prices)) if trainer.usable is None else trainer.usable
    most = len(trainer.curve.value_per_s) - 1
    each = _lease_prices(trainer, prices)
    cheap_first = sorted(usable, key=lambda k: each[k])
    own = [each[k] for k in cheap_first for _ in range(trainer.held[k])]
    if len(own) == sum(trainer.held):
        for k in cheap_first:
            spare = problem.classes[k].nodes // trainer.width(k) - trainer.held[k]
            own += [each[k]] * min(spare, most - len(own))
    costs = np.full(most + 1, np.inf)
    costs[: len(own) + 1] = np.cumsum([0.0, *own])
    return costs


def _lease_prices(trainer: ProblemTrainer, prices: Sequence[float]) -> Sequence[float]:
    """Return the price of a lease of *trainer* by class, from that of a unit."""
    if trainer.widths is None:
        return prices
    return [price * width for price, width in zip(prices, trainer.widths, strict=True)]


def _incumbent(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    priced: Sequence[float],
    prices: Sequence[float],
    relaxed: Sequence[Sequence[float]],
) -> tuple[tuple[int, ...], ...]:
    """The best of the greedy plans from each start and from the present counts.

    From the relaxed plan once by its sizes alone, and once in its classes first.
    """
    starts: list[tuple[Sequence[float], Sequence[Sequence[int]]]] = [(priced, ())]
    if relaxed:
        sizes = [sum(own) for own in relaxed]
        starts.append((sizes, ()))
        starts.append((sizes, [[int(n + _WHOLE) for n in own] for own in relaxed]))
    starts.append(([float(sum(trainer.held)) for trainer in problem.trainers], ()))
    plans = []
    for start, first in starts:
        targets = [
            int(np.flatnonzero(np.isfinite(row[: int(size + _WHOLE) + 1]))[-1])
            for row, size in zip(rows, start, strict=True)
        ]
        counts = greedy(problem, rows, targets=targets, price=prices, first=first)
        plans.append(tuple(map(tuple, counts)))
    return max(plans, key=lambda counts: plan_gain(problem, counts))


_WHOLE = 1e-6
"""A solver's count that is this little under a whole number is taken for that."""


# Which of the classes leases are in, where plans gain the same.


def in_named_order(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    counts: tuple[tuple[int, ...], ...],
) -> tuple[tuple[int, ...], ...]:
    """Return a plan of the sizes of *counts*, in the classes named first.

    It gains the same, as gains go by sizes. No trainer could have a lease in a class
    named earlier in place of a later one, without migrating and with the others as they
    are. Of two such plans, one from *counts* on and one made anew, it is the one that
    takes less of the class named last, and if these are equal, of the one before it.

    Args:
        problem: The problem.
        rows: From :func:`feasible_gains`.
        counts: A plan that breaks no constraint.
    """
    free_of_charge = [0.0] * len(problem.classes)
    sizes = [sum(own) for own in counts]
    stock = _Stock(problem, free_of_charge, counts)
    before: list[list[int]] = []
    while stock.counts != before:
        before = list(stock.counts)
        for j, size in enumerate(sizes):
            stock.resize(j, size)
    moved = stock.counts
    anew = greedy(problem, rows, targets=sizes, price=free_of_charge)
    plans = [moved] if [sum(own) for own in anew] != sizes else [moved, anew]
    best = min(plans, key=lambda plan: _last_used(problem, plan))
    return tuple(map(tuple, best))


def _last_used(problem: Problem, counts: Sequence[Sequence[int]]) -> list[int]:
    """Return the units used of each class, that named last first."""
    classes = reversed(range(len(problem.classes)))
    return [units_used(problem, counts, k) for k in classes]


# The greedy plan.

_MOST_SWEEPS = 20
"""Sweeps over all trainers; each gives every trainer at most one better size."""


def greedy(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    *,
    targets: Sequence[int],
    price: Sequence[float],
    first: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """Bring every trainer near its target size, then spend the nodes left.

    Shrinking trainers release nodes first; growing ones follow, those with the
    widest leases first, of these the ones with the fewest classes to choose from; at
    last every trainer that gains by growing on the nodes left does so.

    Args:
        problem: The problem.
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not allowed.
        targets: Wanted size by trainer, each an allowed one.
        price: Of a unit of each class; cheap leases are taken first, and of equally
            cheap ones those of the classes named first.
        first: Counts by trainer and class that shrinking trainers keep, and growing
            ones fill up first, as far as these are sizes and there is room; or nothing.

    Returns:
        Counts, shape (trainers, classes).
    """
    held_by = [sum(trainer.held) for trainer in problem.trainers]
    stock = _Stock(problem, price, [trainer.held for trainer in problem.trainers])
    # A trainer off its sizes may grow at once, which others must have shrunk for.
    for j in sorted(range(len(held_by)), key=lambda j: targets[j] >= held_by[j]):
        held = held_by[j]
        is_off = not np.isfinite(rows[j][held])
        if first and targets[j] < held:
            stock.cut(j, first[j], rows[j])
        elif first and is_off:
            stock.fill(j, first[j], rows[j])
            is_off = not np.isfinite(rows[j][sum(stock.counts[j])])
        if is_off or (targets[j] < held and not first):
            stock.resize(j, _most_within(rows[j], min(targets[j], stock.reach(j))))
    for j, own in enumerate(first):
        if targets[j] > sum(stock.counts[j]) >= held_by[j]:
            stock.fill(j, own, rows[j])
    _grow(stock, problem, rows, targets)
    for _ in range(_MOST_SWEEPS):
        if not _sweep(stock, rows):
            break
    return stock.counts


def _grow(
    stock: _Stock,
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    targets: Sequence[int],
) -> None:
    """Bring trainers that keep all their leases as near to their targets as can be."""
    by_choice = sorted(
        enumerate(problem.trainers),
        key=lambda jt: (-max(jt[1].widths or (1,)), len(stock.usable[jt[0]])),
    )
    for j, trainer in by_choice:
        held = sum(trainer.held)
        if targets[j] > sum(stock.counts[j]) >= held:
            size = _most_within(rows[j], min(targets[j], stock.reach(j)))
            stock.resize(j, max(size, held))


def _sweep(stock: _Stock, rows: Sequence[NDArray[np.float64]]) -> bool:
    """Let each trainer grow to its best size within reach, best gain first."""
    gained = []
    for j, row in enumerate(rows):
        best = _best_within(row, stock.reach(j))
        more = float(row[best] - row[sum(stock.counts[j])])
        if more > 0:
            gained.append((more, -j))
    for _, negative in sorted(gained, reverse=True):
        j = -negative
        best = _best_within(rows[j], stock.reach(j))
        if rows[j][best] > rows[j][sum(stock.counts[j])]:
            stock.resize(j, best)
    return bool(gained)


def _most_within(row: NDArray[np.float64], most: int) -> int:
    """The largest allowed size up to *most*."""
    return int(np.flatnonzero(np.isfinite(row[: most + 1]))[-1])


def _best_within(row: NDArray[np.float64], most: int) -> int:
    return int(row[: most + 1].argmax())


class _Stock:
    """Leases by trainer and class, and free units, while a plan is being made.

    Args:
        problem: The problem.
        price: Of a unit of each class.
        counts: The plan to begin from; it breaks no constraint but M2 and M5.
    """

    def __init__(
        self,
        problem: Problem,
        price: Sequence[float],
        counts: Sequence[Sequence[int]],
    ) -> None:
        every = range(len(problem.classes))
        self._trainers = problem.trainers
        self._price = price
        self._cheap_first = sorted(every, key=lambda k: (price[k], k))
        self.usable = [
            frozenset(every) if t.usable is None else t.usable for t in problem.trainers
        ]
        self.counts = [list(own) for own in counts]
        self._free = [
            c.nodes - units_used(problem, self.counts, k)
            for k, c in enumerate(problem.classes)
        ]

    def reach(self, j: int) -> int:
        """Most leases that the trainer can have now without migrating."""
        trainer, usable = self._trainers[j], self.usable[j]
        own = self._own_within_reach(j)
        if sum(own) < sum(trainer.held):
            return sum(own)
        if trainer.widths is None:
            return sum(own) + sum(
                self._free[k] - (own[k] - self.counts[j][k]) for k in usable
            )
        return sum(own) + sum(
            self._free[k] // trainer.widths[k] - (own[k] - self.counts[j][k])
            for k in usable
        )

    def resize(self, j: int, size: int) -> None:
        """Give the trainer *size* leases, at most its reach, nested in its old ones."""
        trainer = self._trainers[j]
        widths = trainer.widths or [1] * len(self._free)
        for k, count in enumerate(self.counts[j]):
            self._free[k] += count * widths[k]
        own = [
            min(n, self._free[k] // widths[k]) if k in self.usable[j] else 0
            for k, n in enumerate(trainer.held)
        ]
        each = _lease_prices(trainer, self._price)
        row = drop(own, max(0, sum(own) - size), each)
        missing = size - sum(row)
        for k in self._cheapest_leases(each):
            if k in self.usable[j]:
                more = min(missing, self._free[k] // widths[k] - row[k])
                row[k] += more
                missing -= more
        self.counts[j] = row
        for k, count in enumerate(row):
            self._free[k] -= count * widths[k]

    def cut(self, j: int, wanted: Sequence[int], row: NDArray[np.float64]) -> None:
        """Let the trainer shrink to *wanted* leases by class, or to a size below.

        Args:
            j: The trainer, with all the leases that it held.
            wanted: Most leases by class, none of one that it may not use.
            row: Its gains by size.
        """
        kept = list(map(min, self.counts[j], wanted))
        self._set(j, self._to_size(j, kept, sum(kept) - _most_within(row, sum(kept))))

    def fill(self, j: int, wanted: Sequence[int], row: NDArray[np.float64]) -> None:
        """Let the trainer grow to *wanted* leases by class, or to a size below.

        Arguments as for :meth:`cut`.
        """
        trainer, own = self._trainers[j], self.counts[j]
        more = [
            min(max(0, n - own[k]), self._free[k] // trainer.width(k))
            for k, n in enumerate(wanted)
        ]
        most = sum(own) + sum(more)
        more = self._to_size(j, more, most - _most_within(row, most))
        self._set(j, [n + added for n, added in zip(own, more, strict=True)])

    def _to_size(self, j: int, counts: Sequence[int], surplus: int) -> list[int]:
        """Take *surplus* leases, or all, out of *counts*, dearest first."""
        each = _lease_prices(self._trainers[j], self._price)
        return drop(counts, min(surplus, sum(counts)), each)

    def _set(self, j: int, row: list[int]) -> None:
        trainer = self._trainers[j]
        for k, (before, count) in enumerate(zip(self.counts[j], row, strict=True)):
            self._free[k] += (before - count) * trainer.width(k)
        self.counts[j] = row

    def _cheapest_leases(self, each: Sequence[float]) -> Sequence[int]:
        """Return the classes by the price of a lease, cheapest first."""
        if each is self._price:
            return self._cheap_first
        return sorted(range(len(each)), key=lambda k: (each[k], k))

    def _own_within_reach(self, j: int) -> list[int]:
        """Leases it held at first that it still has or that fit again."""
        trainer = self._trainers[j]
        counts, free, usable = self.counts[j], self._free, self.usable[j]
        if trainer.widths is None:
            return [
                min(n, counts[k] + free[k]) if k in usable else 0
                for k, n in enumerate(trainer.held)
            ]
        return [
            min(n, counts[k] + free[k] // trainer.widths[k]) if k in usable else 0
            for k, n in enumerate(trainer.held)
        ]
