"""The exact optimum for one node class (docs/model.md, "One class").

The dense dynamic program looks at every count of every trainer for every size
of the pool. Almost all of that is out of the question once a bound and a good
plan are known, so the solver prices a node by the linear relaxation, and
searches only among plans that can beat the good plan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from milp.errors import MalformedProblemError
from milp.problem import Plan
from milp.pruned import Limit, search
from milp.relaxation import node_price
from milp.rows import RowTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from milp.problem import Problem
    from milp.pruned import Answer
    from milp.rows import Priced, Row

# Rounding of a sum of gains is far below this share of their magnitude; losses
# this small are never pruned, so that ties survive (docs/model.md, R5).
_ROUNDING = 1e-9
# In two of three calls of a replay the best plan loses nothing, which shows
# before any other plan is known.
_LOSSLESS = 4.0
# With more options a trainer than this it pays to try a smaller limit first: the
# best plan mostly loses much less than the filled one.
_FEW_OPTIONS = 6
_SHARE = 1 / 8


class ExactSolver:
    """Solves one-class problems; keeps what it derives from curves between calls.

    Not for use from several threads at once.
    """

    def __init__(self) -> None:
        self._table = RowTable()
        self._price = 0.0

    def solve(self, problem: Problem) -> Plan:
        """Return the optimal plan; equal optima are told apart as model.md says.

        Raises:
            MalformedProblemError: The problem has not exactly one node class.
        """
        if len(problem.classes) != 1:
            raise MalformedProblemError(
                f"the exact solver plans one node class; this problem has "
                f"{len(problem.classes)}. Use the count formulation."
            )
        counts, value = _best(self._case(problem))
        return Plan(tuple([(n,) for n in counts]), value, value)

    def _case(self, problem: Problem) -> _Case:
        """Price a node so that the pool just runs out: as last time, if that does."""
        pool_nodes = problem.classes[0].nodes
        rows = self._table.rows_of(problem)
        priced = self._table.priced(rows, self._price)
        if not _runs_out(priced, self._price, pool_nodes):
            self._price = node_price([row.hull for row in rows], pool_nodes)
            priced = self._table.priced(rows, self._price)
        best = [one.best for one in priced]
        pool = self._price * pool_nodes
        rounding = _ROUNDING * (sum(map(abs, best)) + pool)
        return _Case(rows, priced, self._price, pool_nodes, sum(best) + pool, rounding)


class _Case(NamedTuple):
    """A problem at a node price.

    Attributes:
        rows: By trainer.
        priced: By trainer.
        price: Of a node.
        pool_nodes: Nodes to give.
        bound: No plan gains more.
        rounding: Differences up to this say nothing.
    """

    rows: Sequence[Row]
    priced: Sequence[Priced]
    price: float
    pool_nodes: int
    bound: float
    rounding: float


def _runs_out(priced: Sequence[Priced], price: float, pool_nodes: int) -> bool:
    """Tell whether sizes that lose nothing can use the whole pool, or need not."""
    if sum([one.least for one in priced]) > pool_nodes:
        return False
    return price == 0.0 or sum([one.most for one in priced]) >= pool_nodes


def _best(case: _Case) -> Answer:
    for loss in _limits(case):
        limit = Limit(loss, case.price, case.pool_nodes)
        answer = search(case.priced, limit)
        # Near the limit a plan as good as this one may have been pruned (E4).
        if case.bound - answer[1] + case.rounding <= loss:
            break
    return answer


def _limits(case: _Case) -> Iterator[float]:
    """Losses to search within; the last but one is almost certain to be enough."""
    yield _LOSSLESS * case.rounding
    gap = case.bound - _gain_after_filling(case) + 2 * case.rounding
    options = sum([one.count_within(gap) for one in case.priced])
    if options > _FEW_OPTIONS * len(case.priced):
        yield gap * _SHARE
    yield gap
    yield math.inf


def _gain_after_filling(case: _Case) -> float:
    """Gain of the plan that loses nothing and gives what is left to who gains most."""
    rows = case.rows
    counts = [one.least for one in case.priced]
    value = sum([row.values[n] for row, n in zip(rows, counts, strict=True)])
    left = case.pool_nodes - sum(counts)
    while left > 0:
        wanted = [
            row.best_within[min(n + left, len(row.best_within) - 1)]
            for row, n in zip(rows, counts, strict=True)
        ]
        more = [
            row.values[n] - row.values[before]
            for row, n, before in zip(rows, wanted, counts, strict=True)
        ]
        most = max(more)
        if most <= 0.0:
            break
        j = more.index(most)
        value += most
        left -= wanted[j] - counts[j]
        counts[j] = wanted[j]
    return value
