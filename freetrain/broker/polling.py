"""When to look at the queue again between two ticks.

Where leases yield, a job that arrives between two ticks should not wait for the next.
So a tick polls again shortly before each cycle of backfill, and ticks once more if the
queue's digest changed while a job was waiting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.eligible import could_start, is_lease

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm.records import ClusterConfig, JobRecord, Sdiag

LEAD_S = 5.0
"""How long before a cycle to poll. A tick, the commit and the end of a lease take 1 to
2 s together, by Slurm's logs; every second more lets more happen unseen, which the last
poll then sees."""

LEAST_LEAD_S = 2.0
"""No poll is closer to a cycle than this, however quick the last one was."""

LEAVING_S = 1.0
"""A commit takes 0.1 s at most, and a lease is gone 0.4 to 0.8 s after its signal."""

SECOND_S = 1.0
"""sdiag reports whole seconds: a cycle may begin by so much sooner than it says."""

APART_S = 5.0
"""Least time between polls before cycles, however often backfill runs, and between
last polls."""


@dataclass(frozen=True, slots=True)
class QueueDigest:
    """Other users' jobs from one squeue call; leases of any FreeTrain are left out.

    Attributes:
        waiting: Display ids of jobs that only a lack of nodes keeps from starting.
        holding: Display ids of jobs that hold nodes.
    """

    waiting: frozenset[str]
    holding: frozenset[str]

    def needs_tick_after(self, before: QueueDigest) -> bool:
        """Tell whether a job may need room that did not need it *before*.

        So it is where a job waits and any job came, started, ended or was withdrawn.
        """
        return bool(self.waiting) and self != before


EMPTY_DIGEST = QueueDigest(frozenset(), frozenset())


def digest_of(jobs: Iterable[JobRecord], *, now_s: float) -> QueueDigest:
    """Return the digest of all jobs that wait or hold nodes at *now_s*, Unix time."""
    others = [job for job in jobs if not is_lease(job)]
    return QueueDigest(
        waiting=frozenset(job.display_id for job in others if could_start(job, now_s)),
        holding=frozenset(job.display_id for job in others if job.holds_nodes),
    )


@dataclass(frozen=True, slots=True)
class Cycles:
    """When backfill is due, by slurmctld's clock.

    Attributes:
        seen_s: Time of the answer, Unix time.
        due_s: Earliest start of the next cycle, Unix time; long past where nothing has
            changed since the last.
        interval_s: Seconds between two cycles, above 0.
    """

    seen_s: float
    due_s: float
    interval_s: float

    def next_poll_s(self, *, rest_s: float, lead_s: float = LEAD_S) -> float:
        """Return when to poll again, in seconds after ``seen_s``.

        Args:
            rest_s: Not sooner than this.
            lead_s: How long before a cycle.
        """
        due_s = self.due_s - self.seen_s
        if due_s <= 0.0:  # the next job that arrives, unseen, starts a cycle
            due_s = self.interval_s
        first_s = due_s - lead_s
        missed = math.ceil((rest_s - first_s) / self.interval_s)
        return first_s + missed * self.interval_s


def cycles_of(sdiag: Sdiag, config: ClusterConfig) -> Cycles | None:
    """Return when backfill is due; None without backfill or before its first cycle."""
    if config.scheduler_type != "sched/backfill" or sdiag.bf_last_cycle_s is None:
        return None
    interval_s = max(1.0, config.bf_interval_s)
    ended_s = sdiag.bf_last_cycle_s + sdiag.bf_last_took_s
    return Cycles(sdiag.taken_s, ended_s + interval_s, interval_s)


def last_lead_s(took_s: float) -> float | None:
    """Return how long before a cycle a last poll is still in time, seconds.

    Args:
        took_s: How long a poll and a tick take here.

    Returns:
        None where that is no later than the usual poll.
    """
    lead_s = max(LEAST_LEAD_S, took_s + LEAVING_S + SECOND_S)
    return lead_s if lead_s < LEAD_S else None
