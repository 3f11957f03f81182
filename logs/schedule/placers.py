"""Three ways to place jobs: as the log recorded it, EASY backfill, and Slurm's.

docs/reference/schedule.md argues every boundary. Sources of EASY: D. Lifka, "The
ANL/IBM SP scheduling system", JSSPP 1995; A. Mu'alem and D. Feitelson, "Utilization,
predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with
backfilling", IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from logs.schedule.machine import PlannedJob
from logs.timeline import Timeline
from logs.trace import UnusableLogError

if TYPE_CHECKING:
    from logs.schedule.machine import Layout, Machine
    from logs.timeline import UnitSet
    from logs.trace import Job


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
        """Jobs of zero run time come last: they must not take another's units."""
        return 1.0 if job.run_s == 0 else 0.0

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Start every job that arrived, on the free units among those it needs."""
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


@dataclass(slots=True)
class EasyPlacer:
    """Places jobs by FCFS and EASY backfill; plans the queue's head only."""

    plan: tuple[PlannedJob, ...] = field(default=())
    wakes_s: float = field(default=math.inf, init=False)

    def arrives_s(self, job: Job) -> float:
        """Jobs queue when they are submitted."""
        return job.submit_s

    def rank(self, job: Job) -> float:
        """First come, first served: all jobs rank alike."""
        del job
        return 0.0

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Make one pass: start in order, reserve for the head, backfill."""
        del ended, arrived
        machine.start_in_order()
        self.plan = ()
        if machine.waiting:
            shadow_s, extra_units = reserve(machine)
            _backfill(machine, shadow_s, extra_units)
            self.plan = (_planned_head(machine, shadow_s),)

    def anew(self, wakes_s: float) -> EasyPlacer:
        """Return one that has planned nothing; each pass plans anew."""
        del wakes_s
        return EasyPlacer()


def reserve(machine: Machine) -> tuple[float, int]:
    """Reserve a place for the queue's head, which does not fit now.

    Returns:
        The shadow time: the earliest at which enough units are free for it, if every
        running job ends when its request does; and the units free at that time
        beyond those it needs.

    A running job past its request is expected to end at any moment, that is, now.
    Jobs expected to end at the shadow time itself count as ended there.
    """
    needed = machine.size[machine.waiting[0]]
    free = machine.free.bit_count()
    ends = sorted(
        (max(job.expected_end_s, machine.now_s), job.units.bit_count())
        for job in machine.running.values()
    )
    freed = accumulate((units for _, units in ends), initial=free)
    enough = next(at for at, units in enumerate(freed) if units >= needed)
    shadow_s = ends[enough - 1][0]
    at_shadow = free + sum(units for end_s, units in ends if end_s <= shadow_s)
    return shadow_s, at_shadow - needed


def _backfill(machine: Machine, shadow_s: float, extra_units: int) -> None:
    free = machine.free.bit_count()
    for job in machine.waiting[1:]:
        if not free:
            return
        size = machine.size[job]
        if size > free:
            continue
        if machine.now_s + machine.request_s[job] > shadow_s:
            if size > extra_units:
                continue
            extra_units -= size
        free -= size
        machine.start(job, machine.units.lowest(machine.free, size))


def _planned_head(machine: Machine, shadow_s: float) -> PlannedJob:
    head = machine.waiting[0]
    free = _free_at(machine, shadow_s)
    units = machine.units.lowest(free, machine.size[head])
    return PlannedJob(head, shadow_s, units)


def _free_at(machine: Machine, time_s: float) -> UnitSet:
    free = machine.free
    for job in machine.running.values():
        if job.expected_end_s <= time_s:
            free |= job.units
    return free


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
        """Refuse values that would make no progress.

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
    In between the plan could not come out differently, so it stands.
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
