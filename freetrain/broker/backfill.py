"""What waiting jobs ask for, as far as Slurm tells it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from freetrain.broker.lease import uuid_in
from slurm.errors import UnreadableOutputError
from slurm.holes import HoleEnd
from slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from logs.schedule.machine import Gap, Need, UnitSet
    from slurm.holes import Hole
    from slurm.records import JobRecord, Node


# ----------------------------------------------------------------------
# What waiting jobs ask for, as far as Slurm tells it.

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
"""Beginnings of the reasons for which a job waits whatever nodes are free.

Source: job_reason_string of Slurm 21.08 to 26.05. A reason that is not among them
does not hold a job back.
"""

_WORD = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_UUID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether nothing but nodes keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def is_lease(job: JobRecord) -> bool:
    """Tell whether *job* is a lease, of anybody's FreeTrain."""
    return _UUID.fullmatch(uuid_in(job.name) or "") is not None


def suits(job: JobRecord, node: Node) -> bool:
    """Tell whether *node* is and has what *job* asks for, whatever its name.

    What is not told, or cannot be read, it has.
    """
    if job.partitions and not set(job.partitions) & set(node.partitions):
        return False
    if _WORD.fullmatch(job.features) and job.features not in node.features:
        return False
    names = {gres.name for gres in node.gres}
    gres = gres_on_each(job)
    return not gres or any(name in gres for name in names)


def gres_on_each(job: JobRecord) -> str:
    """Return what *job* asks of each of its nodes, as Slurm writes it.

    What a job of several nodes asks for as a whole may all be on one of them.
    """
    of_whole = job.gres_per_job if needed(job) == 1 else ""
    return ",".join(filter(None, (job.gres_per_node, of_whole)))


def insisted(job: JobRecord) -> frozenset[str]:
    """Return the nodes that *job* insists on; none where they cannot be read."""
    try:
        return frozenset(expand(job.requested_nodes))
    except UnreadableOutputError:
        return frozenset()


def needed(job: JobRecord) -> int:
    """Return how many nodes *job* takes; those that it insists on are part of them."""
    return max(job.node_count, 1)


def tasks(job: JobRecord, *, most: int) -> int:
    """Return how many tasks of *job* could start together; *most* where unclear.

    Source: what squeue prints of waiting tasks, ``1-9,12%2``; it cuts long lists.
    """
    if not job.array_tasks:
        return 1
    told, _, together = job.array_tasks.partition("%")
    parts = [_RANGE.fullmatch(part) for part in told.split(",")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return most
    count = sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in known)
    allowed = int(together) if together.isdecimal() else count
    return max(1, min(count, allowed))


# ----------------------------------------------------------------------
# Which nodes suit whom: what waiting jobs ask for, worked out once for each look.


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Jobs that the same nodes suit; no two kinds are alike.

    Attributes:
        suits: These nodes, whoever holds them.
        insists: Those that each of the jobs insists on. Where one of them is not known
            no node suits.
    """

    suits: UnitSet
    insists: UnitSet


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a waiting job needs.

    Attributes:
        job_id: Its number.
        kind: Which nodes suit it.
        nodes: How many of them each of its tasks needs.
        least_s: For how long, where in doubt it is soon over.
        most_s: For how long it could hold them; math.inf in doubt.
        planned_s: When backfill means to start it; None for no plan.
        tasks: How many tasks could start together; as many as there are nodes where
            that is unclear.
    """

    job_id: int
    kind: Kind
    nodes: int
    least_s: float
    most_s: float
    planned_s: float | None
    tasks: int


