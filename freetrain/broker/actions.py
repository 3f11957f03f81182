"""What the broker can do, as data; carried out by the tick, in the order given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.lease import Assignment, Intent, Lease

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey


class Why(StrEnum):
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
class Cancel:
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
    why: Why
    is_gentle: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Create an assignment file; whoever was first with its generation, wins.

    Where somebody else was first, the assignments after it must wait for the next
    tick: they may count on what this one gives up.

    Attributes:
        assignment: The new generation.
    """

    assignment: Assignment


Action: TypeAlias = Submit | Cancel | Assign


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


def told(lease: Lease, cancel: Cancel, now_s: float) -> Lease:
    """Return *lease* as it is to be remembered once *cancel* was sent."""
    if cancel.is_gentle:
        return replace(lease, notice_s=now_s)
    return replace(lease, cancel_s=now_s)
