"""The machine as a scheduler sees it: free units, running jobs, the queue."""

from __future__ import annotations

import copy
import heapq
import math
from bisect import insort
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from logs.schedule.guests import NoGuests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logs.schedule.guests import Guests
    from logs.schedule.unitset import Units, UnitSet
    from logs.trace import Job


@dataclass(frozen=True, slots=True)
class Running:
    """A job on the machine.

    Attributes:
        job: Its index; below 0 for a lease.
        start_s: When it started, or starts once guests have left its units.
        end_s: When it will really end; no scheduler may look at it.
        expected_end_s: When its request ends, which may lie in the past.
        units: What it holds.
    """

    job: int
    start_s: float
    end_s: float
    expected_end_s: float
    units: UnitSet


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A waiting job's place in a scheduler's plan.

    Attributes:
        job: Its index in the trace.
        start_s: When it is to start as things stand.
        units: The units that it is to get.
    """

    job: int
    start_s: float
    units: UnitSet


class Placer(Protocol):
    """One way to place jobs; drives a `Machine` and keeps the plan it made."""

    @property
    def plan(self) -> tuple[PlannedJob, ...]:
        """The waiting jobs that have a place, in the order they got it.

        The same object for as long as nothing in it changes.
        """
        ...

    @property
    def wakes_s(self) -> float:
        """When it wants to be called again though nothing happens, else inf."""
        ...

    def arrives_s(self, job: Job) -> float:
        """Return when *job* enters the queue."""
        ...

    def rank(self, job: Job) -> float:
        """Return *job*'s place in the queue: lowest first, then by arrival."""
        ...

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Start what can start now; told whether jobs ended or arrived now."""
        ...

    def anew(self, wakes_s: float) -> Placer:
        """Return one of the same kind that has planned nothing.

        Args:
            wakes_s: When it is to look at the whole queue next, if it does not at
                every call; ``-inf`` for at once.
        """
        ...


class Machine:
    """Free units, running jobs and the queue at one moment.

    Attributes:
        now_s: The moment.
        units: The machine's units.
        free: Those that no job holds.
        running: The jobs that hold the others, by index; leases by numbers below 0.
        waiting: The queue, first in line first.
        jobs: Every job, by index.
        size: Units that each job needs, by index.
        request_s: Run time that each job's plan is made with, by index: its
            request, or its true run time where it asked for nothing.
        guests: Who uses units that no job holds.
    """

    def __init__(self, jobs: Sequence[Job], units: Units) -> None:
        self.now_s = -math.inf
        self.units = units
        self.guests: Guests = NoGuests()
        self.free = units.every
        self.running: dict[int, Running] = {}
        self.waiting: list[int] = []
        self.jobs = jobs
        self.size = [job.units for job in jobs]
        self.request_s = [
            job.run_s if job.requested_s is None else job.requested_s for job in jobs
        ]
        self._ends: list[tuple[float, int]] = []
        self._started: list[Running] = []
        self._leases = 0

    @property
    def next_end_s(self) -> float:
        """When the next running job really ends, inf where none runs."""
        return self._ends[0][0] if self._ends else math.inf

    def enqueue(self, job: int, placer: Placer) -> None:
        """Put *job* into the queue where *placer* ranks it."""
        insort(self.waiting, job, key=lambda other: placer.rank(self.jobs[other]))

    def start(self, job: int, units: UnitSet) -> None:
        """Start the waiting *job* on *units*, all of them free, as guests leave."""
        start_s = self.now_s + self.guests.leave(job, units, self.now_s)
        end_s = start_s + self.jobs[job].run_s
        running = Running(job, start_s, end_s, start_s + self.request_s[job], units)
        self.waiting.remove(job)
        self.free &= ~units
        self.running[job] = running
        self._started.append(running)
        heapq.heappush(self._ends, (end_s, job))

    def start_in_order(self) -> None:
        """Start jobs from the head of the queue until one does not fit."""
        while self.waiting and self.size[self.waiting[0]] <= self.free.bit_count():
            head = self.waiting[0]
            self.start(head, self.units.lowest(self.free, self.size[head]))

    @property
    def leased(self) -> UnitSet:
        """The units that leases hold."""
        units = 0
        for number, lease in self.running.items():
            if number < 0:
                units |= lease.units
        return units

    def lease(self, units: UnitSet, until_s: float) -> None:
        """Let a guest hold *units*, all free, as a job asking for so long."""
        self._leases += 1
        number = -self._leases
        self.running[number] = Running(number, self.now_s, until_s, until_s, units)
        self.free &= ~units

    def release(self, units: UnitSet) -> None:
        """Let the leases of *units* end; each of them is leased."""
        for number, lease in [*self.running.items()]:
            if number < 0 and lease.units & units:
                del self.running[number]
                if rest := lease.units & ~units:
                    self.running[number] = replace(lease, units=rest)
        self.free |= units

    def without_leases(self) -> Machine:
        """Return the machine as it would be now, were nothing leased."""
        other = copy.copy(self)
        other.running, other.waiting = dict(self.running), list(self.waiting)
        other._ends = list(self._ends)  # noqa: SLF001 - a copy of this one
        other._started = []  # noqa: SLF001 - likewise
        other.guests = NoGuests()
        other.release(self.leased)
        return other

    def end_due(self) -> tuple[int, ...]:
        """End the jobs whose time has come, and return them."""
        ended = []
        while self._ends and self._ends[0][0] <= self.now_s:
            job = heapq.heappop(self._ends)[1]
            self.free |= self.running.pop(job).units
            ended.append(job)
        return tuple(ended)

    def take_started(self) -> tuple[Running, ...]:
        """Return the jobs started since the last call."""
        started, self._started = tuple(self._started), []
        return started
