"""From what a trainer told to the values that can be used."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.outlook import ABSURD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from freetrain.quality.outlook import Point


class History:
    """The usable values of one trainer, ascending in samples; grows as it is told.

    A value for fewer samples than the one before is one of two things. Where the
    very next goes on from the highest so far, or where they keep going down, it was
    only late: several processes write, and it takes its place. Where the next goes
    up from the low one, a restart has gone back to its checkpoint, and everything
    told after that checkpoint is void.
    """

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points: list[Point] = []
        self._samples = array("d")
        self._values = array("d")
        self._late: list[Point] = []
        self.broken = 0
        self.extend(points)

    def extend(self, points: Iterable[Point]) -> None:
        """Take in further points, in the order in which they were told."""
        for point in points:
            self._take(point)

    def __len__(self) -> int:
        """Return the number of usable points."""
        return self._cut() + 1 if self._late else len(self._points)

    @property
    def points(self) -> tuple[Point, ...]:
        """The usable points, ascending in samples, finite."""
        if not self._late:
            return tuple(self._points)
        return (*self._points[: self._cut()], self._late[-1])

    @property
    def samples(self) -> NDArray[np.float64]:
        """Samples of the usable points, shape (n,), strictly ascending."""
        if not self._late:
            return np.array(self._samples)
        return np.append(self._samples[: self._cut()], self._late[-1].samples)

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of the usable points, shape (n,)."""
        if not self._late:
            return np.array(self._values)
        return np.append(self._values[: self._cut()], self._late[-1].value)

    def _take(self, point: Point) -> None:
        if not (math.isfinite(point.samples) and point.samples >= 0):
            return
        if not abs(point.value) <= ABSURD:
            self.broken += 1
        else:
            self.broken = 0
            self._place(point)

    def _place(self, point: Point) -> None:
        highest = self._samples[-1] if self._samples else -math.inf
        if point.samples >= highest:
            self._settle_late()
            self._insert(point)
        elif self._late and point.samples > self._late[-1].samples:
            self._rewind(point)
        else:
            self._late.append(point)

    def _settle_late(self) -> None:
        for late in self._late:
            self._insert(late)
        self._late.clear()

    def _rewind(self, point: Point) -> None:
        first, cut = self._late[-1], self._cut()
        del self._points[cut:], self._samples[cut:], self._values[cut:]
        self._late.clear()
        self._insert(first)
        self._insert(point)

    def _cut(self) -> int:
        """Return how many points come before the latest late one."""
        if not self._late:
            return len(self._points)
        return bisect_left(self._samples, self._late[-1].samples)

    def _insert(self, point: Point) -> None:
        at = bisect_left(self._samples, point.samples)
        if at < len(self._samples) and self._samples[at] == point.samples:
            self._points[at] = point
            self._values[at] = point.value
            return
        self._points.insert(at, point)
        self._samples.insert(at, point.samples)
        self._values.insert(at, point.value)
