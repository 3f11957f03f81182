"""Whom the broker makes room for where Slurm cannot preempt leases.

A pending job of anybody that could start now, were our leases away, gets its nodes:
idle ones first, then leased ones, or those that Slurm would take where that lets more
start. When in doubt it could start: a node given up in vain costs training, one kept
in vain costs somebody's waiting. One that must wait for others gets the leases because
of which backfill plans it later than it had to. What backfill planned does not say who
could start: it plans around our leases. It will plan around those that stay, too, so
that these are tried out: who does not start beside them gets more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.broker.caution import NO_CARE, Scene
from freetrain.broker.ground import idle_first, slurms_order
from freetrain.broker.sharing import share
from freetrain.broker.waiting import could_start, is_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from freetrain.broker.caution import Care
    from freetrain.broker.ground import Ground
    from freetrain.broker.sharing import Shared
    from freetrain.broker.suiting import Wish
    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that pending jobs could start on now, and those that they wait for.

    Attributes:
        leased: Leased nodes that must be given up, each with the job's number.
        idle: Idle nodes that must be left alone, each with the job's number.
        booked_s: When nodes are booked for jobs that must wait for others, were our
            leases away, by node, Unix time. A lease that begins now should be gone by
            then: what backfill planned last may be older than what it will plan next.
        care: Which of these nodes nobody could start on yet, but would need if a job
            that runs ended; nothing where the site does not ask for that.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]
    booked_s: Mapping[str, float] = field(default_factory=dict)
    care: Care = NO_CARE

    @property
    def awaited(self) -> frozenset[str]:
        """Leased nodes that somebody could start on now."""
        return frozenset(self.leased.keys() - self.care.kept.keys())

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that are not ours to plan with."""
        return frozenset((*self.leased, *self.idle))


NO_CLAIMS = Claims({}, {})


def find_claims(
    jobs: Iterable[JobRecord],
    ground: Ground,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
    careful: Callable[[Scene], Care] | None = None,
) -> Claims:
    """Return which nodes the pending jobs of others could start on.

    Jobs come in order of priority. One that finds too few nodes claims none, but for
    those of leases that put its planned start off; who comes after it must leave it
    the nodes that it could have first. One that finds nodes on which backfill has
    planned another claims also those of leases that move plans of jobs before it.
    Idle nodes are claimed before leased ones, unless that keeps anybody from starting
    whom Slurm, which takes the first in its order, would start. Leases that stay may
    keep somebody from starting, too: then others go, or more.
    Leases of other users' FreeTrain claim none: they would take ours, we theirs, and
    so on.

    Args:
        jobs: All jobs of a snapshot.
        ground: Where they might start.
        is_ours: Tells our own leases.
        now_s: When the snapshot was taken, Unix time.
        careful: Says what to leave alone, too, lest somebody needs it when a job that
            runs ends; None to be as careless as that.
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
    wishes = [ground.suiting.wish(job) for job in waiting]
    shared = share(wishes, ground, now_s, rank=idle_first(ground))
    if shared.started:
        shared = _with_all_started(wishes, ground, now_s, shared)
    care = NO_CARE
    if careful is not None:
        given, booked_s = shared.taken, shared.booked_s
        care = careful(Scene(wishes, ground, given, booked_s, now_s))
    taken, leased = {**shared.taken, **care.kept}, ground.leased
    return Claims(
        leased={name: by for name, by in taken.items() if name in leased},
        idle={name: by for name, by in taken.items() if name not in leased},
        booked_s=shared.booked_s,
        care=care,
    )


def _with_all_started(
    waiting: Sequence[Wish], ground: Ground, now_s: float, idle_first: Shared
) -> Shared:
    """Return who gets what, so that all start whom Slurm would start without leases.

    Args:
        waiting: What jobs need, in order of priority.
        ground: Where they might start.
        now_s: When the snapshot was taken, Unix time.
        idle_first: Who gets what where idle nodes are given first.
    """
    rank = slurms_order(ground)
    as_slurm = share(waiting, ground, now_s, rank=rank)
    for way in (idle_first, as_slurm, _unmoved(idle_first, waiting)):
        beside = ground.beside(way.taken, way.booked_s)
        if as_slurm.started <= share(waiting, beside, now_s, rank=rank).started:
            return way
    # Nothing that stays is in anybody's way: all come out as without leases.
    return _unmoved(as_slurm, waiting)


def _unmoved(shared: Shared, waiting: Sequence[Wish]) -> Shared:
    """Return *shared* where leases go, too, that outlast the start of who is booked."""
    first = next(one.job_id for one in waiting if one.job_id in shared.started)
    moving = dict.fromkeys(shared.moving, first)
    return replace(shared, taken={**moving, **shared.taken})
