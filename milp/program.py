"""Integer programs in PuLP, and the solvers that run them; all of PuLP is here.

A model solver (:class:`Cbc`, :class:`Highs`) runs any model. Its claim is passed on,
never trusted: callers read whole values (:func:`whole`), verify the plan, and take no
answer from a status alone. :func:`count_model` writes a problem down by counts of
nodes (docs/reference/model.md, M1 to M6 by class), :func:`window_program` a window
(W4 to W8), which :func:`prove` has solved.
"""

from __future__ import annotations

import errno
import math
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pulp

from milp.answer import SolverFailedError, SolverStatus, SolverUnavailableError
from milp.problem import SOLVER_TOLERANCE
from milp.window import BoundedPlan, Segments, total_gain, violations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from milp.problem import Problem
    from milp.window import SearchDeadline, Segment, SizeRows, Window


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


COUNT_OPTIONS = ("cuts off", "heuristicsOnOff off")
"""For CBC on a count model, which arrives reduced and with a better incumbent than its
heuristics find: without them and without cuts, 45 instead of 70 ms a model."""


_CANNOT_START = (errno.ENOEXEC, errno.ENOENT, errno.EACCES)
"""Errors of starting a binary that is for another processor or C library."""


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


_INTEGRALITY = 1e-5
"""A value further than this from a whole number is fractional."""


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


_LARGEST_GAIN = 1e4
_NOTHING = 1e-200


def _scale_of(largest: float) -> float:
    """Return what gains are multiplied by so that the largest is 10,000.

    Args:
        largest: The largest absolute gain. What is next to nothing stays as it is: the
            quotient would be infinite, which no program takes.
    """
    return _LARGEST_GAIN / largest if largest > _NOTHING else 1.0


# Counts by class.


