"""A trainer's values and the curves fitted to them.

:class:`LossHistory` keeps the usable values that a trainer reported; ``quality_scale``
turns a value into quality. ``normalized`` makes few points of many, without spikes, in
units of their own. In these units a :class:`Family` of curves is fitted, such as power
laws: ``fit_family`` tries a grid of shapes at once, and ``polished`` finds the last
digits from the best of them.

A family's curves are ``floor + gain * basis(work; shape)``. Floor and gain are linear:
given a shape, they follow by least squares (variable projection, Golub and Pereyra
1973).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from freetrain.losscurve.forecast import LARGEST_VALUE, MetricDirection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
        self._late: list[MetricPoint] = []
        self.broken = 0
        self.extend(points)

    def extend(self, points: Iterable[MetricPoint]) -> None:
        """Add points, in the order in which they were reported."""
        for point in points:
            self._take(point)

    def __len__(self) -> int:
        """Return the number of usable points."""
        return self._cut() + 1 if self._late else len(self._points)

    @property
    def points(self) -> tuple[MetricPoint, ...]:
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

    def _rewind(self, point: MetricPoint) -> None:
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

    def _insert(self, point: MetricPoint) -> None:
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
    inner = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    return np.concatenate((inner[:1], inner, inner[-1:]))


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
# Families of curves

Basis: TypeAlias = (
    "Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]"
)


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Curves ``floor + gain * basis(work; shape)`` with a gain of 0 or more.

    The basis falls towards 0 as work grows, so a curve only ever gets better and has
    an end.

    Attributes:
        name: For people.
        parameters: Free parameters of a fit, floor and gain included.
        shapes: Where the search starts: shapes to try, shape (g, parameters - 2),
            read-only, its rows ordered as a grid; its columns' extremes are the
            bounds.
        basis: From work above 0, shape (n,), and shapes, shape (g, parameters - 2),
            to the basis of each, shape (g, n), finite, 0 or more.
    """

    name: str
    parameters: int
    shapes: NDArray[np.float64]
    basis: Basis


