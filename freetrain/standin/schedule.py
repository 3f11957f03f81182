"""What happens on the cluster as time goes by: pure decisions, orders for the edge.

Backfill here knows everything that was submitted, so it is never in the middle of
anything: its plans change, and sdiag says so, only when somebody's job comes, starts
or leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.standin.records import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.standin.records import Cluster, Job


class Deed(StrEnum):
    """What is to be done to a job's processes."""

    START = "start"
    SIGNAL_STEPS = "signal steps"
    SIGNAL_ALL = "signal all"


@dataclass(frozen=True, slots=True)
class Order:
    """Something to be done to processes.

    Attributes:
        deed: What.
        job: Whose.
        signal: Which, for signals: ``TERM``, ``KILL``, ….
    """

    deed: Deed
    job: Job
    signal: str = ""


def advance(
    cluster: Cluster, now_s: float, *, exits: Mapping[int, int]
) -> tuple[Order, ...]:
    """Bring *cluster* to *now_s* and return what is to be done about it.

    Args:
        cluster: Changed in place.
        now_s: Unix time.
        exits: Exit status of scripts that are over, all of their processes gone,
            by raw number.
    """
    before = _plans(cluster, now_s)
    orders: list[Order] = []
    for job in cluster.jobs:
        orders += _end_or_warn(cluster, job, now_s, exits)
    for job in _others_due(cluster, now_s):
        orders += _start_or_preempt(cluster, job, now_s)
    for job in _waiting_leases(cluster, now_s):
        orders += _start_or_drop(cluster, job, now_s)
    if _plans(cluster, now_s) != before or cluster.planned_s == cluster.since_s:
        cluster.planned_s, cluster.cycles = now_s, cluster.cycles + 1
    return tuple(orders)


def is_planned(job: Job, now_s: float) -> bool:
    """Tell whether backfill tells a planned start for *job*."""
    return job.is_pending and job.due_s is not None and job.submit_s <= now_s


def end(job: Job, state: JobState, now_s: float) -> tuple[Order, ...]:
    """End *job* as *state*, at once; return what its processes get."""
    has_processes = job.supervisor is not None and not job.is_completing
    job.is_completing = has_processes or job.is_completing
    job.state, job.end_s, job.reason = state, now_s, "None"
    return (Order(Deed.SIGNAL_ALL, job, "KILL"),) if has_processes else ()


def terminate(job: Job, state: JobState, now_s: float) -> tuple[Order, ...]:
    """Ask *job* to end as *state*, KILL coming later; at once where nothing runs."""
    if job.supervisor is None:
        return end(job, state, now_s)
    job.ends_as, job.term_s = state, now_s
    cont, term = (Order(Deed.SIGNAL_ALL, job, name) for name in ("CONT", "TERM"))
    return (cont, term)


def _plans(cluster: Cluster, now_s: float) -> frozenset[int]:
    return frozenset(j.job_id for j in cluster.jobs if is_planned(j, now_s))


def _end_or_warn(
    cluster: Cluster, job: Job, now_s: float, exits: Mapping[int, int]
) -> tuple[Order, ...]:
    if job.supervisor is not None and job.job_id in exits:
        _finish(job, exits[job.job_id], now_s)
    if not job.is_running:
        return ()
    started_s = job.start_s or 0.0
    if job.run_s is not None and now_s >= started_s + job.run_s:
        return end(job, JobState.COMPLETED, started_s + job.run_s)
    if job.term_s is not None:
        is_over = now_s >= job.term_s + cluster.kill_wait_s
        return end(job, job.ends_as or JobState.CANCELLED, now_s) if is_over else ()
    if now_s >= started_s + job.limit_s:
        return terminate(job, JobState.TIMEOUT, now_s)
    if job.notice_s is not None and now_s >= job.notice_s + _grace_s(cluster, job):
        return terminate(job, JobState.PREEMPTED, now_s)
    return ()


def _grace_s(cluster: Cluster, job: Job) -> float:
    part = cluster.part(job.partition)
    return 0.0 if part is None else float(part.grace_s)


