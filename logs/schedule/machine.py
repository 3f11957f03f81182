"""The machine as a scheduler sees it: free units, running jobs, the queue."""

from __future__ import annotations

import copy
import heapq
import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from logs.trace import UnusableLogError, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from logs.trace import Job, JobTrace


# ----------------------------------------------------------------------
# Which units will be free when, in slots of the scheduler's resolution.


class Gap(NamedTuple):
    """A place for a job.

    Attributes:
        at: Number of the stretch it starts in; 0 is now.
        end_slot: The first slot it leaves free again.
        units: Every unit that is free throughout.
    """

    at: int
    end_slot: int
    units: UnitSet


class Timeline:
    """The free units from now to the end of time, stretch by stretch.

    Slot k begins at k × resolution. Running jobs hold their units to the end of
    the slot in which their request ends, and one that is past its request to the
    end of the present slot. The last stretch has everything free.

    Args:
        now_s: The moment.
        free: Units that nobody holds now.
        ends: When running jobs are expected to end, each with its units.
        resolution_s: Length of a slot.
    """

    def __init__(
        self,
        now_s: float,
        free: UnitSet,
        ends: Iterable[tuple[float, UnitSet]],
        resolution_s: float,
    ) -> None:
        self._resolution_s = resolution_s
        base = math.floor(now_s / resolution_s)
        self._slots = [base]
        self._free = [free]
        self._counts = [free.bit_count()]
        self._floors: dict[tuple[int, float], int] = {}
        for slot, units in sorted(
            (max(self._slot(end_s), base + 1), units) for end_s, units in ends
        ):
            self._release(slot, units)

    @property
    def next_change_s(self) -> float:
        """The first time after now at which the free units change, else inf."""
        return self.starts_s(1) if len(self._slots) > 1 else math.inf

    def starts_s(self, at: int) -> float:
        """Return when stretch *at* begins."""
        return self._slots[at] * self._resolution_s

    def find(self, size: int, request_s: float, *, now_s: float) -> Gap:
        """Return the earliest place for *size* units during *request_s*."""
        at = self._first_worth_trying(size, request_s)
        slots, free, counts = self._slots, self._free, self._counts
        last = len(slots)
        while True:
            while counts[at] < size:
                at += 1
            end_slot = self._end_slot(at, request_s, now_s)
            units = free[at]
            then = at + 1
            while then < last and slots[then] < end_slot:
                units &= free[then]
                if units.bit_count() < size:
                    break
                then += 1
            else:
                self._floors[size, request_s] = slots[at]
                return Gap(at, end_slot, units)
            at = then if counts[then] < size else at + 1

    def book(self, gap: Gap, units: UnitSet) -> None:
        """Take *units* of *gap* for as long as it lasts."""
        end = self._cut(gap.end_slot)
        size = units.bit_count()
        for stretch in range(gap.at, end):
            self._free[stretch] ^= units
            self._counts[stretch] -= size

    def _first_worth_trying(self, size: int, request_s: float) -> int:
        # Bookings only take units away, so nothing fits earlier than a job that
        # was as small and as short did.
        slot = max(
            (
                floor
                for (other_size, other_s), floor in self._floors.items()
                if other_size <= size and other_s <= request_s
            ),
            default=self._slots[0],
        )
        return bisect_left(self._slots, slot)

    def _slot(self, time_s: float) -> int:
        return math.ceil(time_s / self._resolution_s)

    def _end_slot(self, at: int, request_s: float, now_s: float) -> int:
        start_s = now_s if at == 0 else self.starts_s(at)
        first = self._slots[at]
        return max(self._slot(start_s + request_s), first + 1)

    def _release(self, slot: int, units: UnitSet) -> None:
        if self._slots[-1] == slot:
            self._free[-1] |= units
        else:
            self._slots.append(slot)
            self._free.append(self._free[-1] | units)
            self._counts.append(0)
        self._counts[-1] = self._free[-1].bit_count()

    def _cut(self, slot: int) -> int:
        at = bisect_left(self._slots, slot)
        if at == len(self._slots) or self._slots[at] != slot:
            self._slots.insert(at, slot)
            self._free.insert(at, self._free[at - 1])
            self._counts.insert(at, self._counts[at - 1])
        return at


