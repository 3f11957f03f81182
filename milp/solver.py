"""MILP solvers behind one interface; the only place that runs one.

What a solver claims is passed on as little trusted as it deserves: callers
round, verify, and never read an answer off a status alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import cbcbox  # type: ignore[import-untyped]
import pulp

from milp.errors import SolverFailedError, SolverUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from milp.problem import Plan


# ----------------------------------------------------------------------
# A moment at which planning has to have an answer.


@dataclass(frozen=True, slots=True)
class Deadline:
    """An end by a clock that comes in, so that planning itself knows none.

    Attributes:
        end_s: When *clock* will have reached it.
        clock: Seconds that only go up.
    """

    end_s: float
    clock: Callable[[], float]

    def left_s(self) -> float:
        """Return the seconds that are left; below 0 where it has passed."""
        return self.end_s - self.clock()

    def passed(self) -> bool:
        """Tell whether nothing is left."""
        return self.left_s() <= 0.0

    def share(self, part: float) -> Deadline:
        """Return an earlier end: *part* of what is left from now."""
        now_s = self.clock()
        return Deadline(now_s + part * max(0.0, self.end_s - now_s), self.clock)


def _no_time() -> float:
    return 0.0


NEVER = Deadline(math.inf, _no_time)
"""For callers with all the time there is."""

# ----------------------------------------------------------------------
# What a formulation proposes, before anybody has verified it.


class Found(StrEnum):
    """What a solver claims to have found."""

    OPTIMUM = "optimum"
    INCUMBENT = "incumbent"
    NOTHING = "nothing within the limit"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that a formulation found, and what its solver claims about it.

    Attributes:
        plan: The plan, or None where the solver found none.
        found: The claim.
        reason: Why the claim holds where no solver made it; else empty.
    """

    plan: Plan | None
    found: Found
    reason: str = ""

    @property
    def is_optimum(self) -> bool:
        """Whether the plan is claimed to be optimal."""
        return self.found is Found.OPTIMUM


# ----------------------------------------------------------------------
# MILP solvers behind one interface; the only place that runs one.


# A value further than this from a whole number is no rounding of one.
_INTEGRALITY = 1e-5


class ModelSolver(Protocol):
    """Solves one PuLP model within a time limit, on one thread.

    Contract, checked for every implementation by ``tests/milp/test_solver.py``:
    on ``OPTIMUM`` and ``INCUMBENT`` the model's variables carry values.
    """

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> Found:
        """Solve *model*; None is no limit.

        Raises:
            SolverFailedError: The solver crashed or its answer cannot be read.
            SolverUnavailableError: The solver is not installed.
        """
        ...


# The count model arrives reduced and with a better incumbent than CBC's own
# heuristics find: without them and without cuts, 45 instead of 70 ms a model.
COUNT_OPTIONS = ("cuts off", "heuristicsOnOff off")


class Cbc:
    """COIN-OR CBC, as the package cbcbox ships it.

    Args:
        options: For CBC's command line.
        path: Of another CBC.
        warm: Whether to begin from the values that the variables have.
    """

    def __init__(
        self,
        *,
        options: Sequence[str] = (),
        path: str | None = None,
        warm: bool = False,
    ) -> None:
        self._options = list(options)
        self._path = path
        self._warm = warm

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> Found:
        """Solve *model* by a CBC process; see :class:`ModelSolver`."""
        path = cbcbox.cbc_bin_path() if self._path is None else self._path
        solver = pulp.COIN_CMD(
            path=path,
            msg=False,
            threads=1,
            timeLimit=limit_s,
            options=self._options,
            warmStart=self._warm,
        )
        if not solver.available():
            raise SolverUnavailableError(
                f"CBC cannot be run at {path}. Nothing was planned. Install it "
                f"with `pip install 'pulp[cbc]'`."
            )
        # PuLP leaves its files behind where CBC fails.
        with TemporaryDirectory(prefix="freetrain-cbc-") as solver.tmpDir:
            return _run(model, solver)


class Highs:
    """HiGHS, from the optional package highspy."""

    def __init__(self) -> None:
        if find_spec("highspy") is None:
            raise SolverUnavailableError(
                "HiGHS is not installed. Nothing was planned. Install it with "
                "`pip install 'freetrain[highs]'`, or choose another solver."
            )

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> Found:
        """Solve *model* in this process; see :class:`ModelSolver`."""
        # HiGHS calls a gap of 1e-4 optimal unless told otherwise.
        solver = pulp.HiGHS(
            msg=False, threads=1, timeLimit=limit_s, gapRel=0.0, gapAbs=0.0
        )
        return _run(model, solver)


def _run(model: pulp.LpProblem, solver: pulp.LpSolver) -> Found:
    try:
        model.solve(solver)
    except Exception as error:  # PuLP raises whatever reading an answer raises
        raise SolverFailedError(
            f"{solver.name} failed: {error}. Its answer was not used."
        ) from error
    # `status` says "Optimal" for any incumbent at a limit; `sol_status` tells,
    # but not that CBC found the integer program infeasible.
    if model.status == pulp.LpStatusInfeasible:
        return Found.INFEASIBLE
    claims = {
        pulp.LpSolutionOptimal: Found.OPTIMUM,
        pulp.LpSolutionIntegerFeasible: Found.INCUMBENT,
    }
    return claims.get(model.sol_status, Found.NOTHING)


def whole(values: Iterable[pulp.LpVariable]) -> list[int]:
    """Return the variables' values as whole numbers.

    Raises:
        SolverFailedError: A value is missing or fractional. CBC was seen to call
            such points optimal at a limit (docs/adr/0002-solver-interface.md).
    """
    counts = []
    for variable in values:
        value = variable.value()
        fractional = (
            value is None
            or not math.isfinite(value)
            or abs(value - round(value)) > _INTEGRALITY
        )
        if fractional:
            raise SolverFailedError(
                f"the solver's point has {variable.name} = {value}, which is not "
                f"whole. It was not used."
            )
        counts.append(round(value))
    return counts
