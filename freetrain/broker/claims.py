"""Whom the broker makes room for where Slurm cannot preempt leases.

A pending job of anybody that could start now, were our leases away, gets its nodes:
idle ones first, then leased ones, or those that Slurm would take where that lets more
start. When in doubt it could start: a node given up in vain costs training, one kept
in vain costs somebody's waiting. One that must wait for others gets the leases because
of which backfill plans it later than it had to. What backfill planned does not say who
could start: it plans around our leases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.booking import TO_THE_SECOND, Backfill, Bookings, Span, Wish
from freetrain.broker.waiting import (
    could_start,
    gres_on_each,
    insisted,
    is_lease,
    needed,
    suits,
    tasks,
)
from slurm.holes import HoleEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm.holes import Hole
    from slurm.records import JobRecord, Node


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that pending jobs could start on now, and those that they wait for.

    Attributes:
        leased: Leased nodes that must be given up, each with the job's number.
        idle: Idle nodes that must be left alone, each with the job's number.
        booked_s: When nodes are booked for jobs that must wait for others, were our
            leases away, by node, Unix time. A lease that begins now should be gone by
            then: what backfill planned last may be older than what it will plan next.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]
    booked_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that are not ours to plan with."""
        return frozenset((*self.leased, *self.idle))


_Rank: TypeAlias = "Callable[[Hole], tuple[bool, float, str]]"
"""Sorts holes, those first that are to be given first."""

NO_CLAIMS = Claims({}, {})


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
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    partly: frozenset[str] = frozenset()
    spans: Mapping[str, Span] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)
    backfill: Backfill = TO_THE_SECOND


