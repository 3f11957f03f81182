"""The policy ``freetrain``: what the planner says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.policies.counts import changes_to
from milp.problem import NodeClass, Problem, TrainerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.interface import Change, TrainerView, View
    from freetrain.replay.policies.planning import MeasuredPlanner
    from freetrain.replay.policies.worth import Worth
    from milp.problem import Curve


class FreeTrainPolicy:
    """Asks the planner at every event; all idle nodes are of one class."""

    name = "freetrain"

    def __init__(
        self,
        planner: MeasuredPlanner,
        worth: Worth,
        *,
        t_fwd_s: float,
    ) -> None:
        self._planner = planner
        self._worth = worth
        self._t_fwd_s = t_fwd_s
        self._states: dict[int, TrainerState] = {}

    def decide(self, view: View) -> Sequence[Change]:
        """Plan for the pool as it is and turn the plan into changes."""
        if not view.trainers or not view.idle_nodes:
            return ()
        problem = Problem(
            classes=(NodeClass("idle", view.idle_nodes),),
            trainers=self._known(view),
            t_fwd_s=self._t_fwd_s,
        )
        return changes_to(self._planner.counts(problem), view)

    def _known(self, view: View) -> tuple[TrainerState, ...]:
        """Return the trainers as the planner sees them, made anew where changed.

        Few trainers change at an event, and making a state costs more than
        looking one up.
        """
        before, self._states = self._states, {}
        curves = self._worth.curves(view)
        for trainer, curve in zip(view.trainers, curves, strict=True):
            state = before.get(trainer.serial)
            held = len(trainer.held)
            if state is None or state.held[0] != held or state.curve is not curve:
                state = _state(trainer, curve, held)
            self._states[trainer.serial] = state
        return tuple(self._states.values())


def _state(trainer: TrainerView, curve: Curve, held: int) -> TrainerState:
    costs = trainer.spec.costs
    return TrainerState(
        name=trainer.spec.name,
        curve=curve,
        held=(held,),
        up_s=costs.grow_s,
        down_s=costs.shrink_s,
        start_s=costs.start_s,
    )
