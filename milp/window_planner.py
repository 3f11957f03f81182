"""Hits of a class, bent downwards, as straight pieces (docs/model.md, W5)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pulp

from milp.errors import SolverFailedError, SolverUnavailableError
from milp.planner import Outcome
from milp.problem import gap, scale_of
from milp.solver import Deadline, Found, whole
from milp.window import ask, loose_bound, total_gain, violations
from milp.window_search import WindowPlanner, improve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milp.solver import ModelSolver
    from milp.window import Dual, Holding, Options, Window
    from milp.window_search import Improved, WindowPlan


# ----------------------------------------------------------------------
# Hits of a class, bent downwards, as straight pieces (docs/model.md, W5).

MOST_ERROR = 1e-6
"""Hits that a piece may lie below the curve: under a millionth of the gain, as a hit
costs less than the life that a node has."""


class Piece(NamedTuple):
    """Node counts between two, and hits along the chord between them.

    Attributes:
        start: Nodes above the least ones at its beginning.
        nodes: How many more at its end.
        hits: Hits above those of the least nodes at its beginning.
        slope: Hits a node.
    """

    start: int
    nodes: int
    hits: float
    slope: float


class Pieces:
    """Makes pieces of the hits of classes, and keeps where they end.

    A chord of a concave curve lies below it, here by ``MOST_ERROR`` at most: what a
    plan gains is overrated, never underrated, so that a bound stays one.

    Args:
        hits: [h_k] By class and node count.
    """

    def __init__(self, hits: Sequence[Sequence[float]]) -> None:
        self._hits = hits
        self._ends: dict[tuple[int, int], list[int]] = {}

    def count(self, k: int, least: int, most: int, *, exact: bool = False) -> int:
        """Return how many pieces :meth:`of` makes."""
        if exact or most <= least:
            return most - least
        return bisect_left(self._ends_from(k, least), most) + 1

    def of(self, k: int, least: int, most: int, *, exact: bool = False) -> list[Piece]:
        """Return the pieces of class *k* from *least* to *most* nodes, few as will do.

        Args:
            k: The class.
            least: Nodes at the beginning.
            most: Nodes at the end, no fewer; none make no piece.
            exact: Whether every node is a piece of its own, without any error.
        """
        count = self.count(k, least, most, exact=exact)
        if exact:
            ends = list(range(least + 1, most + 1))
        else:
            ends = [*self._ends_from(k, least)[: count - 1], most] if count else []
        hits, starts = self._hits[k], [least, *ends][: len(ends)]
        return [
            Piece(
                start - least,
                end - start,
                hits[start] - hits[least],
                (hits[end] - hits[start]) / (end - start),
            )
            for start, end in zip(starts, ends, strict=True)
        ]

    def _ends_from(self, k: int, least: int) -> list[int]:
        known = self._ends.get((k, least))
        if known is None:
            known = self._ends[k, least] = _ends(self._hits[k], least)
        return known


def _ends(hits: Sequence[float], least: int) -> list[int]:
    """Return where the longest pieces end that are close enough, one by one.

    A shorter piece from the same beginning is closer to the curve.
    """
    ends, start, last = [], least, len(hits) - 1
    while start < last:
        near, far = start + 1, last
        while near < far:
            middle = (near + far + 1) // 2
            if _error(hits, start, middle) <= MOST_ERROR:
                near = middle
            else:
                far = middle - 1
        ends.append(near)
        start = near
    return ends


def _error(hits: Sequence[float], start: int, end: int) -> float:
    begin, slope = hits[start], (hits[end] - hits[start]) / (end - start)
    return max(
        [hits[n] - begin - slope * (n - start) for n in range(start + 1, end)],
        default=0.0,
    )


# ----------------------------------------------------------------------
# The integer program of a window where it is small: a better plan, or a proof.

_MOST_VARIABLES = 5_000
"""CBC proves most windows of that size within a second; twice as many take it more than
five to find anything."""

_LEAST_S = 0.3
"""A solver's start and PuLP's import are not worth less."""

_SOLVER_SHARE = 0.6
"""Of what is left; CBC was seen to end 0.9 s after a limit of 2 s."""

TOLERANCE = 1e-6
"""Relative; what solvers call optimal may lie this far under the optimum."""

_NO_PRICES = "searched; no time, or too many sizes and classes, for prices"


class Proof(NamedTuple):
    """What the program says of a plan.

    Attributes:
        holdings: The plan, or a better one.
        gain: Of it, W0.
        bound: No plan gains more.
        reason: Why it is no better known; empty where nothing is to be said.
    """

    holdings: tuple[Holding, ...]
    gain: float
    bound: float
    reason: str


def prove(
    window: Window,
    known: Proof,
    searched: Improved,
    *,
    solver: ModelSolver | None,
    deadline: Deadline,
) -> Proof:
    """Improve on *known* by the integer program, or prove it, if that is small enough.

    Args:
        window: The problem.
        known: The best plan and bound so far.
        searched: What the search knows of sizes and prices.
        solver: Runs the program; None for CBC.
        deadline: When to have an answer.
    """
    options, dual = searched.options, searched.dual
    if options is None or dual is None:
        return known._replace(reason=_NO_PRICES)
    rows = rows_within(options, dual, known)
    size = variables(window, options, rows)
    if size > _MOST_VARIABLES:
        return known._replace(
            reason=f"searched; {size} variables or more are too many for a program"
        )
    if deadline.left_s() < _LEAST_S:
        return known._replace(reason="searched; no time was left for a program")
    # PuLP takes 0.1 s to import, which a tick with nothing to prove is spared.
    from milp.solver import Cbc  # noqa: PLC0415

    program = build(window, options, rows)
    program.begin(options.pool.rows(known.holdings).tolist())
    chosen = Cbc(warm=True) if solver is None else solver
    limit_s = _SOLVER_SHARE * deadline.left_s()
    try:
        found = chosen.solve(program.model, limit_s=max(limit_s, 0.0))
        return _judged(window, known, program, found)
    except (SolverFailedError, SolverUnavailableError) as error:
        return known._replace(reason=f"{error} The search's plan stays.")


def rows_within(options: Options, dual: Dual, known: Proof) -> list[list[int]]:
    """Return the rows, by trainer, that a better plan than *known* may have (R4).

    The size that the known plan has is always among them.
    """
    losses = ask(options, dual.prices).losses
    slack = TOLERANCE * abs(known.bound)
    within = losses <= dual.value - known.gain + slack
    ends = options.ends
    rows = []
    for kind, own in zip(options.kind.tolist(), known.holdings, strict=True):
        numbers = np.arange(options.first[kind], ends[kind])
        mine = options.size[numbers] == sum(own.values())
        rows.append(numbers[within[numbers] | mine].tolist())
    return rows


def variables(window: Window, options: Options, rows: Sequence[Sequence[int]]) -> int:
    """Return how many variables a program has, or, if too many, a part of them.

    Args:
        window: The problem.
        options: Sizes of all trainers.
        rows: Of the options, by trainer.
    """
    numbers = [row for own in rows for row in own]
    least = len(numbers) + int((options.room[numbers] > 0).sum())
    if least > _MOST_VARIABLES:
        return least
    made = Pieces(options.pool.hits.tolist())
    chosen = [
        (one.curve, row)
        for one, own in zip(window.trainers, rows, strict=True)
        for row in own
    ]
    for curve, row in chosen:
        exact = curve.value_per_s.item(int(options.size[row])) < 0.0
        froms, rooms = options.least[row].tolist(), options.room[row].tolist()
        counts = [
            made.count(k, start, start + room, exact=exact)
            for k, (start, room) in enumerate(zip(froms, rooms, strict=True))
        ]
        # A piece alone needs no variable that chooses it.
        least += sum([2 * n - 1 for n in counts if n > 1])
        if least > _MOST_VARIABLES:
            break
    return least


def _judged(window: Window, known: Proof, program: Program, found: Found) -> Proof:
    """Take the solver's answer in, if it is sound and no worse than it should be.

    Raises:
        SolverFailedError: It breaks a constraint, or is called optimal though a
            better plan is known.
    """
    if found is Found.INFEASIBLE:
        raise SolverFailedError("It has a plan, but the solver calls it infeasible.")
    if found is Found.NOTHING:
        return known._replace(reason="searched; the solver found nothing in its time")
    holdings = program.options.pool.holdings(program.counts())
    broken = violations(window, holdings, claimed=0.0, least=-np.inf)
    if broken:
        raise SolverFailedError(f"the solver's point was refused: {'; '.join(broken)}.")
    gain, slack = total_gain(window, holdings), TOLERANCE * abs(known.gain)
    if found is Found.OPTIMUM and max(gain, program.value()) < known.gain - slack:
        raise SolverFailedError(
            f"the solver calls a gain of {gain:g} optimal, but {known.gain:g} is known "
            f"to be possible. Its answer was not used."
        )
    better = known if gain <= known.gain else Proof(holdings, gain, known.bound, "")
    if found is not Found.OPTIMUM:
        return better._replace(reason="the best of the search and the solver in time")
    most = max(program.value(), better.gain) + slack
    return better._replace(bound=min(known.bound, most), reason="")


# ----------------------------------------------------------------------
# The look-ahead planner for a tick: one call, never late, its plan verified.

_FIRST = 0.1
"""Share of the limit that moves of whole classes may take."""

_SEARCH = 0.8
"""Share of the rest that the longer search may take."""


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """A plan that has been verified, and how far from the best it can be.

    Attributes:
        holdings: Nodes by trainer and class; no constraint is broken.
        gain: What they gain, W0.
        kept_gain: What keeping the present plan gains; never more than ``gain``.
        bound: What no plan exceeds; never less than ``gain``.
        outcome: Proven optimal, the best found, or the present plan because nothing
            better could be trusted.
        reason: Why, where there is more to say; for people.
    """

    holdings: tuple[Holding, ...]
    gain: float
    kept_gain: float
    bound: float
    outcome: Outcome
    reason: str = ""

    @property
    def gap(self) -> float:
        """How far it is below the bound at most, as ``milp.gap`` has it."""
        return gap(self.gain, self.bound)


def answer_window(
    window: Window,
    starts: Sequence[Sequence[int]] = (),
    *,
    limit_s: float,
    clock: Callable[[], float],
    solver: ModelSolver | None = None,
) -> WindowAnswer:
    """Return the best plan of *window* that can be had and trusted within *limit_s*.

    Args:
        window: What is to be planned.
        starts: Node counts by trainer to begin from besides the present plan, for
            example the published planner's.
        limit_s: Seconds that all of this may take; at 0 the present plan stays, or
            what the first glance finds.
        clock: Seconds that only go up, for example ``time.monotonic``.
        solver: Runs the integer program where the window is small enough; None for
            CBC, which is loaded only if it is needed.
    """
    deadline = Deadline(clock() + limit_s, clock)
    plan = WindowPlanner().plan(window, starts, stop=deadline.share(_FIRST).passed)
    if plan.refused:
        return _kept(window, plan, plan.refused)
    better = improve(window, plan.holdings, plan.kept, deadline.share(_SEARCH))
    gain = total_gain(window, better.holdings)
    broken = violations(window, better.holdings, claimed=gain, least=plan.kept_gain)
    if broken or gain > better.bound + TOLERANCE * abs(gain):
        why = f"W3: gains {gain!r}, more than the bound {better.bound!r}"
        return _kept(window, plan, broken or (why,))
    known = Proof(better.holdings, gain, better.bound, "")
    if not _is_proven(known):
        known = prove(window, known, better, solver=solver, deadline=deadline)
    # The same holdings may add up to another last digit in another order.
    least = min(plan.kept_gain, known.gain)
    return _answer(known, least)


def _answer(known: Proof, kept_gain: float) -> WindowAnswer:
    most = max(known.bound, known.gain)
    made = WindowAnswer(
        known.holdings, known.gain, kept_gain, most, Outcome.PROVEN, known.reason
    )
    if _is_proven(known):
        return made
    return replace(made, outcome=Outcome.INCUMBENT)


def _is_proven(known: Proof) -> bool:
    return known.bound - known.gain <= 2.0 * TOLERANCE * abs(known.gain)


def _kept(window: Window, plan: WindowPlan, why: Sequence[str]) -> WindowAnswer:
    gain = plan.kept_gain
    most = max(gain, loose_bound(window))
    reason = f"the search's plan was refused: {'; '.join(why)}. The present plan stays."
    return WindowAnswer(plan.kept, gain, gain, most, Outcome.KEPT, reason)


# ----------------------------------------------------------------------
# W0 as an integer program in PuLP (docs/model.md, W4 to W8).


class _Part(NamedTuple):
    """A piece of one class at one size of one trainer.

    Attributes:
        piece: Where it is.
        chosen: [s] 1 if the count lies on it.
        more: [y] Nodes from its beginning on.
    """

    piece: Piece
    chosen: pulp.LpVariable
    more: pulp.LpVariable


class _Row(NamedTuple):
    """One size of one trainer.

    Attributes:
        row: Of the options.
        chosen: [z] 1 if the trainer has this size.
        parts: By class; none where there is nothing to choose.
    """

    row: int
    chosen: pulp.LpVariable
    parts: list[list[_Part]]


class Program(NamedTuple):
    """A model, where to begin from, and where to read its answer.

    Attributes:
        model: The PuLP model; its objective is the gain times ``scale``.
        rows: By trainer.
        options: What the rows are of.
        scale: Factor of the objective, for the solver's tolerances.
    """

    model: pulp.LpProblem
    rows: list[list[_Row]]
    options: Options
    scale: float

    def begin(self, counts: Sequence[Sequence[int]]) -> None:
        """Set the variables to a plan whose sizes are among the rows."""
        for variable in self.model.variables():
            variable.setInitialValue(0)
        for own, wanted in zip(self.rows, counts, strict=True):
            for one in own:
                if int(self.options.size[one.row]) == sum(wanted):
                    _set(one, self.options, wanted)

    def counts(self) -> list[list[int]]:
        """Return the solved nodes by trainer and class.

        Raises:
            SolverFailedError: A variable that counts has no whole value.
        """
        return [self._counts_of(own) for own in self.rows]

    def value(self) -> float:
        """Return the solved objective in objective units."""
        # Where all gains are 0, PuLP adds a variable that never has a value.
        terms = self.model.objective.items()
        summed = sum([factor * one.value() for one, factor in terms if factor])
        return float(summed) / self.scale

    def _counts_of(self, own: list[_Row]) -> list[int]:
        counts = [0] * len(self.options.pool.nodes)
        for one in own:
            least = self.options.least[one.row].tolist()
            [chosen] = whole([one.chosen])
            for k, parts in enumerate(one.parts):
                counts[k] += chosen * least[k]
                for part in parts:
                    on, more = whole([part.chosen, part.more])
                    counts[k] += part.piece.start * on + more
        return counts


def _set(one: _Row, options: Options, wanted: Sequence[int]) -> None:
    one.chosen.setInitialValue(1)
    for k, parts in enumerate(one.parts):
        above = wanted[k] - int(options.least[one.row, k])
        for part in parts:
            start, nodes, *_ = part.piece
            if above <= start + nodes:
                part.chosen.setInitialValue(1)
                part.more.setInitialValue(above - start)
                break


def build(window: Window, options: Options, rows: Sequence[Sequence[int]]) -> Program:
    """Build the program over *rows* of *options*, by trainer.

    Each trainer's rows contain a size that it can have whatever others do.
    """
    model = pulp.LpProblem("window", pulp.LpMaximize)
    base = options.base[[row for own in rows for row in own]]
    largest = max((abs(gain) for gain in base.tolist()), default=0.0)
    largest = max(largest, float(abs(options.slope).max(initial=0.0)))
    scale = scale_of(largest)
    writer = _Writer(window, options, model, scale)
    made = [writer.trainer(place, own) for place, own in enumerate(rows)]
    writer.finish()
    return Program(model, made, options, scale)


class _Writer:
    """Writes the program down, trainer by trainer."""

    def __init__(
        self, window: Window, options: Options, model: pulp.LpProblem, scale: float
    ) -> None:
        self._window, self._options = window, options
        self._model, self._scale = model, scale
        self._gain: list[pulp.LpAffineExpression] = []
        self._pieces = Pieces(options.pool.hits.tolist())
        self._fresh = [options.pool.fresh(one) for one in window.trainers]
        self._used: list[list[pulp.LpAffineExpression]] = [
            [] for _ in options.pool.nodes
        ]

    def trainer(self, place: int, rows: Sequence[int]) -> list[_Row]:
        """Add one trainer: one of its sizes (W4), its nodes by class."""
        made = [self._row(place, row) for row in rows]
        self._model += pulp.lpSum(one.chosen for one in made) == 1  # W4
        return made

    def finish(self) -> None:
        """Add what all trainers share: the objective (W8) and the nodes (W7)."""
        self._model += pulp.lpSum(self._gain)
        for used, nodes in zip(
            self._used, self._options.pool.nodes.tolist(), strict=True
        ):
            if used:
                self._model += pulp.lpSum(used) <= nodes

    def _row(self, place: int, row: int) -> _Row:
        options, name = self._options, f"{place}_{row}"
        chosen = self._model.add_variable(f"z_{name}", 0, 1, pulp.LpInteger)
        self._gain.append(self._scale * float(options.base[row]) * chosen)
        parts = [
            self._parts(place, row, k, chosen) for k in range(len(options.pool.nodes))
        ]
        above = []
        for k, own in enumerate(parts):
            least = int(options.least[row, k])
            used = [part.piece.start * part.chosen + part.more for part in own]
            above += used
            self._used[k] += [least * chosen, *used] if least else used
        missing = int(options.size[row]) - int(options.least[row].sum())
        self._model += pulp.lpSum(above) == missing * chosen  # W6
        return _Row(row, chosen, parts)

    def _parts(
        self, place: int, row: int, k: int, chosen: pulp.LpVariable
    ) -> list[_Part]:
        """Add one class at one size: on which piece the count lies, and where (W5)."""
        options, trainer = self._options, self._window.trainers[place]
        least, room = int(options.least[row, k]), int(options.room[row, k])
        nodes = int(options.size[row])
        worth = trainer.curve.value_per_s.item(nodes)
        loss_s = self._window.hit_weight * trainer.loss_s * self._fresh[place].item(k)
        made = self._pieces.of(k, least, least + room, exact=worth < 0.0)
        each_s = float(options.pool.life_s[k]) / max(nodes, 1)
        parts = []
        for number, piece in enumerate(made):
            name = f"{place}_{row}_{k}_{number}"
            on, more = chosen, self._count(f"y_{name}", piece.nodes)
            if len(made) > 1:
                on = self._count(f"s_{name}", 1)
            self._model += more <= piece.nodes * on
            at_s = piece.start * each_s - loss_s * piece.hits
            more_s = each_s - loss_s * piece.slope
            self._gain += [
                self._scale * worth * at_s * on,
                self._scale * worth * more_s * more,
            ]
            parts.append(_Part(piece, on, more))
        if len(made) > 1:
            self._model += pulp.lpSum(part.chosen for part in parts) == chosen
        return parts

    def _count(self, name: str, most: int) -> pulp.LpVariable:
        return self._model.add_variable(name, 0, most, pulp.LpInteger)
