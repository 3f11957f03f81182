"""Which waiting jobs could start where if leases gave way: a plan like backfill's.

``Eligibility`` works out what each waiting job asks for and which nodes it could use.
``allocate`` goes through the waiting jobs in order of priority. A job that finds enough
nodes now gets them; one that must wait books the earliest nodes, so that no job behind
it is let in first. Slurm's backfill plans in the same way.

Where Slurm does not say what a job needs, or says it in a form we cannot read, the job
counts as one that could use the node: others must not wait because we misread them.
"""

from __future__ import annotations

import heapq
import math
import re
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from freetrain.broker.parts import NO_SHARED_NODES, PartOffers, PartPlan
from logs.timeline import Agenda, Need, members
from slurm.demands import (
    asked_for,
    asked_of_parts,
    demand_of,
    has_features,
    part_demand,
)
from slurm.holes import HoleEnd
from slurm.pieces import free_gres
from slurm.records import gres_count

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Container,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from freetrain.broker.parts import Group, PartOffer, SharedNode, SharedNodes
    from logs.timeline import Placement, UnitSet
    from slurm.demands import Expression, FeatureChoice, NodeDemand, PartDemand
    from slurm.holes import Hole
    from slurm.records import Gres, JobRecord, Node

T = TypeVar("T")

_HELD_BACK = (
    "Assoc",
    "BeginTime",
    "BurstBuffer",
    "DeadLine",
    "Dependency",
    "Federation",
    "InvalidAccount",
    "InvalidQOS",
    "JobArrayTaskLimit",
    "JobHeld",
    "Licenses",
    "Max",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOS",
    "Reservation",
    "Cleaning",
)
"""Prefixes of the reasons for which a job waits whatever nodes are free.

Any other reason does not hold a job back.
Source: job_reason_string of Slurm 21.08 to 26.05.
"""

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether a lack of nodes is all that keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def waiting_tasks(job: JobRecord, *, most: int) -> int:
    """Return how many tasks wait together as *job*; *most* where unclear.

    Source: squeue's form of waiting tasks, ``1-9,12%2``; it cuts long lists.
    """
    if not job.array_tasks:
        return 1
    listed = job.array_tasks.partition("%")[0]
    parts = [_RANGE.fullmatch(part) for part in listed.split(",")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return most
    return sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in known)


def startable_tasks(job: JobRecord, *, most: int) -> int:
    """Return how many tasks of *job* could start together; *most* where unclear."""
    count, together = waiting_tasks(job, most=most), job.array_tasks.partition("%")[2]
    return max(1, min(count, int(together))) if together.isdecimal() else max(1, count)


@dataclass(frozen=True, slots=True, eq=False)
class EligibleNodes:
    """The nodes that jobs of one kind can use together; one object for each kind.

    Attributes:
        units: These nodes, also those that jobs hold.
        required: Those that each of the jobs must have. Where one of them is not
            known, no node is eligible.
        some: Nodes of which each of the jobs must have at least so many.
    """

    units: UnitSet
    required: UnitSet
    some: tuple[tuple[UnitSet, int], ...] = ()


class Way(NamedTuple):
    """One way to place a job: nodes of one partition that meet its constraint.

    Attributes:
        eligible: The nodes it can use.
        nodes: How many of them each task needs.
        part: What it asks of nodes that it shares; None where it takes whole nodes, or
            where no lease is a piece of one.
    """

    eligible: EligibleNodes
    nodes: int
    part: PartDemand | None = None


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a waiting job needs.

    Attributes:
        job_id: Its number.
        ways: Where it could be placed: all nodes in the same way.
        least_s: Run time to count with where a short one is the cautious guess.
        most_s: Run time where a long one is; math.inf without a limit.
        planned_s: Start that backfill planned, Unix time; None without a plan.
        tasks: How many tasks could start together; the number of nodes where unclear.
        together: The heterogeneous job that it is a component of; 0 for none.
    """

    job_id: int
    ways: tuple[Way, ...]
    least_s: float
    most_s: float
    planned_s: float | None
    tasks: int
    together: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes each task needs at least."""
        return min(way.nodes for way in self.ways)


