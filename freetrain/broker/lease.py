"""Leases and the intents they come from: what the broker remembers of both.

An intent is committed before sbatch is called, and its uuid is in the job's name.
So whatever happens to the call, the answer or the broker, the jobs are found again,
and a job whose name we did not write down beforehand is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_PREFIX = "freetrain-"


class LeaseState(StrEnum):
    """Where a lease is, as far as Slurm has told."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    GONE = "gone"


class LeaseEnd(StrEnum):
    """How a lease ended; only a failure counts against us."""

    EXPECTED = "expected"
    UNSTARTED = "unstarted"  # its deadline came first
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    VANISHED = "vanished"


class IntentOutcome(StrEnum):
    """What became of an intent to submit."""

    OPEN = "open"
    SUBMITTED = "submitted"
    REFUSED = "refused"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, order=True)
class LeaseKey:
    """What tells a lease from all others, for ever.

    Attributes:
        uuid: The intent's.
        task: Index in the job array, 0 outside of arrays.
    """

    uuid: str
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One submission that was decided on, of one or more equal leases.

    Attributes:
        uuid: Made up anew for each intent; part of the job's name.
        shape: Which requirement the leases were submitted with.
        limit_min: Their time limit, whole minutes.
        deadline_s: Unix time by which they have ended, started or not.
        tasks: How many leases.
        created_s: When it was decided, Unix time.
        outcome: What became of it.
        job_id: Raw number of the job or array, None while unknown.
        missed: Ticks in a row in which neither source showed any of its jobs.
        detail: What sbatch said where it refused. Hostile text.
    """

    uuid: str
    shape: str
    limit_min: int
    deadline_s: float
    tasks: int
    created_s: float
    outcome: IntentOutcome = IntentOutcome.OPEN
    job_id: int | None = None
    missed: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A one-node job of ours.

    Attributes:
        key: Its identity.
        job_id: Raw number, for ``srun --jobid``; None until Slurm has told it.
        display_id: ``18_0`` for an array task, else the number, for scancel.
        shape: Which requirement it was submitted with.
        limit_min: Its time limit, whole minutes.
        deadline_s: Unix time by which it has ended, started or not.
        state: Where it is.
        node: Its node once it runs, else empty.
        start_s: When it started, Unix time, None before.
        end_s: When its limit ends it, Unix time, None before it runs.
        ended: How it ended, None before.
        missed: Ticks in a row in which neither source mentioned it.
        missed_s: When the first of them was, Unix time, None for none.
        notice_s: When it was last told to commit and leave, None for never.
        cancel_s: When it was last cancelled, None for never.
    """

    key: LeaseKey
    job_id: int | None
    display_id: str
    shape: str
    limit_min: int
    deadline_s: float
    state: LeaseState = LeaseState.PENDING
    node: str = ""
    start_s: float | None = None
    end_s: float | None = None
    ended: LeaseEnd | None = None
    missed: int = 0
    missed_s: float | None = None
    notice_s: float | None = None
    cancel_s: float | None = None

    @property
    def is_live(self) -> bool:
        """Whether it may still hold a node, now or later."""
        return self.state is not LeaseState.GONE

    @property
    def is_usable(self) -> bool:
        """Whether a trainer can run on it: it runs, and nobody told it to leave."""
        is_told = self.notice_s is not None or self.cancel_s is not None
        return self.state is LeaseState.RUNNING and not is_told


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The leases that make up one generation of a trainer.

    Attributes:
        trainer: The trainer's name.
        generation: 1 for the first.
        leases: Its leases; empty for a trainer that gave up its last one.
        created_s: When it was made, Unix time.
    """

    trainer: str
    generation: int
    leases: frozenset[LeaseKey]
    created_s: float


def job_name(uuid: str) -> str:
    """Return the name under which the jobs of an intent are submitted."""
    return f"{_PREFIX}{uuid}"


def uuid_in(name: str) -> str | None:
    """Return the uuid in a job's name, None where it is not one of ours."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def display_id(intent: Intent, task: int, job_id: int) -> str:
    """Return what scancel calls one lease of an intent that got *job_id*."""
    return f"{job_id}_{task}" if intent.tasks > 1 else str(job_id)


def submitted_leases(intent: Intent, job_id: int) -> tuple[Lease, ...]:
    """Return the leases of an intent that Slurm took as *job_id*, all pending."""
    return tuple(
        Lease(
            key=LeaseKey(intent.uuid, task),
            job_id=job_id if intent.tasks == 1 else None,
            display_id=display_id(intent, task, job_id),
            shape=intent.shape,
            limit_min=intent.limit_min,
            deadline_s=intent.deadline_s,
        )
        for task in range(intent.tasks)
    )
