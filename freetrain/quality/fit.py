"""One family fitted to one course."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.projection import Projected, project
from freetrain.quality.quantile import weighted_quantile
from freetrain.quality.spikes import find_spikes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.quality.course import Course, Frame
    from freetrain.quality.families.interface import Family

HALF_LIFE = 0.5
"""Of a point's weight, as a share of the work done. SLAQ forgets exponentially too
[its rate is unverified]; as a share, a long training forgets as a short one does."""

FURTHEST_FLOOR = 1.0
"""No trainer is expected to gain more than this many times what it has gained."""

LEAST_SCATTER = 0.01
"""In heights: families are no closer to the truth than that, however calm it is."""

SCATTER_OF_NOISE = 2.0

CHI_OF_COST = SCATTER_OF_NOISE**2
"""Costs are in squares of the scatter; times this, in squares of the noise."""

RECENT_SHARE = 0.1
"""Of the points: those that say where a trainer stands now."""

FEWEST_RECENT = 3

LAG_LENGTH = 0.25
"""Of the work done: over it, a lag falls to 1 / e."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A family's curve through a course.

    Attributes:
        family: Which one.
        shape: Its shape, shape (parameters - 2,).
        gain: 0 or more.
        floor: Where it ends, in heights.
        lag: Heights by which the last points were above the curve.
        end: Work at the last point.
    """

    family: Family
    shape: NDArray[np.float64]
    gain: float
    floor: float
    lag: float = 0.0
    end: float = 1.0

    def curve(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the family's curve at *work*, shape (n,)."""
        basis = self.family.basis(work, self.shape[None, :])[0]
        return np.asarray(self.floor + self.gain * basis)

    def forecast(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the heights to expect at *work* from the end on, shape (n,).

        By how much the last points missed the curve is believed near by, and ever
        less further on.
        """
        ahead = work / self.end - 1
        return self.curve(work) + self.lag * np.exp(-ahead / LAG_LENGTH)


def fit_family(family: Family, course: Course) -> Fit:
    """Return *family*'s best curve on its grid of shapes, robust and weighted."""
    end = float(course.work[-1])
    if family.parameters == 1:
        return Fit(family, family.shapes[0], 0.0, recent_level(course), end=end)
    shapes = family.shapes
    found = _projected(family, course)
    best = int(np.argmin(found.costs))
    gain, floor = float(found.gains[best]), float(found.floors[best])
    return with_lag(Fit(family, shapes[best], gain, floor, end=end), course)


def costs_of(family: Family, course: Course) -> NDArray[np.float64]:
    """Return the robust sums of squares of *family*'s shapes, shape (g,)."""
    return _projected(family, course).costs


def _projected(family: Family, course: Course) -> Projected:
    return project(
        family.basis(course.work, family.shapes),
        course.heights,
        fading_weights(course),
        lowest=lowest_floor(course),
        scatter=scatter_of(course),
    )


def with_lag(fit: Fit, course: Course) -> Fit:
    """Return *fit* with the lag of *course*'s last points."""
    return replace(fit, lag=recent_level(course, above=fit.curve(course.work)))


def refreshed_lag(
    fit: Fit,
    frame: Frame,
    samples: NDArray[np.float64],
    values: NDArray[np.float64],
) -> Fit:
    """Return *fit* with the lag of a history that has gone on.

    Args:
        fit: Fitted to a part of the history.
        frame: The units of the fit.
        samples: Of all usable points, ascending, shape (n,).
        values: Theirs, shape (n,).
    """
    last = _recent_count(samples.size)
    work = (samples[-last:] - frame.origin_samples) / frame.unit_samples
    heights = (values[-last:] - frame.best) / frame.span
    lag = float(np.median(heights - fit.curve(work)))
    return replace(fit, lag=lag, end=max(float(work[-1]), fit.end))


def recent_level(course: Course, *, above: NDArray[np.float64] | None = None) -> float:
    """Return where the last points are, in heights, or how far above a curve.

    Their median where they are few told points, so that no spike among them counts.
    """
    last = _recent_count(len(course))
    heights = course.heights if above is None else course.heights - above
    return weighted_quantile(heights[-last:], course.weights[-last:], 0.5)


def _recent_count(count: int) -> int:
    return max(FEWEST_RECENT, int(RECENT_SHARE * count))


def fading_weights(course: Course) -> NDArray[np.float64]:
    """Return the weights of *course*'s points: the older, the less."""
    age = 1 - course.work / course.work[-1]
    return np.asarray(course.weights * 0.5 ** (age / HALF_LIFE))


def lowest_floor(course: Course) -> float:
    """Return the lowest height that a curve may end at."""
    calm = course.heights[~find_spikes(course.heights, course.weights)]
    return float(calm.min() - FURTHEST_FLOOR * np.ptp(calm))


def scatter_of(course: Course) -> float:
    """Return by how much a point may miss a curve before it counts as a spike."""
    return max(SCATTER_OF_NOISE * course.noise, LEAST_SCATTER)