class Eligibility:
    """Which nodes can be used by which jobs, worked out once for each kind of job.

    Sets of nodes are bits of an integer, the first node in Slurm's order the lowest.

    Args:
        nodes: Nodes by name, in Slurm's order.
        shared: Those that jobs have parts of.
    """

    def __init__(
        self, nodes: Mapping[str, Node], shared: SharedNodes = NO_SHARED_NODES
    ) -> None:
        self.nodes = nodes
        self.offers = PartOffers(shared.sharing)
        self._shared = shared
        self.names = tuple(nodes)
        self._every = (1 << len(self.names)) - 1
        self._bits: dict[str, UnitSet] = {}
        self._alike: dict[Callable[[Node], object], dict[object, UnitSet]] = {}
        self._ways: dict[tuple[object, ...], tuple[Way, ...]] = {}
        self._kinds: dict[tuple[object, ...], EligibleNodes] = {}
        self._having: dict[tuple[object, ...], UnitSet] = {}

    def bit(self, name: str) -> UnitSet:
        """Return the set of one node; the empty set where it is unknown."""
        if not self._bits:  # filled when the first job waits
            self._bits = {name: 1 << k for k, name in enumerate(self.names)}
        return self._bits.get(name, 0)

    def units(self, names: Iterable[str]) -> UnitSet:
        """Return the set of the nodes *names*."""
        units = 0
        for name in names:
            units |= self.bit(name)
        return units

    def request(self, job: JobRecord) -> NodeRequest:
        """Return what *job* needs."""
        return NodeRequest(
            job.job_id,
            self.ways(job),
            least_s=job.limit_s or 0.0,
            most_s=math.inf if job.limit_s is None else job.limit_s,
            planned_s=job.start_s if job.is_planned else None,
            tasks=startable_tasks(job, most=len(self.names)),
            together=job.het_job_id,
        )

    def ways(self, job: JobRecord) -> tuple[Way, ...]:
        """Return where *job* could be placed, each way once, at least one."""
        asked, has_parts = asked_for(job), bool(self._shared.nodes)
        if has_parts:
            asked = *asked, *asked_of_parts(job)
        if asked not in self._ways:
            demand = demand_of(job)
            part = part_demand(job) if has_parts else None
            every = self._meeting(demand)
            self._ways[asked] = tuple(
                dict.fromkeys(
                    self._way(demand, every & self._in(partition), choice)._replace(
                        part=parted
                    )
                    for partition, parted in self._parted(demand.partitions, part)
                    for choice in demand.choices
                )
            )
        return self._ways[asked]

    def _parted(
        self, partitions: tuple[str, ...], part: PartDemand | None
    ) -> Iterator[tuple[str, PartDemand | None]]:
        """Yield each partition with what a job asks of nodes that it shares there."""
        unclear = part and replace(part, is_clear=False)
        for partition in partitions or ("",):
            if partition in self._shared.whole:
                yield partition, None
            elif partition in self._shared.capped:
                yield partition, unclear
            else:
                yield partition, part

    def _way(self, demand: NodeDemand, units: UnitSet, choice: FeatureChoice) -> Way:
        """Return the way by *choice* with nodes of *units*."""
        required = self.units(demand.required)
        some = tuple(
            (units & self._with_features(part), count) for part, count in choice.some
        )
        if choice.each is not None:
            units &= self._with_features(choice.each)
        counts = [count for _, count in some]
        least = sum(counts) if choice.is_apart else max(counts, default=0)
        nodes = max(demand.nodes, least, self._nodes_for(demand, units))
        if not demand.required <= self.nodes.keys():
            units = 0
        elif len(demand.required) >= nodes:
            units &= required
        key = (units, required, some)
        return Way(self._kinds.setdefault(key, EligibleNodes(*key)), nodes)

    def _meeting(self, demand: NodeDemand) -> UnitSet:
        """Return the nodes that have what each node must have, but for features."""
        units = self._every & ~self.units(demand.excluded)
        units &= self._with_at_least(_cpus_of, demand.cpus)
        units &= self._with_at_least(_memory_of, demand.memory_mib)
        for gres in demand.gres:
            units &= self._with_gres(gres)
        return units

    def _nodes_for(self, demand: NodeDemand, units: UnitSet) -> int:
        """Return the fewest of *units* that have the GRES the job asks for in all."""
        least = 1
        for wanted in demand.gres_in_all:
            counts = (
                gres_count(gres, wanted)
                for gres, having in self._sets(_gres_of).items()
                if having & units
            )
            most = max(counts, default=0)
            least = max(least, -(-wanted.count // most) if most else 1)
        return least

    # Nodes are many and mostly differ in their names alone, so each property is
    # looked at once for all nodes that are alike in it.

    def _in(self, partition: str) -> UnitSet:
        if not partition:
            return self._every
        return self._which(
            ("partition", partition), _partitions_of, lambda some: partition in some
        )

    def _with_features(self, expression: Expression) -> UnitSet:
        return self._which(
            ("features", expression),
            _features_of,
            lambda features: has_features(expression, features),
        )

    def _with_at_least(self, of: Callable[[Node], int], least: int) -> UnitSet:
        if not least:
            return self._every
        return self._which((of, least), of, lambda has: has >= least)

    def _with_gres(self, wanted: Gres) -> UnitSet:
        return self._which(
            ("gres", wanted), _gres_of, lambda g: gres_count(g, wanted) >= wanted.count
        )

    def _which(
        self,
        key: tuple[object, ...],
        of: Callable[[Node], T],
        suits: Callable[[T], bool],
    ) -> UnitSet:
        """Return the nodes whose property *of* suits; worked out once a *key*."""
        if key not in self._having:
            units = 0
            for value, alike in self._sets(of).items():
                units |= alike if suits(value) else 0
            self._having[key] = units
        return self._having[key]

    def _sets(self, of: Callable[[Node], T]) -> Mapping[T, UnitSet]:
        """Return the nodes by their property *of*."""
        found = self._alike.get(of)
        if found is None:
            names: dict[object, list[str]] = {}
            for node in self.nodes.values():
                names.setdefault(of(node), []).append(node.name)
            found = {value: self.units(alike) for value, alike in names.items()}
            self._alike[of] = found
        return cast("Mapping[T, UnitSet]", found)


def _partitions_of(node: Node) -> tuple[str, ...]:
    return node.partitions


def _features_of(node: Node) -> frozenset[str]:
    return node.features


def _gres_of(node: Node) -> tuple[Gres, ...]:
    return node.gres


def _cpus_of(node: Node) -> int:
    return node.cpus


def _memory_of(node: Node) -> int:
    return node.memory_mib


# The nodes and the plan.

Rank: TypeAlias = "Callable[[Hole], tuple[bool, float, int, str]]"
"""Sort key of holes: which of them a job gets first."""

MOST_BOOKINGS = 50
"""Jobs, in order of priority, that nodes are booked for; each costs a pass."""

PUT_OFF_S = 60.0
"""A planned start that is later by less than this may be due to backfill's time slots,
or to time limits in whole minutes."""

_NO_LIMIT_S = 1e9
"""Stands for an unlimited run time: thirty years."""


@dataclass(frozen=True, slots=True)
class LeaseSpan:
    """The time for which a lease holds its node, Unix time."""

    start_s: float
    end_s: float


class Backfill(NamedTuple):
    """Settings of Slurm's backfill.

    Attributes:
        grain_s: Length of its time slots.
        window_s: It plans no start further ahead than this.
    """

    grain_s: float = 1.0
    window_s: float = math.inf


TO_THE_SECOND = Backfill()


NONE_KEPT: Mapping[str, frozenset[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BackfillState:
    """Nodes on which waiting jobs might start; times are Unix seconds.

    Attributes:
        holes: Every hole, those under leases included. A hole that ends with a
            reservation, or with the planned start of a job that is not asked about,
            takes only jobs that are over by then, as in Slurm. No margin is taken off.
        nodes: Every node by name, in Slurm's order.
        leased: Nodes that leases hold, or have pieces of, which give way.
        turns: By leased node: its place in the order in which leases give way, of
            those whose holes end alike; of several leases that of the first.
        partly: Nodes that others' jobs hold a part of: a job that shares nodes could
            start there too. None where ``shared`` tells what is free there.
        shared: Nodes that jobs have parts of, where leases are pieces of nodes. Those
            that only leases hold have a hole besides.
        spans: By node: the time of the leases there, from the first start to the last
            end.
        busy_until_s: By node that others hold: when their jobs' limits end.
        margin_s: How long before a job could start leases are to end that put it off.
        backfill: How Slurm's backfill plans.
        eligibility: Which of the nodes can be used by which jobs; shared by states
            made of this one.
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    turns: Mapping[str, int] = field(default_factory=dict)
    partly: frozenset[str] = frozenset()
    shared: SharedNodes = NO_SHARED_NODES
    spans: Mapping[str, LeaseSpan] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)
    margin_s: float = 0.0
    backfill: Backfill = TO_THE_SECOND
    eligibility: Eligibility = field(
        default_factory=lambda: Eligibility({}), compare=False
    )

    def __post_init__(self) -> None:
        """Work eligibility out anew where the nodes are others."""
        if self.eligibility.nodes is not self.nodes:
            made = Eligibility(self.nodes, self.shared)
            object.__setattr__(self, "eligibility", made)

    def with_sooner_ends(self, ends: Mapping[str, SoonerEnd]) -> BackfillState:
        """Return the state if the leases of these nodes ended sooner."""
        if not ends:
            return self
        spans = {
            name: replace(span, end_s=ends[name].end_s) if name in ends else span
            for name, span in self.spans.items()
        }
        return replace(self, spans=spans)

    @property
    def keepable(self) -> frozenset[str]:
        """Nodes that can be kept free of leases, also those that jobs have parts of."""
        return self.leased.union(self.shared.nodes, (hole.node for hole in self.holes))

    def goes(self, name: str, kept: Collection[int] | None) -> bool:
        """Tell whether a lease goes on the leased node *name* beside those *kept*."""
        if not kept:
            return True
        return any(piece.job_id not in kept for piece in self.shared.nodes[name].pieces)

    def with_shared(self, nodes: Mapping[str, SharedNode]) -> BackfillState:
        """Return the state with these shared nodes."""
        return replace(self, shared=replace(self.shared, nodes=nodes))

    def beside(
        self,
        given: Container[str],
        booked_s: Mapping[str, float],
        kept: Mapping[str, frozenset[int]] = NONE_KEPT,
    ) -> BackfillState:
        """Return the state if only *given* nodes are given up or left idle.

        All other idle nodes, and what is free of others, are leased from now on, until
        they are booked.

        Args:
            given: Names of nodes.
            booked_s: By node: when it is booked for a job, Unix time.
            kept: By given node of which only a part is given up: the leases that stay.
        """
        holes = [h for h in self.holes if h.node in given and not kept.get(h.node)]
        free = {hole.node for hole in holes}
        stay = [hole.node for hole in self.holes if hole.node not in free]
        until_s = {name: booked_s.get(name, math.inf) for name in stay}
        busy_s = dict(self.busy_until_s)
        for name, span in self.spans.items():
            if name in until_s:
                until_s[name] = span.end_s
            elif name in self.shared.nodes and (name not in given or kept.get(name)):
                busy_s[name] = max(span.end_s, busy_s.get(name, -math.inf))
        state = replace(
            self,
            holes=holes,
            leased=frozenset(),
            spans={},
            busy_until_s={**busy_s, **until_s},
        )
        if not self.shared.nodes:
            return state
        return state.with_shared(
            {
                name: there.left_beside(kept.get(name, frozenset()))
                for name, there in self.shared.nodes.items()
                if name in given and name not in free
            }
        )


def by_slurm_order(state: BackfillState) -> Rank:
    """Rank nodes as Slurm lists them, which is how it picks them."""
    places = {name: place for place, name in enumerate(state.nodes)}
    return lambda hole: (False, places.get(hole.node, math.inf), 0, hole.node)


def idle_first(state: BackfillState) -> Rank:
    """Rank idle nodes first, then leased ones in the order in which they give way.

    Of these, nodes with the earliest planned job come first: they would go soon anyway.
    """
    in_slurm_order = by_slurm_order(state)
    return lambda hole: (
        (True, _bound_s(hole), state.turns.get(hole.node, 0), hole.node)
        if hole.node in state.leased
        else in_slurm_order(hole)
    )


def _bound_s(hole: Hole) -> float:
    """Return by when others' jobs must be over there, too; math.inf for never.

    Limits of the leases' partition bind only leases.
    """
    is_bound = hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}
    return hole.end_s if is_bound and hole.end_s is not None else math.inf


class SoonerEnd(NamedTuple):
    """When a lease is to end, Unix time, and the job that it would put off."""

    end_s: float
    job: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which jobs get which nodes; times are Unix seconds.

    Attributes:
        taken: Nodes to give up or leave idle, each with the job's number.
        started: Jobs that could start on them.
        booked_s: By node: when a job that must wait has it.
        overlapped: By node whose lease outlasts the start of a job booked there: that
            start. Backfill plans such a job elsewhere or later, perhaps where a job
            behind it could start now.
        sooner_ends: By node whose lease goes on, but puts a job off: the sooner end.
        kept: By taken node of which jobs get a part alone: the leases that stay there,
            by their jobs' numbers.
    """

    taken: Mapping[str, int]
    started: frozenset[int]
    booked_s: Mapping[str, float]
    overlapped: Mapping[str, float]
    sooner_ends: Mapping[str, SoonerEnd] = field(default_factory=dict)
    kept: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def ending_before(
        self,
        starts_s: Mapping[str, float],
        job: int,
        state: BackfillState,
        now_s: float,
    ) -> Allocation:
        """Return the allocation with leases that end before these starts.

        Those that would have less than ``LEAST_LEFT_S`` are given up at once.

        Args:
            starts_s: By leased node: when a job is booked there, Unix time.
            job: The job, or one that would start but for it.
            state: Where the leases are.
            now_s: Time of the snapshot, Unix time.
        """
        taken, ends, kept = dict(self.taken), dict(self.sooner_ends), dict(self.kept)
        for name, start_s in starts_s.items():
            if name in taken and not kept.get(name):
                continue
            end_s = math.floor(start_s - state.margin_s)
            if end_s - now_s < LEAST_LEFT_S:
                taken.setdefault(name, job)
                ends.pop(name, None)
                kept.pop(name, None)
            else:
                end = SoonerEnd(end_s, job)
                ends[name] = min(end, ends.get(name, end))
        return replace(self, taken=taken, sooner_ends=ends, kept=kept)


LEAST_LEFT_S = 60.0
"""A lease that would end sooner is given up: its world could do little more."""


def allocate(
    requests: Sequence[NodeRequest],
    state: BackfillState,
    now_s: float,
    *,
    rank: Rank,
    asked: frozenset[int] | None = None,
) -> Allocation:
    """Give each waiting job the nodes that it could start on, the first by *rank*.

    Args:
        requests: What jobs need, in order of priority.
        state: Where they might start.
        now_s: Time of the snapshot, Unix time.
        rank: Which nodes to give first.
        asked: Jobs asked about; those behind the last of them get nothing and delay
            none. None for all.
    """
    taken: dict[str, int] = {}
    started: set[int] = set()
    late: list[tuple[int, Mapping[str, float]]] = []
    bookings = _bookings(requests, state, now_s, rank)
    planned = {
        hole.node: hole
        for hole in every_hole(state)
        if hole.ends_by is HoleEnd.PLANNED_JOB
    }
    groups = _groups(requests)
    end = len(groups)
    if asked is not None:
        places = (
            k for k, group in enumerate(groups) if any(r.job_id in asked for r in group)
        )
        end = 1 + max(places, default=-1)
    for group in groups[:end]:
        if len(taken) == len(state.holes) and not state.shared.nodes:
            break
        nodes = bookings.start_together(group)
        if nodes is None:
            late += [(request.job_id, bookings.book(request)) for request in group]
            continue
        for request, got in zip(group, nodes, strict=True):
            started.add(request.job_id)
            taken.update({n: request.job_id for n in got if n not in taken})
            if any(_is_planned_away(planned.get(name), request, now_s) for name in got):
                late.append((request.job_id, dict(bookings.overlapped)))
    found = Allocation(
        taken,
        frozenset(started),
        bookings.booked_s,
        bookings.overlapped,
        kept=bookings.kept,
    )
    for job, starts_s in late:
        found = found.ending_before(starts_s, job, state, now_s)
    return found


def every_hole(state: BackfillState) -> Iterator[Hole]:
    """Yield the holes of whole nodes and of nodes that jobs share, each node once."""
    yield from state.holes
    if state.shared.nodes:
        whole = {hole.node for hole in state.holes}
        for name, there in state.shared.nodes.items():
            if name not in whole:
                yield there.hole


def _groups(requests: Sequence[NodeRequest]) -> list[list[NodeRequest]]:
    """Return the requests that start together, in order of their first."""
    groups: list[list[NodeRequest]] = []
    heterogeneous: dict[int, list[NodeRequest]] = {}
    for request in requests:
        group = heterogeneous.get(request.together) if request.together else None
        if group is not None:
            group.append(request)
            continue
        group = [request]
        groups.append(group)
        if request.together:
            heterogeneous[request.together] = group
    return groups


def _is_planned_away(hole: Hole | None, request: NodeRequest, now_s: float) -> bool:
    """Tell whether backfill plans another job there before this one would be over.

    Slurm then does not start this job there, unless it plans anew without the leases
    that made it plan so.
    """
    if hole is None or hole.end_s is None or hole.blocker == str(request.job_id):
        return False
    return hole.end_s < now_s + request.least_s


def _bookings(
    requests: Sequence[NodeRequest], state: BackfillState, now_s: float, rank: Rank
) -> Bookings:
    """Return when nodes come free without leases, and nothing booked yet."""
    soon_s = math.nextafter(now_s, math.inf)  # a job past its limit is still there
    busy_s = {name: max(end_s, soon_s) for name, end_s in state.busy_until_s.items()}
    free_s = {**busy_s, **{hole.node: now_s for hole in state.holes}}
    asked = {str(request.job_id) for request in requests}
    closed_s = {
        hole.node: bound_s
        for hole in every_hole(state)
        if (bound_s := _bound_s(hole)) < math.inf and hole.blocker not in asked
    }
    return Bookings(now_s, state, free_s, rank=rank, closed_s=closed_s)


class Bookings:
    """Which job has which nodes when, by others' time limits and in their order.

    Args:
        now_s: Time of the snapshot, Unix time.
        state: Where jobs might start.
        free_s: By node: when it comes free without leases, Unix time; a node that
            is missing never does.
        rank: Which nodes that are idle or leased are given first.
        closed_s: By node: from when on no job may have it, where there is such a time.
    """

    def __init__(
        self,
        now_s: float,
        state: BackfillState,
        free_s: Mapping[str, float],
        *,
        rank: Rank,
        closed_s: Mapping[str, float],
    ) -> None:
        self._now_s = now_s
        self._eligibility = eligibility = state.eligibility
        self._spans = state.spans
        self._rank = rank
        self._free_s = free_s
        self._grain_s = state.backfill.grain_s
        self._window_s = state.backfill.window_s
        self._holes = eligibility.units(hole.node for hole in state.holes)
        self._partly = eligibility.units(state.partly)
        ends = self._by_time(free_s)
        free = ends.pop(now_s, 0)
        ends.pop(math.inf, None)
        self._agenda = Agenda(
            now_s,
            free,
            ends.items(),
            closed=self._by_time(closed_s).items(),
            resolution_s=state.backfill.grain_s,
        )
        self._made = 0
        ranked = sorted(state.holes, key=rank)
        self._ranked = {hole.node: eligibility.bit(hole.node) for hole in ranked}
        self._hole_of = {hole.node: hole for hole in ranked}
        self._parts = PartPlan(state.shared, eligibility.offers, rank)
        self._part_failed: dict[PartDemand, list[tuple[Way, float]]] = {}
        self._startable: dict[EligibleNodes, tuple[UnitSet, int]] = {}
        self._failed: dict[EligibleNodes, list[tuple[int, float]]] = {}
        self._overlapped: dict[str, float] = {}
        self._booked_s: dict[str, float] = {}

    @property
    def booked_s(self) -> Mapping[str, float]:
        """By node: when a job that must wait has it first, Unix time."""
        return self._booked_s

    @property
    def overlapped(self) -> Mapping[str, float]:
        """By node whose lease outlasts starts of jobs booked there: the first one."""
        return self._overlapped

    @property
    def kept(self) -> Mapping[str, frozenset[int]]:
        """By node of which jobs of this plan have a part: the leases that stay."""
        return self._parts.kept

    def start(self, request: NodeRequest) -> tuple[str, ...] | None:
        """Take and return nodes on which a job could start now; None for none.

        All tasks of an array are placed at once: there may be millions.
        """
        for way in request.ways:
            if way.part is None:
                got = self._start(request, way)
            else:
                got = self._start_on_parts(request, way, way.part)
            if got is not None:
                return got
        return None

    def start_together(
        self, requests: Sequence[NodeRequest]
    ) -> list[tuple[str, ...]] | None:
        """Take and return nodes for each of *requests*; None where one cannot start."""
        if len(requests) == 1:
            got = self.start(requests[0])
            return None if got is None else [got]
        before = self._agenda.mark(), self._ranked.copy(), self._parts.mark()
        failed = {kind: list(needs) for kind, needs in self._failed.items()}
        part_failed = {part: list(f) for part, f in self._part_failed.items()}
        every = []
        for request in requests:
            nodes = self.start(request)
            if nodes is None:
                self._agenda.back_to(before[0])
                self._parts.back_to(before[2])
                self._ranked = before[1]
                self._failed, self._part_failed = failed, part_failed
                return None
            every.append(nodes)
        return every

    def _start(self, request: NodeRequest, way: Way) -> tuple[str, ...] | None:
        if self._has_failed(request, way):
            return None
        eligible = way.eligible
        now, partly = self._startable_nodes(eligible)
        need = _need(way, now, request.least_s, partly=partly)
        gap = self._agenda.start(need)
        if gap is None or not self._has_some(eligible, gap.units):
            failed = self._failed.setdefault(eligible, [])
            failed.append((way.nodes, request.least_s))
            return None
        count = gap.units.bit_count()
        rest = count % way.nodes
        if rest < need.size:  # too few for one task more
            count -= rest
        most = 1 if need.must or eligible.some else request.tasks
        count = min(count, way.nodes * most)
        got = self._first(gap.units, need.must, eligible.some, count)
        for name in got:
            del self._ranked[name]
            self._parts.take_whole(name)
        self._agenda.book(gap, self._eligibility.units(got))
        return got

    # Jobs that share nodes, where leases are pieces of nodes.

    def _start_on_parts(
        self, request: NodeRequest, way: Way, part: PartDemand
    ) -> tuple[str, ...] | None:
        """Take and return nodes for a job that shares them; None for none.

        What is free beside leases comes first, then idle nodes and those where leases
        go, and nodes last of which no part is known to be enough.
        """
        failed = self._part_failed.setdefault(part, [])
        if any(way == late and s <= request.least_s for late, s in failed):
            return None
        places = self._places(request, way, part)
        most = 1 if way.eligible.required or way.eligible.some else request.tasks
        got: dict[str, None] = {}
        for _ in range(most):
            chosen = self._chosen(places, way, part)
            if not chosen:
                break
            for place in chosen:
                self._give(place, request.least_s)
                got[place.name] = None
                again = self._parts.offer(place.name, part, way.nodes)
                if place.offer is not None and again is not None:
                    places.push(self._place_of(place.name, again))
        if got:
            return tuple(got)
        failed.append((way, request.least_s))
        return None

    def _places(self, request: NodeRequest, way: Way, part: PartDemand) -> _Places:
        """Return where the job could start now."""
        run_s = min(request.least_s, _NO_LIMIT_S)
        units = way.eligible.units & self._agenda.unbooked(run_s)
        gap = self._agenda.start(Need(0, run_s, units))
        idle = 0 if gap is None else gap.units
        ranked = tuple(self._ranked.items())

        def whole() -> Iterator[_Place]:
            for name, bit in ranked:
                if bit & idle and name not in self._parts:
                    yield _Place.of(self._rank(self._hole_of[name]), name, None)

        def those_of(group: Group) -> Iterator[_Place]:
            offer, ranked = group
            here = (self._place_of(name, offer) for _, name in ranked)
            for place in sorted(here) if offer.is_free else here:
                if self._eligibility.bit(place.name) & units:
                    yield place

        groups = self._parts.offers(part, way.nodes)
        return _Places([whole(), *map(those_of, groups)])

    def _place_of(self, name: str, offer: PartOffer) -> _Place:
        """Return a part of a node as a place; what is free Slurm gives in its order."""
        if offer.is_free:
            return _Place((0, self._eligibility.bit(name).bit_length()), name, offer)
        return _Place.of(self._parts.rank(name), name, offer)

    def _chosen(self, places: _Places, way: Way, part: PartDemand) -> list[_Place]:
        """Take from *places* those of one task; none where there are too few."""
        eligible = way.eligible
        chosen: list[_Place] = []
        passed: list[_Place] = []
        wanted = [(eligible.required, eligible.required.bit_count()), *eligible.some]
        for of, count in wanted:
            have = sum(bool(self._eligibility.bit(place.name) & of) for place in chosen)
            while places and have < count:
                place = places.pop()
                fits = bool(self._eligibility.bit(place.name) & of)
                (chosen if fits else passed).append(place)
                have += fits
            if have < count:
                return []
            for place in passed:
                places.push(place)
            passed.clear()
        while places and not self._is_enough(chosen, way, part):
            chosen.append(places.pop())
        return chosen if self._is_enough(chosen, way, part) else []

    def _is_enough(self, chosen: Sequence[_Place], way: Way, part: PartDemand) -> bool:
        """Tell whether a task could start on the *chosen* nodes.

        Where no part of some node is known to be enough, all together must have what
        the job asks for in all: Slurm may spread it over more nodes than it names.
        """
        if len(chosen) < way.nodes:
            return False
        if all(place.is_sure for place in chosen):
            return True
        nodes = [
            self._eligibility.nodes[place.name]
            if place.offer is None
            else place.offer.after
            for place in chosen
        ]
        cpus = sum(max(0, node.cpus - node.allocated_cpus) for node in nodes)
        return cpus >= part.cpus and all(
            sum(free_gres(node, gres) for node in nodes) >= gres.count
            for gres in part.gres_in_all
        )

    def _give(self, place: _Place, run_s: float) -> None:
        """Let a job start there."""
        self._ranked.pop(place.name, None)
        if place.offer is not None:
            self._parts.take(place.name, place.offer)
        unit = self._eligibility.bit(place.name)
        self._agenda.use_in_part(unit, min(run_s, _NO_LIMIT_S))

    def book(self, request: NodeRequest) -> Mapping[str, float]:
        """Book the earliest nodes for a job.

        Returns:
            By node whose lease puts the job off: when the job could have it, Unix time.
        """
        if self._made >= MOST_BOOKINGS:
            return {}
        self._made += 1
        gaps = [(self._earliest(request, way), way) for way in request.ways]
        found = [(gap, way) for gap, way in gaps if gap is not None]
        if not found:
            return {}
        gap, way = min(found, key=lambda pair: pair[0].at)
        start_s = self._agenda.starts_s(gap.at) if gap.at else self._now_s
        if start_s > self._now_s + self._window_s:
            return {}
        return self._book(request, way, gap, start_s)

    def _earliest(self, request: NodeRequest, way: Way) -> Placement | None:
        eligible = way.eligible
        if eligible.required & ~eligible.units:
            return None
        return self._agenda.earliest(_need(way, eligible.units, request.most_s))

    def _book(
        self, request: NodeRequest, way: Way, gap: Placement, start_s: float
    ) -> Mapping[str, float]:
        required = way.eligible.required
        must = self._names(gap.units & required)
        others = self._names(gap.units & ~required)
        # Backfill takes the first, leased or not; we assume what is best for the job.
        booked = [*must, *others][: way.nodes]
        self._agenda.book(gap, self._eligibility.units(booked))
        start_s = self._within_slot(start_s, booked)
        for name in booked:
            self._booked_s[name] = min(start_s, self._booked_s.get(name, math.inf))
        late = {name for name, span in self._spans.items() if span.end_s > start_s}
        for name in late.intersection(booked):
            # A job in front may have it later than one that backfill slips in before.
            self._overlapped[name] = min(start_s, self._overlapped.get(name, math.inf))
        if request.planned_s is None or request.planned_s <= start_s + PUT_OFF_S:
            return {}
        for names in (must, others):
            names.sort(key=late.__contains__)
        first = [*must, *others][: way.nodes]
        return dict.fromkeys((name for name in first if name in late), start_s)

    def _within_slot(self, start_s: float, names: Sequence[str]) -> float:
        """Return when a job could have *names*, which backfill plans by whole slots.

        Leases must be over once the last of the jobs before it ends.
        """
        if any(self._is_given(name) for name in names):
            return start_s  # after a job of this plan, known by slots alone
        free_s = (self._free_s.get(name, math.inf) for name in names)
        last_s = max(free_s, default=0.0)
        return last_s if start_s - self._grain_s < last_s <= start_s else start_s

    def _is_given(self, name: str) -> bool:
        """Tell whether a job of this plan has the node, now or later."""
        is_free_now = self._free_s.get(name, math.inf) <= self._now_s
        return name in self._booked_s or (is_free_now and name not in self._ranked)

    def _has_failed(self, request: NodeRequest, way: Way) -> bool:
        """Tell whether a job of this kind that needs no more could not start.

        Nothing has come free since: bookings only take away.
        """
        return any(
            nodes <= way.nodes and limit_s <= request.least_s
            for nodes, limit_s in self._failed.get(way.eligible, ())
        )

    def _startable_nodes(self, eligible: EligibleNodes) -> tuple[UnitSet, int]:
        """Return eligible nodes that are idle or leased, and how many are partly held.

        None where the jobs require a node that they cannot have now.
        """
        if eligible not in self._startable:
            now = eligible.units & self._holes
            is_out = bool(eligible.required & ~(now | self._partly))
            partly = (eligible.units & self._partly).bit_count()
            self._startable[eligible] = (0, 0) if is_out else (now, partly)
        return self._startable[eligible]

    def _has_some(self, eligible: EligibleNodes, units: UnitSet) -> bool:
        """Tell whether *units* have enough of the nodes that some must be of."""
        there = units | self._partly
        return all((there & of).bit_count() >= count for of, count in eligible.some)

    def _first(
        self,
        units: UnitSet,
        must: UnitSet,
        some: Iterable[tuple[UnitSet, int]],
        count: int,
    ) -> tuple[str, ...]:
        """Return the first *count* of *units*: those of *must*, *some*, and others."""
        if not must and not some:
            free = (name for name, bit in self._ranked.items() if bit & units)
            return tuple(islice(free, count))
        got: dict[str, None] = {}
        for of, many in ((must, count), *some, (units, count)):
            there = [name for name, bit in self._ranked.items() if bit & units & of]
            new = (name for name in there if name not in got)
            got |= dict.fromkeys(islice(new, many))
        return tuple(islice(got, count))

    def _names(self, units: UnitSet) -> list[str]:
        return [self._eligibility.names[place] for place in members(units)]

    def _by_time(self, at_s: Mapping[str, float]) -> dict[float, UnitSet]:
        """Return the nodes of each time, none of them before now."""
        units: dict[float, UnitSet] = {}
        for name, when_s in at_s.items():
            moment_s = max(when_s, self._now_s)
            units[moment_s] = units.get(moment_s, 0) | self._eligibility.bit(name)
        return units


class _Place(NamedTuple):
    """A node on which a job that shares nodes could start.

    Attributes:
        key: Places in order, the best first.
        offer: The part that it gets; None for an idle node, or one that a lease holds.
    """

    key: tuple[float | str, ...]
    name: str
    offer: PartOffer | None = None

    @classmethod
    def of(
        cls, rank: tuple[bool, float, int, str], name: str, offer: PartOffer | None
    ) -> _Place:
        """Return a place that is not free; last come those that are not sure."""
        goes = 1 if offer is None else len(offer.goes)
        is_leased, first, turn, _ = rank
        if offer is not None and not offer.is_sure:
            return cls((2, goes, *rank), name, offer)
        return cls((1, 0, is_leased, first, goes, turn, name), name, offer)

    @property
    def is_sure(self) -> bool:
        """Whether the job surely fits there."""
        return self.offer is None or self.offer.is_sure


class _Places:
    """Places of a job, the best first.

    Args:
        streams: Places, those of each in order.
    """

    def __init__(self, streams: Iterable[Iterator[_Place]]) -> None:
        self._heap: list[tuple[_Place, Iterator[_Place]]] = []
        for stream in streams:
            self._take_from(stream)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._heap)

    def pop(self) -> _Place:
        """Take the best."""
        place, stream = heapq.heappop(self._heap)
        self._take_from(stream)
        return place

    def push(self, place: _Place) -> None:
        """Add *place*."""
        heapq.heappush(self._heap, (place, iter(())))

    def _take_from(self, stream: Iterator[_Place]) -> None:
        place = next(stream, None)
        if place is not None:
            heapq.heappush(self._heap, (place, stream))


def _need(way: Way, among: UnitSet, run_s: float, *, partly: int = 0) -> Need:
    return Need(
        size=max(0, way.nodes - partly),
        request_s=min(run_s, _NO_LIMIT_S),
        among=among,
        must=among & way.eligible.required,
    )
