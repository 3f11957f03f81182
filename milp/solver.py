"""MILP solvers behind one interface; the only module that runs a solver.

A solver's claim is passed on, never trusted: callers round its values, verify the
plan, and read no answer off a status alone.
"""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import pulp

from milp.errors import SolverFailedError, SolverUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from milp.problem import Plan

COUNT_OPTIONS = ("cuts off", "heuristicsOnOff off")
"""For CBC on a count model, which arrives reduced and with a better incumbent than its
heuristics find: without them and without cuts, 45 instead of 70 ms a model."""

_CANNOT_START = (errno.ENOEXEC, errno.ENOENT, errno.EACCES)
"""What starting a binary for another processor or C library fails with."""

_INTEGRALITY = 1e-5
"""A value further than this from a whole number is no rounding of one."""


class SolverStatus(StrEnum):
    """What a solver claims to have found."""

    OPTIMUM = "optimum"
    INCUMBENT = "incumbent"
    NOTHING = "nothing within the limit"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that a formulation found, not yet verified.

    Attributes:
        plan: None where the solver found none.
        found: The solver's claim.
        reason: Why the claim holds where no solver made it; else empty.
    """

    plan: Plan | None
    found: SolverStatus
    reason: str = ""

    @property
    def is_optimum(self) -> bool:
        """Whether the plan is claimed to be optimal."""
        return self.found is SolverStatus.OPTIMUM


class ModelSolver(Protocol):
    """Solves one PuLP model within a time limit, on one thread.

    Contract, checked for every implementation by ``tests/milp/test_solver.py``:
    on ``OPTIMUM`` and ``INCUMBENT`` the model's variables carry values.
    """

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> SolverStatus:
        """Solve *model*; None is no limit.

        Raises:
            SolverFailedError: The solver crashed or its answer cannot be read.
            SolverUnavailableError: The solver is not installed.
        """
        ...


class Cbc:
    """COIN-OR CBC: the binary in PuLP's wheel, or else ``cbc`` on the PATH.

    PuLP 3.3.2 ships CBC 2.10.3 for Linux and Windows on x86, Linux on arm64, and macOS.

    Args:
        options: For CBC's command line.
        path: Of another binary than PuLP's.
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
        # A PULP_CBC_CMD object would warn that it is deprecated; its class does not.
        self._path = str(pulp.PULP_CBC_CMD.pulp_cbc_path) if path is None else path
        self._warm = warm

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> SolverStatus:
        """Solve *model* by a CBC process; see :class:`ModelSolver`."""
        path = pulp.COIN_CMD.executable(self._path) or pulp.COIN_CMD.executable("cbc")
        if path is None:
            raise _no_cbc(f"there is no program {self._path}, nor cbc on the PATH")
        # CBC runs one thread if none are asked for. With `-threads 1` 2.10.3 starts a
        # worker, and now and then waits for it until the limit (7 of 1,080 runs on a
        # busy machine, none of 1,560 without).
        solver = pulp.COIN_CMD(
            path=path,
            msg=False,
            timeLimit=limit_s,
            options=self._options,
            warmStart=self._warm,
        )
        # PuLP leaves its files behind where CBC fails.
        with TemporaryDirectory(prefix="freetrain-cbc-") as solver.tmpDir:
            return _run(model, solver)


def _no_cbc(why: str) -> SolverUnavailableError:
    return SolverUnavailableError(
        f"CBC cannot be run: {why}. Nothing was planned. Install a CBC for this "
        f"machine so that `cbc` is on the PATH (package coinor-cbc, or `conda install "
        f"coin-or-cbc`), or HiGHS with `pip install 'freetrain[highs]'`, and choose "
        f"that."
    )


class Highs:
    """HiGHS, from the optional package highspy."""

    def __init__(self) -> None:
        if find_spec("highspy") is None:
            raise SolverUnavailableError(
                "HiGHS is not installed. Nothing was planned. Install it with "
                "`pip install 'freetrain[highs]'`, or choose another solver."
            )

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> SolverStatus:
        """Solve *model* in this process; see :class:`ModelSolver`."""
        # HiGHS calls a gap of 1e-4 optimal unless set otherwise.
        solver = pulp.HiGHS(
            msg=False, threads=1, timeLimit=limit_s, gapRel=0.0, gapAbs=0.0
        )
        return _run(model, solver)


def _run(model: pulp.LpProblem, solver: pulp.LpSolver) -> SolverStatus:
    try:
        model.solve(solver)
    except Exception as error:  # PuLP raises whatever reading an answer raises
        if isinstance(error, OSError) and error.errno in _CANNOT_START:
            raise _no_cbc(str(error)) from error
        raise SolverFailedError(
            f"{solver.name} failed: {error}. Its answer was not used."
        ) from error
    # `status` says "Optimal" for any incumbent at a limit; `sol_status` tells,
    # but not that CBC found the integer program infeasible.
    if model.status == pulp.LpStatusInfeasible:
        return SolverStatus.INFEASIBLE
    claims = {
        pulp.LpSolutionOptimal: SolverStatus.OPTIMUM,
        pulp.LpSolutionIntegerFeasible: SolverStatus.INCUMBENT,
    }
    return claims.get(model.sol_status, SolverStatus.NOTHING)


def whole(values: Iterable[pulp.LpVariable]) -> list[int]:
    """Return the variables' values as whole numbers.

    Raises:
        SolverFailedError: A value is missing or fractional. CBC was seen to call
            such points optimal at a limit (docs/adr/0002-solvers.md).
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