class Eligibility:
    """Which of some nodes suit whom, worked out once for each kind of job.

    Sets of nodes are bits of a number, the first node in Slurm's order the lowest.

    Args:
        nodes: Nodes by name, in Slurm's order.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.names = tuple(nodes)
        self._bit: dict[str, UnitSet] = {}
        self._alike: list[tuple[Node, UnitSet]] = []
        self._known: dict[tuple[object, ...], Kind] = {}
        self._kinds: dict[tuple[UnitSet, UnitSet], Kind] = {}

    def bit(self, name: str) -> UnitSet:
        """Return the set of one node; of none where it is not known."""
        if not self._bit:  # not before somebody waits
            self._bit = {name: 1 << k for k, name in enumerate(self.names)}
        return self._bit.get(name, 0)

    def units(self, names: Iterable[str]) -> UnitSet:
        """Return the set of the nodes *names*."""
        units = 0
        for name in names:
            units |= self.bit(name)
        return units

    def wish(self, job: JobRecord) -> NodeRequest:
        """Return what *job* needs."""
        return NodeRequest(
            job.job_id,
            self.kind(job),
            needed(job),
            least_s=job.limit_s or 0.0,
            most_s=math.inf if job.limit_s is None else job.limit_s,
            planned_s=job.start_s if job.is_planned else None,
            tasks=tasks(job, most=len(self.names)),
        )

    def kind(self, job: JobRecord) -> Kind:
        """Return which nodes suit *job*."""
        asked: tuple[object, ...] = (job.partitions, job.features, gres_on_each(job))
        if job.requested_nodes:
            asked = (*asked, job.requested_nodes, job.node_count)
        if asked not in self._known:
            found = self._suits(job), self.units(insisted(job))
            self._known[asked] = self._kinds.setdefault(found, Kind(*found))
        return self._known[asked]

    def _suits(self, job: JobRecord) -> UnitSet:
        there = 0
        for one, units in self._profiles():
            there |= units if suits(job, one) else 0
        insists = insisted(job)
        if not insists <= self.nodes.keys():
            return 0
        return there & self.units(insists) if len(insists) >= needed(job) else there

    def _profiles(self) -> list[tuple[Node, UnitSet]]:
        """Return one node of each profile, with all that are like it.

        Nodes are many, and differ in little but their names.
        """
        if not self._alike:
            alike: dict[tuple[object, ...], list[Node]] = {}
            for node in self.nodes.values():
                gres = frozenset(gres.name for gres in node.gres)
                profile = (node.partitions, node.features, gres)
                alike.setdefault(profile, []).append(node)
            self._alike = [
                (nodes[0], self.units(node.name for node in nodes))
                for nodes in alike.values()
            ]
        return self._alike


# ----------------------------------------------------------------------
# Where waiting jobs might start.

Rank: TypeAlias = "Callable[[Hole], tuple[bool, float, str]]"
"""Sorts holes, those first that are to be given first."""


@dataclass(frozen=True, slots=True)
class LeaseSpan:
    """How long a lease holds its node.

    Attributes:
        start_s: When it began, Unix time.
        end_s: When its limit ends it, Unix time.
    """

    start_s: float
    end_s: float


class Backfill(NamedTuple):
    """How Slurm's backfill plans.

    Attributes:
        grain_s: In slots of this length.
        window_s: No start further ahead than this; nothing is held for those.
    """

    grain_s: float = 1.0
    window_s: float = math.inf


TO_THE_SECOND = Backfill()


@dataclass(frozen=True, slots=True)
class BackfillState:
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
    spans: Mapping[str, LeaseSpan] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)
    backfill: Backfill = TO_THE_SECOND
    eligibility: Eligibility = field(
        default_factory=lambda: Eligibility({}), compare=False
    )

    def __post_init__(self) -> None:
        """Share what suits whom with a ground of the same nodes, and no other."""
        if self.eligibility.nodes is not self.nodes:
            object.__setattr__(self, "eligibility", Eligibility(self.nodes))

    def beside(
        self, given: Container[str], booked_s: Mapping[str, float]
    ) -> BackfillState:
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


@dataclass(frozen=True, slots=True)
class Fitting:
    """Where jobs of a kind might start.

    Attributes:
        now: Nodes that are idle or ours; none where the jobs insist on one that they
            cannot have now.
        others: How many there are that others hold a part of.
    """

    now: UnitSet
    others: int


class Fittings:
    """Where jobs might start on a ground, worked out once for each kind.

    Args:
        ground: Where any might.
    """

    def __init__(self, ground: BackfillState) -> None:
        units = ground.eligibility.units
        self._holes = units(hole.node for hole in ground.holes)
        self._partly = units(ground.partly)
        self._known: dict[Kind, Fitting] = {}

    def of(self, kind: Kind) -> Fitting:
        """Return where jobs of *kind* might start."""
        if kind not in self._known:
            self._known[kind] = self._of(kind)
        return self._known[kind]

    def _of(self, kind: Kind) -> Fitting:
        now = kind.suits & self._holes
        if kind.insists & ~(now | self._partly):
            return Fitting(0, 0)
        return Fitting(now, (kind.suits & self._partly).bit_count())


def by_slurm_order(ground: BackfillState) -> Rank:
    """Rank nodes as Slurm lists them."""
    places = {name: place for place, name in enumerate(ground.nodes)}
    return lambda hole: (False, places.get(hole.node, math.inf), hole.node)


def idle_first(ground: BackfillState) -> Rank:
    """Rank idle ones first; given up first is what would have ended soonest."""
    slurms = by_slurm_order(ground)
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


# ----------------------------------------------------------------------
# When waiting jobs could start, were our leases away: a plan like backfill's.

MOST_BOOKINGS = 50
"""Jobs in order of priority that are booked for; each costs a look at every node."""

PUT_OFF_S = 60.0
"""A planned start that is later by less may be backfill's grain, or limits' minutes."""

_LONGEST_S = 1e9
"""Stands for no limit: thirty years."""


class Bookings:
    """Who gets which node when, by the limits of others' jobs and in their order.

    Args:
        now_s: The moment of the snapshot, Unix time.
        ground: Where jobs might start.
        free_s: By node: when it comes free, our leases not counted, Unix time; a node
            that is missing never does.
        rank: Which nodes that are idle or ours are to be given first.
        closed_s: By node: from when on nobody may have it, where there is such a time.
    """

    def __init__(
        self,
        now_s: float,
        ground: BackfillState,
        free_s: Mapping[str, float],
        *,
        rank: Rank,
        closed_s: Mapping[str, float],
    ) -> None:
        # It brings NumPy along, and a tick at which nobody waits needs neither.
        from logs.schedule.machine import Agenda  # noqa: PLC0415

        self._now_s = now_s
        self._fittings = Fittings(ground)
        self._suiting = ground.eligibility
        self._leases = ground.spans
        self._window_s = ground.backfill.window_s
        ends = self._together(free_s)
        free = ends.pop(now_s, 0)
        ends.pop(math.inf, None)
        self._agenda = Agenda(
            now_s,
            free,
            ends.items(),
            closed=self._together(closed_s).items(),
            resolution_s=ground.backfill.grain_s,
        )
        self._made = 0
        ranked = sorted(ground.holes, key=rank)
        self._ranked = {hole.node: self._suiting.bit(hole.node) for hole in ranked}
        self._failed: dict[Kind, list[tuple[int, float]]] = {}
        self._moving: dict[str, None] = {}
        self._booked_s: dict[str, float] = {}

    @property
    def booked_s(self) -> Mapping[str, float]:
        """When nodes are booked for a job that cannot start now, first, Unix time."""
        return self._booked_s

    @property
    def moving(self) -> tuple[str, ...]:
        """Nodes whose leases outlast the start of a job that is booked there.

        Backfill plans that job elsewhere or later, perhaps where somebody behind it
        could start now.
        """
        return tuple(self._moving)

    def start(self, wish: NodeRequest) -> tuple[str, ...] | None:
        """Return the nodes on which a job could start now, which it has from now on.

        Arrays have up to millions of tasks, so that all are placed at once.

        Args:
            wish: What each of its tasks needs.

        Returns:
            As many nodes that are idle or ours as it can use; None where it cannot
            start.
        """
        if self._has_failed(wish):
            return None
        fitting = self._fittings.of(wish.kind)
        need = _need(wish, fitting.now, wish.least_s, beside=fitting.others)
        gap = self._agenda.start(need)
        if gap is None:
            self._failed.setdefault(wish.kind, []).append((wish.nodes, wish.least_s))
            return None
        count = gap.units.bit_count()
        rest = count % wish.nodes
        if rest < need.size:  # too few for one task more
            count -= rest
        most = 1 if need.must else wish.tasks
        got = self._first(gap.units, need.must, min(count, wish.nodes * most))
        for name in got:
            del self._ranked[name]
        self._agenda.book(gap, self._suiting.units(got))
        return got

    def book(self, wish: NodeRequest) -> tuple[str, ...]:
        """Book the earliest nodes, and return those whose leases put the job off.

        Args:
            wish: What the job needs.
        """
        if self._made >= MOST_BOOKINGS:
            return ()
        self._made += 1
        if wish.kind.insists & ~wish.kind.suits:
            return ()
        gap = self._agenda.earliest(_need(wish, wish.kind.suits, wish.most_s))
        if gap is None:
            return ()
        start_s = self._agenda.starts_s(gap.at) if gap.at else self._now_s
        if start_s > self._now_s + self._window_s:
            return ()
        return self._book(wish, gap, start_s)

    def _book(self, wish: NodeRequest, gap: Gap, start_s: float) -> tuple[str, ...]:
        must = wish.kind.insists
        names = [*self._names(gap.units & must), *self._names(gap.units & ~must)]
        # Backfill takes the first, whoever is there; we count on the kindest.
        booked = names[: wish.nodes]
        self._agenda.book(gap, self._suiting.units(booked))
        for name in booked:
            self._booked_s[name] = min(start_s, self._booked_s.get(name, math.inf))
        late = {name for name, span in self._leases.items() if span.end_s > start_s}
        self._moving |= dict.fromkeys(name for name in booked if name in late)
        if wish.planned_s is None or wish.planned_s <= start_s + PUT_OFF_S:
            return ()
        insists = (gap.units & must).bit_count()
        first, others = names[:insists], names[insists:]
        for some in (first, others):
            some.sort(key=late.__contains__)
        return tuple(n for n in [*first, *others][: wish.nodes] if n in late)

    def _has_failed(self, wish: NodeRequest) -> bool:
        """Tell whether one of its kind that needs no more could not start.

        Nothing has come free since: bookings only take away.
        """
        for nodes, limit_s in self._failed.get(wish.kind, ()):
            if nodes <= wish.nodes and limit_s <= wish.least_s:
                return True
        return False

    def _first(self, units: UnitSet, must: UnitSet, count: int) -> tuple[str, ...]:
        """Return the first so many of *units*, those of *must* in front."""
        ranked = self._ranked.items()
        theirs = [name for name, bit in ranked if bit & must] if must else []
        others = (name for name, bit in ranked if bit & units and not bit & must)
        return tuple(islice(chain(theirs, others), count))

    def _names(self, units: UnitSet) -> list[str]:
        from logs.schedule.machine import members  # noqa: PLC0415 - as above

        return [self._suiting.names[place] for place in members(units)]

    def _together(self, at_s: Mapping[str, float]) -> dict[float, UnitSet]:
        """Return the nodes of each time, none of them before now."""
        units: dict[float, UnitSet] = {}
        for name, when_s in at_s.items():
            moment_s = max(when_s, self._now_s)
            units[moment_s] = units.get(moment_s, 0) | self._suiting.bit(name)
        return units


def _need(
    wish: NodeRequest, among: UnitSet, request_s: float, *, beside: int = 0
) -> Need:
    from logs.schedule.machine import Need  # noqa: PLC0415 - as above

    return Need(
        size=max(0, wish.nodes - beside),
        request_s=min(request_s, _LONGEST_S),
        among=among,
        must=among & wish.kind.insists,
    )


# ----------------------------------------------------------------------
# Who gets which nodes, were our leases away: those who could start, in their order.


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who gets which nodes.

    Attributes:
        taken: Nodes that are given up or left alone, each with the job's number.
        started: Jobs that could start on them.
        booked_s: When the others have their nodes, by node, Unix time.
        moving: Nodes whose leases outlast the start of a job that is booked there.
    """

    taken: Mapping[str, int]
    started: frozenset[int]
    booked_s: Mapping[str, float]
    moving: tuple[str, ...]