# ----------------------------------------------------------------------
# A timeline for jobs that not every unit suits, quick for those that start now.


class Need(NamedTuple):
    """What a job needs.

    Attributes:
        size: How many units.
        request_s: For how long.
        among: Units that suit it.
        must: Those of them that it insists on.
    """

    size: int
    request_s: float
    among: UnitSet
    must: UnitSet = 0

    def is_met_by(self, units: UnitSet) -> bool:
        """Tell whether *units*, all of them suiting, are enough."""
        return units.bit_count() >= self.size and self.must & units == self.must


class Agenda(Timeline):
    """The free units from now to the end of time, for a job at a time.

    Whoever starts now takes units for a while from now on. Stretch by stretch that is
    only written down when somebody asks for a later start.

    Args:
        now_s: The moment.
        free: Units that nobody holds now.
        ends: When running jobs are expected to end, each with its units.
        closed: From when on nobody may have some units, each with these; the slot in
            which that time lies is still open.
        resolution_s: Length of a slot.
    """

    def __init__(
        self,
        now_s: float,
        free: UnitSet,
        ends: Iterable[tuple[float, UnitSet]],
        *,
        closed: Iterable[tuple[float, UnitSet]] = (),
        resolution_s: float,
    ) -> None:
        super().__init__(now_s, free, ends, resolution_s)
        self._now_s = now_s
        self._begun: dict[int, UnitSet] = {}
        self._later = _Later()
        self._close(closed)
        self._now = self._free[0]

    def start(self, need: Need) -> Gap | None:
        """Return the place now; None if *need* is not met."""
        end_slot = self._end_slot(0, need.request_s, self._now_s)
        units = self._now & need.among & ~self._later.before(end_slot)
        return Gap(0, end_slot, units) if need.is_met_by(units) else None

    def earliest(self, need: Need) -> Gap | None:
        """Return the earliest place where *need* is met; None for never."""
        self._write_down()
        at = 0
        while at < len(self._slots):
            end_slot = self._end_slot(at, need.request_s, self._now_s)
            slot = self._slots[at]
            suiting = need.among & ~self._later.between(slot + 1, end_slot)
            first = self._first(at, need._replace(among=suiting))
            if first == at:
                return Gap(at, end_slot, self._free[at] & suiting)
            at = first
        return None

    def book(self, gap: Gap, units: UnitSet) -> None:
        """Take *units* of *gap* for as long as it lasts."""
        if gap.at == 0:
            self._now ^= units
            self._begun[gap.end_slot] = self._begun.get(gap.end_slot, 0) | units
        else:
            self._later.add(self._slots[gap.at], units)
            super().book(gap, units)

    def _first(self, at: int, need: Need) -> int:
        """Return from which stretch on, after *at*, enough is free to begin with.

        The next at which somebody takes units at the latest: until then more and more
        is free.
        """
        until = bisect_left(self._slots, self._later.next_after(self._slots[at]))
        return at + bisect_left(
            self._free[at:until],
            True,  # noqa: FBT003 -- False as long as too few are free
            key=lambda free: need.is_met_by(free & need.among),
        )

    def _write_down(self) -> None:
        """Take from each stretch what those hold that have started."""
        begun = sorted(self._begun.items())
        ends = [0, *(self._cut(slot) for slot, _ in begun)]
        held = 0
        for (_, units), start, end in zip(
            begun[::-1], ends[-2::-1], ends[:0:-1], strict=True
        ):
            held |= units
            size = held.bit_count()
            for stretch in range(start, end):
                self._free[stretch] ^= held
                self._counts[stretch] -= size
        self._begun.clear()

    def _close(self, closed: Iterable[tuple[float, UnitSet]]) -> None:
        """Take units for ever from the slot on in which a time lies, or begins."""
        from_slot: dict[int, UnitSet] = {}
        for from_s, units in closed:
            slot = self._slot(max(from_s, self._now_s))
            from_slot[slot] = from_slot.get(slot, 0) | units
        for slot in sorted(from_slot):
            self._later.add(slot, from_slot[slot])
            self._cut(slot)
        for stretch, slot in enumerate(self._slots if from_slot else ()):
            self._free[stretch] &= ~self._later.before(slot + 1)
            self._counts[stretch] = self._free[stretch].bit_count()


