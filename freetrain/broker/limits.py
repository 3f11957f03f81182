"""The broker's own caps and time-outs, and its back-off; Slurm's are ``job_limits``."""

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
