"""The policy ``lookahead``: plans by what is expected of the idle nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from freetrain.lookahead.affinity import close_to_each_other
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.planning.settings import DEFAULT_T_FWD_S, HORIZON_S
from freetrain.replay.policies.base import Change
from freetrain.replay.policies.planned import counts_of
from milp.planner import Outcome
from milp.problem import NodeClass, Problem, TrainerState
from milp.window import Window, WindowClass, WindowTrainer
from milp.window_search import WindowPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.lookahead.base import Prospects
    from freetrain.replay.policies.base import TrainerView, View
    from freetrain.replay.policies.planned import MeasuredPlanner, Worth
    from freetrain.replay.result import Gaps
    from freetrain.replay.trainers import Costs
    from milp.planner import Answer
    from milp.problem import Curve
    from milp.window import Holding


# ----------------------------------------------------------------------
# Trainers as the planners see them, kept while they hold the same nodes.

_MOST_KINDS = 10_000
"""A few hundred bytes each, where a curve is kept for them."""


class Seen(NamedTuple):
    """A trainer as it was seen.

    Attributes:
        nodes: What it held.
        costs: Of its changes.
        holder: For the planner that looks ahead, nodes by cluster.
        state: For the published planner, all nodes alike.
        kind: A number that those share whom the published planner cannot tell apart.
    """

    nodes: frozenset[int]
    costs: Costs
    holder: WindowTrainer
    state: TrainerState
    kind: int


class Holders:
    """Makes trainers for the planners; those of the last event again if unchanged.

    Few trainers change at an event. A trainer that holds the same nodes as at the
    last event holds the same clusters: a node that left was lost to it in between.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}
        self._kinds: dict[tuple[Curve, int, float, float, float], int] = {}
        self._numbers = count()

    def forget(self) -> None:
        """Forget who was seen, as nodes have passed from one cluster to another."""
        self._seen = {}

    def after(
        self, trainers: Sequence[TrainerView], changes: Sequence[Change]
    ) -> dict[str, frozenset[int]]:
        """Return the nodes by trainer once *changes* of *trainers* are made.

        To be called with those that ``of`` was called with last.
        """
        held = {seen.state.name: seen.nodes for seen in self._seen.values()}
        for change in changes:
            name = self._seen[trainers[change.trainer].serial].state.name
            held[name] = held[name].difference(change.drop).union(change.take)
        return held

    def of(
        self,
        trainers: Sequence[TrainerView],
        curves: Sequence[Curve],
        cluster: Callable[[int], int],
    ) -> tuple[Seen, ...]:
        """Return *trainers*; to be called at every event at which some hold nodes.

        Args:
            trainers: In order of admission.
            curves: What their work is worth.
            cluster: The cluster of a node.
        """
        before, self._seen = self._seen, {}
        for trainer, curve in zip(trainers, curves, strict=True):
            seen = before.get(trainer.serial)
            if (
                seen is None
                or seen.nodes != trainer.held
                or seen.holder.curve is not curve
                or seen.costs is not trainer.spec.costs
            ):
                seen = self._made(trainer, curve, cluster)
            self._seen[trainer.serial] = seen
        return tuple(self._seen.values())

    def _made(
        self, trainer: TrainerView, curve: Curve, cluster: Callable[[int], int]
    ) -> Seen:
        costs, held = trainer.spec.costs, len(trainer.held)
        holder = WindowTrainer(
            curve=curve,
            held=by_cluster(trainer.held, cluster),
            up_s=costs.grow_s,
            down_s=costs.shrink_s,
            start_s=costs.start_s,
            loss_s=costs.shrink_s + costs.checkpoint_every_s / 2,
        )
        state = TrainerState(
            name=str(trainer.serial),
            curve=curve,
            held=(held,),
            up_s=costs.grow_s,
            down_s=costs.shrink_s,
            start_s=costs.start_s,
        )
        alike = curve, held, costs.grow_s, costs.shrink_s, costs.start_s
        kind = self._kinds.get(alike)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            # Never a number that was another kind's, which somebody may remember.
            kind = self._kinds[alike] = next(self._numbers)
        return Seen(frozenset(trainer.held), costs, holder, state, kind)


def by_cluster(nodes: Iterable[int], cluster: Callable[[int], int]) -> dict[int, int]:
    """Return how many of *nodes* are of each cluster.

    For the few nodes of a trainer a ``Counter`` takes twice as long.
    """
    counts: dict[int, int] = {}
    for k in map(cluster, nodes):
        counts[k] = counts.get(k, 0) + 1
    return counts


