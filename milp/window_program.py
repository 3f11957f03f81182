"""W0 as a verified integer program in PuLP (docs/reference/model.md, W4 to W8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pulp

from milp.errors import SolverFailedError, SolverUnavailableError
from milp.problem import SOLVER_TOLERANCE, scale_of
from milp.solver import Cbc, SolverStatus, whole
from milp.window import total_gain, violations
from milp.window_bound import BoundedPlan
from milp.window_segments import Segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.solver import ModelSolver
    from milp.window import SearchDeadline, Window
    from milp.window_bound import SizeRows
    from milp.window_segments import Segment

_SOLVER_SHARE = 0.6
"""Of the time that is left; CBC was seen to end 0.9 s after a limit of 2 s."""


def prove(
    window: Window,
    program: Program,
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
    window: Window, known: BoundedPlan, program: Program, found: SolverStatus
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


class Program(NamedTuple):
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


def build(window: Window, rows: SizeRows, chosen: Sequence[Sequence[int]]) -> Program:
    """Build the program over the *chosen* of *rows*, by trainer.

    Each trainer's chosen rows contain a size that it can have whatever others do.
    """
    model = pulp.LpProblem("window", pulp.LpMaximize)
    base = rows.base[[row for own in chosen for row in own]]
    largest = max((abs(gain) for gain in base.tolist()), default=0.0)
    largest = max(largest, float(abs(rows.slope).max(initial=0.0)))
    scale = scale_of(largest)
    writer = _Writer(window, rows, model, scale)
    made = [writer.trainer(place, own) for place, own in enumerate(chosen)]
    writer.finish()
    return Program(model, made, rows, scale)


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
