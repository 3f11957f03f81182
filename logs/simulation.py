"""A machine, three schedulers that place a log's jobs on it, and a simulation of both.

:class:`Simulation` steps through time: at each moment jobs end, jobs arrive, and a
placer makes one pass over the :class:`Machine`, which has free units, running jobs and
the queue. A placer is one way to schedule: as the log recorded it, EASY backfill, or
Slurm's. Guests use units that no job holds, as FreeTrain's leases do, without the
placer seeing them. docs/reference/schedule.md argues every boundary.

Sources of EASY: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; A. Mu'alem
and D. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

import copy
import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from logs.gpus import GpuNodes
from logs.timeline import HolderCounts, Timeline
from logs.trace import UnusableLogError, named_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logs.timeline import Placement, UnitSet
    from logs.trace import Job, JobTrace


class Method(StrEnum):
    """How jobs get their places; the values of ``--schedule``."""

    RECORDED = "recorded"
    EASY = "easy"
    SLURM = "slurm"


class Passes(StrEnum):
    """When a simulated scheduler makes a pass; the values of ``--passes``."""

    MOMENT = "moment"
    """Once all that happens at one time has happened."""
    EVENT = "event"
    """After each end and each arrival, in the log's order, as older simulators do."""


class Reason(StrEnum):
    """Why a job has no place in a schedule."""

    NO_UNITS = "it needs no units"
    NEVER_RAN = "it never ran in the log"
    NO_START = "the log does not tell when it started"
    TOO_WIDE = "it needs more units than the machine has"


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A machine of *units* units, of which unit i belongs to node i // per_node.

    Attributes:
        units: Allocation units; the last node has fewer where they do not add up.
        per_node: Units that make up one node.
        names: The nodes' names, by number.
        numbers: The nodes' numbers, by name.
        firsts: The first unit of each node.
        gpus: How jobs are packed, where the units are GPUs; else None.
    """

    units: int
    per_node: int
    names: tuple[str, ...]
    numbers: dict[str, int]
    firsts: UnitSet
    gpus: GpuNodes | None = None

    @classmethod
    def of(
        cls,
        units: int,
        per_node: int,
        names: tuple[str, ...],
        *,
        counts_gpus: bool = False,
    ) -> Layout:
        """Return a machine of *units* units whose nodes have these *names*."""
        numbers = {name: number for number, name in enumerate(names)}
        every = (1 << len(names) * per_node) - 1
        gpus = GpuNodes(len(names), per_node) if counts_gpus else None
        return cls(
            units, per_node, names, numbers, every // ((1 << per_node) - 1), gpus
        )

    def count_within(self, units: UnitSet) -> int:
        """Return how many nodes have all of their units in *units*."""
        return self.first_units_within(units).bit_count()

    def first_units_within(self, units: UnitSet) -> UnitSet:
        """Return the first unit of each node that has all of its units in *units*."""
        if self.per_node == 1:
            return units
        missing = len(self.names) * self.per_node - self.units
        # Units that the last node lacks never count against it.
        all_from_here = units | ((1 << missing) - 1) << self.units
        width = 1
        while 2 * width <= self.per_node:
            all_from_here &= all_from_here >> width
            width *= 2
        all_from_here &= all_from_here >> (self.per_node - width)
        return all_from_here & self.firsts

    def named(self, job: Job) -> UnitSet:
        """Return the units of the nodes that the log says *job* ran on."""
        named = 0
        for name in job.nodes:
            first = self.numbers[name] * self.per_node
            count = min(self.per_node, self.units - first)
            named |= ((1 << count) - 1) << first
        return named


def lay_out(trace: JobTrace, *, units: int | None, by_name: bool) -> Layout:
    """Return the machine that *trace* is to be placed on.

    Nodes have the names that the log's jobs mention, in natural order. Numbers are the
    names where it mentions none, and on a machine of another size than the log's: of
    nodes beyond the named ones, or of all on a smaller machine.

    Args:
        trace: The log.
        units: The machine's size in allocation units; None for the trace's own.
        by_name: Whether jobs will be placed on the nodes they name.

    Raises:
        UnusableLogError: No unit at all, or *by_name* on a machine with fewer
            nodes than the log names.
    """
    seen = named_nodes(trace.jobs)
    per_node = trace.units_per_node
    count = trace.units if units is None else units
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
    kept = seen if len(seen) <= nodes else ()
    names = (*kept, *(str(node) for node in range(len(kept), nodes)))
    return Layout.of(count, per_node, names, counts_gpus=trace.counts_gpus)


class MachineUnits:
    """The units 0 .. count - 1 of one machine; ``every`` is the set of all of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.every: UnitSet = (1 << count) - 1
        # Few and short, so that a machine of a million processors fits in memory.
        self._lows: tuple[UnitSet, ...] = tuple(
            (1 << (1 << power)) - 1 for power in range(count.bit_length())
        )

    def lowest(self, among: UnitSet, count: int) -> UnitSet:
        """Return the *count* lowest-numbered units of *among*, or all it has."""
        if count < 1:
            return 0
        # Most jobs need few units, which lie low: look at twice as many each time.
        power = (count - 1).bit_length()
        while power < len(self._lows) and (
            (among & self._lows[power]).bit_count() < count
        ):
            power += 1
        if power >= len(self._lows) and among.bit_count() <= count:
            return among
        last, rest, wanted = 0, among, count
        # Bisect for the wanted-th unit: each step looks at half of the last.
        for half in reversed(range(min(power, len(self._lows)))):
            below = rest & self._lows[half]
            found = below.bit_count()
            if found >= wanted:
                rest = below
            else:
                wanted -= found
                rest >>= 1 << half
                last += 1 << half
        return among & ((2 << last) - 1)


