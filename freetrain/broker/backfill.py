"""Which waiting jobs could start where if our leases gave way: a plan like backfill's.

``Eligibility`` works out what each waiting job asks for and which nodes it could use.
``allocate`` goes through the waiting jobs in order of priority. A job that finds enough
nodes now gets them; one that must wait books the earliest nodes, so that no job behind
it is let in first. Slurm's backfill plans in the same way.

Where Slurm does not say what a job needs, or says it in a form we cannot read, the job
counts as one that could use the node: others must not wait because we misread them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from freetrain.broker.lease import uuid_in
from logs.timeline import Agenda, Need, members
from slurm.errors import UnreadableOutputError
from slurm.holes import HoleEnd
from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from logs.timeline import Placement, UnitSet
    from slurm.holes import Hole
    from slurm.records import JobRecord, Node


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
    "MaxBillingPerAccount",
    "MaxCpuPerAccount",
    "MaxGRESPerAccount",
    "MaxJobsPerAccount",
    "MaxMemPerAccount",
    "MaxNodePerAccount",
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

_WORD = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)

_UUID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether a lack of nodes is all that keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def is_lease(job: JobRecord) -> bool:
    """Tell whether *job* is a lease of any user's FreeTrain."""
    return _UUID.fullmatch(uuid_in(job.name) or "") is not None


def has_what_is_asked(node: Node, job: JobRecord) -> bool:
    """Tell whether *node* has the partition, features and GRES that *job* asks for.

    Node names that the job requires are not considered here.
    """
    if job.partitions and not set(job.partitions) & set(node.partitions):
        return False
    if _WORD.fullmatch(job.features) and job.features not in node.features:
        return False
    asked = _gres_per_node(job)
    return not asked or any(gres.name in asked for gres in node.gres)


def required_nodes(job: JobRecord) -> frozenset[str]:
    """Return the nodes of ``--nodelist``; none where the list cannot be read."""
    try:
        return frozenset(expand(job.requested_nodes))
    except UnreadableOutputError:
        return frozenset()


def node_count(job: JobRecord) -> int:
    """Return how many nodes *job* takes, those of ``--nodelist`` included."""
    return max(job.node_count, 1)


def startable_tasks(job: JobRecord, *, most: int) -> int:
    """Return how many tasks of *job* could start together; *most* where unclear.

    Source: squeue's form of waiting tasks, ``1-9,12%2``; it cuts long lists.
    """
    if not job.array_tasks:
        return 1
    listed, _, together = job.array_tasks.partition("%")
    parts = [_RANGE.fullmatch(part) for part in listed.split(",")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return most
    count = sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in known)
    allowed = int(together) if together.isdecimal() else count
    return max(1, min(count, allowed))


def _gres_per_node(job: JobRecord) -> str:
    """Return the GRES that *job* needs on each node, in Slurm's notation.

    The GRES of a job of several nodes as a whole may all be on one of them.
    """
    per_job = job.gres_per_job if node_count(job) == 1 else ""
    return ",".join(filter(None, (job.gres_per_node, per_job)))


