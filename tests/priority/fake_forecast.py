"""A forecast that knows the truth, for tests of what is made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.losscurve.forecast import Better, Expected, Point

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SAMPLES = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeForecast:
    """Expects what *truth* says, a falling function of the samples done.

    Attributes:
        truth: Metric by samples; the lower the better, or the higher for
            ``Better.HIGHER``.
        done: Samples up to which values have been told.
        told: How many, evenly spread from the beginning.
        better: Which values are good.
        family: A name.
        is_diverging: Whether it is.
    """

    truth: Callable[[float], float]
    done: float
    told: int = 10
    better: Better = Better.LOWER
    family: str = "truth"
    is_diverging: bool = False

    @property
    def points(self) -> tuple[Point, ...]:
        """Values without noise; the last one at *done*."""
        steps = [self.done * k / max(self.told - 1, 1) for k in range(self.told)]
        return tuple([Point(at / 100, at, self.truth(at)) for at in steps])

    def expected(self, samples: float) -> Expected:
        """Return the truth, refusing questions about the past."""
        if samples < self.done:
            raise ValueError(f"asked for {samples:g} of {self.done:g} samples done")
        value = self.truth(samples)
        return Expected(value, value, value)

    def quality(self, value: float) -> float:
        """Return how far *value* is from the first to the best value told."""
        shown = [point.value for point in self.points]
        best = (min if self.better is Better.LOWER else max)(shown)
        worst = (max if self.better is Better.LOWER else min)(shown)
        value = worst if math.isnan(value) else value
        return (value - shown[0]) / (best - shown[0]) if best != shown[0] else 0.0

    def samples_to(self, value: float) -> float:
        """Return when the truth gets there, by halving; inf for never."""
        low, high = self.done, MOST_SAMPLES
        if not self._is_reached(value, high):
            return math.inf
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if self._is_reached(value, middle) else (middle, high)
            )
        return high

    def _is_reached(self, value: float, samples: float) -> bool:
        told = self.truth(samples)
        return told <= value if self.better is Better.LOWER else told >= value


def power_law(
    *, steepness: float = 0.5, at: float = 1e4, floor: float = 0.2
) -> Callable[[float], float]:
    """Return a loss that falls from 1 + *floor* to *floor*: half way by *at* or so."""
    return lambda samples: floor + (1 + samples / at) ** -steepness


def exponential(*, at: float, floor: float = 0.2) -> Callable[[float], float]:
    """Return a loss that falls by a factor e every *at* samples."""
    return lambda samples: floor + math.exp(-samples / at)


def flat(level: float = 0.5) -> Callable[[float], float]:
    """Return a loss that fell at once, and stays."""
    return lambda samples: level if samples else 1.0
