"""Why nodes of a log stood idle, as far as its jobs tell.

A log says which jobs waited while nodes were idle, and how large they were. It does not
say what else kept a job that would have fitted: other jobs before it, limits,
reservations, features of nodes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from logs.trace import IdleTrace, JobTrace

HALF = 0.5
"""Share of idle nodes from which on an outage is more likely than a lack of jobs."""


class IdleReason(StrEnum):
    """What the jobs of a log tell of idle nodes."""

    OUTAGE = "outage"
    """Half of the machine or more was idle though a job waited that ran later."""

    QUIET = "quiet"
    """The same, and no such job waited: a holiday, or the log's edge."""

    NO_JOB = "no-job"
    """Less was idle, and no job waited that ran later."""

    TOO_LARGE = "too-large"
    """Jobs waited, and each asked for more than was idle."""

    HELD = "held"
    """A job waited that asked for no more than was idle."""


def idle_levels(
    trace: IdleTrace,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return how many nodes were idle over time, from t = 0 to the log's end.

    Returns:
        Of each stretch of time: when it begins, the nodes idle, and its seconds.
    """
    times_s, at = np.unique(
        np.concatenate(([0.0, trace.span_s], trace.start_s, trace.end_s)),
        return_inverse=True,
    )
    opened, closed = np.split(at[2:], 2)
    size = len(times_s)
    change = np.bincount(opened, weights=trace.widths, minlength=size)
    change -= np.bincount(closed, weights=trace.widths, minlength=size)
    counts = np.cumsum(change).round().astype(np.int64)[:-1]
    return times_s[:-1], counts, np.diff(times_s)


def idle_reasons(
    trace: JobTrace, idle: IdleTrace, *, lease_units: int
) -> Mapping[IdleReason, float]:
    """Return the idle node-seconds of each reason.

    Args:
        trace: The jobs, of which those with a start count.
        idle: What they left idle: nodes, or leases of some GPUs each.
        lease_units: Units of *trace* that are one such node or lease.
    """
    node_s = dict.fromkeys(IdleReason, 0.0)
    begins_s, counts, lasts_s = idle_levels(idle)
    many = HALF * len(idle.node_names)
    stretches = zip(begins_s.tolist(), counts.tolist(), lasts_s.tolist(), strict=True)
    smallest = _SmallestWaiting(trace, lease_units)
    for begin_s, nodes, length_s in stretches:
        for least, within_s in smallest.between(begin_s, begin_s + length_s):
            node_s[_reason(nodes, many, least)] += nodes * within_s
    return node_s


def _reason(idle: int, many: float, least: int | None) -> IdleReason:
    if idle >= many:
        return IdleReason.QUIET if least is None else IdleReason.OUTAGE
    if least is None:
        return IdleReason.NO_JOB
    return IdleReason.TOO_LARGE if least > idle else IdleReason.HELD


class _SmallestWaiting:
    """The size of the smallest job that waits, asked for in order of time."""

    def __init__(self, trace: JobTrace, lease_units: int) -> None:
        self._changes = _changes(trace, lease_units)
        self._next = next(self._changes, None)
        self._waiting: Counter[int] = Counter()
        self._sizes: list[int] = []

    def between(
        self, begin_s: float, end_s: float
    ) -> Iterator[tuple[int | None, float]]:
        """Yield the size, None where no job waits, and for how many seconds."""
        now_s = begin_s
        while now_s < end_s:
            while self._next is not None and self._next[0] <= now_s:
                self._apply(self._next)
                self._next = next(self._changes, None)
            until_s = end_s if self._next is None else min(end_s, self._next[0])
            yield self._least, until_s - now_s
            now_s = until_s

    @property
    def _least(self) -> int | None:
        while self._sizes and not self._waiting[self._sizes[0]]:
            heapq.heappop(self._sizes)
        return self._sizes[0] if self._sizes else None

    def _apply(self, change: tuple[float, int, int]) -> None:
        _, by, size = change
        if by > 0 and not self._waiting[size]:
            heapq.heappush(self._sizes, size)
        self._waiting[size] += by


def _changes(trace: JobTrace, lease_units: int) -> Iterator[tuple[float, int, int]]:
    """Return when a job begins (1) or ceases (-1) to wait, with its size, in order."""
    found: Iterable[tuple[float, int, int]] = (
        change
        for job in trace.jobs
        if job.start_s is not None and job.units and job.start_s > job.submit_s
        for change in (
            (job.submit_s, 1, -(-job.units // lease_units)),
            (job.start_s, -1, -(-job.units // lease_units)),
        )
    )
    return iter(sorted(found))


def queue_lengths(trace: JobTrace) -> tuple[float, int]:
    """Return how many jobs waited or ran at a time: the mean, and the most.

    Over the time from the first submission to the last end of jobs with a start.
    """
    stays = [
        (job.submit_s, job.start_s + job.run_s)
        for job in trace.jobs
        if job.start_s is not None
    ]
    if not stays:
        return 0.0, 0
    come_s, go_s = (np.sort(np.array(times_s)) for times_s in zip(*stays, strict=True))
    span_s = float(go_s[-1] - come_s[0])
    there = np.arange(1, len(stays) + 1) - np.searchsorted(go_s, come_s, side="right")
    mean = float((go_s.sum() - come_s.sum()) / span_s) if span_s else 0.0
    return mean, int(there.max())
