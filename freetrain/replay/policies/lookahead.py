"""The policy ``lookahead`` in a replay: it learns from every event and plans by that.

Nodes that are expected to leave together form a *cluster*, which is a class of the
request. Of a cluster that a trainer gets in part, it gets nodes close to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from freetrain.lookahead.affinity import close_to_each_other
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.planning.policy import ClassForecast, PlanTrainer, Request
from freetrain.planning.rating import start_cost_s, start_loss_s
from freetrain.planning.settings import DEFAULT_T_FWD_S, HORIZON_S
from freetrain.replay.policies.base import Change
from milp.window import AlikeClasses, WindowClass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.lookahead.base import Cohort, Prospect, Prospects
    from freetrain.planning.policy import Policy
    from freetrain.replay.policies.base import TrainerView, View
    from freetrain.replay.policies.ratings import CurveSource
    from freetrain.replay.trainers import Costs
    from milp.problem import Curve
    from milp.window import Holding


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights and reach of plans.

    Attributes:
        horizon_s: How far forecasts reach.
        hit: [κ] Weight of a foreseeable loss; None for the learned one.
        change: [η] Weight of a change; None for the learned one.
        t_fwd_s: How far plans reach while the forecaster is learning.
    """

    horizon_s: float = HORIZON_S
    hit: float | None = None
    change: float | None = None
    t_fwd_s: float = DEFAULT_T_FWD_S


_FEW_CLUSTERS = 2
"""Of cohorts of so few clusters a search looks at each."""


