"""Leases: the intents they come from, the assignments they serve, and their jobs.

The broker commits an intent before it calls sbatch and puts the intent's uuid into the
job's name. Whatever happens to the call, its answer or the broker, the next tick finds
the jobs again. A job whose uuid was not written down beforehand is never touched, but
where the state was lost since (``belief.is_adoptable``), or another job needs its node.

What the brokers of other users must know of a lease stands in its job's comment
(``LeaseComment``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.records import JobRecord

_PREFIX = "freetrain-"

_UUID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)


class LeaseState(StrEnum):
    """State of a lease, as Slurm last reported it."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    GONE = "gone"


class LeaseEnd(StrEnum):
    """How a lease ended; only ``FAILED`` counts towards a pause in submissions."""

    EXPECTED = "expected"
    UNSTARTED = "unstarted"  # its deadline passed while it was pending
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    VANISHED = "vanished"


class IntentState(StrEnum):
    """Whether Slurm took an intent's submission; ``OPEN`` while that is unknown."""

    OPEN = "open"
    SUBMITTED = "submitted"
    REFUSED = "refused"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, order=True)
class LeaseKey:
    """Identity of a lease.

    Attributes:
        uuid: The intent's.
        task: Index in the job array, 0 outside of arrays.
    """

    uuid: str
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One submission of one or more equal leases; times are Unix seconds.

    Attributes:
        uuid: New for each intent; part of the job's name.
        shape: Name of the node requirement the leases were submitted with.
        limit_min: Time limit of each lease, whole minutes.
        deadline_s: When the leases have ended, started or not.
        tasks: Number of leases.
        created_s: When the tick decided on it.
        job_id: Raw number of the job or array, None while unknown.
        missed: Consecutive ticks in which Slurm showed none of its jobs.
        detail: sbatch's message where it refused. Hostile text.
    """

    uuid: str
    shape: str
    limit_min: int
    deadline_s: float
    tasks: int
    created_s: float
    state: IntentState = IntentState.OPEN
    job_id: int | None = None
    missed: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A one-node Slurm job of ours; times are Unix seconds, None before they are known.

    Attributes:
        key: Its identity.
        job_id: Raw number for ``srun --jobid``; None until Slurm reports it.
        display_id: Number for scancel: ``18_0`` for an array task.
        shape: Name of the node requirement it was submitted with.
        limit_min: Time limit, whole minutes.
        deadline_s: When it has ended, started or not.
        state: Its state.
        node: Its node once it runs, else empty.
        start_s: When it started.
        end_s: When its time limit ends it.
        ended: How it ended.
        missed: Consecutive ticks in which Slurm did not mention it.
        missed_s: When the first of them was.
        notice_s: When it was last sent the notice to commit and leave.
        cancel_s: When it was last cancelled.
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
        """Whether a trainer can run on it: it runs and was not asked to leave."""
        is_leaving = self.notice_s is not None or self.cancel_s is not None
        return self.state is LeaseState.RUNNING and not is_leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The leases that make up one generation of a trainer.

    Attributes:
        trainer: The trainer's name.
        generation: 1 for the first.
        leases: Its leases; empty where the trainer gave up its last one.
        created_s: Unix time.
    """

    trainer: str
    generation: int
    leases: frozenset[LeaseKey]
    created_s: float


def job_name(uuid: str) -> str:
    """Return the name under which the jobs of an intent are submitted."""
    return f"{_PREFIX}{uuid}"


def uuid_in(name: str) -> str | None:
    """Return the uuid in a job's name; None where the job is no lease."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def is_lease(job: JobRecord) -> bool:
    """Tell whether *job* is a lease of any user's FreeTrain."""
    return _UUID.fullmatch(uuid_in(job.name) or "") is not None


def display_id(intent: Intent, task: int, job_id: int) -> str:
    """Return scancel's name of one lease of an intent that became job *job_id*."""
    return f"{job_id}_{task}" if intent.tasks > 1 else str(job_id)


def submitted_leases(intent: Intent, job_id: int) -> tuple[Lease, ...]:
    """Return the leases of an intent that Slurm accepted as *job_id*, all pending."""
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


# The comment of a lease's job: what its owner says of it to the brokers of all users.
# It is words with single blanks between them, such as
# ``freetrain UUID state=1a2b3c4d pool=1 want=8 beat=1900000000 held=2700``; ``held`` is
# the recent use. All users can read it, and any user can write one, so it is believed
# of its job's own user alone.

_FIRST_WORD = "freetrain"

_MOST_CHARACTERS = 500
"""Of a comment that is read; ours take a hundred."""

_TAG = re.compile(r"[0-9a-f]{8}", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)
_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseComment:
    """What a lease's comment says.

    Attributes:
        uuid: The intent's, as in the job's name.
        state: Which state directory the lease belongs to (``state_tag``); empty where
            the comment does not say.
        is_pooled: Whether its broker gives the lease up as part of the leases of all
            users (``broker.sharing``).
        want: How many nodes its owner's trainers could use; None for no word of it.
        beat_s: When its broker last ticked, by slurmctld's clock, whole Unix seconds;
            None for no word of it.
        recent_node_s: The recent use of its owner (``broker.sharing``), whole
            node-seconds; None for no word of it.
    """

    uuid: str
    state: str = ""
    is_pooled: bool = False
    want: int | None = None
    beat_s: float | None = None
    recent_node_s: float | None = None


def render_comment(comment: LeaseComment) -> str:
    """Return the text for ``sbatch --comment``."""
    words = [_FIRST_WORD, comment.uuid]
    if comment.state:
        words.append(f"state={comment.state}")
    if comment.is_pooled:
        words.append("pool=1")
    if comment.want is not None:
        words.append(f"want={comment.want}")
    if comment.beat_s is not None:
        words.append(f"beat={comment.beat_s:.0f}")
    if comment.recent_node_s is not None:
        words.append(f"held={comment.recent_node_s:.0f}")
    return " ".join(words)


def parse_comment(text: str) -> LeaseComment | None:
    """Return what *text* says; None where it is no lease's comment.

    Words that this version does not know are passed over. Hostile text.
    """
    first, *words = text[:_MOST_CHARACTERS].split() or [""]
    if first != _FIRST_WORD or not words:
        return None
    uuid, *named = words
    values = dict(word.split("=", 1) for word in reversed(named) if "=" in word)
    state, want, beat, recent = (
        values.get(name, "") for name in ("state", "want", "beat", "held")
    )
    return LeaseComment(
        uuid=uuid,
        state=state if _TAG.fullmatch(state) else "",
        is_pooled=values.get("pool") == "1",
        want=int(want) if _COUNT.fullmatch(want) else None,
        beat_s=float(beat) if _TIME.fullmatch(beat) else None,
        recent_node_s=float(recent) if _TIME.fullmatch(recent) else None,
    )


def state_tag(folder: str) -> str:
    """Return the tag of the state directory *folder*, an absolute path without links.

    Eight hexadecimal digits: it tells a user's few directories apart, and names none.
    """
    return sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:8]
