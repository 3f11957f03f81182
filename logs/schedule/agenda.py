"""A timeline for jobs that not every unit suits, quick for those that start now."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from logs.schedule.timeline import Gap, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logs.schedule.unitset import UnitSet


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