def share(
    waiting: Sequence[NodeRequest],
    ground: BackfillState,
    now_s: float,
    *,
    rank: Rank,
    until: frozenset[int] | None = None,
) -> Allocation:
    """Let each job have what it could start on, the first by *rank*.

    Args:
        waiting: What jobs need, in order of priority.
        ground: Where they might start.
        now_s: When the snapshot was taken, Unix time.
        rank: Which nodes are to be given first.
        until: Who is asked about; who comes after the last of them delays none, and
            gets nothing. None for all.
    """
    taken: dict[str, int] = {}
    started = set()
    bookings = _bookings(waiting, ground, now_s, rank)
    planned = {
        hole.node: hole for hole in ground.holes if hole.ends_by is HoleEnd.PLANNED_JOB
    }
    for wish in waiting[: _end_of(until, waiting)]:
        if len(taken) == len(ground.holes):
            break
        got = bookings.start(wish)
        if got is not None:
            started.add(wish.job_id)
        else:
            got = bookings.book(wish)
        if got:
            if any(_is_planned_away(planned.get(name), wish, now_s) for name in got):
                got += bookings.moving
            taken.update(dict.fromkeys(got, wish.job_id))
    return Allocation(
        taken, frozenset(started), bookings.booked_s, moving=bookings.moving
    )


