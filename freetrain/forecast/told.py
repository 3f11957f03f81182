"""A promise when it was told first, for as long as it is open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from freetrain.forecast.kept import amount, members, whole

if TYPE_CHECKING:
    from collections.abc import Callable


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


def told_from(
    row: Any,  # noqa: ANN401 - JSON
    *,
    kind_of: Callable[[float], int],
) -> Told:
    """Return what was kept of a promise.

    Args:
        row: When it was told, what it said, its kind, its nodes in number, those left,
            and up to what part it is counted.
        kind_of: Returns the kind of a promise by its lead, seconds.

    Raises:
        ValueError: It cannot be.
        TypeError: It is nothing of the kind.
    """
    at_s, end_s, kind, of, nodes, counted = row
    told = Told(
        amount(at_s),
        amount(end_s),
        whole(kind),
        whole(of),
        members(nodes),
        amount(counted),
    )
    is_kind = at_s < end_s and kind == kind_of(end_s - at_s)
    if not (is_kind and 0 < len(told.nodes) <= of):
        raise ValueError(f"a promise that cannot be: {row}")
    return told
