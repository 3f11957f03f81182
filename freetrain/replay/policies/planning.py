"""The planner, as policies use it: asked for counts, and measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from freetrain.replay.gaps import Gaps
from milp.planner import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from milp.planner import Answer
    from milp.problem import Problem


@dataclass(slots=True)
class SolverUse:
    """What the solver cost a replay.

    Attributes:
        calls: How often it was asked.
        spent_s: How long that took in all, seconds.
        fallbacks: How often it had no plan, and the present one was kept.
        gaps: How far the plans that were carried out are from the best there can be.
    """

    calls: int = 0
    spent_s: float = 0.0
    fallbacks: int = 0
    gaps: Gaps = field(default_factory=Gaps)


class Plans(Protocol):
    """What plans: ``milp.planner.Planner``, or a fake of it."""

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the present one where there is no better."""
        ...


class MeasuredPlanner:
    """Asks the planner, which verifies every answer, and keeps count.

    Args:
        planner: What plans.
        use: Where it is counted.
        clock: Seconds from any moment on.
        is_start: Whether another planner begins from the counts, so that their gaps
            are nobody's.
    """

    def __init__(
        self,
        planner: Plans,
        use: SolverUse,
        clock: Callable[[], float],
        *,
        is_start: bool = False,
    ) -> None:
        self._planner = planner
        self._use = use
        self._clock = clock
        self._is_start = is_start

    def counts(self, problem: Problem) -> tuple[int, ...]:
        """Return the nodes of each trainer, for a problem of one node class."""
        return counts_of(self.answer(problem))

    def answer(self, problem: Problem) -> Answer:
        """Return a plan, and how good it is."""
        began_s = self._clock()
        answer = self._planner.plan(problem)
        self._use.calls += 1
        self._use.spent_s += self._clock() - began_s
        self._use.fallbacks += answer.outcome is Outcome.KEPT
        if not self._is_start:
            self._use.gaps.know(answer.gap)
        return answer


def counts_of(answer: Answer) -> tuple[int, ...]:
    """Return the nodes of each trainer, for a problem of one node class."""
    return tuple([row[0] for row in answer.plan.counts])
