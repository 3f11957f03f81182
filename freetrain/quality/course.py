"""A stretch of training in units of its own: what curves are fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.noise import noise_of
from freetrain.quality.outlook import Better
from freetrain.quality.spikes import find_spikes, running_median

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.quality.thinning import Thinned

SMALLEST_SPAN = 1e-12
"""Of the largest value: below it, differences are rounding."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How told numbers and those of a course belong together.

    Attributes:
        origin_samples: Where work 0 is: one step before the first point.
        unit_samples: How much work 1 is.
        best: The value that is height 0.
        span: [signed] The difference to the value that is height 1.
    """

    origin_samples: float
    unit_samples: float
    best: float
    span: float

    def work(self, samples: float) -> float:
        """Return *samples* in units of the course."""
        return (samples - self.origin_samples) / self.unit_samples

    def samples(self, work: float) -> float:
        """Return the told samples at *work*."""
        return self.origin_samples + work * self.unit_samples

    def height(self, value: float) -> float:
        """Return *value* in units of the course; less is better."""
        return (value - self.best) / self.span

    def value(self, height: float) -> float:
        """Return the told value at *height*."""
        return self.best + height * self.span


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Points with work above 0 and heights where less is better; all of shape (n,).

    Attributes:
        work: Training done, ascending; 1 at the last point of the whole course.
        heights: About 0 at the best point of the whole course and 1 at the worst;
            spikes are outside.
        weights: How many told points each stands for.
        noise: By how much told values scatter, in units of height.
    """

    work: NDArray[np.float64]
    heights: NDArray[np.float64]
    weights: NDArray[np.float64]
    noise: float

    def __len__(self) -> int:
        """Return the number of points."""
        return self.work.size

    @property
    def late_noise(self) -> float:
        """The noise of the later half: as rates of learning fall, so does it."""
        half = len(self) // 2
        return noise_of(self.heights[half:], self.weights[half:])

    def until(self, count: int) -> Course:
        """Return the first *count* points, as they were seen then."""
        return Course(
            self.work[:count],
            self.heights[:count],
            self.weights[:count],
            noise_of(self.heights[:count], self.weights[:count]),
        )

    def without_spikes(self) -> Course:
        """Return the same points, spikes at the height of their neighbours."""
        spikes = find_spikes(self.heights, self.weights)
        heights = np.where(spikes, running_median(self.heights), self.heights)
        return Course(self.work, heights, self.weights, self.noise)


def frame_of(thinned: Thinned, better: Better) -> Frame:
    """Return the frame in which *thinned*, without spikes, spans one unit each way.

    Work starts one typical step before the first point, not at the trainer's
    beginning: a phase forgets how long training took until then.
    """
    samples, values = thinned.samples, thinned.values
    step = float(np.median(np.diff(samples) / thinned.weights[1:]))
    origin = float(samples[0]) - step
    calm = values[~find_spikes(values, thinned.weights)]
    best, worst = float(calm.min()), float(calm.max())
    if better is Better.HIGHER:
        best, worst = worst, best
    tiny = SMALLEST_SPAN * max(abs(best), abs(worst), SMALLEST_SPAN)
    span = worst - best
    if abs(span) < tiny:
        span = tiny if better is Better.LOWER else -tiny
    return Frame(origin, float(samples[-1]) - origin, best, span)


def course_of(thinned: Thinned, frame: Frame) -> Course:
    """Return *thinned* in units of *frame*."""
    work = (thinned.samples - frame.origin_samples) / frame.unit_samples
    heights = (thinned.values - frame.best) / frame.span
    return Course(work, heights, thinned.weights, noise_of(heights, thinned.weights))