@dataclass(frozen=True, slots=True, eq=False)
class EligibleNodes:
    """The nodes that jobs of one kind can use; one object for each kind.

    Attributes:
        units: These nodes, also those that jobs hold.
        required: Those that each of the jobs must have. Where one of them is not
            known, no node is eligible.
    """

    units: UnitSet
    required: UnitSet


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a waiting job needs.

    Attributes:
        job_id: Its number.
        eligible: The nodes it can use.
        nodes: How many of them each task needs.
        least_s: Run time to count with where a short one is the cautious guess.
        most_s: Run time where a long one is; math.inf without a limit.
        planned_s: Start that backfill planned, Unix time; None without a plan.
        tasks: How many tasks could start together; the number of nodes where unclear.
    """

    job_id: int
    eligible: EligibleNodes
    nodes: int
    least_s: float
    most_s: float
    planned_s: float | None
    tasks: int


class Eligibility:
    """Which nodes can be used by which jobs, worked out once for each kind of job.

    Sets of nodes are bits of an integer, the first node in Slurm's order the lowest.

    Args:
        nodes: Nodes by name, in Slurm's order.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.names = tuple(nodes)
        self._bits: dict[str, UnitSet] = {}
        self._profiles: list[tuple[Node, UnitSet]] = []
        self._by_request: dict[tuple[object, ...], EligibleNodes] = {}
        self._by_nodes: dict[tuple[UnitSet, UnitSet], EligibleNodes] = {}

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
            self.eligible(job),
            node_count(job),
            least_s=job.limit_s or 0.0,
            most_s=math.inf if job.limit_s is None else job.limit_s,
            planned_s=job.start_s if job.is_planned else None,
            tasks=startable_tasks(job, most=len(self.names)),
        )

    def eligible(self, job: JobRecord) -> EligibleNodes:
        """Return the nodes that *job* can use."""
        asked: tuple[object, ...] = (job.partitions, job.features, _gres_per_node(job))
        if job.requested_nodes:
            asked = (*asked, job.requested_nodes, job.node_count)
        if asked not in self._by_request:
            required = required_nodes(job)
            nodes = self._usable(job, required), self.units(required)
            one = self._by_nodes.setdefault(nodes, EligibleNodes(*nodes))
            self._by_request[asked] = one
        return self._by_request[asked]

    def _usable(self, job: JobRecord, required: frozenset[str]) -> UnitSet:
        usable = 0
        for node, units in self._each_profile():
            usable |= units if has_what_is_asked(node, job) else 0
        if not required <= self.nodes.keys():
            return 0
        is_all = len(required) >= node_count(job)
        return usable & self.units(required) if is_all else usable

    def _each_profile(self) -> list[tuple[Node, UnitSet]]:
        """Return one node of each profile with the set of all that are like it.

        Nodes are many and mostly differ in their names alone.
        """
        if not self._profiles:
            alike: dict[tuple[object, ...], list[Node]] = {}
            for node in self.nodes.values():
                gres = frozenset(gres.name for gres in node.gres)
                profile = (node.partitions, node.features, gres)
                alike.setdefault(profile, []).append(node)
            self._profiles = [
                (nodes[0], self.units(node.name for node in nodes))
                for nodes in alike.values()
            ]
        return self._profiles


# The nodes and the plan.

Rank: TypeAlias = "Callable[[Hole], tuple[bool, float, str]]"
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


