"""Which units will be free when, in slots of the scheduler's resolution."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logs.schedule.unitset import UnitSet


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
