"""Solvers that lie, die or are missing, and what they do to an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from milp.answer import SolverFailedError, SolverStatus, SolverUnavailableError
from milp.problem import custom
from milp.program import Cbc

if TYPE_CHECKING:
    from collections.abc import Callable

    import pulp

Spoil: TypeAlias = "Callable[[pulp.LpProblem, SolverStatus], SolverStatus]"

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


def tell_the_truth(_: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    return found


def return_fractions(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    set_all(model, 0.5)
    return found


def return_nan(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    set_all(model, float("nan"))
    return found


def lose_the_values(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    set_all(model, None)
    return found


def return_everything(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
    for variable in model.variables():
        variable.varValue = variable.upBound
    return found


def claim_infeasible(model: pulp.LpProblem, _: SolverStatus) -> SolverStatus:
    set_all(model, None)
    return SolverStatus.INFEASIBLE


def crash(_: pulp.LpProblem, __: SolverStatus) -> SolverStatus:
    raise SolverFailedError("CBC failed: killed.")


def be_missing(_: pulp.LpProblem, __: SolverStatus) -> SolverStatus:
    raise SolverUnavailableError("CBC cannot be run.")


def find_nothing(model: pulp.LpProblem, _: SolverStatus) -> SolverStatus:
    set_all(model, None)
    return SolverStatus.NOTHING


def time_out_with_the_point(_: pulp.LpProblem, __: SolverStatus) -> SolverStatus:
    return SolverStatus.INCUMBENT


OUTRIGHT_LIES = (
    return_fractions,
    return_nan,
    return_everything,
    lose_the_values,
    claim_infeasible,
    crash,
    be_missing,
)
"""Whatever is solved: there is nothing to be used in what comes back."""
