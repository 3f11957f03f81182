"""A planner's answer: a verified plan, how far it can be trusted, and its gap.

Light on purpose: what only shows or compares answers loads no NumPy by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from milp.problem import Plan


_ROUNDING = 1e-9
"""Share up to which a gain and its bound differ by rounding alone."""


def gap(gain: float, bound: float) -> float:
    """Return what a plan lacks of the bound at most, over the larger of the two.

    ::

        (bound - gain) / max(|bound|, |gain|)

    Where the plan gains anything that is the share of the bound that it misses. It is
    defined for all others too: over 1 where the plan loses and another may gain, and
    a share of the loss where all lose.

    Args:
        gain: Of the plan, in any unit.
        bound: What no plan exceeds, in the same unit.

    Returns:
        0 for a plan that is proven the best, up to 2.
    """
    scale = max(abs(bound), abs(gain))
    missing = bound - gain
    return missing / scale if missing > _ROUNDING * scale else 0.0


class PlanStatus(StrEnum):
    """How far an answer can be trusted to be the best one."""

    PROVEN = "proven optimal"
    INCUMBENT = "incumbent"
    KEPT = "kept"


class Judged(NamedTuple):
    """A plan's gain by the objective that it was made by.

    Attributes:
        gain: In that objective's units.
        bound: No plan gains more, in the same units.
        is_m0: Whether that objective is the problem's M0.
    """

    gain: float
    bound: float
    is_m0: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan that has been verified.

    Attributes:
        plan: Breaks no constraint of docs/reference/model.md.
        outcome: Proven optimal, the best found, or the present plan because nothing
            better could be trusted.
        reason: Why, where there is more to say; for people.
        by_own: Its gain by the objective that it was made by, where that is another
            than the problem's M0, or the plan was made in several steps; None where
            the plan itself has it.
    """

    plan: Plan
    outcome: PlanStatus
    reason: str = ""
    by_own: Judged | None = None

    @property
    def judged(self) -> Judged:
        """Its gain by the objective that it was made by."""
        return self.by_own or Judged(self.plan.gain, self.plan.bound, is_m0=True)

    @property
    def is_by_m0(self) -> bool:
        """Whether it was made by the problem's M0."""
        return self.judged.is_m0

    @property
    def gap(self) -> float:
        """How far it is below the bound at most, by that objective; see ``gap``."""
        judged = self.judged
        return gap(judged.gain, judged.bound)
