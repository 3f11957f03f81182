"""A trainer's reported losses, made ready to be fitted.

``LossHistory`` keeps the usable values. ``downsample`` makes few points of many, spikes
and noise are found, and ``normalized`` gives the points units of their own, in which
curves are fitted. ``quality_scale`` says what a value is worth as quality.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.losscurve.forecast import LARGEST_VALUE, Better

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import Point


class LossHistory:
    """The usable values of one trainer, ascending in samples; grows with new reports.

    A value for fewer samples than the value before it is one of two things. Where the
    very next goes on from the highest so far, or where they keep going down, it was
    only late: several processes write, and it takes its place. Where the next goes
    up from the low value, a restart has gone back to its checkpoint, and everything
    reported after that checkpoint is void.

    Attributes:
        broken: Values in a row at the end that are not finite, or overflows.
    """

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points: list[Point] = []
        self._samples = array("d")
        self._values = array("d")
        self._late: list[Point] = []
        self.broken = 0
        self.extend(points)

    def extend(self, points: Iterable[Point]) -> None:
        """Add points, in the order in which they were reported."""
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
        if not abs(point.value) <= LARGEST_VALUE:
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


MOST_POINTS = 120


@dataclass(frozen=True, slots=True, eq=False)
class Downsampled:
    """Points that stand for one or more reported points; all of shape (m,).

    Attributes:
        samples: Mean samples of the reported points, ascending.
        values: Median value; half of a bin may be spikes.
        weights: Reported points that each stands for; they sum to all of them.
    """

    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def downsample(
    samples: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    most: int = MOST_POINTS,
) -> Downsampled:
    """Return at most *most* points for any number of them.

    Half of the bins are equally wide in the count of points and half on its
    logarithm: the start, where curves bend, keeps its detail, and so does the end.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        most: At least 4.
    """
    count = samples.size
    if count <= most:
        return Downsampled(samples, values, np.ones(count))
    half = most // 2
    edges = np.concatenate(
        (np.geomspace(1, count, half), np.linspace(0, count, half, endpoint=False))
    )
    starts = np.unique(np.append(edges.astype(np.int64), 0))
    starts = starts[starts < count]
    weights = np.diff(np.append(starts, count)).astype(np.float64)
    means = np.add.reduceat(samples, starts) / weights
    medians = [np.median(bin_) for bin_ in np.split(values, starts[1:])]
    return Downsampled(means, np.array(medians), weights)


def weighted_quantile(
    values: NDArray[np.float64], weights: NDArray[np.float64], share: float
) -> float:
    """Return the value with *share* of the *weights* below it, between neighbours."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    middles = (sums - weights[order] / 2) / sums[-1]
    return float(np.interp(share, middles, values[order]))


# Noise and spikes

_FEWEST_FOR_NOISE = 3

QUANTILE = 0.75
"""Not the median: metrics that come in steps stay the same more often than not."""

QUANTILE_OF_NORMAL = 1.1503
"""Three of four normal values are within so many standard deviations."""

MEDIAN_OF_MEAN = 1.5708
"""A median of many normal values has so many times the variance of their mean."""


