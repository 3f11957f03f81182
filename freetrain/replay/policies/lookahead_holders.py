"""Trainers as the planners see them, kept while they hold the same nodes."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from milp.problem import TrainerState
from milp.window import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from freetrain.replay.policies.interface import Change, TrainerView
    from freetrain.trainers.spec import Costs
    from milp.problem import Curve

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
    holder: Holder
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
        holder = Holder(
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
