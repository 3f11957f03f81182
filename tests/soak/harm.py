"""By how much others' jobs started later: one run of a workload against another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.e2e.record import JobSeen, Run

_SLACK_S = 1.5
"""Slurm's times are whole seconds: what touches may have overlapped."""


@dataclass(frozen=True, slots=True)
class Delay:
    """One job of the workload, in two runs.

    Attributes:
        name: The job.
        delay_s: How much later it started in the second; below 0 is earlier.
            Measured from the beginning of each run.
        met_lease: Whether nodes that it got had held a lease while it waited.
        met_request: Whether a lease waited in the queue while it did.
        kept_s: How much of its wait in the second was after nobody but leases held
            its nodes. The rest of a delay is that of those it stood in line behind.
    """

    name: str
    delay_s: float
    met_lease: bool
    met_request: bool = False
    kept_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Several delays in a few numbers; all in seconds, NaN where there are none.

    Attributes:
        count: How many.
        median_s: Half are at most this.
        high_s: Nineteen of twenty are at most this.
        most_s: The largest.
    """

    count: int
    median_s: float
    high_s: float
    most_s: float


def delays(without: Run, run: Run) -> tuple[Delay, ...]:
    """Return what each job of the workload lost in *run*, by its name.

    Raises:
        ValueError: The two did not run the same jobs, or one never started.
    """
    before, after = _starts(without), _starts(run)
    if before.keys() != after.keys():
        raise ValueError(f"different jobs: {sorted(before.keys() ^ after.keys())}")
    met = {job.name for job in run.others if met_lease(job, run.leases)}
    beside = {job.name for job in run.others if met_request(job, run.leases)}
    kept = {job.name: kept_s(job, run.others) for job in run.others}
    return tuple(
        Delay(name, after[name] - before[name], name in met, name in beside, kept[name])
        for name in sorted(before)
    )


def kept_s(job: JobSeen, others: Iterable[JobSeen]) -> float:
    """Return for how long *job* waited though none of *others* held its nodes."""
    if job.started_s is None:
        return math.nan
    gone_s = [
        one.ended_s
        for one in others
        if one is not job and one.nodes & job.nodes and _precedes(one, job.started_s)
    ]
    free_s = max((s for s in gone_s if s is not None), default=-math.inf)
    return max(0.0, job.started_s - max(free_s, job.submitted_s))


def met_lease(job: JobSeen, leases: Iterable[JobSeen]) -> bool:
    """Tell whether any of *leases* held a node of *job*'s while that waited."""
    if job.started_s is None:
        return False
    return any(
        lease.nodes & job.nodes and _overlaps(lease, job.submitted_s, job.started_s)
        for lease in leases
    )


def met_request(job: JobSeen, leases: Iterable[JobSeen]) -> bool:
    """Tell whether any of *leases* waited in the queue while *job* did."""
    if job.started_s is None:
        return False
    return any(
        lease.submitted_s <= job.started_s and _waited_until(lease) > job.submitted_s
        for lease in leases
    )


def spread(some: Sequence[float]) -> Spread:
    """Return *some* seconds in a few numbers."""
    if not some:
        return Spread(0, math.nan, math.nan, math.nan)
    ordered = sorted(some)
    return Spread(
        len(ordered), _quantile(ordered, 0.5), _quantile(ordered, 0.95), ordered[-1]
    )


def _starts(run: Run) -> dict[str, float]:
    never = [job.name for job in run.others if job.started_s is None]
    if never:
        raise ValueError(f"these jobs never started: {never}")
    return {
        job.name: job.started_s - run.origin_s
        for job in run.others
        if job.started_s is not None
    }


def _precedes(one: JobSeen, start_s: float) -> bool:
    return one.started_s is not None and one.started_s < start_s


def _waited_until(lease: JobSeen) -> float:
    """Return when *lease* began, or was withdrawn before it could."""
    if lease.started_s is not None:
        return lease.started_s
    return math.inf if lease.ended_s is None else lease.ended_s


def _overlaps(lease: JobSeen, from_s: float, until_s: float) -> bool:
    if lease.started_s is None or lease.started_s > until_s:
        return False
    return lease.ended_s is None or lease.ended_s >= from_s - _SLACK_S


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of *ordered* that *share* of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
