"""The integer program of a window where it is small: a better plan, or a proof.

Nothing that a solver says is used unverified: its point has to be whole, break no
constraint, and, if it is called optimal, gain no less than what it began from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.errors import SolverFailedError, SolverUnavailableError
from milp.proposal import Found
from milp.window import total_gain
from milp.window_bound import ask
from milp.window_pieces import Pieces
from milp.window_verify import violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.deadline import Deadline
    from milp.solver import ModelSolver
    from milp.window import Holding, Window
    from milp.window_bound import Dual
    from milp.window_improvement import Improved
    from milp.window_options import Options
    from milp.window_program import Program

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
    from milp.window_program import build  # noqa: PLC0415

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