class CountModel(NamedTuple):
    """A model and where to read its answer.

    Attributes:
        model: The PuLP model; its objective is the gain times ``scale``.
        x: [x_jk] By trainer and class; 0 where the class is not usable.
        capacity: [M3] One row for each class; its dual is the price of a unit.
        scale: Factor of the objective, for the solver's tolerances.
    """

    model: pulp.LpProblem
    x: list[list[pulp.LpVariable | int]]
    capacity: list[pulp.LpConstraint]
    scale: float

    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Return the solved counts.

        Raises:
            SolverFailedError: A count is missing or fractional.
        """
        return tuple([_read(row) for row in self.x])

    def prices(self) -> list[float]:
        """Return the price of a unit of each class in a relaxed solution."""
        return [abs(_finite(row.pi)) / self.scale for row in self.capacity]

    def relaxed_counts(self) -> list[list[float]]:
        """Return leases by trainer and class in a relaxed solution, whole or not."""
        return [
            [0.0 if isinstance(n, int) else max(0.0, _finite(n.value())) for n in row]
            for row in self.x
        ]


def count_model(
    problem: Problem,
    options: Sequence[Mapping[int, float]],
    *,
    is_relaxed: bool = False,
) -> CountModel:
    """Build the model over *options* (gains by size, for each trainer).

    Args:
        problem: The problem.
        options: Gains of the sizes to choose from, by trainer; 0 is among them
            or the trainer's size now.
        is_relaxed: Whether counts need not be whole.
    """
    category = pulp.LpContinuous if is_relaxed else pulp.LpInteger
    model = pulp.LpProblem("count", pulp.LpMaximize)
    every_gain = [abs(gain) for row in options for gain in row.values()]
    scale = _scale_of(max(every_gain, default=0.0))
    objective: list[pulp.LpAffineExpression] = []
    x = []
    for j, row in enumerate(options):
        z = {n: model.add_variable(f"z_{j}_{n}", 0, 1, category) for n in row}
        objective += [scale * gain * z[n] for n, gain in row.items()]
        model += pulp.lpSum(z.values()) == 1  # M2
        x.append(_add_counts(model, j, z, problem, category=category))
    model += pulp.lpSum(objective)  # M0
    capacity = []
    for k, node_class in enumerate(problem.classes):  # M3
        used = [
            (counts[k], trainer.width(k))
            for trainer, counts in zip(problem.trainers, x, strict=True)
            if not isinstance(counts[k], int)
        ]
        row = pulp.LpAffineExpression(used) <= node_class.nodes
        model += row, f"capacity_{k}"
        capacity.append(row)
    return CountModel(model, x, capacity, scale)


def _add_counts(
    model: pulp.LpProblem,
    j: int,
    z: Mapping[int, pulp.LpVariable],
    problem: Problem,
    *,
    category: str,
) -> list[pulp.LpVariable | int]:
    """Add one trainer's counts by class: their sum (M2), no migration (M4)."""
    trainer = problem.trainers[j]
    held = sum(trainer.held)
    grown = pulp.lpSum(z[n] for n in z if n > held)
    shrunk = pulp.lpSum(z[n] for n in z if n < held)
    x: list[pulp.LpVariable | int] = []
    for k, node_class in enumerate(problem.classes):
        before = trainer.held[k]
        is_usable = trainer.usable is None or k in trainer.usable
        most = min(node_class.nodes // trainer.width(k), max(z)) if is_usable else 0
        if most == 0:
            x.append(0)  # M5
            continue
        count = model.add_variable(f"x_{j}_{k}", 0, most, category)
        x.append(count)
        if len(problem.classes) > 1:
            model += count >= before * (1 - shrunk)
            model += count <= before + (most - before) * grown
    model += pulp.lpSum(x) == pulp.lpSum(n * z[n] for n in z)
    return x


def _read(row: Sequence[pulp.LpVariable | int]) -> tuple[int, ...]:
    variables = [count for count in row if not isinstance(count, int)]
    values = iter(whole(variables))
    return tuple([n if isinstance(n, int) else next(values) for n in row])


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


# Windows.

_SOLVER_SHARE = 0.6
"""Of the time that is left; CBC was seen to end 0.9 s after a limit of 2 s."""


class _SegmentVariables(NamedTuple):
    """A segment of one class at one size of one trainer.

    Attributes:
        segment: The segment.
        chosen: [s] 1 if the count lies on it.
        more: [y] Nodes from its beginning on.
    """

    segment: Segment
    chosen: pulp.LpVariable
    more: pulp.LpVariable


class _SizeVariables(NamedTuple):
    """One size of one trainer.

    Attributes:
        row: Its row.
        chosen: [z] 1 if the trainer has this size.
        by_class: Segments by class; none where there is nothing to choose.
    """

    row: int
    chosen: pulp.LpVariable
    by_class: list[list[_SegmentVariables]]


class WindowProgram(NamedTuple):
    """A model, the plan it begins from, and how to read its answer.

    Attributes:
        model: The PuLP model; its objective is the gain times ``scale``.
        sizes: By trainer.
        rows: Sizes of all trainers.
        scale: Factor of the objective, for the solver's tolerances.
    """

    model: pulp.LpProblem
    sizes: list[list[_SizeVariables]]
    rows: SizeRows
    scale: float

    def begin(self, counts: Sequence[Sequence[int]]) -> None:
        """Set the variables to a plan whose sizes are among the rows."""
        for variable in self.model.variables():
            variable.setInitialValue(0)
        for own, wanted in zip(self.sizes, counts, strict=True):
            for size in own:
                if int(self.rows.size[size.row]) == sum(wanted):
                    self._set(size, wanted)

    def counts(self) -> list[list[int]]:
        """Return the solved nodes by trainer and class.

        Raises:
            SolverFailedError: A variable that counts has no whole value.
        """
        return [self._counts_of(own) for own in self.sizes]

    def value(self) -> float:
        """Return the solved objective in objective units."""
        # Where all gains are 0, PuLP adds a variable that never has a value.
        terms = self.model.objective.items()
        summed = sum(
            [factor * variable.value() for variable, factor in terms if factor]
        )
        return float(summed) / self.scale

    def _set(self, size: _SizeVariables, wanted: Sequence[int]) -> None:
        size.chosen.setInitialValue(1)
        for k, parts in enumerate(size.by_class):
            above = wanted[k] - int(self.rows.least[size.row, k])
            for part in parts:
                start, nodes, *_ = part.segment
                if above <= start + nodes:
                    part.chosen.setInitialValue(1)
                    part.more.setInitialValue(above - start)
                    break

    def _counts_of(self, own: list[_SizeVariables]) -> list[int]:
        counts = [0] * len(self.rows.pool.nodes)
        for size in own:
            least = self.rows.least[size.row].tolist()
            [chosen] = whole([size.chosen])
            for k, parts in enumerate(size.by_class):
                counts[k] += chosen * least[k]
                for part in parts:
                    on, more = whole([part.chosen, part.more])
                    counts[k] += part.segment.start * on + more
        return counts


def window_program(
    window: Window, rows: SizeRows, chosen: Sequence[Sequence[int]]
) -> WindowProgram:
    """Build the program over the *chosen* of *rows*, by trainer.

    Each trainer's chosen rows contain a size that it can have whatever others do.
    """
    model = pulp.LpProblem("window", pulp.LpMaximize)
    base = rows.base[[row for own in chosen for row in own]]
    largest = max((abs(gain) for gain in base.tolist()), default=0.0)
    largest = max(largest, float(abs(rows.slope).max(initial=0.0)))
    scale = _scale_of(largest)
    writer = _Writer(window, rows, model, scale)
    made = [writer.trainer(place, own) for place, own in enumerate(chosen)]
    writer.finish()
    return WindowProgram(model, made, rows, scale)


class _Writer:
    """Writes the program down, trainer by trainer."""

    def __init__(
        self, window: Window, rows: SizeRows, model: pulp.LpProblem, scale: float
    ) -> None:
        self._window, self._rows = window, rows
        self._model, self._scale = model, scale
        self._gain: list[pulp.LpAffineExpression] = []
        self._segments = Segments(rows.pool.hits.tolist())
        self._new_share = [rows.pool.new_hit_share(t) for t in window.trainers]
        self._used: list[list[pulp.LpAffineExpression]] = [[] for _ in rows.pool.nodes]

    def trainer(self, place: int, chosen: Sequence[int]) -> list[_SizeVariables]:
        """Add one trainer: one of its sizes (W4), its nodes by class."""
        made = [self._size(place, row) for row in chosen]
        self._model += pulp.lpSum(size.chosen for size in made) == 1  # W4
        return made

    def finish(self) -> None:
        """Add what all trainers share: the objective (W8) and the nodes (W7)."""
        self._model += pulp.lpSum(self._gain)
        for used, nodes in zip(self._used, self._rows.pool.nodes.tolist(), strict=True):
            if used:
                self._model += pulp.lpSum(used) <= nodes

    def _size(self, place: int, row: int) -> _SizeVariables:
        rows, name = self._rows, f"{place}_{row}"
        chosen = self._model.add_variable(f"z_{name}", 0, 1, pulp.LpInteger)
        self._gain.append(self._scale * float(rows.base[row]) * chosen)
        by_class = [
            self._class(place, row, k, chosen) for k in range(len(rows.pool.nodes))
        ]
        above = []
        for k, own in enumerate(by_class):
            least = int(rows.least[row, k])
            used = [part.segment.start * part.chosen + part.more for part in own]
            above += used
            self._used[k] += [least * chosen, *used] if least else used
        missing = int(rows.size[row]) - int(rows.least[row].sum())
        self._model += pulp.lpSum(above) == missing * chosen  # W6
        return _SizeVariables(row, chosen, by_class)

    def _class(
        self, place: int, row: int, k: int, chosen: pulp.LpVariable
    ) -> list[_SegmentVariables]:
        """Add one class at one size: on which segment its count lies, and where; W5."""
        rows, trainer = self._rows, self._window.trainers[place]
        least, room = int(rows.least[row, k]), int(rows.room[row, k])
        nodes = int(rows.size[row])
        worth = trainer.curve.value_per_s.item(nodes)
        new_share = self._new_share[place].item(k)
        loss_s = self._window.hit_weight * trainer.loss_s * new_share
        made = self._segments.of(k, least, least + room, exact=worth < 0.0)
        each_s = float(rows.pool.life_s[k]) / max(nodes, 1)
        parts = []
        for number, segment in enumerate(made):
            name = f"{place}_{row}_{k}_{number}"
            on, more = chosen, self._count(f"y_{name}", segment.nodes)
            if len(made) > 1:
                on = self._count(f"s_{name}", 1)
            self._model += more <= segment.nodes * on
            at_s = segment.start * each_s - loss_s * segment.hits
            more_s = each_s - loss_s * segment.slope
            self._gain += [
                self._scale * worth * at_s * on,
                self._scale * worth * more_s * more,
            ]
            parts.append(_SegmentVariables(segment, on, more))
        if len(made) > 1:
            self._model += pulp.lpSum(part.chosen for part in parts) == chosen
        return parts

    def _count(self, name: str, most: int) -> pulp.LpVariable:
        return self._model.add_variable(name, 0, most, pulp.LpInteger)


def prove(
    window: Window,
    program: WindowProgram,
    known: BoundedPlan,
    *,
    solver: ModelSolver | None,
    deadline: SearchDeadline,
) -> BoundedPlan:
    """Improve on *known* by the integer program, or prove it.

    Args:
        window: The problem.
        program: Of the sizes that a better plan may have.
        known: The best plan and bound so far.
        solver: Runs the program; None for CBC.
        deadline: When to have an answer.
    """
    program.begin(program.rows.pool.rows(known.holdings).tolist())
    runs = Cbc(warm=True) if solver is None else solver
    limit_s = _SOLVER_SHARE * deadline.left_s()
    try:
        found = runs.solve(program.model, limit_s=max(limit_s, 0.0))
        return _judged(window, known, program, found)
    except (SolverFailedError, SolverUnavailableError) as error:
        return known._replace(reason=f"{error} The search's plan stays.")


def _judged(
    window: Window, known: BoundedPlan, program: WindowProgram, found: SolverStatus
) -> BoundedPlan:
    """Use the solver's answer if it is sound and no worse than it should be.

    Raises:
        SolverFailedError: It breaks a constraint, or is called optimal though a
            better plan is known.
    """
    if found is SolverStatus.INFEASIBLE:
        raise SolverFailedError("It has a plan, but the solver calls it infeasible.")
    if found is SolverStatus.NOTHING:
        return known._replace(reason="searched; the solver found nothing in its time")
    holdings = program.rows.pool.holdings(program.counts())
    broken = violations(window, holdings, claimed=0.0, least=-np.inf)
    if broken:
        raise SolverFailedError(f"the solver's point was refused: {'; '.join(broken)}.")
    gain, slack = total_gain(window, holdings), SOLVER_TOLERANCE * abs(known.gain)
    if (
        found is SolverStatus.OPTIMUM
        and max(gain, program.value()) < known.gain - slack
    ):
        raise SolverFailedError(
            f"the solver calls a gain of {gain:g} optimal, but {known.gain:g} is known "
            f"to be possible. Its answer was not used."
        )
    better = known
    if gain > known.gain:
        better = BoundedPlan(holdings, gain, known.bound, "")
    if found is not SolverStatus.OPTIMUM:
        return better._replace(reason="the best of the search and the solver in time")
    most = max(program.value(), better.gain) + slack
    return better._replace(bound=min(known.bound, most), reason="")
