"""The policy ``lookahead``: plans by what is expected of the idle nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.forecast.experience import Experience
from freetrain.forecast.reliability import Watched
from freetrain.replay.policies.lookahead_holders import Holders, by_cluster
from freetrain.replay.policies.lookahead_nodes import changes_to_holdings
from freetrain.replay.policies.lookahead_starts import Starts
from freetrain.replay.settings import DEFAULT_T_FWD_S
from milp.window import Stay, Window
from milp.window_planner import WindowPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.interface import Prospects
    from freetrain.replay.gaps import Gaps
    from freetrain.replay.policies.interface import Change, View
    from freetrain.replay.policies.planning import MeasuredPlanner
    from freetrain.replay.policies.worth import Worth
    from milp.window import Holder

HORIZON_S = 500.0
"""Forecasts and plans reach this far, whatever T_fwd the published planner has."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the planner goes by.

    Attributes:
        horizon_s: How far forecasts reach, seconds; chosen on six days of Summit.
        hit: What a foreseeable loss counts; None for what trainers' fortunes say.
        change: What a change counts; None likewise.
        t_fwd_s: How far plans reach while the forecaster is learning.
    """

    horizon_s: float = HORIZON_S
    hit: float | None = None
    change: float | None = None
    t_fwd_s: float = DEFAULT_T_FWD_S


class LookaheadPolicy:
    """Learns from every event, and plans by what it learned.

    While the forecaster is learning a change counts what it costs, and plans reach as
    far as published ones: so a cold start is planned by the published objective.

    The published planner's counts for the same horizon are where the search starts
    from, besides the present plan.

    Args:
        forecaster: What it learns and goes by.
        published: The published planner, which need not verify: what comes of its
            counts is verified.
        worth: What trainers' work is worth.
        weights: What it goes by.
        windows: What searches for plans; None for the usual.
        regroups: Whether nodes pass from one cluster of *forecaster* to another while
            they are idle, as what is planned for them changes.
        gaps: Takes note of plans, to say how far they are from the best; None for
            nobody.
    """

    name = "lookahead"

    def __init__(  # noqa: PLR0913 - parts that a loop or a test replaces
        self,
        forecaster: Prospects,
        published: MeasuredPlanner,
        worth: Worth,
        weights: Weights,
        *,
        windows: WindowPlanner | None = None,
        regroups: bool = False,
        gaps: Gaps | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._planner = windows or WindowPlanner()
        self._starts = Starts(published)
        self._worth = worth
        self._weights = weights
        self._holders = Holders()
        self._regroups = regroups
        self._gaps = gaps
        self._experience = Experience()

    @property
    def forecasts(self) -> Watched | None:
        """Its forecasts, where they are watched."""
        return self._forecaster if isinstance(self._forecaster, Watched) else None

    def decide(self, view: View) -> Sequence[Change]:
        """Learn from what happened, plan, and choose nodes."""
        self._experience.lose(view.left, self._forecaster.cluster)
        self._forecaster.see(view.now_s, joined=view.joined, left=view.left)
        if not view.trainers or not view.idle_nodes:
            self._experience.note(view.now_s, {})
            return ()
        changes = self._planned(view)
        held = self._holders.after(view.trainers, changes)
        self._experience.note(view.now_s, held)
        return changes

    def _planned(self, view: View) -> Sequence[Change]:
        if self._regroups:
            self._holders.forget()
        curves = self._worth.curves(view)
        seen = self._holders.of(view.trainers, curves, self._forecaster.cluster)
        window = self._window(view, [one.holder for one in seen])
        counts = self._starts.counts(seen, view.idle_nodes, self._reach_s)
        plan = self._planner.plan(window, (counts,))
        if self._gaps is not None:
            self._gaps.keep(window, plan.gain)
        return changes_to_holdings(plan.holdings, window, view, self._forecaster)

    @property
    def _reach_s(self) -> float:
        is_learning, weights = self._forecaster.is_learning, self._weights
        return weights.t_fwd_s if is_learning else weights.horizon_s

    def _window(self, view: View, trainers: Sequence[Holder]) -> Window:
        free = by_cluster(view.free, self._forecaster.cluster)
        used = sorted(set(free).union(*[trainer.held for trainer in trainers]))
        weights, known = self._weights, self._experience
        prospect, members = self._forecaster.prospect, self._forecaster.members
        stays = {k: Stay(len(members(k)), *prospect(k)) for k in used}
        change = known.change_weight(weights.horizon_s)
        if self._forecaster.is_learning:
            change = 1.0
            stays = {k: stay.until(self._reach_s) for k, stay in stays.items()}
        return Window(
            stays=stays,
            free=free,
            trainers=tuple(trainers),
            hit_weight=known.hit_weight if weights.hit is None else weights.hit,
            change_weight=change if weights.change is None else weights.change,
        )
