"""Leases that Slurm should have preempted for a job, and has not.

Where Slurm preempts leases, ticks leave that to it. A job that could start on leases
and still waits after the grace time and two cycles of backfill gets them from the
broker (``overdue_leases``). That happens once for each job: where it does not start
then, it waits for something that is not seen from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, slots=True)
class AwaitedPreemption:
    """Since when a job could start on leases; times are Unix seconds.

    Attributes:
        since_s: When that was first seen.
        given_s: When leases were given up for it; None while they were not.
    """

    since_s: float
    given_s: float | None = None


def overdue_leases(
    claimed: Mapping[str, int],
    awaited: Mapping[int, AwaitedPreemption],
    waiting: Collection[int],
    *,
    patience_s: float,
    now_s: float,
) -> tuple[dict[str, int], dict[int, AwaitedPreemption]]:
    """Return the nodes of leases to give up, each with the job, and what to remember.

    Args:
        claimed: Leased nodes that Slurm should preempt, each with the job.
        awaited: What the last tick remembered.
        waiting: All jobs that wait.
        patience_s: How long Slurm may take.
        now_s: Time of the snapshot, Unix time.
    """
    jobs = set(claimed.values())
    kept = {
        job: seen
        for job, seen in awaited.items()
        if (job in jobs or (seen.given_s is not None and job in waiting))
        and seen.since_s <= now_s
    }
    for job in sorted(jobs):
        seen = kept.setdefault(job, AwaitedPreemption(now_s))
        if seen.given_s is None and now_s - seen.since_s >= patience_s:
            kept[job] = replace(seen, given_s=now_s)
    due = {
        job
        for job, seen in kept.items()
        if seen.given_s is not None and now_s - seen.given_s < patience_s
    }
    return {node: job for node, job in claimed.items() if job in due}, kept
