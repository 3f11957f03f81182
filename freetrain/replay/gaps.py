"""Optimality gaps of a replay's plans, measured on some of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milp.window import window_gap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from milp.window import Window

_MOST = 40
"""Bounds at the end of a replay: of 40 trainers one takes 43 ms, of 10 it takes 19."""

_HIGH = 0.9


@dataclass(frozen=True, slots=True)
class Gap:
    """How far plans were below their upper bounds; ``milp.gap`` defines a gap.

    Attributes:
        mean: Mean gap of the plans measured.
        high: Nine of ten of them have at most this.
        most: The largest.
        sampled: How many plans were measured: all, or some at equal distances.
        plans: How many plans were made.
    """

    mean: float
    high: float
    most: float
    sampled: int
    plans: int


class GapSampler:
    """Keeps some of a replay's plans, and measures their gaps when it is over.

    A bound takes a hundred times as long as a plan of a window, so that some dozens
    of windows are kept, at equal distances: when there are too many, every second is
    dropped, and of those that follow half as many are kept. Planners are not asked.

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
        """Record a plan with the *gap* that its planner reports."""
        self._plans += 1
        self._known.append(gap)

    def keep(self, window: Window, gain: float) -> None:
        """Record a plan of *window* that gains *gain*; neither may change."""
        if self._plans % self._every == 0:
            self._kept.append((window, gain))
            if len(self._kept) > self._most:
                self._kept, self._every = self._kept[::2], 2 * self._every
        self._plans += 1

    def summary(self) -> Gap | None:
        """Return the gaps measured; None if there were no plans."""
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
