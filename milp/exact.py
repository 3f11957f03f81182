"""The exact optimum for one node class, by dynamic programming."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from milp.errors import MalformedProblemError
from milp.objective import gains
from milp.problem import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from milp.problem import Problem, TrainerState


class ExactSolver:
    """Solves one-class problems exactly; keeps what it derives from curves."""

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
        rows = [_options(trainer, problem.t_fwd_s) for trainer in problem.trainers]
        counts, value = _windowed(rows, problem.classes[0].nodes)
        return Plan(tuple((n,) for n in counts), value, value)


def _options(trainer: TrainerState, t_fwd_s: float) -> NDArray[np.float64]:
    row = gains(trainer, t_fwd_s)
    usable = trainer.usable is None or 0 in trainer.usable
    return row if usable else row[:1]


def _windowed(
    rows: list[NDArray[np.float64]], pool_nodes: int
) -> tuple[list[int], float]:
    """Best counts over all sizes; ``best[p]`` is the optimum on at most p nodes."""
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