@dataclass(frozen=True, slots=True)
class Running:
    """A job on the machine.

    Attributes:
        job: Its index; below 0 for a lease.
        start_s: When it started, or starts once guests have left its units.
        end_s: When it really ends; schedulers must not look at it.
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
            Several hold a node that they share, as a log may have recorded it.
        waiting: The queue, first in line first.
        jobs: Every job, by index.
        size: Units that each job needs, by index.
        request_s: Run time that each job's plan is made with, by index: its
            request, or its true run time where it asked for nothing.
        guests: Use units that no job holds.
        gpus: How jobs are packed, where the units are GPUs; else None.
    """

    def __init__(
        self, jobs: Sequence[Job], units: MachineUnits, gpus: GpuNodes | None = None
    ) -> None:
        self.now_s = -math.inf
        self.units = units
        self.gpus = gpus
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
        self._expected: list[tuple[float, int]] = []
        self._started: list[Running] = []
        self._leases = 0
        self._further = HolderCounts()  # jobs on a unit beside the first one

    @property
    def next_end_s(self) -> float:
        """When the next running job really ends, inf where none runs."""
        return self._ends[0][0] if self._ends else math.inf

    def enqueue(self, job: int, placer: Placer) -> None:
        """Put *job* into the queue where *placer* ranks it."""
        insort(self.waiting, job, key=lambda other: placer.rank(self.jobs[other]))

    def start(self, job: int, units: UnitSet) -> None:
        """Start the waiting *job* on *units* once guests have left them.

        All of them are free, or shared with the jobs that hold them.
        """
        left = self.free & ~units
        start_s = self.now_s + self.guests.leave(job, units, left, self.now_s)
        end_s = start_s + self.jobs[job].run_s
        running = Running(job, start_s, end_s, start_s + self.request_s[job], units)
        self.waiting.remove(job)
        if shared := units & ~self.free:
            self._further.take(shared)
        self.free = left
        self.running[job] = running
        self._started.append(running)
        heapq.heappush(self._ends, (end_s, job))
        insort(self._expected, (running.expected_end_s, job))

    def pick(self, job: int, among: UnitSet) -> UnitSet:
        """Return the units of *among*, which are enough, that *job* gets.

        The lowest-numbered ones; of GPUs those that Slurm packs it on, and none where
        they lie on too many nodes for it.
        """
        size = self.size[job]
        if self.gpus is not None:
            return self.gpus.place(among, size, self.jobs[job].node_count)
        return self.units.lowest(among, size)

    def start_in_order(self) -> tuple[int, ...]:
        """Start jobs from the head of the queue until one does not fit; return them."""
        started = []
        while self.waiting and self.size[self.waiting[0]] <= self.free.bit_count():
            head = self.waiting[0]
            units = self.pick(head, self.free)
            if not units:
                break
            self.start(head, units)
            started.append(head)
        return tuple(started)

    def expected_ends(self) -> Iterator[tuple[float, Running]]:
        """Yield the running jobs by when they are expected to end, with that time.

        One that is past its request is expected to end now.
        """
        for expected_s, number in self._expected:
            yield max(expected_s, self.now_s), self.running[number]

    @property
    def shared(self) -> UnitSet:
        """The units that more than one job holds."""
        return self._further.at_least(1)

    @property
    def leased(self) -> UnitSet:
        """The units that leases hold."""
        units = 0
        if not self._leases:
            return units
        for number, lease in self.running.items():
            if number < 0:
                units |= lease.units
        return units

    def lease(self, units: UnitSet, until_s: float) -> None:
        """Lease *units*, all free, as a job that asks for them until *until_s*."""
        self._leases += 1
        number = -self._leases
        self.running[number] = Running(number, self.now_s, until_s, until_s, units)
        insort(self._expected, (until_s, number))
        self.free &= ~units

    def release(self, units: UnitSet) -> None:
        """End the leases of *units*, all leased; the rest of each lease stays."""
        for number, lease in [*self.running.items()]:
            if number < 0 and lease.units & units:
                del self.running[number]
                if rest := lease.units & ~units:
                    self.running[number] = replace(lease, units=rest)
                else:
                    self._expected.remove((lease.expected_end_s, number))
        self.free |= units

    def shorten(self, units: UnitSet, until_s: float) -> None:
        """Let the leases of *units*, all leased, ask for them only until *until_s*."""
        for number, lease in [*self.running.items()]:
            if number < 0 and (shorter := lease.units & units):
                del self.running[number]
                self._expected.remove((lease.expected_end_s, number))
                for part, end_s in (
                    (shorter, min(until_s, lease.expected_end_s)),
                    (lease.units & ~units, lease.expected_end_s),
                ):
                    if part:
                        self._leases += 1
                        self.running[-self._leases] = replace(
                            lease, job=-self._leases, units=part, expected_end_s=end_s
                        )
                        insort(self._expected, (end_s, -self._leases))

    def without_leases(self) -> Machine:
        """Return a copy of the machine on which nothing is leased."""
        other = copy.copy(self)
        other.running, other.waiting = dict(self.running), list(self.waiting)
        other._ends = list(self._ends)  # noqa: SLF001 - a copy of this one
        other._expected = list(self._expected)  # noqa: SLF001 - likewise
        other._started = []  # noqa: SLF001 - likewise
        other.guests = NoGuests()
        other.release(self.leased)
        return other

    def end_due(self, most: int | None = None) -> tuple[int, ...]:
        """End the jobs whose time has come, *most* of them, and return them."""
        ended = []
        while self._ends and self._ends[0][0] <= self.now_s:
            job = heapq.heappop(self._ends)[1]
            gone = self.running.pop(job)
            del self._expected[bisect_left(self._expected, (gone.expected_end_s, job))]
            units = gone.units
            if shared := units & self.shared:
                self._further.give_back(shared)
            self.free |= units & ~shared
            ended.append(job)
            if len(ended) == most:
                break
        return tuple(ended)

    def take_started(self) -> tuple[Running, ...]:
        """Return the jobs started since the last call."""
        started, self._started = tuple(self._started), []
        return started