@dataclass(frozen=True, slots=True)
class BackfillState:
    """Nodes on which waiting jobs might start; times are Unix seconds.

    Attributes:
        holes: Every hole, those under our leases included. A hole that ends with a
            reservation, or with the planned start of a job that is not asked about,
            takes only jobs that are over by then, as in Slurm. No margin is taken off.
        nodes: Every node by name, in Slurm's order.
        leased: Nodes that our leases hold.
        partly: Nodes that others' jobs hold a part of: a job that shares nodes could
            start there too.
        spans: By node: the time of the lease that holds it.
        busy_until_s: By node that others hold: when their jobs' limits end.
        backfill: How Slurm's backfill plans.
        eligibility: Which of the nodes can be used by which jobs; shared by states
            made of this one.
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    partly: frozenset[str] = frozenset()
    spans: Mapping[str, LeaseSpan] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)
    backfill: Backfill = TO_THE_SECOND
    eligibility: Eligibility = field(
        default_factory=lambda: Eligibility({}), compare=False
    )

    def __post_init__(self) -> None:
        """Work eligibility out anew where the nodes are others."""
        if self.eligibility.nodes is not self.nodes:
            object.__setattr__(self, "eligibility", Eligibility(self.nodes))

    def beside(
        self, given: Container[str], booked_s: Mapping[str, float]
    ) -> BackfillState:
        """Return the state if only *given* nodes are given up or left idle.

        All other idle nodes are leased from now on, until they are booked.

        Args:
            given: Names of nodes.
            booked_s: By node: when it is booked for a job, Unix time.
        """
        kept = [hole.node for hole in self.holes if hole.node not in given]
        until_s = {name: booked_s.get(name, math.inf) for name in kept}
        until_s |= {n: span.end_s for n, span in self.spans.items() if n in until_s}
        return replace(
            self,
            holes=[hole for hole in self.holes if hole.node in given],
            leased=frozenset(),
            spans={},
            busy_until_s={**self.busy_until_s, **until_s},
        )


def by_slurm_order(state: BackfillState) -> Rank:
    """Rank nodes as Slurm lists them, which is how it picks them."""
    places = {name: place for place, name in enumerate(state.nodes)}
    return lambda hole: (False, places.get(hole.node, math.inf), hole.node)


def idle_first(state: BackfillState) -> Rank:
    """Rank idle nodes first, then leased ones, those that end soonest in front."""
    in_slurm_order = by_slurm_order(state)
    return lambda hole: (
        (True, _bound_s(hole), hole.node)
        if hole.node in state.leased
        else in_slurm_order(hole)
    )


def _bound_s(hole: Hole) -> float:
    """Return by when others' jobs must be over there, too; math.inf for never.

    Limits of our partition bind only our own leases.
    """
    is_bound = hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}
    return hole.end_s if is_bound and hole.end_s is not None else math.inf


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which jobs get which nodes.

    Attributes:
        taken: Nodes to give up or leave idle, each with the job's number.
        started: Jobs that could start on them.
        booked_s: By node: when a job that must wait has it, Unix time.
        overlapped: Nodes whose leases outlast the start of a job booked there.
            Backfill plans such a job elsewhere or later, perhaps where a job behind
            it could start now.
    """

    taken: Mapping[str, int]
    started: frozenset[int]
    booked_s: Mapping[str, float]
    overlapped: tuple[str, ...]


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
    started = set()
    bookings = _bookings(requests, state, now_s, rank)
    planned = {
        hole.node: hole for hole in state.holes if hole.ends_by is HoleEnd.PLANNED_JOB
    }
    end = len(requests)
    if asked is not None:
        places = (k for k, request in enumerate(requests) if request.job_id in asked)
        end = 1 + max(places, default=-1)
    for request in requests[:end]:
        if len(taken) == len(state.holes):
            break
        got = bookings.start(request)
        if got is not None:
            started.add(request.job_id)
        else:
            got = bookings.book(request)
        if got:
            if any(_is_planned_away(planned.get(name), request, now_s) for name in got):
                got += bookings.overlapped
            taken.update(dict.fromkeys(got, request.job_id))
    return Allocation(
        taken, frozenset(started), bookings.booked_s, overlapped=bookings.overlapped
    )


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
    """Return when nodes come free without our leases, and nothing booked yet."""
    soon_s = math.nextafter(now_s, math.inf)  # a job past its limit is still there
    busy_s = {name: max(end_s, soon_s) for name, end_s in state.busy_until_s.items()}
    free_s = {**busy_s, **{hole.node: now_s for hole in state.holes}}
    asked = {str(request.job_id) for request in requests}
    closed_s = {
        hole.node: bound_s
        for hole in state.holes
        if (bound_s := _bound_s(hole)) < math.inf and hole.blocker not in asked
    }
    return Bookings(now_s, state, free_s, rank=rank, closed_s=closed_s)