class _Later:
    """Units that somebody has from some slot on, whoever has them before."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._units: list[UnitSet] = []
        self._so_far: list[UnitSet] = []  # also those of earlier slots

    def next_after(self, slot: int) -> float:
        """Return from which slot on somebody has units next, else inf."""
        place = bisect_right(self._slots, slot)
        return self._slots[place] if place < len(self._slots) else math.inf

    def before(self, slot: int) -> UnitSet:
        """Return what somebody has from a slot before *slot* on."""
        place = bisect_left(self._slots, slot)
        return self._so_far[place - 1] if place else 0

    def between(self, first: int, end: int) -> UnitSet:
        """Return what somebody has from a slot on that is in *first* .. *end* - 1."""
        units = 0
        start = bisect_left(self._slots, first)
        for place in range(start, bisect_left(self._slots, end)):
            units |= self._units[place]
        return units

    def add(self, slot: int, units: UnitSet) -> None:
        """Let somebody have *units* from *slot* on."""
        place = bisect_left(self._slots, slot)
        if place == len(self._slots) or self._slots[place] != slot:
            self._slots.insert(place, slot)
            self._units.insert(place, 0)
            self._so_far.insert(place, self._so_far[place - 1] if place else 0)
        self._units[place] |= units
        for later in range(place, len(self._slots)):
            self._so_far[later] |= units


# ----------------------------------------------------------------------
# Who uses a machine without standing in its queue.


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
    """Nobody."""

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Return 0: there is nobody to wait for."""
        del job, units, now_s
        return 0.0


# ----------------------------------------------------------------------
# Sets of allocation units as the bits of one integer.

UnitSet = int
"""A set of units, one bit a unit."""


class Units:
    """The units 0 .. count - 1 of one machine.

    Attributes:
        count: How many there are.
        every: The set of all of them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.every: UnitSet = (1 << count) - 1
        # Few and short, so that a machine of a million processors fits in memory.
        self._halves: tuple[tuple[int, UnitSet], ...] = tuple(
            (1 << k, (1 << (1 << k)) - 1) for k in reversed(range(count.bit_length()))
        )

    def lowest(self, among: UnitSet, count: int) -> UnitSet:
        """Return the *count* lowest-numbered units of *among*, or all it has."""
        if count >= among.bit_count():
            return among
        if count < 1:
            return 0
        last, rest, wanted = 0, among, count
        # Where the wanted-th unit is, by halves: each look is at half of the last.
        for width, low in self._halves:
            below = rest & low
            found = below.bit_count()
            if found >= wanted:
                rest = below
            else:
                wanted -= found
                rest >>= width
                last += width
        return among & ((2 << last) - 1)


def unit_set(members: Iterable[int]) -> UnitSet:
    """Return the set of the unit numbers *members*."""
    units = 0
    for member in members:
        units |= 1 << member
    return units


def mask(units: UnitSet, count: int) -> NDArray[np.bool_]:
    """Return *units* as *count* booleans, True where the unit is in the set."""
    packed = np.frombuffer(units.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)


def members(units: UnitSet) -> tuple[int, ...]:
    """Return the unit numbers in *units*, ascending."""
    return tuple(np.flatnonzero(mask(units, units.bit_length())).tolist())


# ----------------------------------------------------------------------
# Which units make up which node, and what the nodes are called.


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


# ----------------------------------------------------------------------
# The machine as a scheduler sees it: free units, running jobs, the queue.


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