def find_claims(
    jobs: Iterable[JobRecord],
    ground: Ground,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
) -> Claims:
    """Return which nodes the pending jobs of others could start on.

    Jobs come in order of priority. One that finds too few nodes claims none, but for
    those of leases that put its planned start off; who comes after it must leave it
    the nodes that it could have first. One that finds nodes on which backfill has
    planned another claims also those of leases that move plans of jobs before it.
    Idle nodes are claimed before leased ones, unless that keeps anybody from starting
    whom Slurm, which takes the first in its order, would start.
    Leases of other users' FreeTrain claim none: they would take ours, we theirs, and
    so on.

    Args:
        jobs: All jobs of a snapshot.
        ground: Where they might start.
        is_ours: Tells our own leases.
        now_s: When the snapshot was taken, Unix time.
    """
    waiting = sorted(
        (
            job
            for job in jobs
            if not is_ours(job) and not is_lease(job) and could_start(job, now_s)
        ),
        key=lambda job: (-(job.priority or 0), job.job_id),
    )
    if not waiting or not ground.holes:
        return NO_CLAIMS
    fitting: dict[tuple[object, ...], _Fitting] = {}
    shared = _share(waiting, ground, now_s, fitting, rank=_idle_first(ground))
    if 0 < len(shared.started) < len(waiting):
        rank = _slurms_order(ground)
        as_slurm = _share(waiting, ground, now_s, fitting, rank=rank)
        if as_slurm.started - shared.started:
            shared = as_slurm
    taken, leased = shared.taken, ground.leased
    return Claims(
        leased={name: by for name, by in taken.items() if name in leased},
        idle={name: by for name, by in taken.items() if name not in leased},
        booked_s=shared.booked_s,
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    """Who gets which nodes.

    Attributes:
        taken: Nodes that are given up or left alone, each with the job's number.
        started: Jobs that could start on them.
        booked_s: When the others have their nodes, by node, Unix time.
    """

    taken: Mapping[str, int]
    started: frozenset[int]
    booked_s: Mapping[str, float]


def _share(
    waiting: Sequence[JobRecord],
    ground: Ground,
    now_s: float,
    fitting: dict[tuple[object, ...], _Fitting],
    *,
    rank: _Rank,
) -> _Shared:
    """Let each job have what it could start on, the first by *rank*.

    Args:
        waiting: Jobs in order of priority.
        ground: Where they might start.
        now_s: When the snapshot was taken, Unix time.
        fitting: What suits whom, by kind of job; added to.
        rank: Which nodes are to be given first.
    """
    taken: dict[str, int] = {}
    started = set()
    preferred: dict[tuple[object, ...], tuple[str, ...]] = {}
    bookings = _bookings(waiting, ground, now_s)
    planned = {
        hole.node: hole for hole in ground.holes if hole.ends_by is HoleEnd.PLANNED_JOB
    }
    for job in waiting:
        if len(taken) == len(ground.holes):
            break
        kind = _kind(job)
        if kind not in fitting:
            fitting[kind] = _fitting(job, ground)
        fits = fitting[kind]
        if kind not in preferred:
            preferred[kind] = fits.names(rank)
        got = _start(job, preferred[kind], fits.others, bookings)
        if got is not None:
            started.add(job.job_id)
        else:
            got = bookings.book(_wish(job), fits.suiting)
        if any(_is_planned_away(planned.get(name), job, now_s) for name in got):
            got += bookings.moving
        taken.update(dict.fromkeys(got, job.job_id))
    return _Shared(taken, frozenset(started), bookings.booked_s)


def _bookings(waiting: Sequence[JobRecord], ground: Ground, now_s: float) -> Bookings:
    """Return who has what when, but for leases and for *waiting*."""
    soon_s = math.nextafter(now_s, math.inf)  # who is past its limit is still there
    busy_s = {name: max(end_s, soon_s) for name, end_s in ground.busy_until_s.items()}
    free_s = {**busy_s, **{hole.node: now_s for hole in ground.holes}}
    asked = {str(job.job_id) for job in waiting}
    closed_s = {
        hole.node: hole.end_s
        for hole in ground.holes
        if hole.end_s is not None and _is_bound(hole) and hole.blocker not in asked
    }
    return Bookings(
        now_s,
        {name: free_s[name] for name in ground.nodes if name in free_s},
        ground.spans,
        closed_s=closed_s,
        backfill=ground.backfill,
    )


def _kind(job: JobRecord) -> tuple[object, ...]:
    """Return what decides which nodes fit, so that it is worked out once."""
    asked = (job.partitions, job.features, gres_on_each(job), job.requested_nodes)
    return (*asked, job.node_count) if job.requested_nodes else asked


@dataclass(frozen=True, slots=True)
class _Fitting:
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

    def names(self, rank: _Rank) -> tuple[str, ...]:
        """Return the nodes of the holes, in the order in which they are claimed."""
        ranked = sorted(
            self.holes, key=lambda hole: (hole.node not in self.insists, rank(hole))
        )
        return tuple(hole.node for hole in ranked)


def _fitting(job: JobRecord, ground: Ground) -> _Fitting:
    """Return the nodes that suit *job*."""
    suiting = {node.name for node in ground.nodes.values() if suits(job, node)}
    everywhere = tuple(sorted(suiting))
    holes = tuple(hole for hole in ground.holes if hole.node in suiting)
    insists = insisted(job)
    if not insists <= ground.partly.union(hole.node for hole in holes):
        return _Fitting((), insists, 0, everywhere)
    return _Fitting(holes, insists, len(suiting & ground.partly), everywhere)


def _slurms_order(ground: Ground) -> _Rank:
    """Rank nodes as Slurm lists them."""
    places = {name: place for place, name in enumerate(ground.nodes)}
    return lambda hole: (False, places.get(hole.node, math.inf), hole.node)


def _idle_first(ground: Ground) -> _Rank:
    """Rank idle ones first; given up first is what would have ended soonest."""
    slurms = _slurms_order(ground)
    return lambda hole: (
        (True, _life_end_s(hole), hole.node)
        if hole.node in ground.leased
        else slurms(hole)
    )


def _is_bound(hole: Hole) -> bool:
    """Tell whether others must be gone too; limits of our partition bind only us."""
    return hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}


def _life_end_s(hole: Hole) -> float:
    return math.inf if hole.end_s is None or not _is_bound(hole) else hole.end_s


def _is_planned_away(hole: Hole | None, job: JobRecord, now_s: float) -> bool:
    """Tell whether backfill means somebody else to start before *job* would be over.

    Then it does not start *job* there, unless it plans anew without the leases because
    of which it planned so.
    """
    if hole is None or hole.end_s is None or hole.blocker == str(job.job_id):
        return False
    return hole.end_s < now_s + (job.limit_s or 0.0)


def _start(
    job: JobRecord, preferred: Sequence[str], others: int, bookings: Bookings
) -> tuple[str, ...] | None:
    """Return the nodes of each task that could start now; None where none could."""
    wish, room = _wish(job), len(preferred) + others
    now = replace(wish, limit_s=job.limit_s or 0.0)  # in doubt it is soon over
    got: tuple[str, ...] | None = None
    for _ in range(tasks(job, most=room)):
        more = bookings.start(now, preferred, beside=others)
        if more is None:
            break
        got = (*(got or ()), *more)
    return got


def _wish(job: JobRecord) -> Wish:
    return Wish(
        nodes=needed(job),
        insists=insisted(job),
        limit_s=math.inf if job.limit_s is None else job.limit_s,
        planned_s=job.start_s if job.is_planned else None,
    )