def grid(*axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every combination of the *axes*' entries, one a row, read-only."""
    columns = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    shapes = np.stack(columns, axis=1)
    shapes.flags.writeable = False
    return shapes


def _basis_exponential(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (tau,) = shapes.T[:, :, None]
    return np.asarray(np.exp(-work / tau))


EXPONENTIAL = Family(
    "exponential", 3, grid(np.geomspace(0.02, 5, 32)), _basis_exponential
)
"""``c + a * exp(-k / tau)``; the same curves as SLAQ's ``mu ** (k - b) + c``."""

_SHAPES = np.zeros((1, 0))

_SHAPES.flags.writeable = False


def _basis_flat(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.zeros((len(shapes), work.size))


FLAT = Family("no further gain", 1, _SHAPES, _basis_flat)
"""``c``, which follows the last values; every other family has to beat it."""


def _basis_inverse_linear(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (late,) = shapes.T[:, :, None]
    return np.asarray(late / (work + late))


INVERSE_LINEAR = Family(
    "inverse linear", 3, grid(np.geomspace(0.003, 5, 32)), _basis_inverse_linear
)
"""``c + gain * s / (k + s)``: ``1 / (a * k + b) + c`` of Optimus (EuroSys 2018)."""


def _basis_inverse_quadratic(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    late, bend = shapes.T[:, :, None]
    return np.asarray(late / (late + (1 - bend) * work + bend * work**2))


INVERSE_QUADRATIC = Family(
    "inverse quadratic",
    4,
    grid(np.geomspace(0.003, 5, 16), np.linspace(0, 1, 5)),
    _basis_inverse_quadratic,
)
"""``1 / (a * k ** 2 + b * k + c) + d`` of SLAQ (SoCC 2017), all 0 or more."""


def _basis_power(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (alpha,) = shapes.T[:, :, None]
    return np.asarray(work**-alpha)


POWER = Family("power law", 3, grid(np.geomspace(0.05, 4, 32)), _basis_power)
"""``c + a * k ** -alpha``, as learning curves of many kinds are found to go."""


def _basis_shifted_power(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    alpha, late = shapes.T[:, :, None]
    return np.asarray((work + late) ** -alpha)


SHIFTED_POWER = Family(
    "shifted power law",
    4,
    grid(np.geomspace(0.05, 6, 16), np.geomspace(0.01, 1, 6)),
    _basis_shifted_power,
)
"""``c + a * (k + s) ** -alpha``; Optimus is its alpha of 1."""

CURVES: tuple[Family, ...] = (
    POWER,
    EXPONENTIAL,
    INVERSE_LINEAR,
    INVERSE_QUADRATIC,
    SHIFTED_POWER,
)

KNOWN: tuple[Family, ...] = (FLAT, *CURVES)


# ----------------------------------------------------------------------
# One family fitted to one curve

HALF_LIFE = 0.5
"""Of a point's weight, as a share of the work done. SLAQ forgets exponentially too
[its rate is unverified]; as a share, a long training forgets as a short one does."""

FURTHEST_FLOOR = 1.0
"""No trainer is expected to gain more than this many times its gain so far."""

LEAST_SCATTER = 0.01
"""In heights: families fit the truth no better than that, however calm it is."""

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
    """A family's curve through a trainer's curve.

    Attributes:
        family: The family.
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

        The lag of the last points counts fully near by, and ever less further on.
        """
        ahead = work / self.end - 1
        return self.curve(work) + self.lag * np.exp(-ahead / LAG_LENGTH)


def fit_family(family: Family, curve: NormalizedCurve) -> Fit:
    """Return *family*'s best curve on its grid of shapes, robust and weighted."""
    end = float(curve.work[-1])
    if family.parameters == 1:
        return Fit(family, family.shapes[0], 0.0, recent_level(curve), end=end)
    shapes = family.shapes
    costs, gains, floors = _projected(family, curve)
    best = int(np.argmin(costs))
    fit = Fit(family, shapes[best], float(gains[best]), float(floors[best]), end=end)
    return with_lag(fit, curve)


def costs_of(family: Family, curve: NormalizedCurve) -> NDArray[np.float64]:
    """Return the robust sums of squares of *family*'s shapes, shape (g,)."""
    return _projected(family, curve)[0]


def _projected(
    family: Family, curve: NormalizedCurve
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    return project(
        family.basis(curve.work, family.shapes),
        curve.heights,
        fading_weights(curve),
        lowest=lowest_floor(curve),
        scatter=scatter_of(curve),
    )


def with_lag(fit: Fit, curve: NormalizedCurve) -> Fit:
    """Return *fit* with the lag of *curve*'s last points."""
    return replace(fit, lag=recent_level(curve, above=fit.curve(curve.work)))


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


def recent_level(
    curve: NormalizedCurve, *, above: NDArray[np.float64] | None = None
) -> float:
    """Return where the last points are, in heights, or how far above a curve.

    Their median, so that no spike among them counts.
    """
    last = _recent_count(len(curve))
    heights = curve.heights if above is None else curve.heights - above
    return weighted_quantile(heights[-last:], curve.weights[-last:], 0.5)


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


# ----------------------------------------------------------------------
# All shapes of a grid at once

ROUNDS = 4
"""Of reweighting; a further one moves nothing that the noise does not hide."""

TINY = 1e-30


def project(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    lowest: float,
    scatter: float,
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

    Returns:
        Costs, which are robust sums of squares, gains and floors, each of shape (g,).
    """
    top = basis[:, :1]
    scaled = basis / np.maximum(top, TINY)
    trust = np.broadcast_to(weights, scaled.shape)
    roots = np.sqrt(weights) / scatter
    for _ in range(ROUNDS):
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
    total = trust.sum(axis=1)
    weighted = trust * basis
    first = weighted.sum(axis=1)
    height = trust @ heights
    cross = weighted @ heights
    square = np.einsum("gn,gn->g", weighted, basis)
    spread = np.maximum(square - first**2 / total, TINY)
    gains = np.maximum((cross - first * height / total) / spread, 0.0)
    floors = (height - gains * first) / total
    at_bound = np.maximum((cross - lowest * first) / np.maximum(square, TINY), 0.0)
    low = floors < lowest
    return np.where(low, at_bound, gains), np.where(low, lowest, floors)


# ----------------------------------------------------------------------
# The last digits, between the shapes of the grid

MOST_EVALUATIONS = 30


def polished(fit: Fit, curve: NormalizedCurve) -> Fit:
    """Return *fit* with all of its parameters at the robust least-squares minimum.

    SciPy's trust-region reflective method, from the grid's best shape and within the
    grid's bounds; ``soft_l1`` as in the grid search.
    """
    if fit.family.parameters == 1 or len(curve) <= fit.family.parameters:
        return fit
    from scipy.optimize import least_squares  # noqa: PLC0415 - half a second to import

    lowest = fit.family.shapes.min(axis=0)
    highest = fit.family.shapes.max(axis=0)
    scale = _scale(fit, curve)
    roots = np.sqrt(fading_weights(curve)) / scatter_of(curve)

    def misses(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        *shape, gain, floor = parameters
        basis = fit.family.basis(curve.work, np.array([shape]))[0] / scale
        return np.asarray(roots * (floor + gain * basis - curve.heights))

    low = np.array([*lowest, 0.0, lowest_floor(curve)])
    high = np.array([*highest, np.inf, np.inf])
    start = np.array([*fit.shape, fit.gain * scale, fit.floor])
    found = least_squares(
        misses,
        np.clip(start, low, high),
        bounds=(low, high),
        loss="soft_l1",
        x_scale="jac",
        max_nfev=MOST_EVALUATIONS,
    )
    *shape, gain, floor = found.x
    better = replace(
        fit, shape=np.array(shape), gain=float(gain) / scale, floor=float(floor)
    )
    return with_lag(better, curve)


def _scale(fit: Fit, curve: NormalizedCurve) -> float:
    """Return the basis at the first point: divided by it, gains are heights."""
    first = fit.family.basis(curve.work[:1], fit.shape[None, :])[0, 0]
    return max(float(first), 1e-30)
