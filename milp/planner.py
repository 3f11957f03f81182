"""The published planner: one call from a problem to an answer that can be acted on.

Solvers time out, crash and make false claims. Whatever happens, the answer is a plan
that breaks no constraint: the solver's if it verifies, else the present plan. It is
never an empty map because a solver gave up.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from milp.answer import Answer, PlanStatus
from milp.errors import SolverFailedError, SolverUnavailableError
from milp.exact import ExactSolver
from milp.verify import check_problem, keep, violations

if TYPE_CHECKING:
    from milp.problem import Problem
    from milp.solver import ModelSolver, Proposal


class SolverName(StrEnum):
    """How to solve.

    ``exact`` is the dynamic program for one node class, and CBC for several.
    The others solve the count model, and are started only where its reduction
    and the search of one class leave something to decide.
    """

    EXACT = "exact"
    CBC = "cbc"
    HIGHS = "highs"


class Planner:
    """Plans problem after problem; keeps what the exact solver derives from curves.

    Attributes:
        solver: How it solves.
        limit_s: Time that it may take for one problem.

    Args:
        solver: How to solve.
        limit_s: Time that solver calls may take together for one problem,
            seconds; the dynamic program needs none.
        model_solver: Runs the MILPs instead of the one that *solver* names.
        verifies: Whether problems and plans are checked; False only for a search that
            begins from these plans and has its own verified.

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
        try:
            proposal = self._propose(problem)
        except (SolverFailedError, SolverUnavailableError) as error:
            return _kept(problem, str(error))
        return _answer(problem, proposal)

    def _propose(self, problem: Problem) -> Proposal:
        # PuLP takes 0.1 s to import, which a replay by the exact solver is spared.
        from milp.count import plan_counts  # noqa: PLC0415

        if self._model_solver is None:
            self._model_solver = _model_solver(SolverName.CBC)
        return plan_counts(problem, self._model_solver, limit_s=self.limit_s)


def _model_solver(name: SolverName) -> ModelSolver:
    from milp.solver import COUNT_OPTIONS, Cbc, Highs  # noqa: PLC0415

    return Highs() if name is SolverName.HIGHS else Cbc(options=COUNT_OPTIONS)


def _answer(problem: Problem, proposal: Proposal) -> Answer:
    plan = proposal.plan
    if plan is None:
        return _kept(problem, f"the solver claims: {proposal.found}; {proposal.reason}")
    outcome = PlanStatus.PROVEN if proposal.is_optimum else PlanStatus.INCUMBENT
    return _checked(problem, Answer(plan, outcome, proposal.reason))


def _checked(problem: Problem, answer: Answer) -> Answer:
    broken = violations(problem, answer.plan)
    if broken:
        return _kept(problem, f"the solver's plan was refused: {'; '.join(broken)}")
    return answer


def _kept(problem: Problem, why: str) -> Answer:
    return Answer(keep(problem), PlanStatus.KEPT, f"{why} The present plan stays.")
