"""The broker's caps and time-outs, its back-off, and its reasons as users read them.

The reasons are kept apart from the modules that give them: commands that only show them
start without the planner.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from freetrain.broker.lease import Lease, LeaseEnd


class Mode(StrEnum):
    """How leases give way to others: by Slurm's preemption, or yielded by each tick."""

    PREEMPT = "preempt"
    YIELD = "yield"


CLAIM_PATIENCE_S = 20.0
"""A lease that others wait for is cancelled so long after its notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps and time-outs; the defaults suit a user without special rights.

    Attributes:
        mode: How leases give way to others.
        most_leases: Leases that may wait or run at a time, submissions under way
            included.
        most_allowed: The same by Slurm's limits on users, accounts and QOS, as far as
            they are known; None for no such limit.
        most_new_leases: Leases that one tick may submit.
        most_array_tasks: Leases in one job array; 1 where arrays are refused.
        most_calls: Commands of one tick that change something in Slurm.
        most_churn: Leases submitted and given up by choice in ``churn_window_s``.
            Leases that others need are given up whatever this says.
        churn_window_s: Time over which churn is counted.
        least_limit_min: Shortest time limit worth a lease, whole minutes.
        most_limit_min: Longest time limit asked for, whole minutes.
        start_slack_s: Time that Slurm gets to start a lease in its hole.
        open_patience_s: How long a lease for a hole without end may wait.
        unknown_life_s: Assumed length of a hole whose end is hidden; 0 leaves it.
        gone_ticks: Consecutive ticks in which both queries must miss a job before it
            counts as gone.
        gone_s: Least time over which they must miss it; ticks may be close together.
        forgotten_s: Where no tick has looked for so long, a job that both queries miss
            has ended, and Slurm has forgotten it; twice its usual MinJobAge.
        settle_s: How long a submission may stay invisible.
        notice_patience_s: How long a lease may take to leave after a notice.
        claim_patience_s: The same where another job waits for its node.
        unheard_s: How long a lease that trains nothing may be without heartbeat.
        cancel_retry_s: After how long a cancel without effect is repeated.
        grow_after_s: How old a generation must be before it may grow.
        grow_every_s: The same for growth by only some of the planned leases.
        failed_start_s: A lease that fails sooner than this failed to start.
        most_failed_starts: Consecutive failed starts before submissions pause.
        pause_s: Length of the first pause; each further failure doubles it.
        most_pause_s: Length of the longest pause.
    """

    mode: Mode = Mode.PREEMPT
    most_leases: int = 64
    most_allowed: int | None = None
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
    forgotten_s: float = 600.0
    settle_s: float = 120.0
    notice_patience_s: float = 60.0
    claim_patience_s: float = CLAIM_PATIENCE_S
    unheard_s: float = 180.0
    cancel_retry_s: float = 60.0
    grow_after_s: float = 10.0
    grow_every_s: float = 60.0
    failed_start_s: float = 30.0
    most_failed_starts: int = 3
    pause_s: float = 300.0
    most_pause_s: float = 3_600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Recent events that the caps count.

    Attributes:
        churned: Leases submitted and given up by choice in the last window.
        failed_starts: Failed starts since the last start that worked.
        last_failed_s: When the last of them was, Unix time.
    """

    churned: int = 0
    failed_starts: int = 0
    last_failed_s: float = 0.0


NOTHING_LATELY = Pace()


def paused_until_s(pace: Pace, limits: Limits) -> float | None:
    """Return the Unix time until which nothing is submitted; None for no pause.

    Exponential back-off after failed starts; preemption never counts as one.
    """
    surplus = pace.failed_starts - limits.most_failed_starts
    if surplus < 0:
        return None
    doubled_s = limits.pause_s * 2.0 ** min(surplus, 30)
    return pace.last_failed_s + min(doubled_s, limits.most_pause_s)


def failed_to_start(lease: Lease, limits: Limits) -> bool:
    """Tell whether *lease* ended in failure within ``failed_start_s``."""
    if lease.ended is not LeaseEnd.FAILED:
        return False
    if lease.start_s is None or lease.end_s is None:
        return True
    return lease.end_s - lease.start_s < limits.failed_start_s


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
