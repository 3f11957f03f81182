"""Leases and the intents they come from: what the broker remembers of both.

An intent is committed before sbatch is called, and its uuid is in the job's name.
So whatever happens to the call, the answer or the broker, the jobs are found again,
and a job whose name we did not write down beforehand is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

# ----------------------------------------------------------------------
# Leases and the intents they come from: what the broker remembers of both.

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


# ----------------------------------------------------------------------
# What the broker can do, as data; carried out by the tick, in the order given.


class EndReason(StrEnum):
    """Why a lease is ended."""

    CLAIMED = "somebody's job could start on its node"
    KEPT_FREE = "somebody's job would need its node if another ended"
    MAKES_ROOM = "waiting leases must not take what is given up"
    SECOND_JOB = "a lease has two jobs"
    HOLE_CLOSED = "its hole closes"
    SURPLUS = "no trainer wants it"
    STAYED = "it was told to leave and did not"
    OVERRAN = "its time limit is over"
    UNHEARD = "its agent is not heard"


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit leases: commit ``intent_of`` it first, then call sbatch.

    Attributes:
        shape: Requirement to ask with.
        limit_min: Time limit, whole minutes.
        deadline_s: Unix time by which they must have ended.
        tasks: How many; above 1 they are one job array.
    """

    shape: str
    limit_min: int
    deadline_s: float
    tasks: int


@dataclass(frozen=True, slots=True)
class EndLeases:
    """End leases for one reason, with one command.

    Attributes:
        display_ids: What scancel calls them; never empty.
        leases: The leases among them; none for second jobs.
        why: Why.
        is_gentle: Only tell them: commit and leave by yourself. Otherwise Slurm's
            kill wait runs.
    """

    display_ids: tuple[str, ...]
    leases: tuple[LeaseKey, ...]
    why: EndReason
    by_notice: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Create an assignment file; whoever was first with its generation, wins.

    Where somebody else was first, the assignments after it must wait for the next
    tick: they may count on what this one gives up.

    Attributes:
        assignment: The new generation.
    """

    assignment: Assignment


Action: TypeAlias = Submit | EndLeases | Assign


def intent_of(submit: Submit, uuid: str, now_s: float) -> Intent:
    """Return the intent to commit before *submit* is carried out."""
    return Intent(
        uuid=uuid,
        shape=submit.shape,
        limit_min=submit.limit_min,
        deadline_s=submit.deadline_s,
        tasks=submit.tasks,
        created_s=now_s,
    )


def marked_ending(lease: Lease, cancel: EndLeases, now_s: float) -> Lease:
    """Return *lease* as it is to be remembered once *cancel* was sent."""
    if cancel.by_notice:
        return replace(lease, notice_s=now_s)
    return replace(lease, cancel_s=now_s)


# ----------------------------------------------------------------------
# How much the broker may do, and how it behaves towards others.


class Mode(StrEnum):
    """Who makes room for others: Slurm by preemption, or each tick by yielding."""

    PREEMPT = "preempt"
    YIELD = "yield"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The broker's caps and patience; the defaults suit a plain user.

    Attributes:
        mode: Who makes room for others.
        most_leases: Leases that may wait or run at a time, those on their way
            included.
        most_new_leases: Leases that one tick may ask for.
        most_array_tasks: Leases in one job array; 1 where arrays are refused.
        most_calls: Commands that change something in Slurm, in one tick.
        most_churn: Leases asked for and given up by choice, in ``churn_window_s``.
            What others claim is given up whatever this says.
        churn_window_s: Time over which churn is counted.
        least_limit_min: Shortest time limit worth a lease, whole minutes.
        most_limit_min: Longest time limit asked for, whole minutes.
        start_slack_s: Time that Slurm gets to start a lease in its hole.
        open_patience_s: How long a lease for a hole without end may wait.
        unknown_life_s: How long a hole lasts whose end is hidden; 0 leaves it.
        gone_ticks: Ticks in a row in which two sources must miss a job.
        gone_s: For how long they must have missed it; ticks may be close together.
        settle_s: How long a submission may be under way without showing.
        notice_patience_s: How long a lease may take to leave by itself.
        claim_patience_s: The same where somebody waits for its node.
        unheard_s: How long a lease that trains nothing may be without an agent that
            is heard; it holds a node for nothing.
        cancel_retry_s: After how long a cancel that did nothing is repeated.
        grow_after_s: How long a generation is left to start before it may grow.
        grow_every_s: Shortest time between two generations for partial growth.
        failed_start_s: A lease that fails sooner than this failed to start.
        most_failed_starts: Failed starts in a row before the broker pauses.
        pause_s: The first pause; each further failure doubles it.
        most_pause_s: The longest pause.
    """

    mode: Mode = Mode.PREEMPT
    most_leases: int = 64
    most_new_leases: int = 32
    most_array_tasks: int = 32
    most_calls: int = 8
    most_churn: int = 240
    churn_window_s: float = 3_600.0
    least_limit_min: int = 2
    most_limit_min: int = 240
    start_slack_s: float = 60.0
    open_patience_s: float = 600.0
    unknown_life_s: float = 0.0
    gone_ticks: int = 2
    gone_s: float = 60.0
    settle_s: float = 120.0
    notice_patience_s: float = 60.0
    claim_patience_s: float = 20.0
    unheard_s: float = 180.0
    cancel_retry_s: float = 60.0
    grow_after_s: float = 10.0
    grow_every_s: float = 60.0
    failed_start_s: float = 30.0
    most_failed_starts: int = 3
    pause_s: float = 300.0
    most_pause_s: float = 3_600.0


# ----------------------------------------------------------------------
# What happened lately, and when repeated failures make the broker pause.


@dataclass(frozen=True, slots=True)
class Pace:
    """What happened lately, as the caps count it.

    Attributes:
        churned: Leases asked for and given up by choice in the last window.
        failed_starts: Failed starts since the last one that worked.
        last_failed_s: When the last of them was, Unix time.
    """

    churned: int = 0
    failed_starts: int = 0
    last_failed_s: float = 0.0


NOTHING_LATELY = Pace()


def paused_until_s(pace: Pace, limits: Limits) -> float | None:
    """Return until when nothing may be submitted; None where nothing failed often.

    Preemption never counts: ``Pace`` holds failures only.
    """
    surplus = pace.failed_starts - limits.most_failed_starts
    if surplus < 0:
        return None
    doubled_s = limits.pause_s * 2.0 ** min(surplus, 30)
    return pace.last_failed_s + min(doubled_s, limits.most_pause_s)


def failed_to_start(lease: Lease, limits: Limits) -> bool:
    """Tell whether *lease* is over because it failed, and failed too soon.

    One that was preempted or cancelled did not fail, however short its life.
    """
    if lease.ended is not LeaseEnd.FAILED:
        return False
    if lease.start_s is None or lease.end_s is None:
        return True
    return lease.end_s - lease.start_s < limits.failed_start_s
