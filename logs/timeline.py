"""Which units of a machine are free when: sets of units, and plans over time.

A set of units (nodes, or processors where a log counts those) is the bits of one
integer; where few units change at a time, or many sets are kept, it is the ranges of
its consecutive units (``UnitRanges``). A ``Timeline`` has the units that are free from
now on, in slots as Slurm's backfill has them, and takes bookings; the simulated Slurm
of ``logs.simulation`` plans on it. An ``Agenda`` is a timeline for jobs that not every
unit suits; on it the broker works out where waiting jobs will start. Pure: no NumPy, no
clock, nothing of Slurm.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from functools import reduce
from itertools import chain, compress
from operator import and_
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from logs.gpus import GpuNodes


UnitSet = int
"""A set of units, one bit a unit."""


def unit_set(members: Iterable[int]) -> UnitSet:
    """Return the set of the unit numbers *members*."""
    units = 0
    for member in members:
        units |= 1 << member
    return units


def members(units: UnitSet) -> tuple[int, ...]:
    """Return the unit numbers in *units*, ascending."""
    raw = units.to_bytes((units.bit_length() + 7) // 8, "little")
    bytes_that_count = compress(range(len(raw)), raw)
    return tuple([8 * k + bit for k in bytes_that_count for bit in _BITS[raw[k]]])


_BITS = tuple(tuple(k for k in range(8) if byte >> k & 1) for byte in range(256))
"""The bits that are set, by byte."""


class UnitRanges:
    """Units, or nodes, by ranges of consecutive ones, each with a mark.

    Ranges that touch are one where their marks are equal, so that a machine of a
    hundred thousand units is a few hundred ranges, and a change takes as long as there
    are ranges in it.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._marks: list[float] = []
        self._count = 0

    @classmethod
    def of(cls, units: Iterable[int]) -> UnitRanges:
        """Return *units*, which ascend, none twice."""
        made = cls()
        for unit in units:
            made.add(unit, unit + 1)
        return made

    def __len__(self) -> int:
        """Return how many units are in it."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the units, ascending."""
        return chain.from_iterable(map(range, self._firsts, self._ends))

    def add(self, first: int, end: int, mark: float = 0.0) -> None:
        """Add the units *first* .. *end* - 1.

        Raises:
            ValueError: One of them is there already.
        """
        firsts, ends, marks = self._firsts, self._ends, self._marks
        at = bisect_left(firsts, first)
        if (at and ends[at - 1] > first) or (at < len(firsts) and firsts[at] < end):
            raise ValueError(f"one of {first} to {end - 1} is there already")
        self._count += end - first
        joins_next = at < len(firsts) and firsts[at] == end and marks[at] == mark
        if at and ends[at - 1] == first and marks[at - 1] == mark:
            if joins_next:
                ends[at - 1] = ends[at]
                del firsts[at], ends[at], marks[at]
            else:
                ends[at - 1] = end
        elif joins_next:
            firsts[at] = first
        else:
            firsts.insert(at, first)
            ends.insert(at, end)
            marks.insert(at, mark)

    def remove(self, first: int, end: int) -> list[tuple[int, int, float]]:
        """Remove those of the units *first* .. *end* - 1 that are there.

        Returns:
            The ranges that were: first unit, end and mark of each, ascending.
        """
        firsts, ends, marks = self._firsts, self._ends, self._marks
        removed = []
        at = bisect_right(ends, first)
        while at < len(ends) and firsts[at] < end:
            own_first, own_end, mark = firsts[at], ends[at], marks[at]
            if own_first >= first and own_end <= end:
                del firsts[at], ends[at], marks[at]
            elif own_first >= first:
                firsts[at] = end
            else:
                ends[at] = first
                at += 1
                if own_end > end:
                    firsts.insert(at, end)
                    ends.insert(at, own_end)
                    marks.insert(at, mark)
            own_first = max(own_first, first)
            own_end = min(own_end, end)
            self._count -= own_end - own_first
            removed.append((own_first, own_end, mark))
        return removed

    def highest(self, count: int) -> list[int]:
        """Return the *count* highest units, or all there are, ascending."""
        found: list[range] = []
        for first, end in zip(
            reversed(self._firsts), reversed(self._ends), strict=True
        ):
            if count <= 0:
                break
            found.append(range(max(first, end - count), end))
            count -= end - first
        return [*chain.from_iterable(reversed(found))]


