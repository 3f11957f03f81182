"""The log's own schedule: start times and run times as they were."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from logs.errors import UnusableLogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logs.schedule.layout import Layout
    from logs.schedule.machine import Machine, PlannedJob, Running
    from logs.schedule.unitset import UnitSet
    from logs.trace import Job, JobTrace


@dataclass(frozen=True, slots=True)
class OverCommitment:
    """Where a log's jobs hold more than the machine has.

    A job gets what is free of what it needs; the rest is counted here. Jobs of
    zero run time are left out.

    Attributes:
        jobs: Jobs that got fewer units than they held in the log.
        unit_s: Units missing × seconds, summed over those jobs.
        worst_s: The first time at which most units were missing, or None.
        worst_units: Units missing then.
    """

    jobs: int
    unit_s: float
    worst_s: float | None
    worst_units: int


def find_over_commitment(trace: JobTrace, placed: Iterable[Running]) -> OverCommitment:
    """Return what *placed* lacks of what *trace*'s jobs held."""
    lacking = [
        (job, trace.jobs[job.job].units - job.units.bit_count())
        for job in placed
        if job.end_s > job.start_s
    ]
    short = [(job, missing) for job, missing in lacking if missing]
    # Ends sort before starts of the same time, as they happen.
    changes = sorted(
        change
        for job, missing in short
        for change in ((job.start_s, missing), (job.end_s, -missing))
    )
    levels = list(accumulate((change for _, change in changes), initial=0))
    worst_units = max(levels)
    worst_s = changes[levels.index(worst_units) - 1][0] if short else None
    unit_s = math.fsum(missing * (job.end_s - job.start_s) for job, missing in short)
    return OverCommitment(len(short), unit_s, worst_s, worst_units)


@dataclass(slots=True)
class RecordedPlacer:
    """Starts every job when the log says, on the nodes the log names.

    Without names, or where fewer are named than the job holds units, the
    lowest-numbered free units follow.
    """

    layout: Layout
    plan: tuple[PlannedJob, ...] = field(default=(), init=False)
    wakes_s: float = field(default=math.inf, init=False)

    def arrives_s(self, job: Job) -> float:
        """Jobs appear when they start."""
        if job.start_s is None:
            raise UnusableLogError(f"job {job.job_id} has no start to be placed at")
        return job.start_s

    def rank(self, job: Job) -> float:
        """Jobs of zero run time come last: they must take units from nobody."""
        return 1.0 if job.run_s == 0 else 0.0

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Start everything that arrived, with what is free of what it needs."""
        del ended, arrived
        for job in tuple(machine.waiting):
            machine.start(job, self._pick(machine, job))

    def anew(self, wakes_s: float) -> RecordedPlacer:
        """Return itself: it never plans."""
        del wakes_s
        return self

    def _pick(self, machine: Machine, job: int) -> UnitSet:
        named = self.layout.named(machine.jobs[job])
        size = machine.size[job]
        units = machine.units.lowest(machine.free & named, size)
        unnamed = size - named.bit_count()
        if unnamed > 0:
            units |= machine.units.lowest(machine.free & ~named, unnamed)
        return units