def _finish(job: Job, status: int, now_s: float) -> None:
    """Take note that no process of *job* is left."""
    job.is_completing = False
    job.supervisor, job.steps = None, []
    if job.is_running:
        by_itself = JobState.FAILED if status else JobState.COMPLETED
        job.state, job.end_s, job.reason = job.ends_as or by_itself, now_s, "None"


def _others_due(cluster: Cluster, now_s: float) -> Iterator[Job]:
    due = (j for j in cluster.jobs if is_planned(j, now_s) and (j.due_s or 0) <= now_s)
    return iter(sorted(due, key=lambda job: (job.due_s or 0.0, job.job_id)))


def _start_or_preempt(cluster: Cluster, job: Job, now_s: float) -> list[Order]:
    """Start a job on the nodes it was planned on, or take them from leases."""
    holders = [cluster.holder(node) for node in job.wanted]
    if not any(holders):
        _start(cluster, job, job.wanted, now_s)
        return [Order(Deed.START, job)] if job.script and cluster.runs_jobs else []
    job.reason = "Resources"
    orders: list[Order] = []
    for holder in holders:
        if holder is not None and _may_preempt(cluster, job, holder):
            holder.notice_s, holder.ends_as = now_s, JobState.PREEMPTED
            job.has_preempted = True
            orders += _notice(holder, now_s)
    return orders


def _may_preempt(cluster: Cluster, job: Job, holder: Job) -> bool:
    mine, theirs = cluster.part(job.partition), cluster.part(holder.partition)
    if mine is None or theirs is None or not holder.is_running:
        return False
    return holder.notice_s is None and theirs.is_preemptable and mine.tier > theirs.tier


def _notice(holder: Job, now_s: float) -> tuple[Order, ...]:
    """Tell steps, which hear of it first; the batch script only at the end."""
    if holder.supervisor is None:
        return end(holder, JobState.PREEMPTED, now_s)
    return (Order(Deed.SIGNAL_STEPS, holder, "TERM"),)


def _waiting_leases(cluster: Cluster, now_s: float) -> list[Job]:
    waiting = (
        j
        for j in cluster.jobs
        if j.is_pending and j.due_s is None and j.submit_s <= now_s
    )
    return sorted(waiting, key=lambda job: (job.nice, job.submit_s))


def _start_or_drop(cluster: Cluster, job: Job, now_s: float) -> tuple[Order, ...]:
    if job.deadline_s is not None and now_s + job.limit_s > job.deadline_s:
        job.state, job.end_s = JobState.DEADLINE, now_s
        job.reason = "DeadLine"
        return ()
    part = cluster.part(job.partition)
    if part is not None and job.limit_s > part.max_time_s:
        job.reason = "PartitionTimeLimit"
        return ()
    node = next((n for n in cluster.nodes if _fits(cluster, job, n, now_s)), None)
    if node is None:
        job.reason = "Resources"
        return ()
    _start(cluster, job, [node], now_s)
    return (Order(Deed.START, job),) if cluster.runs_jobs else ()


def _fits(cluster: Cluster, job: Job, node: str, now_s: float) -> bool:
    """Tell whether *job* can be on *node* until its limit and delay nobody."""
    planned_s = (
        other.due_s or 0.0
        for other in cluster.jobs
        if is_planned(other, now_s) and node in other.wanted
    )
    is_free = cluster.holder(node) is None and node not in job.excluded
    return is_free and all(now_s + job.limit_s <= start_s for start_s in planned_s)


def _start(cluster: Cluster, job: Job, nodes: list[str], now_s: float) -> None:
    is_last = not any(
        j.is_pending and j.array_id == job.array_id and j is not job
        for j in cluster.jobs
    )
    if job.array_id and not is_last:  # the last one keeps the array's number
        job.job_id = cluster.take_id()
    job.state, job.start_s, job.reason = JobState.RUNNING, now_s, "None"
    job.nodes = list(nodes)
