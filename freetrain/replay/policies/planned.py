"""Policies that plan in counts, asked at every event of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.planning.policy import PlanTrainer, Request
from freetrain.replay.gaps import GapSampler
from freetrain.replay.policies.base import changes_to
from milp.answer import PlanStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.planning.policy import Policy, ProblemSolver
    from freetrain.replay.policies.base import Change, TrainerView, View
    from freetrain.replay.policies.ratings import CurveSource
    from milp.answer import Answer
    from milp.problem import Curve, Problem


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
    gaps: GapSampler = field(default_factory=GapSampler)


class MeasuredSolver:
    """Asks a solver and counts what that costs.

    Args:
        solver: What solves.
        use: Where it is counted.
        clock: Seconds from any moment on.
        is_start: Whether another search starts from its plans, so that their gaps are
            not those of the plans that are carried out.
    """

    def __init__(
        self,
        solver: ProblemSolver,
        use: SolverUse,
        clock: Callable[[], float],
        *,
        is_start: bool = False,
    ) -> None:
        self._solver = solver
        self._use = use
        self._clock = clock
        self._is_start = is_start

    def plan(self, problem: Problem) -> Answer:
        """Return a plan, and how good it is."""
        began_s = self._clock()
        answer = self._solver.plan(problem)
        self._use.calls += 1
        self._use.spent_s += self._clock() - began_s
        self._use.fallbacks += answer.outcome is PlanStatus.KEPT
        if not self._is_start:
            self._use.gaps.know(answer.gap)
        return answer


class PlannedPolicy:
    """Asks a policy that plans in counts; all idle nodes are of one class.

    Args:
        name: What results call it.
        policy: What plans.
        curves: What trainers' work is worth.
        t_fwd_s: Look-ahead over which a plan's gain is counted, seconds.
    """

    def __init__(
        self, name: str, policy: Policy, curves: CurveSource, *, t_fwd_s: float
    ) -> None:
        self.name = name
        self._policy = policy
        self._curves = curves
        self._t_fwd_s = t_fwd_s
        self._asked: tuple[Sequence[TrainerView], Sequence[Curve]] = ((), ())
        self._trainers: list[_BySize] = []

    def decide(self, view: View) -> Sequence[Change]:
        """Plan for the pool as it is and turn the plan into changes."""
        if not view.trainers or not view.idle_nodes:
            return ()
        planned = self._policy.plan(
            Request(
                trainers=self._known(view),
                free={0: len(view.free)},
                t_fwd_s=self._t_fwd_s,
            )
        )
        return changes_to([own.get(0, 0) for own in planned.holdings], view)

    def _known(self, view: View) -> list[PlanTrainer]:
        """Return the trainers; at most events they are those of the last one."""
        asked = list(view.trainers), list(self._curves.curves(view))
        if asked != self._asked:
            known = {by_size.made_of: by_size for by_size in self._trainers}
            self._trainers = [
                known.get(made_of) or _BySize(*made_of)
                for made_of in zip(*asked, strict=True)
            ]
            self._asked = asked
        return [
            by_size[len(trainer.held)]
            for trainer, by_size in zip(view.trainers, self._trainers, strict=True)
        ]


class _BySize(dict[int, PlanTrainer]):
    """A trainer by the number of nodes that it holds.

    Trainers come back to the same few numbers, and making one anew costs the policy
    what it has derived from it, too.
    """

    def __init__(self, trainer: TrainerView, curve: Curve) -> None:
        super().__init__()
        self.made_of = trainer, curve

    def __missing__(self, held: int) -> PlanTrainer:
        trainer, curve = self.made_of
        costs = trainer.spec.costs
        made = self[held] = PlanTrainer(
            name=trainer.spec.name,
            curve=curve,
            held={0: held} if held else {},
            up_s=costs.grow_s,
            down_s=costs.shrink_s,
            start_s=costs.start_s,
        )
        return made
