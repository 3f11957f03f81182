"""What each of Slurm's answers shows of our jobs, and what that says of a lease."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseEnd, LeaseKey, LeaseState, uuid_in
from slurm.hostlist import expand
from slurm.states import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.lease import Intent, Lease
    from slurm.records import JobRecord

_FAILURES = frozenset(
    {JobState.BOOT_FAIL, JobState.FAILED, JobState.LAUNCH_FAILED}
    | {JobState.OUT_OF_MEMORY}
)

_TOLD_ENDS = (
    (JobState.PREEMPTED, LeaseEnd.PREEMPTED),
    (JobState.CANCELLED, LeaseEnd.CANCELLED),
    (JobState.DEADLINE, LeaseEnd.UNSTARTED),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """The two answers of this tick; None for one that failed.

    Attributes:
        uid: Our own user number; other users' jobs are never ours.
        queue: All jobs of the snapshot; waiting tasks may stand together.
        lookup: Our jobs by name, each array task by itself, ended ones too;
            taken after the queue.
    """

    uid: int
    queue: tuple[JobRecord, ...] | None
    lookup: tuple[JobRecord, ...] | None


@dataclass(frozen=True, slots=True)
class Sighting:
    """Our jobs in one source, and the intents of which some tasks wait together."""

    jobs: Mapping[LeaseKey, tuple[JobRecord, ...]]
    waiting: frozenset[str]


def sighted(
    source: tuple[JobRecord, ...], known: Mapping[str, Intent], uid: int
) -> Sighting:
    """Return what *source* shows of jobs that bear the names of *known* intents."""
    jobs: dict[LeaseKey, tuple[JobRecord, ...]] = {}
    waiting = set()
    for job in source:
        uuid = uuid_in(job.name)
        if job.uid != uid or uuid is None or uuid not in known:
            continue
        if job.array_job_id is not None and job.array_task_id is None:
            waiting.add(uuid)
        else:
            key = LeaseKey(uuid, job.array_task_id or 0)
            jobs[key] = (*jobs.get(key, ()), job)
    return Sighting(jobs, frozenset(waiting))


def number_of(job: JobRecord) -> int:
    """Return the number of the job, or of the whole array."""
    return job.job_id if job.array_job_id is None else job.array_job_id


def as_told(lease: Lease, job: JobRecord) -> Lease:
    """Return *lease* as its *job* says that it is."""
    state = _state(job)
    nodes = expand(job.nodes) if job.holds_nodes else ()
    return replace(
        lease,
        job_id=job.job_id,
        display_id=job.display_id,
        state=state,
        node=nodes[0] if nodes else lease.node,
        start_s=lease.start_s if job.is_pending else job.start_s,
        end_s=lease.end_s if job.is_pending else job.end_s,
        ended=_end(job) if state is LeaseState.GONE else None,
        missed=0,
        missed_s=None,
    )


def _state(job: JobRecord) -> LeaseState:
    if job.has_ended:
        return LeaseState.GONE
    if job.is_pending:
        return LeaseState.PENDING
    if JobState.RUNNING in job.states and JobState.COMPLETING not in job.states:
        return LeaseState.RUNNING
    return LeaseState.ENDING  # it holds its node, but nobody can train on it


def _end(job: JobRecord) -> LeaseEnd:
    told = (end for state, end in _TOLD_ENDS if state in job.states)
    if (end := next(told, None)) is not None:
        return end
    return LeaseEnd.FAILED if job.states & _FAILURES else LeaseEnd.EXPECTED
