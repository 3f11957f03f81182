"""The count MILP, whole counts by class (docs/reference/model.md, "Class by class").

Nodes of one class are interchangeable, so a variable counts them instead of naming
them. :func:`plan_counts` first prices the nodes by a relaxation, which bounds the gain
and rules out most sizes (:class:`Reduction`), and makes a greedy plan. Where that
leaves nothing to decide, no solver is called; otherwise :func:`build` writes the model
down over the sizes left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pulp

from milp.errors import SolverFailedError
from milp.exact import Limit, cells, corners, hull_of, node_price, price_sizes, search
from milp.problem import SOLVER_TOLERANCE, Plan, scale_of
from milp.solver import Proposal, SolverStatus, whole
from milp.verify import constraint_violations, drop, gains, plan_gain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from milp.problem import Problem, ProblemTrainer
    from milp.solver import ModelSolver

_STAGES = ((1 / 16, 0.25), (1.0, 0.5))
"""Share of the gap within which each stage looks for a plan, and its share of the time;
the prices of several classes take the rest."""

_PRICE_TIME = 0.25

_FEW_OPTIONS = 600
"""A solver's start costs more than the first stage saves on a model this small."""

_MOST_OPTIONS = 5000
"""A larger model takes CBC more than a few seconds to find anything, and PuLP a second
to write down."""

_SEARCH_STAGES = (1 / 64, 1 / 16, 1 / 4, 1.0)
"""Shares of the gap for the search of one class, cheap enough to begin lower."""

_MOST_CELLS = 200_000_000
"""A sum takes about 4 ns."""

_AT_LIMIT = "the best of the greedy plan and what the solver found within its limit"
_NO_SOLVER = "as good as its bound, so that no integer program was needed"
_SEARCHED = "proven by a search of all that can beat it, without an integer program"


def plan_counts(
    problem: Problem, solver: ModelSolver, *, limit_s: float | None
) -> Proposal:
    """Plan by counts; exact where a search or *solver* proves an optimum.

    One class is searched, where that takes less than a second. Else the model is
    solved first over the options that lose little against the bound. A plan that
    itself loses no more than that is optimal (model.md, R6); otherwise it rules
    out more options for a second, final model. All solver calls together keep
    within *limit_s*.

    Raises:
        SolverFailedError: The solver crashed or returned no usable point.
        SolverUnavailableError: The solver is not installed.
    """
    rows = feasible_gains(problem)
    prices, sizes = _relax(problem, rows, solver, limit_s=_part(limit_s, _PRICE_TIME))
    reduction = reduce(problem, rows, prices, sizes)
    if reduction.is_proof:
        return Proposal(reduction.plan(proven=True), SolverStatus.OPTIMUM, _NO_SOLVER)
    if len(problem.classes) == 1:
        reduction, is_proof = _search(problem, reduction, prices[0])
        if is_proof:
            return Proposal(
                reduction.plan(proven=True), SolverStatus.OPTIMUM, _SEARCHED
            )
    return _solve(problem, reduction, solver, limit_s=limit_s)


def _relax(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    solver: ModelSolver,
    *,
    limit_s: float | None,
) -> tuple[list[float], list[float]]:
    """Solve the linear relaxation over hull corners.

    Any prices give a valid bound and any sizes a start, so that a solver's
    mistake here costs time only.

    Returns:
        Price of a node of each class, the dual of its capacity (M3), and the
        relaxed size of each trainer.
    """
    if len(problem.classes) == 1:
        hulls = [hull_of(row) for row in rows]
        return [node_price(hulls, problem.classes[0].nodes)], []
    options = [
        {n: float(row[n]) for n in _corner_sizes(row, sum(trainer.held))}
        for trainer, row in zip(problem.trainers, rows, strict=True)
    ]
    model = build(problem, options, category=pulp.LpContinuous)
    if solver.solve(model.model, limit_s=limit_s) is not SolverStatus.OPTIMUM:
        return [0.0] * len(problem.classes), []
    return model.prices(), model.relaxed_sizes()


