"""The machine that schedules are made on: its nodes, running jobs and queue.

``Machine`` is what a ``Placer``, one way to schedule, sees and drives. ``Guests`` use
units that no job holds, as FreeTrain's leases do, without the placer seeing them.
"""

from __future__ import annotations

import copy
import heapq
import math
from bisect import insort
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from logs.timeline import unit_set
from logs.trace import UnusableLogError, natural_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logs.timeline import MachineUnits, UnitSet
    from logs.trace import Job, JobTrace


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A machine of *units* units, of which unit i belongs to node i // per_node.

    Attributes:
        units: Allocation units; the last node has fewer where they do not add up.
        per_node: Units that make up one node.
        names: The nodes' names, by number.
        numbers: The nodes' numbers, by name.
    """

    units: int
    per_node: int
    names: tuple[str, ...]
    numbers: dict[str, int]

    def named(self, job: Job) -> UnitSet:
        """Return the units of the nodes that the log says *job* ran on."""
        return unit_set(
            unit for name in job.nodes for unit in self._units_of(self.numbers[name])
        )

    def _units_of(self, node: int) -> range:
        first = node * self.per_node
        return range(first, min(first + self.per_node, self.units))


def lay_out(trace: JobTrace, *, units: int | None, by_name: bool) -> Layout:
    """Return the machine that *trace* is to be placed on.

    Nodes carry the names that the log's jobs mention, in natural order; nodes
    beyond those carry their number. Where the machine is smaller than the log's,
    all carry their number.

    Args:
        trace: The log.
        units: The machine's size in the log's allocation units, or None for the
            trace's own: its ``units``, or more where the jobs name more nodes.
        by_name: Whether jobs will be placed on the nodes they name.

    Raises:
        UnusableLogError: No unit at all, or *by_name* on a machine with fewer
            nodes than the log names.
    """
    seen = sorted({name for job in trace.jobs for name in job.nodes}, key=natural_key)
    per_node = trace.units_per_node
    count = max(trace.units, len(seen) * per_node) if units is None else units
    if count < 1:
        raise UnusableLogError(
            f"{trace.source}: a machine of {count} units cannot run anything; "
            f"no schedule was made. Say how large the machine is."
        )
    nodes = -(-count // per_node)
    if len(seen) > nodes and by_name:
        raise UnusableLogError(
            f"{trace.source}: its jobs name {len(seen)} nodes, and the machine has "
            f"{nodes}; no schedule was made. Leave the machine's size to the log, "
            f"or simulate a scheduler instead of taking the recorded starts."
        )
    kept = seen if len(seen) <= nodes else []
    names = (*kept, *(str(node) for node in range(len(kept), nodes)))
    numbers = {name: number for number, name in enumerate(names)}
    return Layout(count, per_node, names, numbers)


@dataclass(frozen=True, slots=True)
class Running:
    """A job on the machine.

    Attributes:
        job: Its index; below 0 for a lease.
        start_s: When it started, or starts once guests have left its units.
        end_s: When it really ends; no scheduler may look at it.
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
        guests: Use units that no job holds.
    """

    def __init__(self, jobs: Sequence[Job], units: MachineUnits) -> None:
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
        """When it is to be called again even if nothing happens, else inf."""
        ...

    def arrives_s(self, job: Job) -> float:
        """Return when *job* enters the queue."""
        ...

    def rank(self, job: Job) -> float:
        """Return *job*'s place in the queue: lowest first, then by arrival."""
        ...

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Start the jobs that can start now.

        Args:
            machine: The machine.
            ended: Whether jobs ended, or leases began or ended, just now.
            arrived: Whether jobs arrived just now.
        """
        ...

    def anew(self, wakes_s: float) -> Placer:
        """Return one of the same kind that has planned nothing.

        Args:
            wakes_s: When it is to look at the whole queue next, if it does not at
                every call; ``-inf`` for at once.
        """
        ...


class Guests(Protocol):
    """Uses units that no job holds, and leaves when one is placed on them.

    The scheduler does not see them, as Slurm does not see jobs that it may preempt:
    a job is placed as if they were not there, and starts when they are gone.
    """

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Leave *units*, on which *job* was placed now.

        Returns:
            Seconds until the last guest is gone, 0 or more; the units are the
            job's from now on.
        """
        ...


class NoGuests:
    """No guests at all."""

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Return 0: there is no guest to wait for."""
        del job, units, now_s
        return 0.0