class LookaheadPolicy:
    """Learns from every event, and plans by what it learned.

    While the forecaster is learning, a change has the weight 1, and plans reach as far
    as published ones: so a cold start is planned by the published objective.

    Args:
        forecaster: Learns how long nodes stay.
        policy: The policy of :mod:`freetrain.planning`.
        curves: Rates trainers.
        weights: Weights and reach of plans.
        regroups: Whether nodes pass from one cluster of *forecaster* to another while
            they are idle, as other users' jobs are planned on them.
        learned: What another policy learns, which shows *forecaster* all events of the
            pool; None to learn here.
    """

    name = "lookahead"

    def __init__(  # noqa: PLR0913 - parts that loops and shadows replace
        self,
        forecaster: Prospects,
        policy: Policy,
        curves: CurveSource,
        weights: Weights,
        *,
        regroups: bool = False,
        learned: Experience | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._policy = policy
        self._curves = curves
        self._weights = weights
        self._trainers = ClusteredTrainers()
        self._stays: dict[Cohort, tuple[Prospect, WindowClass]] = {}
        self._regroups = regroups
        self._learns = learned is None
        self.experience = Experience() if learned is None else learned

    @property
    def forecasts(self) -> ScoredForecaster | None:
        """Its forecasts, where they are watched."""
        return (
            self._forecaster if isinstance(self._forecaster, ScoredForecaster) else None
        )

    def decide(self, view: View) -> Sequence[Change]:
        """Learn from the event, plan, and choose nodes."""
        if self._learns:
            self.experience.lose(view.left, self._forecaster.cluster)
            self._forecaster.see(view.now_s, joined=view.joined, left=view.left)
        elif not view.joined and not view.left:
            self._forecaster.see(view.now_s, joined=(), left=())
        is_empty = not view.trainers or not view.idle_nodes
        changes = () if is_empty else self._planned(view)
        if self._learns:
            held = {} if is_empty else self._trainers.after(view.trainers, changes)
            self.experience.note(view.now_s, held)
        return changes

    def _planned(self, view: View) -> Sequence[Change]:
        if self._regroups:
            self._trainers.forget()
        cluster = self._forecaster.cluster
        curves = self._curves.curves(view)
        is_learning, weights = self._forecaster.is_learning, self._weights
        reach_s = weights.t_fwd_s if is_learning else weights.horizon_s
        waiting = partial(
            _waiting_costs_s, stay_s=self.experience.service.stay_s, reach_s=reach_s
        )
        trainers = self._trainers.of(view.trainers, curves, cluster, waiting)
        used: dict[int, int] = {}
        for trainer in trainers:
            for k, nodes in trainer.held.items():
                used[k] = used.get(k, 0) + nodes
        forecast = self._forecast(view, used)
        request = Request(
            trainers=trainers,
            free={
                k: nodes
                for k, stay in forecast.stays.items()
                if (nodes := stay.nodes - used.get(k, 0))
            },
            t_fwd_s=self._weights.t_fwd_s,
            forecast=forecast,
        )
        holdings = self._policy.plan(request).holdings
        return changes_to_holdings(holdings, trainers, view, self._forecaster)

    def _forecast(self, view: View, used: Collection[int]) -> ClassForecast:
        """Return the forecast of all clusters; of large cohorts *used* ones are named.

        Args:
            view: The pool.
            used: The clusters of which trainers hold nodes.
        """
        weights, known = self._weights, self.experience
        change, reach_s = known.change_weight(weights.horizon_s), weights.horizon_s
        by_cohort = self._stays_by_cohort()
        if self._forecaster.is_learning:
            change, reach_s = 1.0, weights.t_fwd_s
            by_cohort = {own: stay.until(reach_s) for own, stay in by_cohort.items()}
        stays: dict[int, WindowClass] = {}
        for cohort, stay in by_cohort.items():
            if len(cohort.clusters) <= _FEW_CLUSTERS:
                stays.update(dict.fromkeys(cohort.clusters, stay))
        left = {own: len(own.clusters) for own in by_cohort}
        for k in used:
            if k not in stays:
                cohort = self._forecaster.cohort(k)
                stays[k] = by_cohort[cohort]
                left[cohort] -= 1
        return ClassForecast(
            stays=stays,
            reach_s=reach_s,
            hit_weight=known.hit_weight if weights.hit is None else weights.hit,
            change_weight=change if weights.change is None else weights.change,
            alike=[
                AlikeClasses(stay, own.clusters, left[own])
                for own, stay in by_cohort.items()
                if left[own] and len(own.clusters) > _FEW_CLUSTERS
            ],
            order=partial(self._lowest_free, view, used),
        )

    def _stays_by_cohort(self) -> dict[Cohort, WindowClass]:
        """Return how long nodes stay by cohort, those of the last event if unchanged.

        Most cohorts keep their prospect from one event to the next.
        """
        prospect, before, self._stays = self._forecaster.prospect, self._stays, {}
        for cohort in self._forecaster.cohorts():
            ahead, known = prospect(cohort.clusters[0]), before.get(cohort)
            nodes = cohort.nodes
            if known is None or known[0] is not ahead or known[1].nodes != nodes:
                known = ahead, WindowClass(nodes, *ahead)
            self._stays[cohort] = known
        return {cohort: stay for cohort, (_, stay) in self._stays.items()}

    def _lowest_free(self, view: View, used: Collection[int], cluster: int) -> int:
        nodes = self._forecaster.members(cluster)
        if cluster not in used:
            return min(nodes)
        held = [trainer.held for trainer in view.trainers]
        return min([n for n in nodes if not any(n in own for own in held)])


class _Clustered(NamedTuple):
    """A trainer as it was at the last event."""

    nodes: frozenset[int]
    costs: Costs
    trainer: PlanTrainer


class ClusteredTrainers:
    """Makes trainers for the policy; those of the last event again if unchanged.

    Few trainers change at an event. A trainer that holds the same nodes as at the
    last event holds the same clusters: a node that left was lost to it in between.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Clustered] = {}

    def forget(self) -> None:
        """Make all anew, as nodes have passed from one cluster to another."""
        self._known = {}

    def after(
        self, trainers: Sequence[TrainerView], changes: Sequence[Change]
    ) -> dict[str, frozenset[int]]:
        """Return the nodes by trainer once *changes* of *trainers* are made.

        To be called with those that ``of`` was called with last.
        """
        held = {known.trainer.name: known.nodes for known in self._known.values()}
        for change in changes:
            name = self._known[trainers[change.trainer].serial].trainer.name
            held[name] = held[name].difference(change.drop).union(change.take)
        return held

    def of(
        self,
        trainers: Sequence[TrainerView],
        curves: Sequence[Curve],
        cluster: Callable[[int], int],
        waiting_costs_s: Callable[[Costs], tuple[float, float]],
    ) -> list[PlanTrainer]:
        """Return *trainers*; to be called at every event at which some hold nodes.

        Args:
            trainers: In the order of the view.
            curves: Their ratings.
            cluster: The cluster of a node.
            waiting_costs_s: Returns what a start, and losing nodes then, are charged
                to a plan, seconds.
        """
        before, self._known = self._known, {}
        for trainer, curve in zip(trainers, curves, strict=True):
            known = before.get(trainer.serial)
            if (
                known is None
                or known.nodes != trainer.held
                or known.trainer.curve is not curve
                or known.costs is not trainer.spec.costs
                or (
                    not known.nodes
                    and known.costs.start_s
                    and (known.trainer.start_s, known.trainer.loss_s)
                    != waiting_costs_s(known.costs)
                )
            ):
                known = _clustered(trainer, curve, cluster, waiting_costs_s)
            self._known[trainer.serial] = known
        return [known.trainer for known in self._known.values()]


def _clustered(
    trainer: TrainerView,
    curve: Curve,
    cluster: Callable[[int], int],
    waiting_costs_s: Callable[[Costs], tuple[float, float]],
) -> _Clustered:
    costs = trainer.spec.costs
    start_s, loss_s = 0.0, costs.shrink_s + costs.checkpoint_every_s / 2
    # Of one that runs no start is charged: it is the same whatever that costs. Where
    # starts are free, losing all nodes is charged as any other loss is.
    if not trainer.held and costs.start_s:
        start_s, loss_s = waiting_costs_s(costs)
    plan_trainer = PlanTrainer(
        name=str(trainer.serial),
        curve=curve,
        held=by_cluster(trainer.held, cluster),
        up_s=costs.grow_s,
        down_s=costs.shrink_s,
        start_s=start_s,
        loss_s=loss_s,
    )
    return _Clustered(frozenset(trainer.held), costs, plan_trainer)


def _waiting_costs_s(
    costs: Costs, *, stay_s: float, reach_s: float
) -> tuple[float, float]:
    """Return what a start, and losing nodes then, are charged to a plan, seconds."""
    start_s, lost_s = costs.start_s, costs.checkpoint_every_s / 2
    return (
        start_cost_s(start_s, stay_s=stay_s, reach_s=reach_s),
        start_loss_s(lost_s, start_s, stay_s=stay_s),
    )


def by_cluster(nodes: Iterable[int], cluster: Callable[[int], int]) -> dict[int, int]:
    """Return how many of *nodes* are of each cluster.

    For the few nodes of a trainer a ``Counter`` takes twice as long.
    """
    counts: dict[int, int] = {}
    for k in map(cluster, nodes):
        counts[k] = counts.get(k, 0) + 1
    return counts


def changes_to_holdings(
    holdings: Sequence[Holding],
    trainers: Sequence[PlanTrainer],
    view: View,
    forecaster: Prospects,
) -> tuple[Change, ...]:
    """Return the changes that give each trainer its nodes by cluster.

    Of a cluster that is given up or taken in part, nodes go that are closest to each
    other.

    Args:
        holdings: Nodes by trainer and cluster.
        trainers: The trainers, with the nodes they hold by cluster.
        view: The pool as it is.
        forecaster: Knows the clusters.
    """
    moved = [
        (place, trainer.held, new)
        for place, (trainer, new) in enumerate(zip(trainers, holdings, strict=True))
        if new is not trainer.held and new != trainer.held
    ]
    if not moved:
        return ()
    dropped = [
        _dropped(view.trainers[place].held, held, new, forecaster)
        for place, held, new in moved
    ]
    given: dict[int, list[int]] = {}
    for own in dropped:
        for k, nodes in own.items():
            given.setdefault(k, []).extend(nodes)
    used: set[int] = set().union(*[trainer.held for trainer in view.trainers])
    changes = []
    left: dict[int, Sequence[int]] = {}
    for (place, held, new), own in zip(moved, dropped, strict=True):
        taken: list[int] = []
        for k, more in _grown(held, new):
            if k not in left:
                free = forecaster.members(k) - used
                left[k] = sorted([*free, *given.get(k, ())])
            chosen = _together(left[k], more, forecaster)
            taken += chosen
            left[k] = sorted(set(left[k]).difference(chosen))
        gone = sorted([node for nodes in own.values() for node in nodes])
        changes.append(Change(place, tuple(gone), tuple(sorted(taken))))
    return tuple(changes)


def _grown(held: Holding, new: Holding) -> list[tuple[int, int]]:
    """Return how many more nodes of a cluster *new* has than *held*, by cluster."""
    more = [(k, count - held.get(k, 0)) for k, count in sorted(new.items())]
    return [(k, count) for k, count in more if count > 0]


def _dropped(
    nodes: AbstractSet[int], held: Holding, new: Holding, forecaster: Prospects
) -> dict[int, Sequence[int]]:
    """Return which of its *nodes* a trainer gives up, by cluster."""
    dropped: dict[int, Sequence[int]] = {}
    for k, held_count in held.items():
        given = held_count - new.get(k, 0)
        if given > 0:
            mine = sorted(nodes & forecaster.members(k))
            dropped[k] = _together(mine, given, forecaster)
    return dropped


def _together(
    nodes: Sequence[int], wanted: int, forecaster: Prospects
) -> Sequence[int]:
    if wanted == len(nodes):
        return nodes
    places = close_to_each_other(forecaster.affinity(nodes), wanted)
    return [nodes[place] for place in places]