def _corner_sizes(row: NDArray[np.float64], held: int) -> list[int]:
    sizes = {n for n, _ in corners(row)}
    return sorted(sizes | {held} if row[held] > -math.inf else sizes)


def _search(
    problem: Problem, reduction: Reduction, price: float
) -> tuple[Reduction, bool]:
    """Search one class for better plans, and tell whether the best is proven."""
    priced = [price_sizes(row, price) for row in reduction.rows]
    for share in _SEARCH_STAGES:
        within = reduction.gap * share
        limit = Limit(within, price, problem.classes[0].nodes)
        if cells(priced, limit) > _MOST_CELLS:
            break
        found, value = search(priced, limit)
        reduction = reduction.improved(tuple([(n,) for n in found]), value)
        if reduction.gap <= within:
            return reduction, True
    return reduction, False


def _solve(
    problem: Problem,
    reduction: Reduction,
    solver: ModelSolver,
    *,
    limit_s: float | None,
) -> Proposal:
    few = sum(map(len, reduction.options(reduction.gap))) <= _FEW_OPTIONS
    for share, time in _STAGES[1:] if few else _STAGES:
        within = reduction.gap * share
        options = reduction.options(within)
        if sum(map(len, options)) > _MOST_OPTIONS:
            break
        model = build(problem, options, category=pulp.LpInteger)
        found = solver.solve(model.model, limit_s=_part(limit_s, time))
        if found is SolverStatus.INFEASIBLE:
            return Proposal(None, found, "it has a plan, so the solver is wrong")
        if found is not SolverStatus.NOTHING:
            reduction = _with_point(problem, reduction, model.counts(), found)
        if reduction.is_proof or (
            found is SolverStatus.OPTIMUM and reduction.gap <= within
        ):
            return Proposal(reduction.plan(proven=True), SolverStatus.OPTIMUM)
    return Proposal(reduction.plan(proven=False), SolverStatus.INCUMBENT, _AT_LIMIT)


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


def _part(limit_s: float | None, share: float) -> float | None:
    return None if limit_s is None else limit_s * share


# Options that cannot be in any optimal plan, and a plan to start from.

