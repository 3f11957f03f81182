"""What the broker believes of its leases, from two of Slurm's answers.

The queue of the snapshot lists all jobs; a second query, taken after it, looks up our
jobs by name, ended ones included. What either of them shows is believed, the later one
first. A lease that neither shows is unknown, and is believed gone only after both have
missed it over several ticks, or at once where its time is over, or no tick has looked
for so long that Slurm has forgotten it. A query that failed says nothing.

A lease of ours of which nothing was written down is adopted if its comment names this
state directory: its database was lost, or is an older copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.lease import (
    Intent,
    IntentState,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
    is_lease,
    parse_comment,
    submitted_leases,
    uuid_in,
)
from slurm.records import JobState, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from freetrain.broker.limits import Limits
    from slurm.holes import Snapshot
    from slurm.records import JobRecord

_BOTH = 2
"""Only where both queries were answered does a job count as missed."""

_FAILURES = frozenset(
    {JobState.BOOT_FAIL, JobState.FAILED, JobState.LAUNCH_FAILED}
    | {JobState.OUT_OF_MEMORY}
)
_ENDS = (
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
        lookup: Our jobs by name, each array task by itself, ended ones too; taken
            after the queue.
        looked_s: When a tick asked before this one, Unix time; None where unknown.
    """

    uid: int
    queue: tuple[JobRecord, ...] | None
    lookup: tuple[JobRecord, ...] | None
    looked_s: float | None = None


@dataclass(frozen=True, slots=True)
class Belief:
    """The leases and intents that are believed to exist after a query.

    Attributes:
        leases: All leases given, and those adopted.
        intents: All intents given, each with its state.
        duplicates: Jobs that stand for no lease, as a second one with the name of an
            intent, and must go: the intent's uuid by name for scancel.
    """

    leases: tuple[Lease, ...]
    intents: tuple[Intent, ...]
    duplicates: Mapping[str, str] = field(default_factory=dict)


def believe(
    leases: Iterable[Lease],
    intents: Iterable[Intent],
    sources: Sources,
    *,
    now_s: float,
    limits: Limits,
) -> Belief:
    """Return the leases and intents as they are, by what Slurm answers now.

    Args:
        leases: As believed before, gone ones included: one may turn out alive.
        intents: Every intent that may still have jobs.
        sources: Slurm's answers.
        now_s: Unix time.
        limits: How long to wait for a job that does not show.
    """
    known = {intent.uuid: intent for intent in intents}
    answers = [
        _our_jobs(source, known, sources.uid)
        for source in (sources.lookup, sources.queue)
        if source is not None
    ]
    settled = {
        intent.uuid: _settle(intent, answers, now_s=now_s, limits=limits)
        for intent in known.values()
    }
    before = {lease.key: lease for lease in leases}
    # Intents that were submitted, but whose leases were not written down, count too.
    # Of an adopted array only those tasks are leases that Slurm still shows.
    have_leases = {key.uuid for key in before}
    shown = {key for by_lease, _ in answers for key in by_lease}
    adopted = [
        lease
        for intent in settled.values()
        if intent.job_id is not None and intent.uuid not in have_leases
        for lease in submitted_leases(intent, intent.job_id)
        if lease.key in shown or not _is_adopted(known[intent.uuid])
    ]
    patience = limits
    if sources.looked_s is not None and now_s - sources.looked_s >= limits.forgotten_s:
        patience = replace(limits, gone_ticks=1, gone_s=0.0)
    return Belief(
        leases=tuple(
            _update(lease, answers, settled, now_s=now_s, limits=patience)
            for lease in (*before.values(), *adopted)
        ),
        intents=tuple(settled.values()),
        duplicates=_duplicates(answers, settled),
    )


def is_adoptable(
    job: JobRecord, known: Container[str], *, uid: int, state: str
) -> bool:
    """Tell whether *job* is a lease of this state directory that it does not know.

    Args:
        job: Any job of the queue.
        known: Uuids of all intents that may still have jobs.
        uid: Our own user number.
        state: The tag of the state directory (``broker.lease.state_tag``).
    """
    uuid, said = uuid_in(job.name), parse_comment(job.comment)
    if job.uid != uid or not is_lease(job) or uuid in known or said is None:
        return False
    return said.uuid == uuid and said.state == state


def adopted_intents(
    jobs: Iterable[JobRecord],
    *,
    shape_of: Callable[[JobRecord], str],
    now_s: float,
    limits: Limits,
) -> tuple[Intent, ...]:
    """Return an intent for each submission that *jobs* are of.

    When its leases must have ended is not shown of those that wait; they get as long
    as a lease for a hole without end.

    Args:
        jobs: Adoptable ones, each task by itself or several that wait together.
        shape_of: Returns the name of the requirement that a job was submitted with.
        now_s: Unix time.
        limits: How long a lease may wait.
    """
    submissions: dict[str, list[JobRecord]] = {}
    for job in jobs:
        submissions.setdefault(uuid_in(job.name) or "", []).append(job)
    intents = []
    for uuid, tasks in submissions.items():
        limit_s = max(job.limit_s or 0.0 for job in tasks)
        latest_s = now_s + limit_s + limits.open_patience_s
        ends_s = (latest_s if j.is_pending else j.end_s or now_s for j in tasks)
        intents.append(
            Intent(
                uuid=uuid,
                shape=shape_of(tasks[0]),
                limit_min=math.ceil(limit_s / 60.0),
                deadline_s=max(ends_s),
                tasks=1 + max(job.array_task_id or 0 for job in tasks),
                created_s=min(job.submit_s or now_s for job in tasks),
                state=IntentState.SUBMITTED,  # and without number: it was not asked
            )
        )
    return tuple(intents)