def _end_of(until: frozenset[int] | None, waiting: Sequence[NodeRequest]) -> int:
    if until is None:
        return len(waiting)
    asked = (place for place, wish in enumerate(waiting) if wish.job_id in until)
    return 1 + max(asked, default=-1)


def _bookings(
    waiting: Sequence[NodeRequest], ground: BackfillState, now_s: float, rank: Rank
) -> Bookings:
    """Return who has what when, but for leases and for *waiting*."""
    soon_s = math.nextafter(now_s, math.inf)  # who is past its limit is still there
    busy_s = {name: max(end_s, soon_s) for name, end_s in ground.busy_until_s.items()}
    free_s = {**busy_s, **{hole.node: now_s for hole in ground.holes}}
    asked = set(map(str, (wish.job_id for wish in waiting)))
    closed_s = {
        hole.node: hole.end_s
        for hole in ground.holes
        if hole.end_s is not None and is_bound(hole) and hole.blocker not in asked
    }
    return Bookings(now_s, ground, free_s, rank=rank, closed_s=closed_s)


def _is_planned_away(hole: Hole | None, wish: NodeRequest, now_s: float) -> bool:
    """Tell whether backfill means somebody else to start before a job would be over.

    Then it does not start that job there, unless it plans anew without the leases
    because of which it planned so.
    """
    if hole is None or hole.end_s is None or hole.blocker == str(wish.job_id):
        return False
    return hole.end_s < now_s + wish.least_s
