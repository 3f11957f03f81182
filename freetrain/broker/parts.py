"""Nodes that jobs share: what is free there beside leases, and which leases must go.

A lease may be a piece of a node, with other leases and others' jobs beside it. Slurm
starts a job that shares nodes on what is free of one. ``PartPlan`` says for a node
which of the leases there would have to go for such a job, and keeps account of what
the jobs of one plan take.

Two bounds are kept apart. A node counts for a job if what the job surely asks for would
fit there without any lease. Leases stay only beside a job whose every known reading
fits; where a request is unclear, all leases of the node go.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from slurm.pieces import room, with_job, without
from slurm.records import WHOLE_NODES

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Container,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from slurm.demands import PartDemand
    from slurm.holes import Hole
    from slurm.records import Node, NodeSharing, Requirement


@dataclass(frozen=True, slots=True)
class YieldingLease:
    """A lease that gives way, and what it has of its node.

    Attributes:
        job_id: Its raw number.
        turn: Its place in the order in which leases give way.
        held: What comes free once it is gone.
        is_clear: Whether that is all.
    """

    job_id: int
    turn: int
    held: Requirement
    is_clear: bool = True


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that jobs have parts of.

    Attributes:
        node: Its record; what leases have that are just ending is free already.
        hole: Until when jobs may run there.
        pieces: The leases there that give way, in the order in which they do.
    """

    node: Node
    hole: Hole
    pieces: tuple[YieldingLease, ...] = ()

    @property
    def bare(self) -> Node:
        """The node without these leases."""
        bare = without(self.node, (piece.held for piece in self.pieces))
        if all(piece.is_clear for piece in self.pieces):
            return bare
        return replace(bare, allocated_gres=())

    def left_beside(self, kept: Container[int]) -> SharedNode:
        """Return it once all leases but those *kept* are gone, which then stay."""
        gone = (piece for piece in self.pieces if piece.job_id not in kept)
        return replace(self.after(gone), pieces=())

    def after(self, goes: Iterable[YieldingLease]) -> SharedNode:
        """Return it once these leases are gone."""
        gone = tuple(goes)
        return replace(
            self,
            node=without(self.node, (piece.held for piece in gone)),
            pieces=tuple(piece for piece in self.pieces if piece not in gone),
        )


@dataclass(frozen=True, slots=True)
class SharedNodes:
    """All nodes that jobs have parts of; none where leases take whole nodes.

    Attributes:
        nodes: By name, in Slurm's order.
        sharing: How Slurm shares them.
        whole: Partitions whose jobs get whole nodes whatever they ask for.
        capped: Partitions whose jobs can have only so many CPUs of a node: what is
            enough for a job there is not known.
    """

    nodes: Mapping[str, SharedNode] = field(default_factory=dict)
    sharing: NodeSharing = WHOLE_NODES
    whole: frozenset[str] = frozenset()
    capped: frozenset[str] = frozenset()


NO_SHARED_NODES = SharedNodes()


class PartOffer(NamedTuple):
    """How a job could start on a node.

    Attributes:
        goes: Which of the leases there would have to go, by their places in order.
        after: Such a node once they are gone, before the job has its part.
        part: What the job takes of it; None for all that is left.
    """

    goes: tuple[int, ...]
    after: Node
    part: Requirement | None

    @property
    def is_sure(self) -> bool:
        """Whether the job surely fits there then."""
        return self.part is not None or not self.after.allocated_cpus

    @property
    def is_free(self) -> bool:
        """Whether the job surely fits there beside all leases."""
        return self.is_sure and not self.goes


class PartOffers:
    """Offers that plans of the same nodes make again and again, each worked out once.

    Nodes are many, and mostly differ in their names alone: such a group of nodes has
    the same offers.

    Args:
        sharing: How Slurm shares nodes.
    """

    def __init__(self, sharing: NodeSharing) -> None:
        self.sharing = sharing
        self._groups: dict[object, int] = {}
        # By id, with the object, lest another gets its id.
        self._group_of: dict[int, tuple[SharedNode, int]] = {}
        self._found: dict[
            tuple[int, int, int], tuple[PartDemand, PartOffer | None]
        ] = {}

    def group_of(self, there: SharedNode) -> int:
        """Return the number of the group of nodes that are as this one."""
        known = self._group_of.get(id(there))
        if known is None:
            node = there.node
            alike = (
                *(node.cpus, node.memory_mib, node.gres),
                *(node.allocated_cpus, node.allocated_memory_mib, node.allocated_gres),
                *(node.cpus_per_core, node.cpus_per_socket),
                tuple((piece.held, piece.is_clear) for piece in there.pieces),
            )
            known = there, self._groups.setdefault(alike, len(self._groups))
            self._group_of[id(there)] = known
        return known[1]

    def of(self, there: SharedNode, demand: PartDemand, nodes: int) -> PartOffer | None:
        """Return how a job could start on the node; None where it could not.

        Args:
            there: The node.
            demand: What the job asks for.
            nodes: How many nodes it gets.
        """
        key = self.group_of(there), id(demand), nodes
        found = self._found.get(key)
        if found is None:
            found = demand, self._worked_out(there, demand, nodes)
            self._found[key] = found
        return found[1]

    def _worked_out(
        self, there: SharedNode, demand: PartDemand, nodes: int
    ) -> PartOffer | None:
        part = demand.enough_of(there.node, nodes)
        if not self._fits(there.bare, demand.least):
            return None
        every = tuple(range(len(there.pieces)))
        gone = there.after(there.pieces).node
        if part is None or not self._fits(gone, part):
            return PartOffer(every, gone, None)
        goes = self._fewest(there, part)
        return PartOffer(goes, _after(there, goes).node, part)

    def _fewest(self, there: SharedNode, part: Requirement) -> tuple[int, ...]:
        """Return leases that have to go for *part*, the first in their order."""
        goes: tuple[int, ...] = ()
        while not self._fits(_after(there, goes).node, part):
            goes = *goes, len(goes)
        for place in goes[:-1]:  # of another kind than is asked for, perhaps
            others = tuple(other for other in goes if other != place)
            if self._fits(_after(there, others).node, part):
                goes = others
        return goes

    def _fits(self, node: Node, part: Requirement) -> bool:
        return room(node, part, self.sharing) > 0