class Bookings:
    """Which job has which nodes when, by others' time limits and in their order.

    Args:
        now_s: Time of the snapshot, Unix time.
        state: Where jobs might start.
        free_s: By node: when it comes free without our leases, Unix time; a node that
            is missing never does.
        rank: Which nodes that are idle or ours are given first.
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
        self._startable: dict[EligibleNodes, tuple[UnitSet, int]] = {}
        self._failed: dict[EligibleNodes, list[tuple[int, float]]] = {}
        self._overlapped: dict[str, None] = {}
        self._booked_s: dict[str, float] = {}

    @property
    def booked_s(self) -> Mapping[str, float]:
        """By node: when the first job that must wait has it, Unix time."""
        return self._booked_s

    @property
    def overlapped(self) -> tuple[str, ...]:
        """Nodes whose leases outlast the start of a job that is booked there."""
        return tuple(self._overlapped)

    def start(self, request: NodeRequest) -> tuple[str, ...] | None:
        """Take and return nodes on which a job could start now; None for none.

        All tasks of an array are placed at once: there may be millions.
        """
        if self._has_failed(request):
            return None
        now, partly = self._startable_nodes(request.eligible)
        need = _need(request, now, request.least_s, partly=partly)
        gap = self._agenda.start(need)
        if gap is None:
            failed = self._failed.setdefault(request.eligible, [])
            failed.append((request.nodes, request.least_s))
            return None
        count = gap.units.bit_count()
        rest = count % request.nodes
        if rest < need.size:  # too few for one task more
            count -= rest
        most = 1 if need.must else request.tasks
        got = self._first(gap.units, need.must, min(count, request.nodes * most))
        for name in got:
            del self._ranked[name]
        self._agenda.book(gap, self._eligibility.units(got))
        return got

    def book(self, request: NodeRequest) -> tuple[str, ...]:
        """Book the earliest nodes for a job; return those whose leases delay it."""
        if self._made >= MOST_BOOKINGS:
            return ()
        self._made += 1
        eligible = request.eligible
        if eligible.required & ~eligible.units:
            return ()
        gap = self._agenda.earliest(_need(request, eligible.units, request.most_s))
        if gap is None:
            return ()
        start_s = self._agenda.starts_s(gap.at) if gap.at else self._now_s
        if start_s > self._now_s + self._window_s:
            return ()
        return self._book(request, gap, start_s)

    def _book(
        self, request: NodeRequest, gap: Placement, start_s: float
    ) -> tuple[str, ...]:
        required = request.eligible.required
        must = self._names(gap.units & required)
        others = self._names(gap.units & ~required)
        # Backfill takes the first, leased or not; we assume what is best for the job.
        booked = [*must, *others][: request.nodes]
        self._agenda.book(gap, self._eligibility.units(booked))
        for name in booked:
            self._booked_s[name] = min(start_s, self._booked_s.get(name, math.inf))
        late = {name for name, span in self._spans.items() if span.end_s > start_s}
        self._overlapped |= dict.fromkeys(name for name in booked if name in late)
        if request.planned_s is None or request.planned_s <= start_s + PUT_OFF_S:
            return ()
        for names in (must, others):
            names.sort(key=late.__contains__)
        return tuple(n for n in [*must, *others][: request.nodes] if n in late)

    def _has_failed(self, request: NodeRequest) -> bool:
        """Tell whether a job of this kind that needs no more could not start.

        Nothing has come free since: bookings only take away.
        """
        return any(
            nodes <= request.nodes and limit_s <= request.least_s
            for nodes, limit_s in self._failed.get(request.eligible, ())
        )

    def _startable_nodes(self, eligible: EligibleNodes) -> tuple[UnitSet, int]:
        """Return eligible nodes that are idle or ours, and how many are partly held.

        None where the jobs require a node that they cannot have now.
        """
        if eligible not in self._startable:
            now = eligible.units & self._holes
            is_out = bool(eligible.required & ~(now | self._partly))
            partly = (eligible.units & self._partly).bit_count()
            self._startable[eligible] = (0, 0) if is_out else (now, partly)
        return self._startable[eligible]

    def _first(self, units: UnitSet, must: UnitSet, count: int) -> tuple[str, ...]:
        """Return the first *count* of *units*, those of *must* in front."""
        ranked = self._ranked.items()
        required = [name for name, bit in ranked if bit & must] if must else []
        others = (name for name, bit in ranked if bit & units and not bit & must)
        return tuple(islice(chain(required, others), count))

    def _names(self, units: UnitSet) -> list[str]:
        return [self._eligibility.names[place] for place in members(units)]

    def _by_time(self, at_s: Mapping[str, float]) -> dict[float, UnitSet]:
        """Return the nodes of each time, none of them before now."""
        units: dict[float, UnitSet] = {}
        for name, when_s in at_s.items():
            moment_s = max(when_s, self._now_s)
            units[moment_s] = units.get(moment_s, 0) | self._eligibility.bit(name)
        return units


def _need(
    request: NodeRequest, among: UnitSet, run_s: float, *, partly: int = 0
) -> Need:
    return Need(
        size=max(0, request.nodes - partly),
        request_s=min(run_s, _NO_LIMIT_S),
        among=among,
        must=among & request.eligible.required,
    )
