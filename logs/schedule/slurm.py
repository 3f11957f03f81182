"""Slurm's main scheduler and its backfill plan, simulated.

Source: the slurm.conf manual (SchedulerParameters) and the scheduling
configuration guide of Slurm 21.08 and later. What is simplified, and why, is in
docs/schedule.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logs.schedule.machine import PlannedJob
from logs.schedule.timeline import Timeline

if TYPE_CHECKING:
    from logs.schedule.machine import Machine
    from logs.trace import Job


@dataclass(frozen=True, slots=True)
class SlurmParameters:
    """Slurm's own names and defaults.

    Attributes:
        bf_interval_s: Seconds from one backfill cycle to the next, above 0.
        bf_resolution_s: Seconds in one slot of the plan, above 0.
        bf_window_min: How far ahead a start may be planned, in minutes, above 0.
        bf_max_job_test: Jobs of the queue that a cycle looks at, above 0.
    """

    bf_interval_s: float = 30.0
    bf_resolution_s: float = 60.0
    bf_window_min: float = 1440.0
    bf_max_job_test: int = 500

    def __post_init__(self) -> None:
        """Refuse what would make no progress.

        Raises:
            ValueError: A parameter is not a finite number above 0.
        """
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {value}")


class SlurmPlacer:
    """Starts jobs in order at every event, and plans the queue in cycles.

    A cycle is due at the first multiple of ``bf_interval`` at or after a change,
    and where a running job outlives the slot the plan expected it to end by.
    In between nothing could come out differently, so the plan stands.
    """

    def __init__(self, parameters: SlurmParameters) -> None:
        self.plan: tuple[PlannedJob, ...] = ()
        self.wakes_s = math.inf
        self._parameters = parameters
        self._timeline: Timeline | None = None
        self._tested: list[int] = []
        self._valid_s = math.inf
        self._planned: list[PlannedJob] = []

    def arrives_s(self, job: Job) -> float:
        """Jobs queue when they are submitted."""
        return job.submit_s

    def rank(self, job: Job) -> float:
        """Highest priority first; a job without one has priority 0."""
        return -(job.priority or 0)

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Run the main scheduler if something happened, and a cycle if due."""
        if ended or arrived:
            queued = len(machine.waiting)
            machine.start_in_order()
            started = len(machine.waiting) < queued
            self._note(machine, free_changed=ended or started)
        if machine.now_s >= self.wakes_s:
            self._cycle(machine)

    def anew(self, wakes_s: float) -> SlurmPlacer:
        """Return one that has planned nothing, with its next cycle at *wakes_s*."""
        other = SlurmPlacer(self._parameters)
        other.wakes_s = wakes_s
        return other

    def _note(self, machine: Machine, *, free_changed: bool) -> None:
        if free_changed:
            self._timeline = None
            self._keep_plan_of_waiting(machine)
        if machine.waiting:
            self.wakes_s = min(self.wakes_s, self._next_cycle_s(machine.now_s))

    def _keep_plan_of_waiting(self, machine: Machine) -> None:
        waiting = set(machine.waiting)
        if any(planned.job not in waiting for planned in self.plan):
            self.plan = tuple(p for p in self.plan if p.job in waiting)

    def _cycle(self, machine: Machine) -> None:
        depth = self._parameters.bf_max_job_test
        queue = machine.waiting[:depth]
        timeline = self._reuse(machine, queue)
        for job in queue[len(self._tested) :]:
            self._test(machine, timeline, job)
        waiting = set(machine.waiting)
        self._tested = [job for job in queue if job in waiting]
        self.plan = tuple(self._planned)
        self._valid_s = min(self._valid_s, timeline.next_change_s)
        self.wakes_s = self._next_cycle_s(self._valid_s) if waiting else math.inf
        if len(self._tested) < min(depth, len(waiting)):
            soon_s = machine.now_s + self._parameters.bf_interval_s
            self.wakes_s = min(self.wakes_s, self._next_cycle_s(soon_s))

    def _reuse(self, machine: Machine, queue: list[int]) -> Timeline:
        timeline = self._timeline
        tested = self._tested
        stands = machine.now_s < self._valid_s and queue[: len(tested)] == tested
        if timeline is None or not stands:
            ends = ((job.expected_end_s, job.units) for job in machine.running.values())
            slot_s = self._parameters.bf_resolution_s
            timeline = Timeline(machine.now_s, machine.free, ends, slot_s)
            self._timeline = timeline
            self._tested = []
            self._valid_s = math.inf
            self._planned = []
        return timeline

    def _test(self, machine: Machine, timeline: Timeline, job: int) -> None:
        size = machine.size[job]
        now_s = machine.now_s
        gap = timeline.find(size, machine.request_s[job], now_s=now_s)
        start_s = timeline.starts_s(gap.at) if gap.at else now_s
        window_s = self._parameters.bf_window_min * 60
        if start_s > now_s + window_s:
            self._valid_s = min(self._valid_s, start_s - window_s)
            return
        units = machine.units.lowest(gap.units, size)
        timeline.book(gap, units)
        if gap.at == 0:
            machine.start(job, units)
        else:
            self._planned.append(PlannedJob(job, start_s, units))

    def _next_cycle_s(self, time_s: float) -> float:
        if math.isinf(time_s):
            return time_s
        interval_s = self._parameters.bf_interval_s
        return max(time_s, math.ceil(time_s / interval_s) * interval_s)
