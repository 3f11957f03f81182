"""What a tick can do about leases: submit them, end them, assign them to trainers.

Actions are data. ``reconcile`` decides on them, ``freetrain.tick.act`` carries them out
in the order given. The reasons that users are shown are here too, since this module is
light and commands that only show them need no planner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.lease import Intent

if TYPE_CHECKING:
    from freetrain.broker.lease import Assignment, Lease, LeaseKey


class EndReason(StrEnum):
    """Why a lease is ended; shown to users."""

    CLAIMED = "somebody's job could start on its node"
    KEPT_FREE = "somebody's job would need its node if another ended"
    MAKES_ROOM = "waiting leases must not take what is given up"
    SECOND_JOB = "a lease has two jobs"
    HOLE_CLOSED = "its hole closes"
    SURPLUS = "no trainer wants it"
    STAYED = "it was told to leave and did not"
    OVERRAN = "its time limit is over"
    UNHEARD = "its agent is not heard"


class TrainerReason(StrEnum):
    """Why a trainer has the nodes it has."""

    AS_PLANNED = "it has what the plan gives it"
    AWAITS_LEASES = "leases for it are on their way"
    HELD_BACK = "leases for it may not be asked for now"
    RE_FORMS = "it is being moved to what the plan gives it"
    NO_NODES = "no hole meets its requirement"
    NO_USABLE_NODES = "no hole that meets its requirement can be used"
    TOO_FEW_NODES = "fewer nodes are to be had than its smallest size"
    OTHERS_GAIN_MORE = "the nodes are worth more elsewhere, or the change too dear"


class HoleReason(StrEnum):
    """What a hole is used for."""

    TRAINING = "a trainer runs there"
    LEASED = "a lease is there, for a trainer that re-forms"
    AWAITED = "a lease for it is on its way"
    HELD_BACK = "leases may not be asked for now"
    UNUSABLE = "it cannot be planned with"
    UNWANTED = "no trainer gains by it"


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit leases: commit its intent (``intent_of``), then call sbatch.

    Attributes:
        shape: Name of the node requirement.
        limit_min: Time limit, whole minutes.
        deadline_s: Unix time by which they must have ended.
        tasks: Number of leases; several are one job array.
    """

    shape: str
    limit_min: int
    deadline_s: float
    tasks: int


@dataclass(frozen=True, slots=True)
class EndLeases:
    """End leases for one reason, with one command.

    Attributes:
        display_ids: Their names for scancel; never empty.
        leases: The leases among them; none for duplicate jobs.
        why: The reason.
        by_notice: Send the notice to commit and leave; otherwise scancel, with
            Slurm's KillWait.
    """

    display_ids: tuple[str, ...]
    leases: tuple[LeaseKey, ...]
    why: EndReason
    by_notice: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Create the file of a new generation, unless an agent was faster.

    If one was, later assignments of the same tick wait for the next: they may need
    leases that this one gives up.
    """

    assignment: Assignment


Action: TypeAlias = Submit | EndLeases | Assign


def intent_of(submit: Submit, uuid: str, now_s: float) -> Intent:
    """Return the intent to commit before the sbatch of *submit*."""
    return Intent(
        uuid=uuid,
        shape=submit.shape,
        limit_min=submit.limit_min,
        deadline_s=submit.deadline_s,
        tasks=submit.tasks,
        created_s=now_s,
    )


def marked_ending(lease: Lease, end: EndLeases, now_s: float) -> Lease:
    """Return *lease* with the time at which *end* was sent to it."""
    if end.by_notice:
        return replace(lease, notice_s=now_s)
    return replace(lease, cancel_s=now_s)
