"""Where waiting jobs might start, and which nodes suit whom."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.booking import TO_THE_SECOND, Backfill, Span
from freetrain.broker.waiting import gres_on_each, insisted, suits
from slurm.holes import HoleEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from slurm.holes import Hole
    from slurm.records import JobRecord, Node


Rank: TypeAlias = "Callable[[Hole], tuple[bool, float, str]]"
"""Sorts holes, those first that are to be given first."""


class Suiting:
    """Which of some nodes suit whom, worked out once for each kind of job.

    Args:
        nodes: Nodes by name.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def names(self, job: JobRecord) -> tuple[str, ...]:
        """Return the nodes that suit *job*, sorted."""
        kind = kind_of(job)
        if kind not in self._known:
            every = self.nodes.values()
            self._known[kind] = tuple(sorted(n.name for n in every if suits(job, n)))
        return self._known[kind]


@dataclass(frozen=True, slots=True)
class Ground:
    """Where jobs might start.

    Attributes:
        holes: Every hole, those under our leases included; into one that ends
            with a reservation, or the planned start of a job that is not among those
            asked about, only jobs are let that are over by then, as Slurm does it. No
            margin is taken off: it does not bind others.
        nodes: Every node by name.
        leased: Nodes that our leases hold.
        partly: Nodes that others' jobs hold a part of: a job that shares nodes
            could start there as well.
        spans: How long leases hold their nodes, by node.
        busy_until_s: When nodes that others hold come free by the limits of their
            jobs, by node, Unix time.
        backfill: How others' starts are planned.
        suiting: Which of the nodes suit whom; what is made of this ground shares it.
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    partly: frozenset[str] = frozenset()
    spans: Mapping[str, Span] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)
    backfill: Backfill = TO_THE_SECOND
    suiting: Suiting = field(default_factory=lambda: Suiting({}), compare=False)

    def __post_init__(self) -> None:
        """Share what suits whom with a ground of the same nodes, and no other."""
        if self.suiting.nodes is not self.nodes:
            object.__setattr__(self, "suiting", Suiting(self.nodes))

    def beside(self, given: Container[str], booked_s: Mapping[str, float]) -> Ground:
        """Return where jobs might start where nothing but *given* is given up.

        Idle nodes that are not among these are leased from now on, until they are
        booked.

        Args:
            given: Nodes that are given up or left alone.
            booked_s: When nodes are booked for jobs, by node, Unix time.
        """
        kept = [hole.node for hole in self.holes if hole.node not in given]
        begun_s = {name: booked_s.get(name, math.inf) for name in kept}
        until_s = {name: span.end_s for name, span in self.spans.items()}
        held_s = {name: until_s.get(name, begun_s[name]) for name in kept}
        return replace(
            self,
            holes=[hole for hole in self.holes if hole.node in given],
            leased=frozenset(),
            spans={},
            busy_until_s={**self.busy_until_s, **held_s},
        )


def kind_of(job: JobRecord) -> tuple[object, ...]:
    """Return what decides which nodes fit, so that it is worked out once."""
    asked = (job.partitions, job.features, gres_on_each(job), job.requested_nodes)
    return (*asked, job.node_count) if job.requested_nodes else asked


@dataclass(frozen=True, slots=True)
class Fitting:
    """Nodes that suit a job.

    Attributes:
        holes: Those that are idle or ours; none where it insists on one that it
            cannot have now.
        insists: Those that it insists on.
        others: How many there are that others hold a part of.
        suiting: All of them, whoever holds them.
    """

    holes: tuple[Hole, ...]
    insists: frozenset[str]
    others: int
    suiting: tuple[str, ...]

    def names(self, rank: Rank) -> tuple[str, ...]:
        """Return the nodes of the holes, in the order in which they are claimed."""
        ranked = sorted(
            self.holes, key=lambda hole: (hole.node not in self.insists, rank(hole))
        )
        return tuple(hole.node for hole in ranked)


def fitting_of(job: JobRecord, ground: Ground) -> Fitting:
    """Return the nodes that suit *job*."""
    everywhere = ground.suiting.names(job)
    suiting = frozenset(everywhere)
    holes = tuple(hole for hole in ground.holes if hole.node in suiting)
    insists = insisted(job)
    if not insists <= ground.partly.union(hole.node for hole in holes):
        return Fitting((), insists, 0, everywhere)
    return Fitting(holes, insists, len(suiting & ground.partly), everywhere)


def slurms_order(ground: Ground) -> Rank:
    """Rank nodes as Slurm lists them."""
    places = {name: place for place, name in enumerate(ground.nodes)}
    return lambda hole: (False, places.get(hole.node, math.inf), hole.node)


def idle_first(ground: Ground) -> Rank:
    """Rank idle ones first; given up first is what would have ended soonest."""
    slurms = slurms_order(ground)
    return lambda hole: (
        (True, _life_end_s(hole), hole.node)
        if hole.node in ground.leased
        else slurms(hole)
    )


def is_bound(hole: Hole) -> bool:
    """Tell whether others must be gone too; limits of our partition bind only us."""
    return hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}


def _life_end_s(hole: Hole) -> float:
    return math.inf if hole.end_s is None or not is_bound(hole) else hole.end_s