# ----------------------------------------------------------------------
# From nodes by cluster to nodes: those that leave together stay together.


def changes_to_holdings(
    holdings: Sequence[Holding], window: Window, view: View, forecaster: Prospects
) -> tuple[Change, ...]:
    """Return the changes that give each trainer its nodes by cluster.

    Of a cluster that is given up or taken in part, those go that are closest to each
    other.

    Args:
        holdings: Nodes by trainer and cluster.
        window: What the trainers hold, by cluster.
        view: The pool as it is.
        forecaster: Who knows the clusters.
    """
    moved = [
        (place, trainer.held, new)
        for place, (trainer, new) in enumerate(
            zip(window.trainers, holdings, strict=True)
        )
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
    free, changes = set(view.free), []
    left: dict[int, Sequence[int]] = {}
    for (place, held, new), own in zip(moved, dropped, strict=True):
        taken: list[int] = []
        for k, more in _grown(held, new):
            if k not in left:
                left[k] = sorted([*free & forecaster.members(k), *given.get(k, ())])
            chosen = _together(left[k], more, forecaster)
            taken += chosen
            left[k] = sorted(set(left[k]).difference(chosen))
        gone = sorted([node for nodes in own.values() for node in nodes])
        changes.append(Change(place, tuple(gone), tuple(sorted(taken))))
    return tuple(changes)


def _grown(held: Holding, new: Holding) -> list[tuple[int, int]]:
    """Return how many more nodes of a cluster *new* has than *held*, by cluster."""
    more = [(k, count - held.get(k, 0)) for k, count in sorted(new.items())]
    return [one for one in more if one[1] > 0]


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


# ----------------------------------------------------------------------
# Where the search starts from: the published planner's counts, asked for once.

_MOST_KNOWN = 10_000
"""A few hundred bytes each."""


class Starts:
    """Asks the published planner for counts, unless it proved the same before.

    It counts nodes and does not tell them apart, so that what it answers follows from
    the size of the pool and from who holds how many: on two days of Summit the same
    at one event of eight with 10 trainers at a time, at one of ten with 40. In another
    order it may choose another of several best plans.

    Args:
        published: The published planner.
    """

    def __init__(self, published: MeasuredPlanner) -> None:
        self._published = published
        self._known: dict[tuple[float, ...], Sequence[int]] = {}

    def counts(
        self, seen: Sequence[Seen], idle_nodes: int, t_fwd_s: float
    ) -> Sequence[int]:
        """Return the published planner's counts of *seen*, in their order."""
        asked = (t_fwd_s, idle_nodes, *[one.kind for one in seen])
        known = self._known.get(asked)
        if known is not None:
            return known
        answer = self._ask(seen, idle_nodes, t_fwd_s)
        counts = counts_of(answer)
        # What a solver was stopped at may be better the next time.
        if answer.outcome is Outcome.PROVEN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[asked] = counts
        return counts

    def _ask(self, seen: Sequence[Seen], idle_nodes: int, t_fwd_s: float) -> Answer:
        classes = (NodeClass("idle", idle_nodes),)
        states = tuple([one.state for one in seen])
        return self._published.answer(Problem(classes, states, t_fwd_s))


# ----------------------------------------------------------------------
# The policy ``lookahead``: plans by what is expected of the idle nodes.


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
    def forecasts(self) -> ScoredForecaster | None:
        """Its forecasts, where they are watched."""
        return (
            self._forecaster if isinstance(self._forecaster, ScoredForecaster) else None
        )

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

    def _window(self, view: View, trainers: Sequence[WindowTrainer]) -> Window:
        free = by_cluster(view.free, self._forecaster.cluster)
        used = sorted(set(free).union(*[trainer.held for trainer in trainers]))
        weights, known = self._weights, self._experience
        prospect, members = self._forecaster.prospect, self._forecaster.members
        stays = {k: WindowClass(len(members(k)), *prospect(k)) for k in used}
        change = known.change_weight(weights.horizon_s)
        if self._forecaster.is_learning:
            change = 1.0
            stays = {k: stay.until(self._reach_s) for k, stay in stays.items()}
        return Window(
            classes=stays,
            free=free,
            trainers=tuple(trainers),
            hit_weight=known.hit_weight if weights.hit is None else weights.hit,
            change_weight=change if weights.change is None else weights.change,
        )