class Guests(Protocol):
    """Use units that no job holds, and leave when a job is placed on them.

    The scheduler does not see them, as Slurm does not see jobs that it may preempt: a
    job is placed as if they were not there, and starts when they have left.
    """

    def leave(self, job: int, units: UnitSet, left: UnitSet, now_s: float) -> float:
        """Leave *units*, on which *job* was placed; return the seconds it takes.

        What no job holds then is *left*.
        """
        ...


class NoGuests:
    """No guests at all."""

    def leave(self, job: int, units: UnitSet, left: UnitSet, now_s: float) -> float:
        """Return 0."""
        del job, units, left, now_s
        return 0.0


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
        """When it must be called again even if nothing happens, else inf."""
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
        """Return a placer of the same kind that has planned nothing.

        Args:
            wakes_s: When to look at the whole queue next, for a placer that does not at
                every call; ``-inf`` for at once.
        """
        ...


class RecordedPlacer:
    """Starts every job when the log says, on the nodes the log names.

    Jobs that name the same node share it. Where the log names none, a job gets the
    lowest-numbered free units. Of GPUs it gets as many as it had, packed as Slurm packs
    them; where that cannot be, the lowest-numbered free ones.
    """

    def __init__(self, layout: Layout) -> None:
        self.plan: tuple[PlannedJob, ...] = ()
        self.wakes_s = math.inf
        self._layout = layout

    def arrives_s(self, job: Job) -> float:
        """Jobs appear when they start."""
        if job.start_s is None:
            raise UnusableLogError(f"job {job.job_id} has no start to be placed at")
        return job.start_s

    def rank(self, job: Job) -> float:
        """Jobs of zero run time come last, so that they take no other's units."""
        return 1.0 if job.run_s == 0 else 0.0

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Start every job that arrived."""
        del ended, arrived
        for job in tuple(machine.waiting):
            machine.start(job, self._pick(machine, job))

    def anew(self, wakes_s: float) -> RecordedPlacer:
        """Return itself: it never plans."""
        del wakes_s
        return self

    def _pick(self, machine: Machine, job: int) -> UnitSet:
        named = self._layout.named(machine.jobs[job])
        if machine.gpus is None:
            return named or machine.pick(job, machine.free)
        among = machine.free & (named or machine.units.every)
        packed = machine.pick(job, among)
        return packed or machine.units.lowest(among, machine.size[job])


class EasyPlacer:
    """Places jobs by FCFS and EASY backfill; plans the queue's head only."""

    def __init__(self) -> None:
        self.plan: tuple[PlannedJob, ...] = ()
        self.wakes_s = math.inf

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

    A running job past its request is expected to end now. Jobs expected to end at the
    shadow time itself count as ended there.

    Returns:
        The shadow time, the earliest at which enough units are free for it if every
        running job ends when its request does, and the units free then beyond those
        it needs.
    """
    head = machine.waiting[0]
    needed = machine.size[head]
    free, shadow_s = machine.free.bit_count(), math.inf
    for end_s, job in machine.expected_ends():
        if end_s > shadow_s:
            break
        free += job.units.bit_count() if job.job < 0 else machine.size[job.job]
        if math.isinf(shadow_s) and free >= needed and _fits_at(machine, head, end_s):
            shadow_s = end_s
    return shadow_s, free - needed


def _fits_at(machine: Machine, job: int, time_s: float) -> bool:
    """Tell whether units that are enough in number by *time_s* are where *job* can."""
    return machine.gpus is None or bool(machine.pick(job, _free_at(machine, time_s)))


def _backfill(machine: Machine, shadow_s: float, extra_units: int) -> None:
    free = machine.free.bit_count()
    # Of GPUs the head needs certain ones; of other units, as many.
    kept = 0 if machine.gpus is None else _planned_head(machine, shadow_s).units
    for job in machine.waiting[1:]:
        if not free:
            return
        size = machine.size[job]
        if size > free:
            continue
        outlasts = machine.now_s + machine.request_s[job] > shadow_s
        if outlasts and size > extra_units:
            continue
        units = machine.pick(job, machine.free & ~kept if outlasts else machine.free)
        if not units:
            continue
        extra_units -= size * outlasts
        free -= size
        machine.start(job, units)


def _planned_head(machine: Machine, shadow_s: float) -> PlannedJob:
    head = machine.waiting[0]
    free = _free_at(machine, shadow_s)
    return PlannedJob(head, shadow_s, machine.pick(head, free))


def _free_at(machine: Machine, time_s: float) -> UnitSet:
    free = machine.free
    for end_s, job in machine.expected_ends():
        if end_s > time_s:
            break
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


@dataclass(slots=True)
class _PlaceSearch:
    """A search for the place of one job in line.

    Attributes:
        number: Its number in the line.
        before_slot: It is placed only if it starts before this slot.
        place: Where it fits beside the jobs that have a place; None for not known.
        passed: Jobs, from the head of the line, that will not be in the way there.
    """

    number: int
    before_slot: float
    place: Placement | None = None
    passed: int = 0


class SlurmPlacer:
    """Starts jobs in order at every event, and plans the queue in cycles.

    A cycle is due at the first multiple of ``bf_interval`` at or after a change, and
    when a running job outlives the slot by which the plan expected its end. In between
    a cycle would make the same plan.

    Args:
        parameters: Slurm's.
        plans_all: Whether a cycle plans all jobs that it looks at, and ``plan`` has
            them; else only those that may be in the way of one that could start now.
    """

    def __init__(self, parameters: SlurmParameters, *, plans_all: bool = True) -> None:
        self.plan: tuple[PlannedJob, ...] = ()
        self.wakes_s = math.inf
        self._parameters = parameters
        self._plans_all = plans_all
        # A plan, and until when it stands; the jobs of the queue that it was made for.
        self._timeline: Timeline | None = None
        self._tested: list[int] = []
        self._valid_s = math.inf
        self._planned: list[PlannedJob] = []
        # These jobs with those started since, and a slot before which each of them
        # does not start; inf once it has its place, or none within the window.
        self._line: list[int] = []
        self._from_slot: list[float] = []

    def arrives_s(self, job: Job) -> float:
        """Jobs queue when they are submitted."""
        return job.submit_s

    def rank(self, job: Job) -> float:
        """Highest priority first; a job without one has priority 0."""
        return -(job.priority or 0)

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Run the main scheduler if something happened, and a cycle if due."""
        if ended or arrived:
            started = machine.start_in_order()
            self._note(machine, started, free_changed=ended or bool(started))
        if machine.now_s >= self.wakes_s:
            self._cycle(machine)

    def anew(self, wakes_s: float) -> SlurmPlacer:
        """Return one that has planned nothing, with its next cycle at *wakes_s*."""
        other = SlurmPlacer(self._parameters, plans_all=False)
        other.wakes_s = wakes_s
        return other

    def _note(
        self, machine: Machine, started: Sequence[int], *, free_changed: bool
    ) -> None:
        if free_changed:
            self._timeline = None
        if started and any(planned.job in started for planned in self.plan):
            self.plan = tuple(p for p in self.plan if p.job not in started)
        if machine.waiting:
            self.wakes_s = min(self.wakes_s, self._next_cycle_s(machine.now_s))

    def _cycle(self, machine: Machine) -> None:
        depth = self._parameters.bf_max_job_test
        queue = machine.waiting[:depth]
        free = machine.free.bit_count()
        if not self._plans_all and all(machine.size[job] > free for job in queue):
            self.wakes_s = math.inf
            return
        timeline = self._reuse(machine, queue)
        self._line_up(machine, timeline, queue[len(self._tested) :])
        # Starts only move jobs forward, so that none of these is behind its front now;
        # the whole of it may be long.
        waiting = set(machine.waiting[:depth])
        self._tested = [job for job in queue if job in waiting]
        self.plan = tuple(self._planned)
        self._valid_s = min(self._valid_s, timeline.next_change_s)
        self.wakes_s = self._next_cycle_s(self._valid_s) if waiting else math.inf
        if len(self._tested) < min(depth, len(machine.waiting)):
            soon_s = machine.now_s + self._parameters.bf_interval_s
            self.wakes_s = min(self.wakes_s, self._next_cycle_s(soon_s))

    def _line_up(
        self, machine: Machine, timeline: Timeline, jobs: Sequence[int]
    ) -> None:
        """Put *jobs* in line; place all, or else start those that can start now."""
        free = machine.free.bit_count()
        next_slot = timeline.next_slot
        for number, job in enumerate(jobs, len(self._line)):
            self._line.append(job)
            self._from_slot.append(next_slot)
            if self._plans_all:  # and so those in front have their places
                search = _PlaceSearch(number, math.inf)
                if place := self._look(machine, timeline, search):
                    self._book(machine, timeline, number, place)
            elif machine.size[job] <= free:
                self._place(machine, timeline, number, before_slot=next_slot)

    def _reuse(self, machine: Machine, queue: list[int]) -> Timeline:
        timeline = self._timeline
        tested = self._tested
        stands = machine.now_s < self._valid_s and queue[: len(tested)] == tested
        if timeline is None or not stands:
            ends = (
                (job.expected_end_s, job.units, machine.size[number])
                if number >= 0
                else (job.expected_end_s, job.units, job.units.bit_count())
                for number, job in machine.running.items()
            )
            slot_s = self._parameters.bf_resolution_s
            timeline = Timeline(machine.now_s, machine.free, ends, slot_s, machine.gpus)
            self._timeline = timeline
            self._tested = []
            self._valid_s = math.inf
            self._planned = []
            self._line = []
            self._from_slot = []
        return timeline

    def _place(
        self, machine: Machine, timeline: Timeline, number: int, *, before_slot: float
    ) -> None:
        """Place a job in line if it starts before *before_slot*; else note that.

        Its place is where it fits beside the jobs that have places, unless one in front
        of it that has none may come to lie there. The first such job is then placed, if
        it starts before this place ends, in the same way; and so on. Jobs that are in
        the way of no other get no place.
        """
        from_slot = self._from_slot
        searches = [_PlaceSearch(number, before_slot)]
        while searches:
            search = searches[-1]
            place = search.place or self._look(machine, timeline, search)
            if place is None:
                searches.pop()
                continue
            for ahead in range(search.passed, search.number):
                if from_slot[ahead] < place.end_slot:
                    search.passed = ahead + 1
                    searches.append(_PlaceSearch(ahead, place.end_slot))
                    break
            else:
                self._book(machine, timeline, search.number, place)
                searches.pop()
                for other in searches:
                    other.place = None

    def _look(
        self, machine: Machine, timeline: Timeline, search: _PlaceSearch
    ) -> Placement | None:
        job = self._line[search.number]
        found = timeline.find(
            machine.size[job],
            machine.request_s[job],
            now_s=machine.now_s,
            nodes=machine.jobs[job].node_count,
            before_slot=search.before_slot,
        )
        if isinstance(found, int):
            self._from_slot[search.number] = found
            return None
        search.place, search.passed = found, 0
        return found

    def _book(
        self, machine: Machine, timeline: Timeline, number: int, place: Placement
    ) -> None:
        job = self._line[number]
        self._from_slot[number] = math.inf
        start_s = timeline.starts_s(place.at) if place.at else machine.now_s
        window_s = self._parameters.bf_window_min * 60
        if start_s > machine.now_s + window_s:
            self._valid_s = min(self._valid_s, start_s - window_s)
            return
        units = machine.pick(job, place.units)
        timeline.book(place, units)
        if place.at == 0:
            machine.start(job, units)
        else:
            self._planned.append(PlannedJob(job, start_s, units))

    def _next_cycle_s(self, time_s: float) -> float:
        if math.isinf(time_s):
            return time_s
        interval_s = self._parameters.bf_interval_s
        return max(time_s, math.ceil(time_s / interval_s) * interval_s)


