"""Which nodes leases give up to waiting jobs, where Slurm cannot preempt leases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.broker.backfill import allocate, by_slurm_order, idle_first
from freetrain.broker.delay_protection import NONE_KEPT_FREE, KeptFree, PendingDemand
from freetrain.broker.eligible import could_start, is_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from freetrain.broker.backfill import Allocation, BackfillState
    from freetrain.broker.eligible import NodeRequest
    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that waiting jobs of others could start on now, or are booked for.

    Attributes:
        leased: Leased nodes to give up, each with the job's number.
        idle: Idle nodes to leave alone, each with the job's number.
        booked_s: By node: when a job that must wait has it if our leases are away,
            Unix time. A lease that begins now should be over by then: backfill's last
            plan may be older than its next.
        kept_free: Those of the nodes on which no job could start yet, but would need to
            if a running job ended; none where the site does not ask for that.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]
    booked_s: Mapping[str, float] = field(default_factory=dict)
    kept_free: KeptFree = NONE_KEPT_FREE

    @property
    def startable(self) -> frozenset[str]:
        """Leased nodes on which a job could start now."""
        return frozenset(self.leased.keys() - self.kept_free.nodes.keys())

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that are not ours to plan with."""
        return frozenset((*self.leased, *self.idle))


NO_CLAIMS = Claims({}, {})


def find_claims(
    jobs: Iterable[JobRecord],
    state: BackfillState,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
    protect: Callable[[PendingDemand], KeptFree] | None = None,
) -> Claims:
    """Return the nodes that waiting jobs of others could start on.

    Jobs are served in order of priority. A job that finds too few nodes claims only
    those of leases that put its planned start off, and jobs behind it must leave it
    the nodes that it could have first. A job that finds nodes on which backfill plans
    another also claims those of leases that shift plans of jobs before it.

    Idle nodes are claimed before leased ones, unless that keeps a job from starting
    that Slurm, which takes the first node in its order, would start. Where leases that
    stay would keep a job from starting, other leases go, or more.

    Leases of other users' FreeTrain claim nothing: they would take ours, we theirs,
    and so on.

    Args:
        jobs: All jobs of a snapshot.
        state: Where they might start.
        is_ours: Tells our own leases.
        now_s: Time of the snapshot, Unix time.
        protect: Returns the nodes to keep free of leases as well, in case a running job
            ends early; None for no such protection.
    """
    waiting = [
        job
        for job in jobs
        if not is_ours(job) and not is_lease(job) and could_start(job, now_s)
    ]
    if not waiting or not state.holes:
        return NO_CLAIMS
    waiting.sort(key=lambda job: (-(job.priority or 0), job.job_id))
    requests = [state.eligibility.request(job) for job in waiting]
    allocation = allocate(requests, state, now_s, rank=idle_first(state))
    if allocation.started:
        allocation = _with_all_started(requests, state, now_s, allocation)
    kept_free = NONE_KEPT_FREE
    if protect is not None:
        given, booked_s = allocation.taken, allocation.booked_s
        kept_free = protect(PendingDemand(requests, state, given, booked_s, now_s))
    taken = {**allocation.taken, **kept_free.nodes}
    return Claims(
        leased={name: by for name, by in taken.items() if name in state.leased},
        idle={name: by for name, by in taken.items() if name not in state.leased},
        booked_s=allocation.booked_s,
        kept_free=kept_free,
    )


def _with_all_started(
    requests: Sequence[NodeRequest],
    state: BackfillState,
    now_s: float,
    idle_first: Allocation,
) -> Allocation:
    """Return an allocation beside which all jobs start that Slurm would start alone.

    Args:
        requests: What jobs need, in order of priority.
        state: Where they might start.
        now_s: Time of the snapshot, Unix time.
        idle_first: The allocation that gives idle nodes first.
    """
    rank = by_slurm_order(state)
    as_slurm = allocate(requests, state, now_s, rank=rank)
    for way in (idle_first, as_slurm, _with_overlapped(idle_first, requests)):
        beside = state.beside(way.taken, way.booked_s)
        if as_slurm.started <= allocate(requests, beside, now_s, rank=rank).started:
            return way
    # No lease that stays is in a job's way: all comes out as without leases.
    return _with_overlapped(as_slurm, requests)


def _with_overlapped(
    allocation: Allocation, requests: Sequence[NodeRequest]
) -> Allocation:
    """Return *allocation* with leases given up, too, that overlap a booking."""
    first = next(r.job_id for r in requests if r.job_id in allocation.started)
    overlapped = dict.fromkeys(allocation.overlapped, first)
    return replace(allocation, taken={**overlapped, **allocation.taken})