def noise_of(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the standard deviation of single values round a smooth curve.

    From the differences between each point and its two neighbours, which a slope
    does not enter; from a quantile of them, which a few spikes and steps do not.

    Args:
        values: In order, shape (n,).
        weights: Reported values that each stands for, shape (n,).

    Returns:
        In the unit of *values*; 0 for fewer than three.
    """
    if values.size < _FEWEST_FOR_NOISE:
        return 0.0
    bends = values[:-2] - 2 * values[1:-1] + values[2:]
    per_value = np.where(weights > _FEWEST_FOR_NOISE, MEDIAN_OF_MEAN, 1.0) / weights
    scales = np.sqrt(per_value[:-2] + 4 * per_value[1:-1] + per_value[2:])
    # 40 times as fast as np.quantile, which took a fifth of the time of a forecast.
    ordered = np.sort(np.abs(bends) / scales)
    return float(ordered[int(QUANTILE * ordered.size)] / QUANTILE_OF_NORMAL)


_FEWEST_FOR_SPIKES = 5
"""Among fewer, there is no telling which value is the spike."""

SPIKE_OF_SPAN = 0.5

SPIKE_OF_NOISE = 6.0

FIRST_OF_SPAN = 10.0
"""A first value may be far from the second: curves are steepest there."""


def find_spikes(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Tell which of *values* are spikes, shape (n,).

    A spike is further from its neighbours than half of what all others span, and
    than the noise explains.
    """
    if values.size < _FEWEST_FOR_SPIKES:
        return np.zeros(values.size, dtype=np.bool_)
    calm = running_median(values)
    limit = np.full(values.size, SPIKE_OF_SPAN * np.ptp(calm))
    limit[0] *= FIRST_OF_SPAN / SPIKE_OF_SPAN
    limit = np.maximum(limit, SPIKE_OF_NOISE * noise_of(values, weights))
    return np.asarray(np.abs(values - calm) > limit)


def running_median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each value and its two neighbours, shape (n,).

    The first and the last take that of the first and last three.
    """
    if values.size < 3:  # noqa: PLR2004 - of three values
        return values
    inner = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    return np.concatenate((inner[:1], inner, inner[-1:]))


# Units of their own for the points of a training, or of a phase of it

SMALLEST_SPAN = 1e-12
"""Of the largest value: below it, differences are rounding."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The units of a curve: from reported numbers to those of the curve, and back.

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
        """Return *samples* in units of the curve."""
        return (samples - self.origin_samples) / self.unit_samples

    def samples(self, work: float) -> float:
        """Return the reported samples at *work*."""
        return self.origin_samples + work * self.unit_samples

    def height(self, value: float) -> float:
        """Return *value* in units of the curve; less is better."""
        return (value - self.best) / self.span

    def value(self, height: float) -> float:
        """Return the reported value at *height*."""
        return self.best + height * self.span


@dataclass(frozen=True, slots=True, eq=False)
class NormalizedCurve:
    """Points with work above 0 and heights where less is better; all of shape (n,).

    Attributes:
        work: Training done, ascending; 1 at the last point of the whole curve.
        heights: About 0 at the best point of the whole curve and 1 at the worst;
            spikes are outside.
        weights: Reported points that each stands for.
        noise: Standard deviation of single reported values, in units of height.
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

    def until(self, count: int) -> NormalizedCurve:
        """Return the first *count* points, with the noise that was known then."""
        return NormalizedCurve(
            self.work[:count],
            self.heights[:count],
            self.weights[:count],
            noise_of(self.heights[:count], self.weights[:count]),
        )

    def without_spikes(self) -> NormalizedCurve:
        """Return the same points, spikes at the height of their neighbours."""
        spikes = find_spikes(self.heights, self.weights)
        heights = np.where(spikes, running_median(self.heights), self.heights)
        return NormalizedCurve(self.work, heights, self.weights, self.noise)


def normalized(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: Better
) -> tuple[NormalizedCurve, Frame]:
    """Return the curve of a history or a part of it, without spikes, and its units.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        better: Which values are good.
    """
    points = downsample(samples, values)
    frame = _frame_of(points, better)
    return _in_frame(points, frame).without_spikes(), frame


def _frame_of(points: Downsampled, better: Better) -> Frame:
    """Return the frame in which *points*, without spikes, spans one unit each way.

    Work starts one typical step before the first point, not at the trainer's
    beginning: a phase forgets how long training took until then.
    """
    samples, values = points.samples, points.values
    step = float(np.median(np.diff(samples) / points.weights[1:]))
    origin = float(samples[0]) - step
    calm = values[~find_spikes(values, points.weights)]
    best, worst = float(calm.min()), float(calm.max())
    if better is Better.HIGHER:
        best, worst = worst, best
    tiny = SMALLEST_SPAN * max(abs(best), abs(worst), SMALLEST_SPAN)
    span = worst - best
    if abs(span) < tiny:
        span = tiny if better is Better.LOWER else -tiny
    return Frame(origin, float(samples[-1]) - origin, best, span)


def _in_frame(points: Downsampled, frame: Frame) -> NormalizedCurve:
    """Return *points* in units of *frame*."""
    work = (points.samples - frame.origin_samples) / frame.unit_samples
    heights = (points.values - frame.best) / frame.span
    return NormalizedCurve(
        work, heights, points.weights, noise_of(heights, points.weights)
    )


# From a metric to quality: signed, 0 at the start, 1 at the best value shown


@dataclass(frozen=True, slots=True)
class QualityScale:
    """The unit of quality, in the metric's own unit.

    Attributes:
        sign: 1 where more is better, -1 where less is.
        start: Where the trainer began.
        best: The best value it has shown, spikes set aside.
        worst: The worst value it has shown, spikes set aside.
        unit: The difference that is a quality of 1, above 0.
        noise: Standard deviation of single values.
    """

    sign: int
    start: float
    best: float
    worst: float
    unit: float
    noise: float

    def quality(self, value: float) -> float:
        """Return *value* as quality; what is not finite is the worst value shown."""
        known = value if math.isfinite(value) else self.worst
        return self.sign * (known - self.start) / self.unit

    @property
    def gained(self) -> float:
        """The best value's gain over the start, 0 or more."""
        return self.sign * (self.best - self.start)


def quality_scale(points: Downsampled, better: Better) -> QualityScale:
    """Return the scale of a whole history.

    A trainer that never got better than it began, by more than its noise, has no
    gain to measure by: its unit is the whole span of its values.
    """
    kept = ~find_spikes(points.values, points.weights)
    values = points.values[kept]
    sign = 1 if better is Better.HIGHER else -1
    noise = noise_of(values, points.weights[kept])
    start, best = float(values[0]), float(sign * (sign * values).max())
    worst = float(sign * (sign * values).min())
    gain = sign * (best - start)
    tiny = SMALLEST_SPAN * max(abs(best), abs(worst), SMALLEST_SPAN)
    unit = gain if gain > max(noise, tiny) else max(noise, abs(best - worst), tiny)
    return QualityScale(sign, start, best, worst, unit, noise)
