"""Sets of allocation units as the bits of one integer.

Unit i is bit i. On 4,360 units an intersection and its count take half a
microsecond, against two and a half for NumPy arrays of booleans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

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
