"""A trainer's values and the curves fitted to them.

:class:`LossHistory` keeps the usable values that a trainer reported; ``quality_scale``
turns a value into quality. ``normalized`` makes few points of many, without spikes, in
units of their own. In these units ``fit_curve`` fits a shifted power law: it tries a
grid of shapes at once, and then finer ones around the best of them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.losscurve.forecast import LARGEST_VALUE, MetricDirection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import MetricPoint


class LossHistory:
    """The usable values of one trainer, ascending in samples; grows with new reports.

    A value for fewer samples than the value before it is either late or the first
    after a restart. It is late (several processes write) where the next value
    continues from the highest samples so far, or where samples keep falling; then it
    is inserted. Where the next continues from the low value, the trainer restarted
    from a checkpoint, and all values after that checkpoint are void.

    Attributes:
        broken: Values in a row at the end that are not finite, or overflows.
    """

    def __init__(self, points: Iterable[MetricPoint] = ()) -> None:
        self._points: list[MetricPoint] = []
        self._samples = array("d")
        self._values = array("d")
        # Late points are put in order when the history is looked at, all at once.
        self._is_sorted = True
        self._late: list[MetricPoint] = []
        self.broken = 0
        self.extend(points)

    def extend(self, points: Iterable[MetricPoint]) -> None:
        """Add points, in the order in which they were reported."""
        for point in points:
            self._take(point)

    def __len__(self) -> int:
        """Return the number of usable points."""
        return self._cut() + bool(self._late)

    @property
    def points(self) -> tuple[MetricPoint, ...]:
        """The usable points, ascending in samples, finite."""
        cut = self._cut()
        return (*self._points[:cut], *self._late[-1:])

    @property
    def samples(self) -> NDArray[np.float64]:
        """Samples of the usable points, shape (n,), strictly ascending."""
        cut, late = self._cut(), [point.samples for point in self._late[-1:]]
        return np.append(self._samples[:cut], late)

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of the usable points, shape (n,)."""
        cut, late = self._cut(), [point.value for point in self._late[-1:]]
        return np.append(self._values[:cut], late)

    def _take(self, point: MetricPoint) -> None:
        if not (math.isfinite(point.samples) and point.samples >= 0):
            return
        if not abs(point.value) <= LARGEST_VALUE:
            self.broken += 1
        else:
            self.broken = 0
            self._place(point)

    def _place(self, point: MetricPoint) -> None:
        highest = self._samples[-1] if self._samples else -math.inf
        if point.samples >= highest:
            self._is_sorted &= not self._late and point.samples > highest
            self._append(*self._late, point)
        elif self._late and point.samples > self._late[-1].samples:
            self._rewind(point)
        else:
            self._late.append(point)

    def _append(self, *points: MetricPoint) -> None:
        for point in points:
            self._points.append(point)
            self._samples.append(point.samples)
            self._values.append(point.value)
        self._late.clear()

    def _rewind(self, point: MetricPoint) -> None:
        cut = self._cut()
        del self._points[cut:], self._samples[cut:], self._values[cut:]
        self._append(self._late[-1], point)

    def _cut(self) -> int:
        """Return how many points come before the latest late one, in order."""
        if not self._is_sorted:
            by_samples = {point.samples: point for point in self._points}
            self._points = [by_samples[samples] for samples in sorted(by_samples)]
            self._samples = array("d", [point.samples for point in self._points])
            self._values = array("d", [point.value for point in self._points])
            self._is_sorted = True
        if not self._late:
            return len(self._points)
        return bisect_left(self._samples, self._late[-1].samples)


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
    ends = np.append(starts[1:], count)
    # One sort for all bins: np.median for each took most of the time of a forecast.
    bins = np.repeat(np.arange(starts.size), ends - starts)
    ordered = values[np.lexsort((values, bins))]
    lower, upper = (starts + ends - 1) // 2, (starts + ends) // 2
    return Downsampled(means, (ordered[lower] + ordered[upper]) / 2, weights)


