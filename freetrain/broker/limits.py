"""How much the broker may do, and how it behaves towards others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
