"""From what Slurm tells to what the broker believes of its leases.

Two sources: the whole queue as the snapshot has it, and a look for our jobs by
name, ended ones included, taken after it. What one of them shows is believed, the
later one first. What neither shows is *unknown*: a lease is believed gone only
after both have missed it over several ticks. A source that failed says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import (
    IntentOutcome,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
    submitted_leases,
    uuid_in,
)
from slurm.hostlist import expand
from slurm.records import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.broker.lease import Intent, Limits
    from slurm.records import JobRecord
    from slurm.snapshot import Snapshot


# ----------------------------------------------------------------------
# What each of Slurm's answers shows of our jobs, and what that says of a lease.

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


# ----------------------------------------------------------------------
# From what Slurm tells to what the broker believes of its leases.

_SOURCES = 2


@dataclass(frozen=True, slots=True, order=True)
class DuplicateJob:
    """A second job for a lease there is already; it must go.

    Attributes:
        uuid: The intent's.
        display_id: What scancel calls it.
    """

    uuid: str
    display_id: str


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed after a look.

    Attributes:
        leases: All leases given, and those adopted.
        intents: All intents given, each with what became of it.
        extras: Jobs that stand for no lease.
        adopted: Leases of submissions whose answer never came.
    """

    leases: tuple[Lease, ...]
    intents: tuple[Intent, ...]
    extras: tuple[DuplicateJob, ...] = ()
    adopted: tuple[LeaseKey, ...] = ()


def believe(
    leases: Iterable[Lease],
    intents: Iterable[Intent],
    sources: Sources,
    *,
    now_s: float,
    limits: Limits,
) -> Belief:
    """Return what is so, from what was believed and what Slurm tells now.

    Args:
        leases: What was believed, gone ones included: one may turn out alive.
        intents: Every intent that may still have jobs.
        sources: What Slurm tells.
        now_s: Unix time.
        limits: How long to wait for what does not show.
    """
    known = {intent.uuid: intent for intent in intents}
    looks = [
        sighted(source, known, sources.uid)
        for source in (sources.lookup, sources.queue)
        if source is not None
    ]
    settled = {
        one.uuid: _settle(one, looks, now_s=now_s, limits=limits)
        for one in known.values()
    }
    before = {lease.key: lease for lease in leases}
    adopted = _adopted(known, settled, before)
    before |= {lease.key: lease for lease in adopted}
    believed = tuple(
        _updated(lease, looks, settled, now_s=now_s, limits=limits)
        for lease in before.values()
    )
    return Belief(
        leases=believed,
        intents=tuple(settled.values()),
        extras=_extras(looks, settled),
        adopted=tuple(lease.key for lease in adopted),
    )


def _settle(
    intent: Intent,
    looks: list[Sighting],
    *,
    now_s: float,
    limits: Limits,
) -> Intent:
    """Return *intent* with what the looks say about a submission without answer."""
    if intent.job_id is not None:
        return intent
    numbers = _numbers(intent, looks)
    if numbers:
        return replace(
            intent, outcome=IntentOutcome.SUBMITTED, job_id=min(numbers), missed=0
        )
    if intent.outcome is not IntentOutcome.OPEN or len(looks) < _SOURCES:
        return intent
    if any(intent.uuid in look.waiting for look in looks):
        return replace(intent, missed=0)
    missed = intent.missed + 1
    has_settled = now_s >= intent.created_s + limits.settle_s
    is_over = missed >= limits.gone_ticks and has_settled
    outcome = IntentOutcome.ABANDONED if is_over else IntentOutcome.OPEN
    return replace(intent, missed=missed, outcome=outcome)


def _numbers(intent: Intent, looks: list[Sighting]) -> set[int]:
    """Return the numbers of the jobs or arrays that bear the name of *intent*."""
    return {
        number_of(job)
        for look in looks
        for key, jobs in look.jobs.items()
        if key.uuid == intent.uuid
        for job in jobs
    }


def _adopted(
    known: Mapping[str, Intent],
    settled: Mapping[str, Intent],
    before: Mapping[LeaseKey, Lease],
) -> list[Lease]:
    """Return the leases of intents of which we learn only now that Slurm has them.

    An intent that is submitted already, but whose leases were not written down,
    counts as well.
    """
    return [
        lease
        for uuid in known
        if (intent := settled[uuid]).job_id is not None
        for lease in submitted_leases(intent, intent.job_id)
        if lease.key not in before
    ]


def _updated(
    lease: Lease,
    looks: list[Sighting],
    settled: Mapping[str, Intent],
    *,
    now_s: float,
    limits: Limits,
) -> Lease:
    for look in looks:
        job = _job_of(lease, look, settled)
        if job is not None:
            return as_told(lease, job)
        if lease.key.uuid in look.waiting and lease.state is LeaseState.PENDING:
            return replace(lease, missed=0, missed_s=None)
    if len(looks) < _SOURCES or not lease.is_live:
        return lease
    missed_s = now_s if lease.missed_s is None else lease.missed_s
    missing = replace(lease, missed=lease.missed + 1, missed_s=missed_s)
    if missing.missed < limits.gone_ticks or now_s - missed_s < limits.gone_s:
        return missing
    return replace(missing, state=LeaseState.GONE, ended=LeaseEnd.VANISHED)


def _job_of(
    lease: Lease, look: Sighting, settled: Mapping[str, Intent]
) -> JobRecord | None:
    """Return the job that stands for *lease*, not one that merely has its name."""
    intent = settled.get(lease.key.uuid)
    for job in look.jobs.get(lease.key, ()):
        if intent is not None and number_of(job) == intent.job_id:
            return job
    return None


def _extras(
    looks: list[Sighting], settled: Mapping[str, Intent]
) -> tuple[DuplicateJob, ...]:
    """Return live jobs that bear an intent's name but are not the job it became."""
    return tuple(
        sorted(
            {
                DuplicateJob(key.uuid, job.display_id)
                for look in looks
                for key, jobs in look.jobs.items()
                for job in jobs
                if not job.has_ended and number_of(job) != settled[key.uuid].job_id
            }
        )
    )


# ----------------------------------------------------------------------
# Whether a look tells enough of Slurm's plan to take new holes.


def is_plan_known(
    snapshot: Snapshot, *, whole_s: float | None, max_age_s: float
) -> bool:
    """Tell whether the holes of *snapshot* can be trusted.

    A torn look may lack all plans, and then every idle node seems free. It is good
    enough if plans were carried into it, or if one not torn is recent: then there
    was nothing to carry.

    Args:
        snapshot: The look, with plans carried.
        whole_s: When the last look that was not torn was taken, Unix time; None
            for never.
        max_age_s: How long plans are carried.
    """
    if not snapshot.is_torn:
        return True
    if snapshot.carried.starts or snapshot.carried.hidden:
        return True
    return whole_s is not None and snapshot.time_s - whole_s <= max_age_s
