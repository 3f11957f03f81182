"""A promise when it was told first, for as long as it is open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Told:
    """One promise when it was told first, and who of its nodes is left.

    Attributes:
        at_s: When it was told.
        end_s: What it said.
        kind: Its kind, by lead.
        of: How many nodes it was about.
        nodes: Those that are still idle.
        counted: Up to what part of the lead its exposure is counted.
    """

    at_s: float
    end_s: float
    kind: int
    of: int
    nodes: set[int]
    counted: float = 0.0

    @property
    def weight(self) -> float:
        """What a node of it weighs: they fare alike, so all together a root."""
        return 1.0 / math.sqrt(self.of)


def told_from(row: Any, *, kinds: int) -> Told:  # noqa: ANN401 - JSON
    """Return what was kept of a promise.

    Args:
        row: When it was told, what it said, its kind, its nodes in number, those left,
            and up to what part it is counted.
        kinds: How many kinds there are.

    Raises:
        ValueError: It cannot be.
        TypeError: It is nothing of the kind.
    """
    at_s, end_s, kind, of, nodes, counted = row
    if not (at_s < end_s and 0 <= kind < kinds and 0 < len(nodes) <= of):
        raise ValueError(f"a promise that cannot be: {row}")
    return Told(at_s, end_s, kind, of, set(nodes), counted)