def weighted_quantile(
    values: NDArray[np.float64], weights: NDArray[np.float64], share: float
) -> float:
    """Return the value with *share* of the *weights* below it, between neighbours."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    middles = (sums - weights[order] / 2) / sums[-1]
    return float(np.interp(share, middles, values[order]))


# ----------------------------------------------------------------------
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
"""Among fewer values the spike cannot be identified."""

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
    one, two, three = values[:-2], values[1:-1], values[2:]
    low, high = np.minimum(one, two), np.maximum(one, two)
    inner = np.maximum(low, np.minimum(high, three))
    return np.concatenate((inner[:1], inner, inner[-1:]))


def without_blow_ups(
    samples: NDArray[np.float64],
    values: NDArray[np.float64],
    better: MetricDirection,
) -> NDArray[np.float64]:
    """Return *values*, those that are far too bad replaced from their neighbours.

    Of a training that blew up and came back, several values in a row are no spikes, and
    all others would be next to nothing beside them. A value is far too bad where it is
    worse than the first, and than half of all, by more than the best is better.

    Args:
        samples: Ascending, shape (n,), n above 0.
        values: Finite, shape (n,).
        better: Which values are good.
    """
    losses = values if better is MetricDirection.LOWER else -values
    usual = max(float(losses[0]), float(np.median(losses)))
    sound = losses <= 2 * usual - float(losses.min())
    return np.interp(samples, samples[sound], values[sound])


# ----------------------------------------------------------------------
# Units of a curve: those of a training, or of a phase of it

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

    def without_spikes(self) -> NormalizedCurve:
        """Return the same points, spikes at the height of their neighbours."""
        spikes = find_spikes(self.heights, self.weights)
        heights = np.where(spikes, running_median(self.heights), self.heights)
        return NormalizedCurve(self.work, heights, self.weights, self.noise)


def normalized(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: MetricDirection
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


def _frame_of(points: Downsampled, better: MetricDirection) -> Frame:
    """Return the frame in which *points*, without spikes, spans one unit each way.

    Work starts one typical step before the first point, not at the trainer's
    beginning: a phase forgets how long training took until then.
    """
    samples, values = points.samples, points.values
    step = float(np.median(np.diff(samples) / points.weights[1:]))
    origin = float(samples[0]) - step
    calm = values[~find_spikes(values, points.weights)]
    best, worst = float(calm.min()), float(calm.max())
    if better is MetricDirection.HIGHER:
        best, worst = worst, best
    tiny = SMALLEST_SPAN * max(abs(best), abs(worst), SMALLEST_SPAN)
    span = worst - best
    if abs(span) < tiny:
        span = tiny if better is MetricDirection.LOWER else -tiny
    return Frame(origin, float(samples[-1]) - origin, best, span)


def _in_frame(points: Downsampled, frame: Frame) -> NormalizedCurve:
    """Return *points* in units of *frame*."""
    work = (points.samples - frame.origin_samples) / frame.unit_samples
    heights = (points.values - frame.best) / frame.span
    return NormalizedCurve(
        work, heights, points.weights, noise_of(heights, points.weights)
    )


# ----------------------------------------------------------------------
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


def quality_scale(points: Downsampled, better: MetricDirection) -> QualityScale:
    """Return the scale of a whole history.

    A trainer that never got better than it began, by more than its noise, has no
    gain to measure by: its unit is the whole span of its values.
    """
    kept = ~find_spikes(points.values, points.weights)
    values = points.values[kept]
    sign = 1 if better is MetricDirection.HIGHER else -1
    noise = noise_of(values, points.weights[kept])
    start, best = float(values[0]), float(sign * (sign * values).max())
    worst = float(sign * (sign * values).min())
    gain = sign * (best - start)
    tiny = SMALLEST_SPAN * max(abs(best), abs(worst), SMALLEST_SPAN)
    unit = gain if gain > max(noise, tiny) else max(noise, abs(best - worst), tiny)
    return QualityScale(sign, start, best, worst, unit, noise)


# ----------------------------------------------------------------------
# Shifted power laws: floor + gain * (work + late) ** -alpha

_ALPHAS = np.geomspace(0.05, 6, 16)

_LATES = np.geomspace(0.01, 1, 6)


def _grid(
    alphas: NDArray[np.float64], lates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return every pair of *alphas* and *lates*, one a row, read-only."""
    axes = np.meshgrid(alphas, lates, indexing="ij")
    shapes = np.stack([axis.ravel() for axis in axes], axis=1)
    shapes.flags.writeable = False
    return shapes


SHAPES = _grid(_ALPHAS, _LATES)
"""Exponents and shifts that are tried at first, shape (96, 2)."""

PLAIN_SHAPES = _grid(np.geomspace(0.05, 3, 8), np.zeros(1))
"""Power laws without a shift, for short stretches of a curve."""


