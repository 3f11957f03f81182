"""The look-ahead planner for a tick: one call, never late, its plan verified.

The search stands alone at scale; where the window is small enough, the integer program
(docs/model.md, W4 to W8) improves its plan or proves it. The bound is always told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from milp.deadline import Deadline
from milp.gap import gap
from milp.planner import Outcome
from milp.window import total_gain
from milp.window_bound import loose_bound
from milp.window_improvement import improve
from milp.window_planner import WindowPlanner
from milp.window_proof import TOLERANCE, Proof, prove
from milp.window_verify import violations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milp.solver import ModelSolver
    from milp.window import Holding, Window
    from milp.window_planner import WindowPlan

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
