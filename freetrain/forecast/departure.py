"""A departure of idle nodes, as it is kept between ticks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Departure:
    """An event at which nodes left: a bit for each node by number, packed.

    Attributes:
        left: Who left.
        idle: Who was idle until then, those who left among them.
    """

    left: bytes
    idle: bytes
