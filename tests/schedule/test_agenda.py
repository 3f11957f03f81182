"""An agenda's places, held against looking at each unit in each slot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from logs.timeline import Agenda, Need, members, unit_set

UNITS = 5
NOW_S = 103.0
FOR_EVER = 10**12

some = st.integers(0, (1 << UNITS) - 1)
moments_s = st.sampled_from([NOW_S, NOW_S + 0.5, 105.0, 110.0, 120.0, 120.0, 140.0])
times = st.lists(moments_s, min_size=UNITS, max_size=UNITS)
wanted = st.sampled_from([31, 31, 3, 12, 24])
needs = st.builds(
    lambda size, request_s, among, must: Need(size, request_s, among, among & must),
    st.integers(0, 4),
    st.sampled_from([0.0, 4.0, 15.0, 25.0, 1e9]),
    st.sampled_from([31, 31, 15, 28]),
    st.sampled_from([0, 0, 0, 1, 6]),
)


@dataclass
class Slots:
    """Who is not free in which slots, unit by unit.

    Attributes:
        length_s: Of a slot.
        taken: First slot and the one after the last, by unit.
    """

    length_s: float
    taken: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def slot(self, time_s: float) -> int:
        return math.ceil(time_s / self.length_s)

    @property
    def now(self) -> int:
        return math.floor(NOW_S / self.length_s)

    def take(self, units: int, first: int, end: int) -> None:
        for unit in members(units):
            self.taken.setdefault(unit, []).append((first, end))

    def place(self, first: int, need: Need) -> tuple[int, int, int] | None:
        start_s = NOW_S if first == self.now else first * self.length_s
        end = max(self.slot(start_s + need.request_s), first + 1)
        units = unit_set(
            unit
            for unit in members(need.among)
            if all(a >= end or b <= first for a, b in self.taken.get(unit, ()))
        )
        is_met = units.bit_count() >= need.size and not need.must & ~units
        return (first, end, units) if is_met else None

    def earliest(self, need: Need) -> tuple[int, int, int] | None:
        ends = (end for spans in self.taken.values() for _, end in spans)
        places = (
            self.place(slot, need) for slot in sorted({self.now, *ends} - {FOR_EVER})
        )
        return next((place for place in places if place is not None), None)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([1.0, 10.0]),
    some,
    times,
    st.tuples(st.sampled_from([0, 0, 1, 6]), times),
    st.lists(
        st.tuples(st.sampled_from(["now", "later", "beside others"]), needs, wanted),
        max_size=8,
    ),
)
def test_places_are_those_that_one_finds_unit_by_unit(
    length_s: float,
    free: int,
    ends_s: list[float],
    closed: tuple[int, list[float]],
    asked: list[tuple[str, Need, int]],
) -> None:
    slots = Slots(length_s)
    ends = [(ends_s[k], 1 << k) for k in range(UNITS) if not free >> k & 1]
    never = [(closed[1][k], 1 << k) for k in members(closed[0])]
    agenda = Agenda(NOW_S, free, ends, closed=never, resolution_s=length_s)
    for end_s, unit in ends:
        slots.take(unit, slots.now, max(slots.slot(end_s), slots.now + 1))
    for from_s, unit in never:
        slots.take(unit, slots.slot(from_s), FOR_EVER)

    for when, need, by in asked:
        if when == "beside others":
            units = by & agenda.unbooked(need.request_s)
            agenda.use_in_part(units, need.request_s)
            end = max(slots.slot(NOW_S + need.request_s), slots.now + 1)
            slots.take(units, slots.now, end)
            continue
        starts = when == "now"
        gap = agenda.start(need) if starts else agenda.earliest(need)
        first = slots.place(slots.now, need) if starts else slots.earliest(need)
        if gap is None:
            assert first is None
            continue
        at = round(agenda.starts_s(gap.at) / length_s) if gap.at else slots.now
        assert (at, gap.end_slot, gap.units) == first
        agenda.book(gap, gap.units & by)
        slots.take(gap.units & by, at, gap.end_slot)
