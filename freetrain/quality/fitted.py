"""An outlook that rests on a fitted curve."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.divergence import is_diverging
from freetrain.quality.fit import refreshed_lag
from freetrain.quality.outlook import Better, Expected

if TYPE_CHECKING:
    from freetrain.quality.course import Frame
    from freetrain.quality.fit import Fit
    from freetrain.quality.history import History
    from freetrain.quality.interval import Spread
    from freetrain.quality.outlook import Point
    from freetrain.quality.scale import Scale

FURTHEST = 1e4
"""Times the work done: what is not reached by then never is."""

STEPS = 400
"""Of the search for when a value is reached, before it is narrowed down."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedOutlook:
    """What a curve through the present phase says; an ``Outlook``.

    Attributes:
        better: Which values are good.
        points: The usable values, ascending in samples.
        is_diverging: Whether the training has gone wrong.
        phase_samples: Where the present phase, or what followed the warm-up, began.
        frame: The units of *fit* and *spread*.
        fit: The chosen family's curve.
        spread: How far off it may be.
        scale: The units of quality.
    """

    better: Better
    points: tuple[Point, ...]
    is_diverging: bool
    phase_samples: float
    frame: Frame
    fit: Fit
    spread: Spread
    scale: Scale

    @property
    def family(self) -> str:
        """The name of the family that was chosen."""
        return self.fit.family.name

    def expected(self, samples: float) -> Expected:
        """Return the value expected after *samples* in all, at least those done."""
        work = max(self.frame.work(samples), self.fit.end)
        now, then = self.fit.forecast(np.array([self.fit.end, work]))
        half = self.spread.half_width(work / self.fit.end - 1, float(now - then))
        ends = (
            self.frame.value(float(then) - half),
            self.frame.value(float(then) + half),
        )
        return Expected(self.frame.value(float(then)), min(ends), max(ends))

    def quality(self, value: float) -> float:
        """Return *value* as quality; what is not finite is the worst value shown."""
        return self.scale.quality(value)

    def samples_to(self, value: float) -> float:
        """Return after how many samples in all *value* is expected; inf for never.

        Where it has been reached: the samples of the first point that did.
        """
        for point in self.points:
            if self.scale.sign * (point.value - value) >= 0:
                return point.samples
        if not math.isfinite(value):
            return math.inf
        return self._future_samples_to(self.frame.height(value))

    def refreshed(self, history: History) -> FittedOutlook:
        """Return this outlook moved on to *history*'s end, its curve as it was."""
        points = history.points
        values = history.values
        return replace(
            self,
            points=points,
            is_diverging=is_diverging(values, self.scale, broken=history.broken),
            fit=refreshed_lag(self.fit, self.frame, history.samples, values),
        )

    def _future_samples_to(self, height: float) -> float:
        """Return the samples at which the forecast first is *height* or better."""
        works = self.fit.end * np.geomspace(1.0, FURTHEST, STEPS)
        for _ in range(2):
            reached = np.flatnonzero(self.fit.forecast(works) <= height)
            if reached.size == 0:
                return math.inf
            first = int(reached[0])
            works = np.linspace(works[max(first - 1, 0)], works[first], STEPS)
        return self.frame.samples(float(works[-1]))
