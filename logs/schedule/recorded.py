"""The log's own schedule: start times and run times as they were."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from logs.errors import UnusableLogError

if TYPE_CHECKING:
    from logs.schedule.layout import Layout
    from logs.schedule.machine import Machine, PlannedJob
    from logs.schedule.unitset import UnitSet
    from logs.trace import Job


@dataclass(frozen=True, slots=True)
class OverCommitment:
    """Where a log's jobs hold more than the machine has.

    A job gets what is free of what it needs; the rest is counted here.

    Attributes:
        jobs: Jobs that got fewer units than they held in the log.
        unit_s: Units missing × seconds, summed over those jobs.
        worst_s: The first time at which most units were missing, or None.
        worst_units: Units missing then.
    """

    jobs: int = 0
    unit_s: float = 0.0
    worst_s: float | None = None
    worst_units: int = 0


@dataclass(slots=True)
class RecordedPlacer:
    """Starts every job when the log says, on the nodes the log names.

    Without names, or where fewer are named than the job holds units, the
    lowest-numbered free units follow.
    """

    layout: Layout
    plan: tuple[PlannedJob, ...] = field(default=(), init=False)
    wakes_s: float = field(default=math.inf, init=False)
    over_commitment: OverCommitment = field(default=OverCommitment(), init=False)

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
            units = self._pick(machine, job)
            machine.start(job, units)
            missing = machine.size[job] - units.bit_count()
            if missing and machine.jobs[job].run_s > 0:
                self._count(machine, missing * machine.jobs[job].run_s)

    def _pick(self, machine: Machine, job: int) -> UnitSet:
        named = self.layout.named(machine.jobs[job])
        size = machine.size[job]
        units = machine.units.lowest(machine.free & named, size)
        unnamed = size - named.bit_count()
        if unnamed > 0:
            units |= machine.units.lowest(machine.free & ~named, unnamed)
        return units

    def _count(self, machine: Machine, missing_unit_s: float) -> None:
        so_far = self.over_commitment
        held = sum(job.units.bit_count() for job in machine.running.values())
        missing = sum(machine.size[job] for job in machine.running) - held
        so_far = replace(
            so_far, jobs=so_far.jobs + 1, unit_s=so_far.unit_s + missing_unit_s
        )
        if missing > so_far.worst_units:
            so_far = replace(so_far, worst_s=machine.now_s, worst_units=missing)
        self.over_commitment = so_far
