"""How near to the best the look-ahead planner's plans for a tick are, and how fast.

``python -m tests.bench window``
"""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING

from milp.answer import PlanStatus, SolverUnavailableError, gap
from milp.window import BoundedClasses, SearchDeadline, first_bound, size_rows, tighten
from milp.window_planner import Exchange, WindowAnswer, answer_window, repair
from milp.window_search import WindowPlanner
from tests.bench.window_cases import small_windows, tick_windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pulp

    from milp.answer import SolverStatus
    from milp.window import Holding, Window

LIMIT_S = 2.0
LONG_S = 6.0
"""Processor time for the best known plan."""


class _NoSolver:
    """Is not there, so that the search stands alone."""

    def solve(self, _: pulp.LpProblem, *, limit_s: float | None) -> SolverStatus:
        raise SolverUnavailableError(f"no solver, though it had {limit_s} s.")


def lines(_: Path) -> Iterator[str]:
    """Yield the benchmark's tables, row by row, as they come."""
    yield from _ticks()
    yield from _against_program()


def _ticks() -> Iterator[str]:
    yield (
        f"100 trainers x 1,000 nodes in 8 classes, limit {LIMIT_S:g} s, processor time"
    )
    yield "curves          held cost  seconds  replay's  below bound  below best known"
    all_within = count = 0
    longest_s = 0.0
    for name, window in tick_windows():
        answer, seconds = _timed(window, LIMIT_S)
        fast = WindowPlanner().plan(window)
        known = max(answer.gain, _best_known(window, answer, fast.kept))
        below, behind = gap(answer.gain, answer.bound), gap(answer.gain, known)
        count += 1
        all_within += min(below, behind) <= 0.01
        longest_s = max(longest_s, seconds)
        yield (
            f"{name}  {seconds:7.2f}  {gap(fast.gain, answer.bound):8.2%}  "
            f"{below:11.2%}  {behind:16.2%}"
        )
    yield (
        f"{all_within} of {count} within 1 % of the bound or of the best known plan; "
        f"the longest took {longest_s:.2f} s"
    )


def _against_program() -> Iterator[str]:
    yield "small windows: the search alone, and with the integer program"
    yield "trainers x nodes in classes    search s  below optimum  program s  answer"
    for name, window in small_windows():
        alone, alone_s = _timed(window, LIMIT_S, _NoSolver())
        proven, seconds = _timed(window, 10.0 * LIMIT_S)
        missing = gap(alone.gain, proven.gain)
        told = str(proven.outcome)
        if proven.outcome is not PlanStatus.PROVEN:
            told += f", gap {proven.gap:.2%}"
        yield f"{name:29s}  {alone_s:8.2f}  {missing:13.3%}  {seconds:9.2f}  {told}"


def _timed(
    window: Window, limit_s: float, solver: _NoSolver | None = None
) -> tuple[WindowAnswer, float]:
    """Return the answer and the seconds of processor time, CBC's own left out."""
    began_s = process_time()
    answer = answer_window(window, limit_s=limit_s, clock=process_time, solver=solver)
    return answer, process_time() - began_s


def _best_known(
    window: Window, answer: WindowAnswer, kept: tuple[Holding, ...]
) -> float:
    """Return what a much longer search finds from the answer and what is *kept*."""
    pool = BoundedClasses.of(window)
    options = size_rows(window, pool)
    dual = tighten(options, first_bound(options), reached=answer.gain, steps=200)
    exchange, best = Exchange(window, pool), answer.gain
    end = SearchDeadline(process_time() + LONG_S, process_time)
    for plan in (answer.holdings, kept):
        exchange.changes.load(pool.rows(plan))
        exchange.run(end)
        repair(exchange, options, dual, rounds=100_000, deadline=end.share(0.5))
        best = max(best, exchange.changes.gain)
    return best