class HolderCounts:
    """How many jobs hold each unit: nodes that jobs share are held by several.

    Attributes:
        held_by: Units held by one job or more, by two or more, and so on.
    """

    def __init__(self) -> None:
        self.held_by: list[UnitSet] = []

    def take(self, units: UnitSet) -> None:
        """Let one job more hold each of *units*."""
        for place, held in enumerate(self.held_by):
            if not units:
                return
            self.held_by[place] = held | units
            units &= held
        if units:
            self.held_by.append(units)

    def give_back(self, units: UnitSet) -> None:
        """Let one job less hold each of *units*, all of which are held."""
        for place in reversed(range(len(self.held_by))):
            held = self.held_by[place]
            self.held_by[place] = held & ~units
            units &= ~held
        while self.held_by and not self.held_by[-1]:
            self.held_by.pop()

    def at_least(self, jobs: int) -> UnitSet:
        """Return the units that *jobs* jobs or more hold, 1 or more."""
        return self.held_by[jobs - 1] if len(self.held_by) >= jobs else 0


class Placement(NamedTuple):
    """A place for a job on a timeline.

    Attributes:
        at: Index of the step it starts in; 0 is now.
        end_slot: The first slot after the job.
        units: Every unit that is free throughout.
    """

    at: int
    end_slot: int
    units: UnitSet


class Timeline:
    """The free units from now to the end of time, as a step function.

    Slot k begins at k × resolution. A step is a run of slots with the same free units.
    Running jobs hold their units to the end of the slot in which their request ends;
    a job that is past its request, to the end of the present slot. In the last step
    everything is free.

    Where units are GPUs, a job needs them on certain numbers of nodes. A later start is
    booked with all of its nodes, as Slurm's backfill plans whole nodes; a job that
    starts now has its GPUs alone.

    Args:
        now_s: The moment.
        free: Units that no job holds now.
        ends: When running jobs are expected to end, each with its units, which no
            other has, and their number.
        resolution_s: Length of a slot.
        gpus: The nodes, where units are GPUs; else None.
    """

    def __init__(
        self,
        now_s: float,
        free: UnitSet,
        ends: Iterable[tuple[float, UnitSet, int]],
        resolution_s: float,
        gpus: GpuNodes | None = None,
    ) -> None:
        self._resolution_s = resolution_s
        self._gpus = gpus
        base = math.floor(now_s / resolution_s)
        self._slots = [base]
        self._free = [free]
        self._counts = [free.bit_count()]
        # Slots before which nothing as large and as long fits on so many nodes, the
        # latest first.
        self._floors: list[tuple[int, int, float, int]] = []
        self._taken = [0]  # units of the bookings that begin with each step
        for slot, units, size in sorted(
            (max(self._slot(end_s), base + 1), units, size)
            for end_s, units, size in ends
        ):
            self._release(slot, units, size)

    @property
    def next_slot(self) -> int:
        """The slot after that in which now lies."""
        return self._slots[0] + 1

    @property
    def next_change_s(self) -> float:
        """The first time after now at which the free units change, else inf."""
        return self.starts_s(1) if len(self._slots) > 1 else math.inf

    def starts_s(self, at: int) -> float:
        """Return when step *at* begins."""
        return self._slots[at] * self._resolution_s

    def find(
        self,
        size: int,
        request_s: float,
        *,
        now_s: float,
        nodes: int = 0,
        before_slot: float = math.inf,
    ) -> Placement | int:
        """Return the earliest place for *size* units during *request_s*.

        Where it does not begin before *before_slot*, only a slot is returned, not
        before that one, before which there is no place. GPUs are to be on *nodes*
        nodes; 0 for as few as can hold them.
        """
        gpus = self._gpus
        nodes = 0 if gpus is None else gpus.nodes_of(size, nodes)
        at = known = self._first_worth_trying(size, request_s, nodes)
        slots, free, counts = self._slots, self._free, self._counts
        found: Placement | None = None
        while found is None and slots[at] < before_slot:
            if counts[at] < size:
                at += 1
                continue
            end_slot = self._end_slot(at, request_s, now_s)
            end = bisect_left(slots, end_slot, at + 1)
            # Numbers tell most failures, in a thousandth of the time that sets take.
            # A later start fails too, as long as the step with too few is ahead.
            if min(counts[at:end]) < size:
                at = next(k for k in reversed(range(end)) if counts[k] < size) + 1
                continue
            # Only where a booking begins are units taken that were free before.
            taken = self._taken[at + 1 : end]
            units = reduce(and_, compress(free[at + 1 : end], taken), free[at])
            # Counting takes ten times as long as an intersection.
            if (counts[at] - sum(taken) >= size or units.bit_count() >= size) and (
                gpus is None or gpus.has_room(units, size, nodes)
            ):
                found = Placement(at, end_slot, units)
            else:
                at += 1
        if at > known:
            self._keep_floor(slots[at], size, request_s, nodes)
        return slots[at] if found is None else found

    def book(self, gap: Placement, units: UnitSet) -> None:
        """Take *units* of *gap* for as long as it lasts."""
        end = self._cut(gap.end_slot)
        free, counts = self._free, self._counts
        size = units.bit_count()
        if self._gpus is not None and gap.at:
            whole = self._gpus.nodes_with(units)
            size = (free[gap.at] & whole).bit_count()
            for step in range(gap.at, end):  # other GPUs of these come free meanwhile
                free[step] &= ~whole
                counts[step] = free[step].bit_count()
        else:
            for step in range(gap.at, end):
                free[step] ^= units
                counts[step] -= size
        self._taken[gap.at] += size

    def _first_worth_trying(self, size: int, request_s: float, nodes: int) -> int:
        # Bookings only take units away, so nothing fits earlier than a job that
        # was as small and as short did.
        for slot, other_size, other_s, other_nodes in self._floors:
            if other_size <= size and other_s <= request_s and other_nodes == nodes:
                return bisect_left(self._slots, slot)
        return 0

    def _keep_floor(self, slot: int, size: int, request_s: float, nodes: int) -> None:
        """Note that nothing as large and as long fits on *nodes* before *slot*."""
        kept = [
            floor
            for floor in self._floors
            if floor[0] > slot
            or floor[1] < size
            or floor[2] < request_s
            or floor[3] != nodes
        ]
        insort(kept, (slot, size, request_s, nodes), key=lambda floor: -floor[0])
        self._floors = kept

    def _slot(self, time_s: float) -> int:
        return math.ceil(time_s / self._resolution_s)

    def _end_slot(self, at: int, request_s: float, now_s: float) -> int:
        start_s = now_s if at == 0 else self.starts_s(at)
        first = self._slots[at]
        return max(self._slot(start_s + request_s), first + 1)

    def _release(self, slot: int, units: UnitSet, size: int) -> None:
        if self._slots[-1] == slot:
            self._free[-1] |= units
            self._counts[-1] += size
        else:
            self._slots.append(slot)
            self._free.append(self._free[-1] | units)
            self._counts.append(self._counts[-1] + size)
            self._taken.append(0)

    def _cut(self, slot: int) -> int:
        at = bisect_left(self._slots, slot)
        if at == len(self._slots) or self._slots[at] != slot:
            self._slots.insert(at, slot)
            self._free.insert(at, self._free[at - 1])
            self._counts.insert(at, self._counts[at - 1])
            self._taken.insert(at, 0)
        return at


