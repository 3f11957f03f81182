"""Why leases, trainers and holes are as they are, in the words that users read.

They are kept apart from the modules that give them: commands that only show them start
without the planner.
"""

from enum import StrEnum


class EndReason(StrEnum):
    """Why a lease is ended; shown to users."""

    CLAIMED = "another user's job could start on its node"
    KEPT_FREE = "another user's job would need its node if a running job ended"
    LIMITED = "a job waits for a limit that it counts against"
    OVERDUE = "Slurm did not preempt it for a job that could start on its node"
    MAKES_ROOM = "waiting leases must not take what is given up"
    SECOND_JOB = "a lease has two jobs"
    HOLE_CLOSED = "its hole closes"
    SURPLUS = "no trainer wants it"
    SHARED = "another user's FreeTrain has fewer nodes than its fair share"
    STAYED = "it did not leave after the notice"
    OVERRAN = "its time limit is over"
    UNHEARD = "its agent is not heard"


FOR_OTHERS = {
    EndReason.CLAIMED,
    EndReason.KEPT_FREE,
    EndReason.LIMITED,
    EndReason.MAKES_ROOM,
    EndReason.OVERDUE,
}
"""The reasons for which leases end because other users' jobs need their nodes."""


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


class Refusal(StrEnum):
    """Why a hole is not planned with."""

    CLAIMED = "another user's job could start there"
    KEPT_FREE = "another user's job would need it if a running job ended"
    HIDDEN_END = "its end is hidden from us"
    TOO_SHORT = "too short for a lease"
    LEAVING = "a lease there is leaving"
    LEASE_CAP = "more nodes than the site allows to be leased"
    SUBMIT_LIMIT = "Slurm's limits allow this user no more leases"
    SHARE = "other users' FreeTrain has a fair share in the nodes"


class Brake(StrEnum):
    """Why no more leases are submitted; shown to users."""

    PLAN_UNKNOWN = "Slurm's plan could not be read whole"
    PAUSED = "leases failed to start repeatedly"
    YIELDING = "nodes are being given up to others"
    LIMIT_BLOCKS = "a job waits, or just waited, for a limit that leases count against"
    SUBMIT_LIMIT = "as many leases as Slurm's limits let this user have"
    LEASE_CAP = "as many leases as the site allows"
    SHARE = "as many nodes as is fair beside other users' FreeTrain"
    TICK_CAP = "as many new leases as one tick may ask for"
    CHURN_CAP = "as many leases as may come and go"