def _after(there: SharedNode, goes: Iterable[int]) -> SharedNode:
    return there.after(there.pieces[place] for place in goes)


Ranked: TypeAlias = "tuple[tuple[bool, float, int, str], str]"
"""The rank and the name of a node."""

Group: TypeAlias = "tuple[PartOffer, Sequence[Ranked]]"
"""What nodes offer a job, and these nodes, the first by rank first."""


class PartPlan:
    """What jobs of one plan take of shared nodes, and which leases go for them.

    Args:
        shared: The nodes as they are.
        offers: Offers of such nodes, some known from plans before.
        rank: Sort key of holes: which node a job gets first.
    """

    def __init__(
        self,
        shared: SharedNodes,
        offers: PartOffers,
        rank: Callable[[Hole], tuple[bool, float, int, str]],
    ) -> None:
        self._offers = offers
        self._now = dict(shared.nodes)
        self._ranks = {name: rank(there.hole) for name, there in self._now.items()}
        self._used: frozenset[str] = frozenset()
        self._groups: dict[int, list[Ranked]] = {}
        for name in sorted(self._ranks, key=self._ranks.__getitem__):
            group = offers.group_of(self._now[name])
            self._groups.setdefault(group, []).append((self._ranks[name], name))

    def __contains__(self, name: str) -> bool:
        """Tell whether something may be left of the node *name*."""
        return name in self._now

    def rank(self, name: str) -> tuple[bool, float, int, str]:
        """Return the rank of the node *name*."""
        return self._ranks[name]

    def mark(
        self,
    ) -> tuple[dict[str, SharedNode], frozenset[str], dict[int, list[Ranked]]]:
        """Return what ``back_to`` takes to undo what is taken from now on."""
        groups = {group: list(ranked) for group, ranked in self._groups.items()}
        return dict(self._now), self._used, groups

    def back_to(
        self,
        mark: tuple[dict[str, SharedNode], frozenset[str], dict[int, list[Ranked]]],
    ) -> None:
        """Undo what was taken since *mark*, which is used once."""
        self._now, self._used, self._groups = mark

    @property
    def kept(self) -> dict[str, frozenset[int]]:
        """By node of which jobs of the plan have a part: the leases that stay."""
        return {
            name: frozenset(piece.job_id for piece in self._now[name].pieces)
            for name in self._used
            if name in self._now
        }

    def offers(self, demand: PartDemand, nodes: int) -> Iterator[Group]:
        """Yield what nodes offer a job that gets so many *nodes*."""
        for ranked in self._groups.values():
            if ranked:
                offer = self.offer(ranked[0][1], demand, nodes)
                if offer is not None:
                    yield offer, tuple(ranked)

    def offer(self, name: str, demand: PartDemand, nodes: int) -> PartOffer | None:
        """Return what the node *name* offers; None where nothing, or not enough."""
        there = self._now.get(name)
        return None if there is None else self._offers.of(there, demand, nodes)

    def take(self, name: str, offer: PartOffer) -> None:
        """Let a job start on the node *name* by *offer*."""
        there = self._now[name]
        self.take_whole(name)
        self._used |= {name}
        if offer.part is None:
            return
        after = _after(there, offer.goes)
        node = with_job(after.node, offer.part, self._offers.sharing)
        self._now[name] = left = replace(after, node=node)
        group = self._groups.setdefault(self._offers.group_of(left), [])
        insort(group, (self._ranks[name], name))

    def take_whole(self, name: str) -> None:
        """Let a job have all of the node *name*."""
        there = self._now.pop(name, None)
        if there is not None:
            group = self._groups[self._offers.group_of(there)]
            group.remove((self._ranks[name], name))
        self._used -= {name}
