"""The policy ``lookahead``: plans by what is expected of the idle nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.forecast.reliability import Watched
from freetrain.replay.policies.lookahead_nodes import changes_to_holdings
from milp.problem import NodeClass, Problem, TrainerState
from milp.window import Holder, Stay, Window
from milp.window_planner import WindowPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.interface import Forecaster
    from freetrain.replay.policies.interface import Change, TrainerView, View
    from freetrain.replay.policies.planning import MeasuredPlanner
    from freetrain.replay.policies.worth import Worth
    from milp.problem import Curve

HORIZON_S = 400.0
"""Forecasts and plans reach this far, whatever T_fwd the published planner has."""

HIT_WEIGHT = 0.25
"""A foreseeable loss is counted a quarter: losses of several clusters may be one."""

CHANGE_WEIGHT = 1.3
"""A change must gain 1.3 times what it costs."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the planner goes by; chosen on the first six days of Summit.

    Attributes:
        horizon_s: How far forecasts reach, seconds.
        hit: What a foreseeable loss counts.
        change: What a change counts.
        lives: Whether lives differ; for ablation.
    """

    horizon_s: float = HORIZON_S
    hit: float = HIT_WEIGHT
    change: float = CHANGE_WEIGHT
    lives: bool = True


class LookaheadPolicy:
    """Learns from every event, and plans by what it learned.

    The published planner's counts for the same horizon are where the search starts
    from, besides the present plan.
    """

    name = "lookahead"

    def __init__(
        self,
        forecaster: Forecaster,
        published: MeasuredPlanner,
        worth: Worth,
        weights: Weights,
        *,
        windows: WindowPlanner | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._planner = windows or WindowPlanner()
        self._published = published
        self._worth = worth
        self._weights = weights

    @property
    def forecasts(self) -> Watched | None:
        """Its forecasts, where they are watched."""
        return self._forecaster if isinstance(self._forecaster, Watched) else None

    def decide(self, view: View) -> Sequence[Change]:
        """Learn from what happened, plan, and choose nodes."""
        self._forecaster.see(view.now_s, joined=view.joined, left=view.left)
        if not view.trainers or not view.idle_nodes:
            return ()
        window = self._window(view)
        counts = self._published.counts(self._problem(view, window))
        plan = self._planner.plan(window, (counts,))
        return changes_to_holdings(plan.holdings, window, view, self._forecaster)

    def _window(self, view: View) -> Window:
        cluster = self._forecaster.cluster
        free = Counter(map(cluster, view.free))
        curves = self._worth.curves(view)
        trainers = tuple(
            _holder(trainer, curve, Counter(map(cluster, trainer.held)))
            for trainer, curve in zip(view.trainers, curves, strict=True)
        )
        used = {k for trainer in trainers for k in trainer.held}
        return Window(
            stays={k: self._stay(k) for k in sorted(used | free.keys())},
            free=free,
            trainers=trainers,
            hit_weight=self._weights.hit,
            change_weight=self._weights.change,
        )

    def _stay(self, cluster: int) -> Stay:
        nodes = len(self._forecaster.members(cluster))
        if not self._weights.lives:
            return Stay(nodes, self._weights.horizon_s, 0.0, 1.0)
        prospect = self._forecaster.prospect(cluster)
        return Stay(nodes, prospect.life_s, prospect.hit, prospect.share)

    def _problem(self, view: View, window: Window) -> Problem:
        states = tuple(
            TrainerState(
                name=str(place),
                curve=trainer.curve,
                held=(sum(trainer.held.values()),),
                up_s=trainer.up_s,
                down_s=trainer.down_s,
                start_s=trainer.start_s,
            )
            for place, trainer in enumerate(window.trainers)
        )
        return Problem(
            (NodeClass("idle", view.idle_nodes),), states, self._weights.horizon_s
        )


def _holder(trainer: TrainerView, curve: Curve, held: Counter[int]) -> Holder:
    costs = trainer.spec.costs
    return Holder(
        curve=curve,
        held=held,
        up_s=costs.grow_s,
        down_s=costs.shrink_s,
        start_s=costs.start_s,
        loss_s=costs.shrink_s + costs.checkpoint_every_s / 2,
    )