_ROUNDING = 1e-9
"""Far above the rounding of a sum of gains, relative to its magnitude (R5)."""


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A bound, the best plan known, and how much each option loses.

    Attributes:
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not possible.
        losses: How far each lies under its trainer's best at the prices.
        bound: No plan gains more.
        rounding: Differences up to this say nothing.
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
    sizes: Sequence[float],
) -> Reduction:
    """Bound the problem at *prices*, and find a greedy plan.

    Args:
        problem: The problem.
        rows: From :func:`feasible_gains`.
        prices: [lambda_k] Gain of a node of each class, 0 or more.
        sizes: A relaxed plan's size by trainer to start from, or nothing.
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
    counts = _incumbent(problem, rows, [priced, *([sizes] if sizes else [])], prices)
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
    """Least price of 0 .. max nodes for *trainer* without migration (M4, M5).

    Below what it holds it keeps its cheapest nodes; above, it keeps all and
    adds the cheapest ones. ``inf`` where there are not that many.
    """
    usable = range(len(prices)) if trainer.usable is None else trainer.usable
    most = len(trainer.curve.value_per_s) - 1
    cheap_first = sorted(usable, key=lambda k: prices[k])
    own = [prices[k] for k in cheap_first for _ in range(trainer.held[k])]
    if len(own) == sum(trainer.held):
        for k in cheap_first:
            spare = problem.classes[k].nodes - trainer.held[k]
            own += [prices[k]] * min(spare, most - len(own))
    costs = np.full(most + 1, np.inf)
    costs[: len(own) + 1] = np.cumsum([0.0, *own])
    return costs


def _incumbent(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    starts: Sequence[Sequence[float]],
    prices: Sequence[float],
) -> tuple[tuple[int, ...], ...]:
    """The best of the greedy plans from each start and from the present counts."""
    held = [float(sum(trainer.held)) for trainer in problem.trainers]
    plans = []
    for start in (*starts, held):
        targets = [
            int(np.flatnonzero(np.isfinite(row[: int(size + 1e-6) + 1]))[-1])
            for row, size in zip(rows, start, strict=True)
        ]
        counts = greedy(problem, rows, targets=targets, price=prices)
        plans.append(tuple(map(tuple, counts)))
    return max(plans, key=lambda counts: plan_gain(problem, counts))


# The greedy plan.

_MOST_SWEEPS = 20
"""Sweeps over all trainers; each gives every trainer at most one better size."""


def greedy(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    *,
    targets: Sequence[int],
    price: Sequence[float],
) -> list[list[int]]:
    """Bring every trainer near its target size, then spend the nodes left.

    Shrinking trainers release nodes first; growing ones follow, those with the
    fewest classes to choose from first; at last every trainer that gains by
    growing on the nodes left does so.

    Args:
        problem: The problem.
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not allowed.
        targets: Wanted size by trainer, each an allowed one.
        price: Of a node of each class; cheap ones are taken first.

    Returns:
        Counts, shape (trainers, classes).
    """
    stock = _Stock(problem, price)
    trainers = list(enumerate(problem.trainers))
    for j, trainer in trainers:
        if targets[j] < sum(trainer.held) or not np.isfinite(
            rows[j][sum(trainer.held)]
        ):
            stock.resize(j, _most_within(rows[j], min(targets[j], stock.reach(j))))
    by_choice = sorted(trainers, key=lambda jt: len(stock.usable[jt[0]]))
    for j, trainer in by_choice:
        if targets[j] > sum(trainer.held) == sum(stock.counts[j]):
            size = _most_within(rows[j], min(targets[j], stock.reach(j)))
            stock.resize(j, max(size, sum(trainer.held)))
    for _ in range(_MOST_SWEEPS):
        if not _sweep(stock, rows):
            break
    return stock.counts


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
    """Nodes by trainer and class, and free ones, while a plan is being made."""

    def __init__(self, problem: Problem, price: Sequence[float]) -> None:
        every = range(len(problem.classes))
        self._trainers = problem.trainers
        self._price = price
        self._cheap_first = sorted(every, key=lambda k: (price[k], k))
        self.usable = [
            frozenset(every) if t.usable is None else t.usable for t in problem.trainers
        ]
        self.counts = [list(t.held) for t in problem.trainers]
        self._free = [
            c.nodes - sum(t.held[k] for t in problem.trainers)
            for k, c in enumerate(problem.classes)
        ]

    def reach(self, j: int) -> int:
        """Most nodes that the trainer can have now without migrating."""
        trainer, usable = self._trainers[j], self.usable[j]
        own = self._own_within_reach(j)
        if sum(own) < sum(trainer.held):
            return sum(own)
        return sum(own) + sum(
            self._free[k] - (own[k] - self.counts[j][k]) for k in usable
        )

    def resize(self, j: int, size: int) -> None:
        """Give the trainer *size* nodes, at most its reach, nested in its old ones."""
        for k, count in enumerate(self.counts[j]):
            self._free[k] += count
        own = [
            min(n, self._free[k]) if k in self.usable[j] else 0
            for k, n in enumerate(self._trainers[j].held)
        ]
        row = drop(own, max(0, sum(own) - size), self._price)
        missing = size - sum(row)
        for k in self._cheap_first:
            if k in self.usable[j]:
                more = min(missing, self._free[k] - row[k])
                row[k] += more
                missing -= more
        self.counts[j] = row
        for k, count in enumerate(row):
            self._free[k] -= count

    def _own_within_reach(self, j: int) -> list[int]:
        """Nodes it held at first that it still has or that are free again."""
        held = self._trainers[j].held
        return [
            min(n, self.counts[j][k] + self._free[k]) if k in self.usable[j] else 0
            for k, n in enumerate(held)
        ]


# The model in PuLP (docs/reference/model.md, M1 to M6 by class).


class CountModel(NamedTuple):
    """A model and where to read its answer.

    Attributes:
        model: The PuLP model; its objective is the gain times ``scale``.
        x: [x_jk] By trainer and class; 0 where the class is not usable.
        capacity: [M3] One row for each class; its dual is the price of a node.
        scale: Factor of the objective, for the solver's tolerances.
    """

    model: pulp.LpProblem
    x: list[list[pulp.LpVariable | int]]
    capacity: list[pulp.LpConstraint]
    scale: float

    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Return the solved counts.

        Raises:
            SolverFailedError: A count is missing or fractional.
        """
        return tuple([_read(row) for row in self.x])

    def prices(self) -> list[float]:
        """Return the price of a node of each class in a relaxed solution."""
        return [abs(_finite(row.pi)) / self.scale for row in self.capacity]

    def relaxed_sizes(self) -> list[float]:
        """Return each trainer's nodes in a relaxed solution, whole or not."""
        return [
            sum(max(0.0, _finite(n.value())) for n in row if not isinstance(n, int))
            for row in self.x
        ]


