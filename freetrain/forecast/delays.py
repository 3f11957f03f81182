"""How much earlier or later something came than it was promised."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from freetrain.forecast.kept import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

EDGES_S = (
    *(-14_400.0, -7_200.0, -3_600.0, -1_800.0, -900.0, -600.0, -300.0, -120.0, -60.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0),
)
"""Where classes of delay begin and end, in seconds; below 0 is early. What comes
within a minute is on time: ticks see no more than that."""

_ON_TIME = EDGES_S.index(60.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval between what was promised and what came, for promises of one kind.

    Attributes:
        lead_s: Promises told so long ahead, or longer, up to the next kind.
        nodes: How many nodes were promised and have left since.
        early: Share of these that left more than a minute before, 0 to 1.
        late: Share of these that left more than a minute after.
        low_s: A tenth of them came no later than this after what was promised;
            below 0 is early.
        middle_s: The same of a half.
        high_s: The same of nine tenths.
    """

    lead_s: float
    nodes: int
    early: float
    late: float
    low_s: float
    middle_s: float
    high_s: float


class Delays:
    """Counts of nodes by delay.

    Args:
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        TypeError: Likewise.
    """

    def __init__(self, state: Sequence[int] | None = None) -> None:
        kept = [0] * (len(EDGES_S) + 1) if state is None else state
        self._counts = [whole(count) for count in kept]
        if len(self._counts) != len(EDGES_S) + 1:
            raise ValueError(f"{state} are no counts of delays")

    def add(self, delay_s: float, nodes: int) -> None:
        """Take note that *nodes* came *delay_s* after what was promised."""
        self._counts[bisect_right(EDGES_S, delay_s)] += nodes

    def interval(self, lead_s: float) -> Interval | None:
        """Return what they say; None where nothing has come yet."""
        nodes = sum(self._counts)
        if not nodes:
            return None
        low_s, middle_s, high_s = (self._quantile_s(q) for q in (0.1, 0.5, 0.9))
        return Interval(
            lead_s=lead_s,
            nodes=nodes,
            early=sum(self._counts[:_ON_TIME]) / nodes,
            late=sum(self._counts[_ON_TIME + 1 :]) / nodes,
            low_s=low_s,
            middle_s=middle_s,
            high_s=high_s,
        )

    def _quantile_s(self, share: float) -> float:
        """Return a quantile, straight within a class; at the ends the edge."""
        wanted = share * sum(self._counts)
        summed = list(accumulate(self._counts))
        place = next(k for k, total in enumerate(summed) if total >= wanted)
        if place in {0, len(EDGES_S)}:
            return EDGES_S[0] if place == 0 else EDGES_S[-1]
        before = summed[place] - self._counts[place]
        weight = (wanted - before) / self._counts[place]
        return EDGES_S[place - 1] + weight * (EDGES_S[place] - EDGES_S[place - 1])

    def to_state(self) -> list[int]:
        """Return it as JSON has it."""
        return list(self._counts)
