"""Whom the broker makes room for where Slurm cannot preempt leases.

A pending job of anybody that could start now, were our leases away, gets its nodes:
idle ones first, then leased ones. When in doubt it could start: a node given up in
vain costs training, one kept in vain costs somebody's waiting. One that must wait for
others gets the leases because of which backfill plans it later than it had to.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.broker.booking import Bookings, Span, Wish
from freetrain.broker.lease import uuid_in
from slurm.errors import UnreadableOutputError
from slurm.holes import HoleEnd
from slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
"""Beginnings of the reasons for which a job waits whatever nodes are free.

Source: job_reason_string of Slurm 21.08 to 26.05. A reason that is not among them
does not hold a job back.
"""

_WORD = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_UUID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that pending jobs could start on now.

    Attributes:
        leased: Leased nodes that must be given up, each with the job's number.
        idle: Idle nodes that must be left alone, each with the job's number.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that are not ours to plan with."""
        return frozenset((*self.leased, *self.idle))


NO_CLAIMS = Claims({}, {})


@dataclass(frozen=True, slots=True)
class Ground:
    """Where jobs might start.

    Attributes:
        holes: Every hole, those under our leases included; into one that ends
            with a planned start or a reservation only jobs are let that are over
            by then, as Slurm does it. No margin is taken off: it does not bind
            others.
        nodes: Every node by name.
        leased: Nodes that our leases hold.
        partly: Nodes that others' jobs hold a part of: a job that shares nodes
            could start there as well.
        spans: How long leases hold their nodes, by node.
        busy_until_s: When nodes that others hold come free by the limits of their
            jobs, by node, Unix time.
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    partly: frozenset[str] = frozenset()
    spans: Mapping[str, Span] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)


def find_claims(
    jobs: Iterable[JobRecord],
    ground: Ground,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
) -> Claims:
    """Return which nodes the pending jobs of others could start on.

    Jobs come in order of priority. One that finds too few nodes claims none, but for
    those of leases that put its planned start off; who comes after it must be over
    by the time at which it could start. Leases of other users' FreeTrain claim none
    either: they would take ours, we theirs, and so on.

    Args:
        jobs: All jobs of a snapshot.
        ground: Where they might start.
        is_ours: Tells our own leases.
        now_s: When the snapshot was taken, Unix time.
    """
    holes = {hole.node for hole in ground.holes}
    taken: dict[str, int] = {}
    fitting: dict[tuple[object, ...], _Fitting] = {}
    free_s = {**ground.busy_until_s, **dict.fromkeys(holes, now_s)}
    bookings = Bookings(now_s, free_s, ground.spans)
    waiting = (
        job
        for job in jobs
        if not is_ours(job) and not _is_lease(job) and could_start(job, now_s)
    )
    for job in sorted(waiting, key=lambda j: (-(j.priority or 0), j.job_id)):
        if len(taken) == len(holes):
            break
        kind = _kind(job)
        if kind not in fitting:
            fitting[kind] = _fitting(job, ground, now_s)
        if not _claim(job, fitting[kind], taken, bookings):
            suiting = (n.name for n in ground.nodes.values() if _suits(job, n))
            in_the_way = bookings.book(_wish(job), suiting)
            taken.update(dict.fromkeys(in_the_way, job.job_id))
    leased = ground.leased
    return Claims(
        leased={name: by for name, by in taken.items() if name in leased},
        idle={name: by for name, by in taken.items() if name not in leased},
    )


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether nothing but nodes keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def _is_lease(job: JobRecord) -> bool:
    return _UUID.fullmatch(uuid_in(job.name) or "") is not None


def _kind(job: JobRecord) -> tuple[object, ...]:
    """Return what decides which nodes fit, so that it is worked out once."""
    plan = (job.job_id, job.planned_nodes) if job.is_planned else ()
    asked = (job.features, job.gres_per_node, job.requested_nodes, job.node_count)
    return (job.partitions, *asked, job.limit_s, plan)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Nodes that a job could start on.

    Attributes:
        names: Those that are idle or ours; in the order in which they are claimed.
        others: How many there are that others hold a part of.
    """

    names: tuple[str, ...]
    others: int


def _fitting(job: JobRecord, ground: Ground, now_s: float) -> _Fitting:
    """Return the nodes that *job* could start on, idle ones first.

    None where it insists on one that it cannot have now.
    """
    fitting = [
        hole
        for hole in ground.holes
        if hole.node in ground.nodes
        and _suits(job, ground.nodes[hole.node])
        and _lasts(job, hole, now_s)
    ]
    # Given up first is what would have ended soonest.
    insists = _names(job.requested_nodes)
    if not insists <= ground.partly.union(hole.node for hole in fitting):
        return _Fitting((), 0)
    fitting.sort(
        key=lambda hole: (
            hole.node not in insists,
            hole.node in ground.leased,
            _life_end_s(hole),
            hole.node,
        )
    )
    partly = (ground.nodes[name] for name in ground.partly)
    return _Fitting(
        names=tuple(hole.node for hole in fitting),
        others=sum(_suits(job, node) for node in partly),
    )


def _suits(job: JobRecord, node: Node) -> bool:
    if job.partitions and not set(job.partitions) & set(node.partitions):
        return False
    if _WORD.fullmatch(job.features) and job.features not in node.features:
        return False
    names = {gres.name for gres in node.gres}
    if job.gres_per_node and not any(name in job.gres_per_node for name in names):
        return False
    insists = _names(job.requested_nodes)
    return node.name in insists or len(insists) < _needed(job)


def _names(expression: str) -> frozenset[str]:
    try:
        return frozenset(expand(expression))
    except UnreadableOutputError:
        return frozenset()


def _lasts(job: JobRecord, hole: Hole, now_s: float) -> bool:
    """Tell whether *job* would be over before somebody else's planned start."""
    if hole.ends_by is HoleEnd.PLANNED_JOB and hole.blocker == str(job.job_id):
        return True
    limit_s = 0.0 if job.limit_s is None else job.limit_s
    return now_s + limit_s <= _life_end_s(hole)


def _life_end_s(hole: Hole) -> float:
    """Return when others must be gone; limits of our partition do not bind them."""
    if hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}:
        return math.inf if hole.end_s is None else hole.end_s
    return math.inf


def _needed(job: JobRecord) -> int:
    """Return how many nodes *job* takes; those that it insists on are part of them."""
    return max(job.node_count, 1)


def _claim(
    job: JobRecord, fitting: _Fitting, taken: dict[str, int], bookings: Bookings
) -> bool:
    """Write down in *taken* what *job* gets, if it is enough, and tell whether."""
    needed, limit_s = _needed(job), job.limit_s or 0.0
    if needed > len(fitting.names) + fitting.others:
        return False
    left = [
        name
        for name in fitting.names
        if name not in taken and bookings.leaves(name, limit_s)
    ]
    room = (len(left) + fitting.others) // needed
    tasks = min(room, _tasks(job, most=room))
    got = left[: tasks * needed]
    taken.update(dict.fromkeys(got, job.job_id))
    bookings.start(got, limit_s)
    return tasks > 0


def _wish(job: JobRecord) -> Wish:
    return Wish(
        nodes=_needed(job),
        insists=_names(job.requested_nodes),
        limit_s=math.inf if job.limit_s is None else job.limit_s,
        since_s=max(job.submit_s or 0.0, job.eligible_s or 0.0),
        planned_s=job.start_s if job.is_planned else None,
    )


def _tasks(job: JobRecord, *, most: int) -> int:
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