def basis_of(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``(work + late) ** -alpha`` of each shape, shape (g, n).

    Args:
        work: Above 0, shape (n,).
        shapes: Alpha above 0 and late of 0 or more, shape (g, 2).
    """
    alpha, late = shapes.T[:, :, None]
    return np.asarray((work + late) ** -alpha)


HALF_LIFE = 0.5
"""Of a point's weight, as a share of the work done. SLAQ forgets exponentially too
[its rate is unverified]; as a share, a long training forgets as a short one does."""

FURTHEST_FLOOR = 1.0
"""No trainer is expected to gain more than this many times its gain so far."""

LEAST_SCATTER = 0.01
"""In heights: curves fit the truth no better than that, however calm it is."""

SCATTER_OF_NOISE = 2.0

CHI_OF_COST = SCATTER_OF_NOISE**2
"""Costs are in squares of the scatter; times this, in squares of the noise."""

RECENT_SHARE = 0.1
"""Of the points: those that show the present level."""

FEWEST_RECENT = 3

LAG_LENGTH = 0.25
"""Of the work done: over it, a lag falls to 1 / e."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A shifted power law through a trainer's curve.

    Attributes:
        alpha: Its exponent, above 0.
        late: Its shift, in work, 0 or more.
        gain: 0 or more.
        floor: Where it ends, in heights.
        lag: Heights by which the last points were above the curve.
        end: Work at the last point.
    """

    alpha: float
    late: float
    gain: float
    floor: float
    lag: float = 0.0
    end: float = 1.0

    def curve(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the power law at *work* above 0, shape (n,)."""
        return np.asarray(self.floor + self.gain * (work + self.late) ** -self.alpha)

    def forecast(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the heights to expect at *work* from the end on, shape (n,).

        The lag of the last points counts fully near by, and ever less further on.
        """
        ahead = work / self.end - 1
        return self.curve(work) + self.lag * np.exp(-ahead / LAG_LENGTH)


_FEWEST_TO_POLISH = 5
"""Points; four parameters fit fewer exactly, with many shapes."""

_LEAST_GAIN = 1e-6
"""Of the cost: with less by a step, the minimum is found."""

_STEPS = 15
"""Of the search for the minimum; SciPy's costs are reached within a thousandth."""


def fit_curve(curve: NormalizedCurve) -> Fit:
    """Return the best shifted power law through *curve*, robust and weighted.

    Newer points count more. Floor and gain are linear: given a shape, they follow by
    least squares (variable projection, Golub and Pereyra 1973). From the best shape of
    a grid, damped steps lead to the minimum (Marquardt 1963).
    """
    weights, scatter = fading_weights(curve), scatter_of(curve)
    lowest = lowest_floor(curve)
    costs, gains, floors = project(
        basis_of(curve.work, SHAPES),
        curve.heights,
        weights,
        lowest=lowest,
        scatter=scatter,
        rounds=2,
    )
    best = int(np.argmin(costs))
    start = curve.work[0]
    alpha, late = SHAPES[best]
    found = np.array(
        [alpha, late, gains[best] * (start + late) ** -alpha, floors[best]]
    )
    if len(curve) >= _FEWEST_TO_POLISH:
        found = _polished(found, curve, np.sqrt(weights) / scatter, lowest)
    alpha, late, drop, floor = found.tolist()
    gain = drop * float(start + late) ** alpha
    fit = Fit(alpha, late, gain, floor, end=float(curve.work[-1]))
    return replace(fit, lag=_level(curve, curve.heights - fit.curve(curve.work)))


def _polished(
    found: NDArray[np.float64],
    curve: NormalizedCurve,
    roots: NDArray[np.float64],
    lowest: float,
) -> NDArray[np.float64]:
    """Return *found* at the robust least-squares minimum, within the grid's bounds.

    Args:
        found: Alpha, late, the gain from the first point on, and the floor.
        curve: The points.
        roots: Square roots of their weights, over the scatter.
        lowest: No floor is below this.
    """
    least = np.array([*SHAPES[0], 0.0, lowest])
    most = np.array([*SHAPES[-1], np.inf, np.inf])
    damping, cost = 0.01, np.inf
    tried = found
    for _ in range(_STEPS):
        alpha, late, drop, floor = tried
        shifted = curve.work + late
        ratio = shifted / shifted[0]
        basis = ratio**-alpha
        misses = roots * (floor + drop * basis - curve.heights)
        stretch = np.sqrt(1 + misses**2)
        if (total := float(stretch.sum())) < cost:
            if cost - total < _LEAST_GAIN * total:
                return np.asarray(tried)
            found, cost, damping = tried, total, damping / 5
            slopes = roots * np.stack(
                (
                    -drop * basis * np.log(ratio),
                    drop * basis * alpha * (1 / shifted[0] - 1 / shifted),
                    basis,
                    np.ones_like(basis),
                )
            )
            square = (slopes / stretch) @ slopes.T
            downhill = (slopes / stretch) @ misses
        else:
            damping *= 10
        at_bound = ((found <= least) & (downhill > 0)) | (
            (found >= most) & (downhill < 0)
        )
        damped = square + np.diag(damping * np.diag(square) + TINY)
        damped[at_bound] = damped[:, at_bound] = 0.0
        damped[at_bound, at_bound] = 1.0
        step = np.linalg.solve(damped, np.where(at_bound, 0.0, downhill))
        tried = np.clip(found - step, least, most)
    return found


def fit_level(curve: NormalizedCurve) -> Fit:
    """Return a curve that stays where the last points of *curve* are."""
    level = _level(curve, curve.heights)
    return Fit(1.0, 0.0, 0.0, level, end=float(curve.work[-1]))


def _level(curve: NormalizedCurve, heights: NDArray[np.float64]) -> float:
    """Return the median of the last *heights*, so that no spike among them counts."""
    last = _recent_count(len(curve))
    return weighted_quantile(heights[-last:], curve.weights[-last:], 0.5)


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


def _recent_count(count: int) -> int:
    return max(FEWEST_RECENT, int(RECENT_SHARE * count))


def fading_weights(curve: NormalizedCurve) -> NDArray[np.float64]:
    """Return the weights of *curve*'s points: the older, the less."""
    age = 1 - curve.work / curve.work[-1]
    return np.asarray(curve.weights * 0.5 ** (age / HALF_LIFE))


def lowest_floor(curve: NormalizedCurve) -> float:
    """Return the lowest height that a curve may end at."""
    calm = curve.heights[~find_spikes(curve.heights, curve.weights)]
    return float(calm.min() - FURTHEST_FLOOR * np.ptp(calm))


def scatter_of(curve: NormalizedCurve) -> float:
    """Return by how much a point may miss a curve before it counts as a spike."""
    return max(SCATTER_OF_NOISE * curve.noise, LEAST_SCATTER)


TINY = 1e-30


def project(  # noqa: PLR0913 - a least-squares problem
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    lowest: float,
    scatter: float,
    rounds: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the robust least-squares gain and floor of each row of *basis*.

    The loss is SciPy's ``soft_l1``: squares up to about *scatter*, lines beyond,
    so that a spike pulls no harder than a bad point. Solved by reweighting.

    Args:
        basis: Shape (g, n), falling along each row.
        heights: Shape (n,).
        weights: Above 0, shape (n,).
        lowest: No floor is below this.
        scatter: Residuals beyond it count as lines, above 0.
        rounds: Of reweighting; a fifth moves nothing that the noise does not hide.

    Returns:
        Costs, which are robust sums of squares, gains and floors, each of shape (g,).
    """
    top = basis[:, :1]
    scaled = basis / np.maximum(top, TINY)
    trust = np.broadcast_to(weights, scaled.shape)
    roots = np.sqrt(weights) / scatter
    for _ in range(rounds):
        gains, floors = _solve(scaled, heights, trust, lowest)
        misses = roots * (heights - floors[:, None] - gains[:, None] * scaled)
        stretch = np.sqrt(1 + misses**2)
        trust = weights / stretch
    costs = 2 * (stretch - 1).sum(axis=1)
    return costs, gains / np.maximum(top[:, 0], TINY), floors


def _solve(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    trust: NDArray[np.float64],
    lowest: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gains and floors of weighted least squares within their bounds."""
    columns = np.stack((np.ones_like(heights), heights), axis=1)
    weighted = trust * basis
    total, height = (trust @ columns).T
    first, cross = (weighted @ columns).T
    square = np.einsum("gn,gn->g", weighted, basis)
    spread = np.maximum(square - first**2 / total, TINY)
    gains = np.maximum((cross - first * height / total) / spread, 0.0)
    floors = (height - gains * first) / total
    low = floors < lowest
    if not low.any():
        return gains, floors
    at_bound = np.maximum((cross - lowest * first) / np.maximum(square, TINY), 0.0)
    return np.where(low, at_bound, gains), np.where(low, lowest, floors)
