"""Who gets which nodes, were our leases away: those who could start, in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.booking import Bookings, Wish
from freetrain.broker.ground import fitting_of, is_bound, kind_of
from freetrain.broker.waiting import insisted, needed, tasks
from slurm.holes import HoleEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.broker.ground import Fitting, Ground, Rank
    from slurm.holes import Hole
    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True)
class Shared:
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
    waiting: Sequence[JobRecord],
    ground: Ground,
    now_s: float,
    *,
    rank: Rank,
    until: frozenset[int] | None = None,
) -> Shared:
    """Let each job have what it could start on, the first by *rank*.

    Args:
        waiting: Jobs in order of priority.
        ground: Where they might start.
        now_s: When the snapshot was taken, Unix time.
        rank: Which nodes are to be given first.
        until: Who is asked about; who comes after the last of them delays none, and
            gets nothing. None for all.
    """
    fitting: dict[tuple[object, ...], Fitting] = {}
    taken: dict[str, int] = {}
    started = set()
    preferred: dict[tuple[object, ...], tuple[str, ...]] = {}
    bookings = _bookings(waiting, ground, now_s)
    planned = {
        hole.node: hole for hole in ground.holes if hole.ends_by is HoleEnd.PLANNED_JOB
    }
    for job in waiting[: _end_of(until, waiting)]:
        if len(taken) == len(ground.holes):
            break
        kind = kind_of(job)
        if kind not in fitting:
            fitting[kind] = fitting_of(job, ground)
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
    return Shared(taken, frozenset(started), bookings.booked_s, moving=bookings.moving)


def _end_of(until: frozenset[int] | None, waiting: Sequence[JobRecord]) -> int:
    if until is None:
        return len(waiting)
    asked = (place for place, job in enumerate(waiting) if job.job_id in until)
    return 1 + max(asked, default=-1)


def _bookings(waiting: Sequence[JobRecord], ground: Ground, now_s: float) -> Bookings:
    """Return who has what when, but for leases and for *waiting*."""
    soon_s = math.nextafter(now_s, math.inf)  # who is past its limit is still there
    busy_s = {name: max(end_s, soon_s) for name, end_s in ground.busy_until_s.items()}
    free_s = {**busy_s, **{hole.node: now_s for hole in ground.holes}}
    asked = {str(job.job_id) for job in waiting}
    closed_s = {
        hole.node: hole.end_s
        for hole in ground.holes
        if hole.end_s is not None and is_bound(hole) and hole.blocker not in asked
    }
    return Bookings(
        now_s,
        {name: free_s[name] for name in ground.nodes if name in free_s},
        ground.spans,
        closed_s=closed_s,
        backfill=ground.backfill,
    )


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
    room = len(preferred) + others
    now = replace(_wish(job), limit_s=job.limit_s or 0.0)  # in doubt it is soon over
    most = tasks(job, most=room)
    return bookings.start(now, preferred, beside=others, tasks=most)


def _wish(job: JobRecord) -> Wish:
    return Wish(
        nodes=needed(job),
        insists=insisted(job),
        limit_s=math.inf if job.limit_s is None else job.limit_s,
        planned_s=job.start_s if job.is_planned else None,
    )