def build(
    problem: Problem, options: Sequence[Mapping[int, float]], *, category: str
) -> CountModel:
    """Build the model over *options* (gains by size, for each trainer).

    Args:
        problem: The problem.
        options: Gains of the sizes to choose from, by trainer; 0 is among them
            or the trainer's size now.
        category: PuLP's name for the variables' kind; continuous to relax it.
    """
    model = pulp.LpProblem("count", pulp.LpMaximize)
    scale = _scale(options)
    objective: list[pulp.LpAffineExpression] = []
    x = []
    for j, (trainer, row) in enumerate(zip(problem.trainers, options, strict=True)):
        z = {n: model.add_variable(f"z_{j}_{n}", 0, 1, category) for n in row}
        objective += [scale * gain * z[n] for n, gain in row.items()]
        model += pulp.lpSum(z.values()) == 1  # M2
        x.append(_add_counts(model, (j, trainer), z, problem, category=category))
    model += pulp.lpSum(objective)  # M0
    capacity = []
    for k, node_class in enumerate(problem.classes):  # M3
        row = pulp.lpSum(counts[k] for counts in x) <= node_class.nodes
        model += row, f"capacity_{k}"
        capacity.append(row)
    return CountModel(model, x, capacity, scale)


def _scale(options: Sequence[Mapping[int, float]]) -> float:
    largest = max((abs(g) for row in options for g in row.values()), default=0.0)
    return scale_of(largest)


def _add_counts(
    model: pulp.LpProblem,
    numbered: tuple[int, ProblemTrainer],
    z: Mapping[int, pulp.LpVariable],
    problem: Problem,
    *,
    category: str,
) -> list[pulp.LpVariable | int]:
    """Add one trainer's counts by class: their sum (M2), no migration (M4)."""
    j, trainer = numbered
    held = sum(trainer.held)
    grown = pulp.lpSum(z[n] for n in z if n > held)
    shrunk = pulp.lpSum(z[n] for n in z if n < held)
    x: list[pulp.LpVariable | int] = []
    for k, node_class in enumerate(problem.classes):
        before = trainer.held[k]
        most = min(node_class.nodes, max(z)) if _may_use(trainer, k) else 0
        if most == 0:
            x.append(0)  # M5
            continue
        count = model.add_variable(f"x_{j}_{k}", 0, most, category)
        x.append(count)
        if len(problem.classes) > 1:
            model += count >= before * (1 - shrunk)
            model += count <= before + (most - before) * grown
    model += pulp.lpSum(x) == pulp.lpSum(n * z[n] for n in z)
    return x


def _may_use(trainer: ProblemTrainer, k: int) -> bool:
    return trainer.usable is None or k in trainer.usable


def _read(row: Sequence[pulp.LpVariable | int]) -> tuple[int, ...]:
    variables = [count for count in row if not isinstance(count, int)]
    values = iter(whole(variables))
    return tuple([n if isinstance(n, int) else next(values) for n in row])


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