def _is_adopted(intent: Intent) -> bool:
    return intent.state is IntentState.SUBMITTED and intent.job_id is None


_OurJobs: TypeAlias = "tuple[Mapping[LeaseKey, Sequence[JobRecord]], frozenset[str]]"
"""Our jobs in one answer, by the lease whose name they bear; and the intents of which
squeue shows the waiting tasks as one line."""


def _our_jobs(
    source: Iterable[JobRecord], known: Mapping[str, Intent], uid: int
) -> _OurJobs:
    by_lease: dict[LeaseKey, list[JobRecord]] = {}
    waiting = set()
    for job in source:
        uuid = uuid_in(job.name)
        if job.uid != uid or uuid is None or uuid not in known:
            continue
        if job.array_job_id is not None and job.array_task_id is None:
            waiting.add(uuid)
        else:
            key = LeaseKey(uuid, job.array_task_id or 0)
            by_lease.setdefault(key, []).append(job)
    for jobs in by_lease.values():
        # Where the tasks that waited were cancelled, Slurm shows the rest of their
        # array as a cancelled job without a task, beside the tasks that run.
        jobs.sort(key=lambda job: job.array_task_id is None)
    return by_lease, frozenset(waiting)


def _settle(
    intent: Intent, answers: Sequence[_OurJobs], *, now_s: float, limits: Limits
) -> Intent:
    """Return *intent* with the state of a submission whose answer never came."""
    if intent.job_id is not None:
        return intent
    numbers = {
        _number(job)
        for by_lease, _ in answers
        for key, jobs in by_lease.items()
        if key.uuid == intent.uuid
        for job in jobs
    }
    if numbers:
        return replace(
            intent, state=IntentState.SUBMITTED, job_id=min(numbers), missed=0
        )
    if intent.state is not IntentState.OPEN or len(answers) < _BOTH:
        return intent
    if any(intent.uuid in waiting for _, waiting in answers):
        return replace(intent, missed=0)
    missed = intent.missed + 1
    has_settled = now_s >= intent.created_s + limits.settle_s
    is_over = missed >= limits.gone_ticks and has_settled
    state = IntentState.ABANDONED if is_over else IntentState.OPEN
    return replace(intent, missed=missed, state=state)


def _update(
    lease: Lease,
    answers: Sequence[_OurJobs],
    settled: Mapping[str, Intent],
    *,
    now_s: float,
    limits: Limits,
) -> Lease:
    intent = settled.get(lease.key.uuid)
    for by_lease, waiting in answers:
        for job in by_lease.get(lease.key, ()):
            # A job may merely bear the name: only the intent's own number counts.
            if intent is not None and _number(job) == intent.job_id:
                return _as_reported(lease, job)
        if lease.key.uuid in waiting and lease.state is LeaseState.PENDING:
            return replace(lease, missed=0, missed_s=None)
    if len(answers) < _BOTH or not lease.is_live:
        return lease
    missed_s = now_s if lease.missed_s is None else lease.missed_s
    missing = replace(lease, missed=lease.missed + 1, missed_s=missed_s)
    end_s = lease.deadline_s if lease.end_s is None else lease.end_s
    is_over = now_s - end_s >= limits.gone_s
    is_brief = missing.missed < limits.gone_ticks or now_s - missed_s < limits.gone_s
    if is_brief and not is_over:
        return missing
    return replace(missing, state=LeaseState.GONE, ended=LeaseEnd.VANISHED)


def _duplicates(
    answers: Sequence[_OurJobs], settled: Mapping[str, Intent]
) -> dict[str, str]:
    """Return live jobs that bear an intent's name but are not the job it became."""
    found = {
        (key.uuid, job.display_id)
        for by_lease, _ in answers
        for key, jobs in by_lease.items()
        for job in jobs
        if not job.has_ended and _number(job) != settled[key.uuid].job_id
    }
    return {display_id: uuid for uuid, display_id in sorted(found)}


def _number(job: JobRecord) -> int:
    """Return the number of the job, or of the whole array."""
    return job.job_id if job.array_job_id is None else job.array_job_id


def _as_reported(lease: Lease, job: JobRecord) -> Lease:
    """Return *lease* in the state of its *job*."""
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
    return LeaseState.ENDING  # it holds its node, but no trainer can use it


def _end(job: JobRecord) -> LeaseEnd:
    for state, end in _ENDS:
        if state in job.states:
            return end
    return LeaseEnd.FAILED if job.states & _FAILURES else LeaseEnd.EXPECTED


def is_plan_known(
    snapshot: Snapshot, *, whole_s: float | None, max_age_s: float
) -> bool:
    """Tell whether the holes of *snapshot* can be trusted.

    A snapshot that overlapped a backfill cycle may lack all planned starts, so that
    every idle node looks free. It can be trusted if plans were carried into it, or if
    a recent snapshot that was whole had no plans to carry.

    Args:
        snapshot: With plans carried.
        whole_s: Time of the last snapshot that was not torn, Unix time; None for none.
        max_age_s: How long plans are carried.
    """
    if not snapshot.is_torn:
        return True
    if snapshot.carried.starts or snapshot.carried.hidden:
        return True
    return whole_s is not None and snapshot.time_s - whole_s <= max_age_s
