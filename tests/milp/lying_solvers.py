"""Solvers that lie, die or are missing, and what they do to an answer."""

from collections.abc import Callable
from typing import TypeAlias

import pulp

from milp.answer import SolverFailedError, SolverStatus, SolverUnavailableError
from milp.problem import custom
from milp.program import Cbc

Spoil: TypeAlias = Callable[[pulp.LpProblem, SolverStatus], SolverStatus]

RAGGED_CURVES = [
    custom([0, 3, 7, 8, 30, 31, 47, 50], [2, 4, 6]),
    custom([0, 1, 9, 14, 22, 23, 41, 41.5], [3, 5, 7]),
    custom([0, 2, 5, 16, 17, 29, 30, 48], [2, 3, 7]),
]
"""Of sizes that fill no small pool, so that a solver must be asked."""


class FakeSolver:
    """Solves by CBC and then spoils the answer, after so many good ones.

    Attributes:
        limits_s: Of each call, in order.
    """

    def __init__(self, spoil: Spoil, *, good_calls: int = 0) -> None:
        self._spoil = spoil
        self._good_calls = good_calls
        self.limits_s: list[float | None] = []

    @property
    def calls(self) -> int:
        return len(self.limits_s)

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> SolverStatus:
        self.limits_s.append(limit_s)
        found = Cbc().solve(model, limit_s=limit_s)
        return found if self.calls <= self._good_calls else self._spoil(model, found)


def set_all(model: pulp.LpProblem, value: float | None) -> None:
    for variable in model.variables():
        variable.varValue = value


def returning(value: float | None, claim: SolverStatus | None = None) -> Spoil:
    """Set all values to *value*, and claim what was found or *claim*."""

    def spoil(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
        set_all(model, value)
        return claim or found

    return spoil


def tell_the_truth(_: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    return found


return_fractions = returning(0.5)
find_nothing = returning(None, SolverStatus.NOTHING)


def return_everything(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    for variable in model.variables():
        variable.varValue = variable.upBound
    return found


def crash(_: pulp.LpProblem, __: SolverStatus) -> SolverStatus:
    raise SolverFailedError("CBC failed: killed.")


def be_missing(_: pulp.LpProblem, __: SolverStatus) -> SolverStatus:
    raise SolverUnavailableError("CBC cannot be run.")


def time_out_with_the_point(_: pulp.LpProblem, __: SolverStatus) -> SolverStatus:
    return SolverStatus.INCUMBENT


OUTRIGHT_LIES = {
    "returns fractions": return_fractions,
    "returns NaN": returning(float("nan")),
    "returns everything": return_everything,
    "loses the values": returning(None),
    "claims infeasible": returning(None, SolverStatus.INFEASIBLE),
    "crashes": crash,
    "is missing": be_missing,
}
"""Nothing of the answer can be used, whatever is solved."""
