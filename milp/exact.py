"""The exact optimum for one node class (docs/model.md, "One class").

The dense dynamic program looks at every count of every trainer for every size
of the pool. Almost all of that is out of the question once a bound and a good
plan are known, so the solver prices a node by the linear relaxation, and
searches only among plans that can beat the good plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from milp.errors import MalformedProblemError
from milp.problem import Plan
from milp.pruned import Limit, Options, TooManyMovesError, search
from milp.relaxation import node_price
from milp.rows import RowTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import Problem

# Rounding of a sum of gains is far below this share of their magnitude; losses
# this small are never pruned, so that ties survive (docs/model.md, R5).
_ROUNDING = 1e-9
# A move costs about 0.2 µs, a cell of the dense program about 2 ns.
_MOVES_PER_CALL = 4000
# With more options a trainer than this it pays to try smaller limits first: the
# best plan mostly loses nothing, or as much as the incumbent, seldom between.
_FEW_OPTIONS = 3
_LIMITS = (1 / 32, 1 / 4)

Answer = tuple[list[int], float]


class ExactSolver:
    """Solves one-class problems; keeps what it derives from curves between calls.

    Not for use from several threads at once.
    """

    def __init__(self) -> None:
        self._table = RowTable()

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
        pool_nodes = problem.classes[0].nodes
        rows, hulls = self._table.rows_of(problem)
        counts, value = _best(rows, node_price(hulls, pool_nodes), pool_nodes)
        return Plan(tuple([(n,) for n in counts]), value, value)


def _best(rows: NDArray[np.float64], price: float, pool_nodes: int) -> Answer:
    if not len(rows):
        return [], 0.0
    paid = rows - price * np.arange(rows.shape[1])
    best_paid = paid.max(axis=1)
    losses = best_paid[:, None] - paid
    bound = float(best_paid.sum()) + price * pool_nodes
    rounding = _ROUNDING * (float(np.abs(best_paid).sum()) + price * pool_nodes)
    gap = rounding
    if price > 0.0:
        counts = (losses <= rounding).argmax(axis=1)
        gap += _loss_after_filling(rows, losses, counts, (price, pool_nodes))
    for loss in _limits(losses, gap, rounding):
        limit = Limit(loss, price, _MOVES_PER_CALL)
        try:
            answer = search(_options(losses, loss), rows, pool_nodes, limit)
        except TooManyMovesError:
            break
        # Near the limit a plan as good as this one may have been pruned (E4).
        if answer is not None and (loss == gap or bound - answer[1] + rounding <= loss):
            return answer
    return dense(list(rows), pool_nodes)


def _limits(
    losses: NDArray[np.float64], gap: float, rounding: float
) -> tuple[float, ...]:
    """Losses to search within, the last one certain to hold an optimal plan."""
    if np.count_nonzero(losses <= gap) <= _FEW_OPTIONS * len(losses):
        return (gap,)
    return (*(gap * share + rounding for share in _LIMITS), gap)


def _loss_after_filling(
    rows: NDArray[np.float64],
    losses: NDArray[np.float64],
    counts: NDArray[np.intp],
    price_and_pool: tuple[float, int],
) -> float:
    """Loss of the plan *counts* after giving what is left to whom it helps most."""
    price, pool_nodes = price_and_pool
    everyone = np.arange(len(rows))
    sizes = np.arange(rows.shape[1])
    left = pool_nodes - int(counts.sum())
    while left > 0:
        more = rows - rows[everyone, counts][:, None]
        more[sizes > (counts + left)[:, None]] = -np.inf
        trainer, nodes = divmod(int(more.argmax()), rows.shape[1])
        if more[trainer, nodes] <= 0:
            break
        left -= nodes - int(counts[trainer])
        counts[trainer] = nodes
    return float(losses[everyone, counts].sum()) + price * left


def _options(losses: NDArray[np.float64], most: float) -> list[Options]:
    """Options that lose no more than *most*, by trainer, least loss first."""
    trainers, sizes = (losses <= most).nonzero()
    options: list[Options] = [[] for _ in range(len(losses))]
    lost = losses[trainers, sizes].tolist()
    for trainer, nodes, loss in zip(
        trainers.tolist(), sizes.tolist(), lost, strict=True
    ):
        options[trainer].append((loss, nodes))
    for trainer_options in options:
        trainer_options.sort()
    return options


def dense(rows: Sequence[NDArray[np.float64]], pool_nodes: int) -> Answer:
    """Solve by the dense dynamic program over all sizes and all pools.

    Args:
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not allowed.
        pool_nodes: Nodes to give.

    Returns:
        Best counts and their gain.
    """
    best = np.zeros(pool_nodes + 1)
    choices = []
    for row in rows:
        allowed = row[: pool_nodes + 1]
        edge = np.full(len(allowed) - 1, -np.inf)
        windows = sliding_window_view(np.concatenate((edge, best)), len(allowed))
        table = windows[:, ::-1] + allowed
        choice = table.argmax(axis=1)
        choices.append(choice)
        best = table[np.arange(pool_nodes + 1), choice]
    left, counts = pool_nodes, []
    for choice in reversed(choices):
        counts.append(int(choice[left]))
        left -= counts[-1]
    return counts[::-1], float(best[pool_nodes])