class Need(NamedTuple):
    """The units that a job needs.

    Attributes:
        size: How many.
        request_s: For how long.
        among: Units that suit it.
        must: Those of them that it requires.
    """

    size: int
    request_s: float
    among: UnitSet
    must: UnitSet = 0

    def is_met_by(self, units: UnitSet) -> bool:
        """Tell whether *units*, all of them suiting, are enough."""
        return units.bit_count() >= self.size and self.must & units == self.must


class Agenda(Timeline):
    """A timeline for jobs that not every unit suits, quick for those that start now.

    A job that starts now takes units from now on for a while. The steps are changed
    for it only once a later start is asked for.

    Args:
        now_s: The moment.
        free: Units that no job holds now.
        ends: When running jobs are expected to end, each with its units.
        closed: Times from which no job may have some units, each with the units; the
            slot in which the time lies is still open.
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
        counted = ((end_s, units, units.bit_count()) for end_s, units in ends)
        super().__init__(now_s, free, counted, resolution_s)
        self._now_s = now_s
        self._begun: dict[int, UnitSet] = {}
        self._used: dict[int, UnitSet] = {}
        self._later = _Later()
        self._close(closed)
        self._now = self._free[0]

    def start(self, need: Need) -> Placement | None:
        """Return the place now; None if *need* is not met."""
        end_slot = self._end_slot(0, need.request_s, self._now_s)
        units = self._now & need.among & ~self._later.before(end_slot)
        return Placement(0, end_slot, units) if need.is_met_by(units) else None

    def unbooked(self, request_s: float) -> UnitSet:
        """Return the units, free or not, that nothing takes while a job runs now."""
        return ~self._later.before(self._end_slot(0, request_s, self._now_s))

    def use_in_part(self, units: UnitSet, request_s: float) -> None:
        """Let a job have a part of each of *units* from now on.

        None of them is free before it ends; it may begin beside other jobs.
        """
        end_slot = self._end_slot(0, request_s, self._now_s)
        self._now &= ~units
        self._used[end_slot] = self._used.get(end_slot, 0) | units

    def mark(self) -> tuple[UnitSet, Mapping[int, UnitSet], Mapping[int, UnitSet]]:
        """Return what ``back_to`` takes to undo bookings that start now."""
        return self._now, self._begun.copy(), self._used.copy()

    def back_to(
        self, mark: tuple[UnitSet, Mapping[int, UnitSet], Mapping[int, UnitSet]]
    ) -> None:
        """Undo bookings since *mark*, all of which started now; no start was sought."""
        self._now, self._begun, self._used = mark[0], dict(mark[1]), dict(mark[2])

    def earliest(self, need: Need) -> Placement | None:
        """Return the earliest place where *need* is met; None for never."""
        self._apply_starts()
        at = 0
        while at < len(self._slots):
            end_slot = self._end_slot(at, need.request_s, self._now_s)
            slot = self._slots[at]
            suiting = need.among & ~self._later.between(slot + 1, end_slot)
            first = self._first(at, need._replace(among=suiting))
            if first == at:
                return Placement(at, end_slot, self._free[at] & suiting)
            at = first
        return None

    def book(self, gap: Placement, units: UnitSet) -> None:
        """Take *units* of *gap* for as long as it lasts."""
        if gap.at == 0:
            self._now ^= units
            self._begun[gap.end_slot] = self._begun.get(gap.end_slot, 0) | units
        else:
            self._later.add(self._slots[gap.at], units)
            super().book(gap, units)

    def _first(self, at: int, need: Need) -> int:
        """Return the first step from *at* on in which *need* is met at its beginning.

        At the latest the next step in which a booked job takes units: until then units
        only become free.
        """
        until = bisect_left(self._slots, self._later.next_after(self._slots[at]))
        return at + bisect_left(
            self._free[at:until],
            True,  # noqa: FBT003 -- False as long as too few are free
            key=lambda free: need.is_met_by(free & need.among),
        )

    def _apply_starts(self) -> None:
        """Take the units of the jobs that have started from the steps."""
        begun = sorted(self._begun.items())
        ends = [0, *(self._cut(slot) for slot, _ in begun)]
        held = 0
        for (_, units), start, end in zip(
            begun[::-1], ends[-2::-1], ends[:0:-1], strict=True
        ):
            held |= units
            size = held.bit_count()
            for step in range(start, end):
                self._free[step] ^= held
                self._counts[step] -= size
        self._begun.clear()
        for end_slot, units in self._used.items():
            for step in range(self._cut(end_slot)):
                self._free[step] &= ~units
                self._counts[step] = self._free[step].bit_count()
        self._used.clear()

    def _close(self, closed: Iterable[tuple[float, UnitSet]]) -> None:
        """Take units for ever, from the slot on in which a time lies or begins."""
        from_slot: dict[int, UnitSet] = {}
        for from_s, units in closed:
            slot = self._slot(max(from_s, self._now_s))
            from_slot[slot] = from_slot.get(slot, 0) | units
        for slot in sorted(from_slot):
            self._later.add(slot, from_slot[slot])
            self._cut(slot)
        for step, slot in enumerate(self._slots if from_slot else ()):
            self._free[step] &= ~self._later.before(slot + 1)
            self._counts[step] = self._free[step].bit_count()


class _Later:
    """Units that are taken from some later slot on."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._units: list[UnitSet] = []
        self._so_far: list[UnitSet] = []  # with those of earlier slots

    def next_after(self, slot: int) -> float:
        """Return the next slot after *slot* from which units are taken, else inf."""
        place = bisect_right(self._slots, slot)
        return self._slots[place] if place < len(self._slots) else math.inf

    def before(self, slot: int) -> UnitSet:
        """Return the units taken from a slot before *slot* on."""
        place = bisect_left(self._slots, slot)
        return self._so_far[place - 1] if place else 0

    def between(self, first: int, end: int) -> UnitSet:
        """Return the units taken from a slot on that is in *first* .. *end* - 1."""
        units = 0
        start = bisect_left(self._slots, first)
        for place in range(start, bisect_left(self._slots, end)):
            units |= self._units[place]
        return units

    def add(self, slot: int, units: UnitSet) -> None:
        """Take *units* from *slot* on."""
        place = bisect_left(self._slots, slot)
        if place == len(self._slots) or self._slots[place] != slot:
            self._slots.insert(place, slot)
            self._units.insert(place, 0)
            self._so_far.insert(place, self._so_far[place - 1] if place else 0)
        self._units[place] |= units
        for later in range(place, len(self._slots)):
            self._so_far[later] |= units