@dataclass(frozen=True, slots=True)
class ScheduleMoment:
    """The events of one time, and the machine afterwards.

    Attributes:
        time_s: Two moments may share it: a job of zero run time ends at a second one.
        ended: Jobs that ended, by index.
        arrived: Jobs that entered the queue, by index.
        started: Jobs that started, in the order they did.
        waiting: Length of the queue afterwards.
        free: Units that no job holds afterwards.
        plan: The scheduler's plan for the waiting jobs afterwards.
        put_off: Jobs that would have started then without leases, and did not.
    """

    time_s: float
    ended: tuple[int, ...]
    arrived: tuple[int, ...]
    started: tuple[Running, ...]
    waiting: int
    free: UnitSet
    plan: tuple[PlannedJob, ...]
    put_off: tuple[int, ...]


class Simulation:
    """Steps through time, one moment a step, until nothing is left to happen.

    At each moment, in this order: every job whose time has come ends, every job
    due by then enters the queue, and the placer makes one pass; or each of these jobs
    has a moment of its own (``Passes``).

    Attributes:
        layout: The machine.
        admitted: The jobs that take part, by index.
        refused: Why each of the others does not, by index.
    """

    def __init__(  # noqa: PLR0913 - as `schedule`, whose front this is
        self,
        trace: JobTrace,
        method: Method,
        *,
        units: int | None = None,
        slurm: SlurmParameters | None = None,
        passes: Passes = Passes.MOMENT,
        plans_all: bool = True,
    ) -> None:
        """Set the machine up, empty; ``logs.schedule.schedule`` has most arguments.

        Without *plans_all* the simulated Slurm plans only jobs that may be in the way
        of others that could start: the schedule is the same, and plans are shorter.

        Raises:
            UnusableLogError: The machine does not fit the log.
        """
        self.layout = lay_out(trace, units=units, by_name=method == Method.RECORDED)
        reasons = {
            index: _reason(job, method, self.layout)
            for index, job in enumerate(trace.jobs)
        }
        self.admitted = tuple([job for job, why in reasons.items() if why is None])
        self.refused = {job: why for job, why in reasons.items() if why is not None}
        units_of = MachineUnits(self.layout.units)
        self._machine = Machine(trace.jobs, units_of, self.layout.gpus)
        is_simulated = method is not Method.RECORDED
        self._most = 1 if is_simulated and passes is Passes.EVENT else None
        self._placer = _placer(method, self.layout, slurm, plans_all=plans_all)
        due = [(self._placer.arrives_s(trace.jobs[job]), job) for job in self.admitted]
        self._arrivals = sorted(due, reverse=True)

    def __iter__(self) -> Iterator[ScheduleMoment]:
        """Step until the end."""
        while (moment := self.step()) is not None:
            yield moment

    def branch(self, guests: Guests | None = None) -> Simulation:
        """Return an independent copy with *guests* on the machine."""
        kept = (self._machine.jobs, self.layout, self.admitted, self.refused)
        other = copy.deepcopy(self, {id(shared): shared for shared in kept})
        other._machine.guests = guests or NoGuests()  # noqa: SLF001 - the same class
        return other

    def step(self) -> ScheduleMoment | None:
        """Go to the next moment, or return None where there is none."""
        machine = self._machine
        now_s = self.next_s
        if math.isinf(now_s):
            return None
        machine.now_s = now_s
        ended = machine.end_due(self._most)
        arrived = () if ended and self._most else self._admit_due()
        return self._pass(ended, arrived, changed=bool(ended))

    def lease(self, units: UnitSet, *, until_s: float, now_s: float) -> ScheduleMoment:
        """Lease *units*, all free, as a job that asked for them until *until_s*.

        Not before the last moment, and not after the next. They are held until
        `release`, even beyond *until_s*. The placer makes a pass.
        """
        self._machine.now_s = now_s
        self._machine.lease(units, until_s)
        return self._pass((), (), changed=True)

    def shorten(self, units: UnitSet, *, until_s: float) -> None:
        """Let leased *units* be asked for only until *until_s*, from the next pass."""
        self._machine.shorten(units, until_s)

    def release(self, units: UnitSet, *, now_s: float) -> ScheduleMoment:
        """Give leased *units* back now; the placer makes a pass."""
        self._machine.now_s = now_s
        self._machine.release(units)
        return self._pass((), (), changed=True)

    def _pass(
        self, ended: tuple[int, ...], arrived: tuple[int, ...], *, changed: bool
    ) -> ScheduleMoment:
        machine = self._machine
        would_start = self._unhindered(changed=changed, arrived=bool(arrived))
        self._placer.place(machine, ended=changed, arrived=bool(arrived))
        started = machine.take_started()
        put_off = would_start.difference(job.job for job in started)
        return ScheduleMoment(
            time_s=machine.now_s,
            ended=ended,
            arrived=arrived,
            started=started,
            waiting=len(machine.waiting),
            free=machine.free,
            plan=self._placer.plan,
            put_off=tuple(sorted(put_off)),
        )

    def _unhindered(self, *, changed: bool, arrived: bool) -> frozenset[int]:
        """Return the jobs that the pass which is due would start without leases."""
        if not (self._machine.waiting and self._machine.leased):
            return frozenset()
        machine = self._machine.without_leases()
        placer = self._placer.anew(self._placer.wakes_s)
        placer.place(machine, ended=changed, arrived=arrived)
        return frozenset(job.job for job in machine.take_started())

    @property
    def machine(self) -> Machine:
        """The machine as it is now; not to be changed."""
        return self._machine

    @property
    def plan(self) -> tuple[PlannedJob, ...]:
        """The scheduler's plan for the waiting jobs."""
        return self._placer.plan

    @property
    def next_s(self) -> float:
        """When the next moment is, ``inf`` where there is none."""
        arrival_s = self._arrivals[-1][0] if self._arrivals else math.inf
        return min(arrival_s, self._machine.next_end_s, self._placer.wakes_s)

    def _admit_due(self) -> tuple[int, ...]:
        arrived = []
        due_s = self._machine.now_s
        while self._arrivals and self._arrivals[-1][0] <= due_s:
            job = self._arrivals.pop()[1]
            self._machine.enqueue(job, self._placer)
            arrived.append(job)
            if len(arrived) == self._most:
                break
        return tuple(arrived)


def _placer(
    method: Method, layout: Layout, slurm: SlurmParameters | None, *, plans_all: bool
) -> Placer:
    match method:
        case Method.RECORDED:
            return RecordedPlacer(layout)
        case Method.EASY:
            return EasyPlacer()
        case Method.SLURM:
            return SlurmPlacer(slurm or SlurmParameters(), plans_all=plans_all)


def _reason(job: Job, method: Method, layout: Layout) -> Reason | None:
    if job.units < 1:
        return Reason.NO_UNITS
    if job.start_s is None and job.run_s == 0:
        return Reason.NEVER_RAN
    if method == Method.RECORDED:
        return Reason.NO_START if job.start_s is None else None
    too_wide = job.units > layout.units or job.node_count > len(layout.names)
    return Reason.TOO_WIDE if too_wide else None
