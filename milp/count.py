"""The count MILP: node classes and whole counts (docs/model.md, "Class by class").

Nodes of one class are interchangeable, so a variable counts them instead of
naming them. Most sizes are ruled out before the model is built; where nothing
is left to decide, no solver is called.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pulp

from milp.count_model import build
from milp.errors import SolverFailedError
from milp.objective import plan_gain
from milp.proposal import Found, Proposal
from milp.pruned import Limit, cells, search
from milp.reduction import feasible_gains, reduce
from milp.relaxation import corners, hull_of, node_price
from milp.rows import price_sizes
from milp.verify import constraint_violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from milp.problem import Problem
    from milp.reduction import Reduction
    from milp.solver import ModelSolver

# Share of the gap within which each stage looks for a plan, and its share of the
# time; the prices of several classes take the rest.
_STAGES = ((1 / 16, 0.25), (1.0, 0.5))
_PRICE_TIME = 0.25
# A solver's start costs more than the first stage saves on a model this small.
_FEW_OPTIONS = 600
# A larger model takes CBC more than a few seconds to find anything, and PuLP a
# second to write down.
_MOST_OPTIONS = 5000
# The same for the search of one class, which is cheap enough to begin lower.
_SEARCH_STAGES = (1 / 64, 1 / 16, 1 / 4, 1.0)
# A sum takes about 4 ns.
_MOST_CELLS = 200_000_000
# What solvers call optimal may lie this far under the optimum.
_TOLERANCE = 1e-6
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
        return Proposal(reduction.plan(proven=True), Found.OPTIMUM, _NO_SOLVER)
    if len(problem.classes) == 1:
        reduction, is_proof = _search(problem, reduction, prices[0])
        if is_proof:
            return Proposal(reduction.plan(proven=True), Found.OPTIMUM, _SEARCHED)
    return _solve(problem, reduction, solver, limit_s=limit_s)


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
        if found is Found.INFEASIBLE:
            return Proposal(None, found, "it has a plan, so the solver is wrong")
        if found is not Found.NOTHING:
            reduction = _with_point(problem, reduction, model.counts(), found)
        if reduction.is_proof or (found is Found.OPTIMUM and reduction.gap <= within):
            return Proposal(reduction.plan(proven=True), Found.OPTIMUM)
    return Proposal(reduction.plan(proven=False), Found.INCUMBENT, _AT_LIMIT)


def _with_point(
    problem: Problem,
    reduction: Reduction,
    counts: tuple[tuple[int, ...], ...],
    found: Found,
) -> Reduction:
    """Take the solver's point in, if it is sound and no worse than it should be.

    Raises:
        SolverFailedError: It breaks a constraint, or is called optimal though a
            better plan was among those to choose from.
    """
    broken = constraint_violations(problem, counts)
    if broken:
        raise SolverFailedError(f"the solver's point was refused: {'; '.join(broken)}.")
    gain = plan_gain(problem, counts)
    short = reduction.gain - gain
    if found is Found.OPTIMUM and short > _TOLERANCE * abs(reduction.gain):
        raise SolverFailedError(
            f"the solver calls a gain of {gain:g} optimal, but {reduction.gain:g} is "
            f"known to be possible. Its answer was not used."
        )
    return reduction.improved(counts, gain)


def _part(limit_s: float | None, share: float) -> float | None:
    return None if limit_s is None else limit_s * share


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
    if solver.solve(model.model, limit_s=limit_s) is not Found.OPTIMUM:
        return [0.0] * len(problem.classes), []
    return model.prices(), model.relaxed_sizes()


def _corner_sizes(row: NDArray[np.float64], held: int) -> list[int]:
    sizes = {n for n, _ in corners(row)}
    return sorted(sizes | {held} if row[held] > -math.inf else sizes)
