"""How far from the forecast values may be, learned from earlier forecasts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.quantile import weighted_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.quality.backtest import Trial
    from freetrain.quality.course import Course

SHARE = 0.8
"""Of the back-tests' outcomes that the growth is learned from: fewer than are to be
covered, because the outermost tenth of a few forecasts is chance."""

NORMAL = 1.2816
"""That share of normal values is within so many standard deviations."""

NORMAL_90 = 1.6449
"""Nine of ten are within so many."""

UNKNOWN_GROWTH = 0.3
"""In heights: where no forecast was tried, of a trainer that diverges."""

USUAL_GROWTH = 0.15
USUAL_POINTS = 10
"""A growth in heights that counts beside the back-tests', as that of so many points
does. Five forecasts of one's own past are few, and of one mind: where they all were
right by chance, intervals were far too narrow. docs/loss-curves.md has the figures."""

FEW_POINTS = 14
"""With fewer, the usual growth goes with the square of what is lacking: most of the
descent may still come, and heights are measured by the little that was seen of it. Of
what came after four values, without it, seven tenths were outside of the interval."""

DOUBT_OF_GAIN = 0.3
"""Of the gain that is forecast: that may always be less, or more."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Half of an interval of 90 %, as it grows with distance.

    Attributes:
        noise: Standard deviation of single values, in heights.
        growth: Half width of one of 80 % without noise at the far end, in heights.
    """

    noise: float
    growth: float

    def half_width(self, ahead: float, gain: float) -> float:
        """Return the half width in heights.

        Args:
            ahead: Work ahead, as a share of the work done, 0 or more.
            gain: Heights that are forecast to be gained by then.
        """
        drift = self.growth * float(_reach(np.array(ahead)))
        noise, doubt = NORMAL * self.noise, DOUBT_OF_GAIN * gain
        return NORMAL_90 / NORMAL * math.hypot(noise, drift, doubt)


def spread_of(course: Course, trials: Sequence[Trial]) -> Spread:
    """Return the spread that *trials*' outcomes speak for, the fewer the more usual.

    Without a trial it is the usual one, or an unknown one where that is more. No value
    is known better than by the step in which such values come: the accuracy on fifty
    samples stays the same for long, and then is off by a fiftieth at once.
    """
    noise = max(course.late_noise, _step_of(course.heights))
    count = len(course)
    usual = usual_growth(count)
    if not trials:
        return Spread(noise, max(usual, UNKNOWN_GROWTH))
    told = count * growth_of(trials) + USUAL_POINTS * usual
    return Spread(noise, told / (count + USUAL_POINTS))


def usual_growth(count: int) -> float:
    """Return the growth in heights that is usual after *count* points."""
    return USUAL_GROWTH * max(1.0, FEW_POINTS / count) ** 2


def growth_of(trials: Sequence[Trial]) -> float:
    """Return the growth with which 80 % of the outcomes of *trials* were inside.

    Every trial weighs the same, with few outcomes or with many: a forecast that was
    wrong is wrong at all of its points.
    """
    asked = np.concatenate([_growth_asked(trial) for trial in trials])
    weights = np.concatenate([trial.weights / trial.weights.sum() for trial in trials])
    return weighted_quantile(asked, weights, SHARE)


def _step_of(heights: NDArray[np.float64]) -> float:
    """Return the smallest difference between two of *heights*; 0 where all are alike.

    Next to nothing for values that may be anything; for a share of a few samples,
    one of them.
    """
    steps = np.diff(np.unique(heights))
    return float(steps.min()) if steps.size else 0.0


def _growth_asked(trial: Trial) -> NDArray[np.float64]:
    """Return the growth with which each of *trial*'s outcomes is just inside.

    Noise is that of the trial's time: more of it than now is no sign of drift.
    """
    beyond = np.maximum(trial.misses**2 - (NORMAL * trial.noise) ** 2, 0.0)
    return np.asarray(np.sqrt(beyond) / _reach(trial.ahead))


def _reach(ahead: NDArray[np.float64]) -> NDArray[np.float64]:
    # Saturates: training does, too. Fitted to the residuals of curves with
    # 15-80 % seen, it covered as much as a logarithm with narrower intervals.
    return ahead / (1 + ahead)
