"""How far a replay's plans were from the best there can be, looked at now and then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milp.window_gap import window_gap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from milp.window import Window

_MOST = 40
"""Bounds at the end of a replay: of 40 trainers one takes 43 ms, of 10 it takes 19."""

_HIGH = 0.9


@dataclass(frozen=True, slots=True)
class Gap:
    """How far plans were below their bounds; ``milp.gap`` says what a gap is.

    Attributes:
        mean: Of the plans looked at.
        high: Nine of ten of them have at most this.
        most: The largest.
        sampled: How many were looked at: all, or some at equal distances.
        plans: How many plans were made.
    """

    mean: float
    high: float
    most: float
    sampled: int
    plans: int


class Gaps:
    """Takes note of plans, and looks at some of them when the replay is over.

    A bound takes a hundred times as long as a plan of a window, so that some dozens
    of windows are kept, at equal distances: where there are too many, every second is
    dropped, and of those that come half as many are kept. Nothing that plans is asked.

    Args:
        most: Windows that are kept at most, 1 or more.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._every = 1
        self._plans = 0
        self._known: list[float] = []
        self._kept: list[tuple[Window, float]] = []

    def know(self, gap: float) -> None:
        """Take note of a plan with a *gap* that its planner tells."""
        self._plans += 1
        self._known.append(gap)

    def keep(self, window: Window, gain: float) -> None:
        """Take note of a plan of *window* that gains *gain*; neither may change."""
        if self._plans % self._every == 0:
            self._kept.append((window, gain))
            if len(self._kept) > self._most:
                self._kept, self._every = self._kept[::2], 2 * self._every
        self._plans += 1

    def summary(self) -> Gap | None:
        """Return how far the plans were from the best; None where none was made."""
        found = sorted(self._found())
        if not found:
            return None
        return Gap(
            mean=math.fsum(found) / len(found),
            high=found[math.ceil(_HIGH * len(found)) - 1],
            most=found[-1],
            sampled=len(found),
            plans=self._plans,
        )

    def _found(self) -> Iterator[float]:
        yield from self._known
        for window, gain in self._kept:
            yield window_gap(window, gain)
