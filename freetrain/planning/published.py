"""The policy ``freetrain``: the plan of most gain by the published objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.planning.request import (
    TrainerStates,
    plan_in_order,
    planned_by,
    problem_of,
)

if TYPE_CHECKING:
    from freetrain.planning.request import Planned, Request, Solver, Tools


def make(tools: Tools) -> Published:
    """Return the policy."""
    return Published(tools.solver())


class Published:
    """Asks a solver, which verifies its plans."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._states = TrainerStates()

    def plan(self, request: Request) -> Planned:
        """Return a verified plan; the present one where there is no better."""
        return plan_in_order(self._plan, request)

    def _plan(self, request: Request) -> Planned:
        answer = self._solver.plan(problem_of(request, self._states))
        return planned_by(answer, request)
