"""Fit all shapes of a grid at once: the linear parameters follow from the shape."""

from __future__ import annotations

import math
from array import array
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import BadDataError
from freetrain.losscurve.families import CURVES, FLAT, KNOWN, POWER
from freetrain.losscurve.forecast import Better, Expected
from freetrain.losscurve.history import (
    Frame,
    History,
    Scale,
    course_of,
    find_spikes,
    frame_of,
    running_median,
    scale_of,
    thin,
    weighted_quantile,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from freetrain.losscurve.families import Family
    from freetrain.losscurve.forecast import LossForecast, Point
    from freetrain.losscurve.history import Course


# ----------------------------------------------------------------------
# Fit all shapes of a grid at once: the linear parameters follow from the shape.

ROUNDS = 4
"""Of reweighting; a further one moves nothing that the noise does not hide."""

TINY = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Projected:
    """The best floor and gain of each shape; all of shape (g,).

    Attributes:
        costs: Robust sum of squares.
        gains: 0 or more.
        floors: At least the lowest that was allowed.
    """

    costs: NDArray[np.float64]
    gains: NDArray[np.float64]
    floors: NDArray[np.float64]


def project(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    lowest: float,
    scatter: float,
) -> Projected:
    """Return the robust least-squares floor and gain of each row of *basis*.

    The loss is SciPy's ``soft_l1``: squares up to about *scatter*, lines beyond,
    so that a spike pulls no harder than a bad point. Solved by reweighting.

    Args:
        basis: Shape (g, n), falling along each row.
        heights: Shape (n,).
        weights: Above 0, shape (n,).
        lowest: No floor is below this.
        scatter: Residuals beyond it count as lines, above 0.
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
    return Projected(costs, gains / np.maximum(top[:, 0], TINY), floors)


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
# One family fitted to one course.

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


# ----------------------------------------------------------------------
# What a family would have said earlier, held against what came.

CUTS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Of the points: where the past is cut, and the rest predicted."""

FEWEST_SEEN = 4
"""Points; before that, no family has anything to go by."""

NEAR = 0.15
"""Work ahead, as a share of the work done, that is near."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One forecast of the past; arrays of shape (n,), one entry a point to come.

    Attributes:
        noise: What was known of the noise at the cut, in heights.
        ahead: Work ahead, as a share of the work done at the cut.
        misses: Heights by which the points were above what was forecast.
        weights: How many told points each stands for.
    """

    noise: float
    ahead: NDArray[np.float64]
    misses: NDArray[np.float64]
    weights: NDArray[np.float64]


def back_test(family: Family, course: Course) -> tuple[Trial, ...]:
    """Return *family*'s forecasts of parts of *course* from the parts before."""
    return tuple(_try(family, course, count) for count in _cuts(len(course)))


def error_of(trials: Iterable[Trial]) -> float:
    """Return the mean absolute miss: half of it near by, half over all that came.

    What is near decides who gets nodes next, what is far when a target is reached.
    In heights; inf without a trial.
    """
    errors = [(_mean_miss(trial, NEAR) + _mean_miss(trial)) / 2 for trial in trials]
    return float(np.mean(errors)) if errors else np.inf


def _cuts(count: int) -> list[int]:
    seen = {max(FEWEST_SEEN, round(share * count)) for share in CUTS}
    return sorted(cut for cut in seen if cut < count)


def _try(family: Family, course: Course, count: int) -> Trial:
    past = course.until(count)
    forecast = fit_family(family, past).forecast(course.work[count:])
    return Trial(
        noise=past.late_noise,
        ahead=course.work[count:] / course.work[count - 1] - 1,
        misses=course.heights[count:] - forecast,
        weights=course.weights[count:],
    )


def _mean_miss(trial: Trial, within: float = np.inf) -> float:
    counts = trial.ahead <= max(within, trial.ahead[0])
    return float(
        np.average(np.abs(trial.misses[counts]), weights=trial.weights[counts])
    )


# ----------------------------------------------------------------------
# A forecast for trainings whose values stopped being numbers early on.

FEWEST_BROKEN = 3
"""Values in a row that are no numbers; one may be a slip of the program's."""


@dataclass(frozen=True, slots=True)
class BrokenForecast:
    """A ``LossForecast`` that expects nothing, perhaps without any usable value."""

    better: Better
    points: tuple[Point, ...]
    family: str = "none"
    is_diverging: bool = True

    def expected(self, samples: float) -> Expected:
        """Return that anything may come; the last usable value is as good a guess."""
        del samples
        last = self.points[-1].value if self.points else math.nan
        return Expected(last, -math.inf, math.inf)

    def quality(self, value: float) -> float:
        """Return 0: there is nothing to measure *value* by."""
        del value
        return 0.0

    def samples_to(self, value: float) -> float:
        """Return inf: no value is expected ever."""
        del value
        return math.inf


def broken_forecast(history: History, better: Better) -> BrokenForecast | None:
    """Return the forecast of who told little but what is no number, None of others."""
    if history.broken < FEWEST_BROKEN:
        return None
    return BrokenForecast(better, history.points)


# ----------------------------------------------------------------------
# Which family a trainer's own past speaks for.

HANDICAPS = {FLAT.name: 0.95, POWER.name: 1.0}
"""What a family's error is multiplied by. No further gain wins ties. So does the power
law, which learning curves are known to follow, among the others: a few cuts of one
curve are weak evidence, and the best of five tries is always luck in part."""

HANDICAP = 1.1

MOST_MISFIT = 1.5
"""Errors are multiplied by at most the exponential of this for what was seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The family that was chosen.

    Attributes:
        family: Which one.
        trials: Its forecasts of the past.
    """

    family: Family
    trials: tuple[Trial, ...]


def choose(course: Course, families: Sequence[Family] = KNOWN) -> Choice:
    """Return the family that would have told *course* best from its beginnings.

    Its errors then count, and whether it explains what has been seen by now, by the
    Bayesian information criterion: a family that explains it no better than a
    constant is not tried, for what it takes for progress is noise; one that explains
    it worse than another does has its errors multiplied. Where there is too little to
    try on, no further gain.
    """
    misfits = {family.name: _misfit(family, course) for family in (FLAT, *families)}
    needed = [f for f in families if f is FLAT or misfits[f.name] < misfits[FLAT.name]]
    least = min(misfits.values())
    best, choice = math.inf, Choice(FLAT, ())
    for family in needed:
        trials = back_test(family, course)
        error = error_of(trials) * HANDICAPS.get(family.name, HANDICAP)
        if family is not FLAT:
            error *= math.exp(min(misfits[family.name] - least, MOST_MISFIT))
        if error < best:
            best, choice = error, Choice(family, trials)
    return choice


def _misfit(family: Family, course: Course) -> float:
    """Return the information criterion of *family*'s best curve, for each point."""
    squares = CHI_OF_COST * float(costs_of(family, course).min())
    return (squares + family.parameters * math.log(len(course))) / len(course)


# ----------------------------------------------------------------------
# Whether a training has gone wrong.

FEWEST_POINTS_divergence = 4

TAIL = 3
TAIL_SHARE = 0.02
"""Of the values: the last, whose middle has to be bad. One bad value is a spike."""

LOST_OF_GAIN = 0.5
LOST_OF_NOISE = 8.0
LOST_OF_VALUE = 0.01


def is_diverging(values: NDArray[np.float64], scale: Scale, *, broken: int) -> bool:
    """Tell whether the last values are not numbers, or far worse than the best.

    Far is more than half of what was ever gained, more than the noise explains, and
    more than a hundredth of the value itself: a warm-up may be a little worse than
    the very start.

    Args:
        values: The usable ones, in order, shape (n,).
        scale: Of the same history.
        broken: How many values that were not finite came after the last usable one.
    """
    if broken:
        return True
    if values.size < FEWEST_POINTS_divergence:
        return False
    tail = max(TAIL, int(TAIL_SHARE * values.size))
    lost = scale.sign * (scale.best - float(np.median(values[-tail:])))
    return lost > max(
        LOST_OF_GAIN * scale.gained,
        LOST_OF_NOISE * scale.noise,
        LOST_OF_VALUE * max(abs(scale.best), abs(scale.start)),
    )


# ----------------------------------------------------------------------
# A forecast that rests on a fitted curve.

FURTHEST = 1e4
"""Times the work done: what is not reached by then never is."""

STEPS = 400
"""Of the search for when a value is reached, before it is narrowed down."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedForecast:
    """What a curve through the present phase says; an ``LossForecast``.

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

    def refreshed(self, history: History) -> FittedForecast:
        """Return this forecast moved on to *history*'s end, its curve as it was."""
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


# ----------------------------------------------------------------------
# How far from the forecast values may be, learned from earlier forecasts.

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


# ----------------------------------------------------------------------
# Where the present phase of a training began.

FEWEST_POINTS_phases = 12
"""With fewer, two curves fit anything."""

FEWEST_IN_PHASE = 5

SPLITS = 20
"""Tried at first; then those between the best and its neighbours."""

GAIN_OF_SPLIT = 8.0
"""By what number of squared deviations a second curve must fit better, for each of
the natural logarithms of the number of points: twice what BIC asks for its four
parameters, because the place of the split was searched for."""

LEAST_JUMP = 0.05
"""In heights, at the split from one curve to the other; in noise, four."""

JUMP_OF_NOISE = 4.0

LEAST_BEND = 3.0
"""By what factor slopes differ at a split without a jump."""

WARM_UP_SHARE = 1 / 3
WARM_UP_DROP = 0.02
"""In heights: less is no descent yet, nor is twice the noise."""

FALL_OF_DROP = 4.0
"""By how much more must be gained in as many points again: a slow start that goes on
as slowly is no warm-up."""


def warm_up_end(course: Course) -> int:
    """Return the index of the first point that is not warm-up.

    Warm-up is what comes before the descent: a rise, or a plateau, that ends within
    the first third of the points.
    """
    limit = int(WARM_UP_SHARE * len(course))
    if limit < FEWEST_IN_PHASE:
        return 0
    calm = running_median(course.heights)
    drop = max(2 * course.noise, WARM_UP_DROP)
    high = np.flatnonzero(calm[: limit + 1] >= calm[: limit + 1].max() - drop)
    last = int(high[-1])
    fall = calm[last] - calm[min(2 * last, len(course) - 1)]
    return last if 1 < last < limit and fall > FALL_OF_DROP * drop else 0


def phase_start(course: Course) -> int:
    """Return the index of the first point of the present phase; 0 for one phase.

    Two power laws, one up to a split and one from there on, against the best of all
    families for the whole: the best split counts where it fits far better, and level
    or slope break there.
    """
    count = len(course)
    asked = GAIN_OF_SPLIT * np.log(count)
    if count < FEWEST_POINTS_phases:
        return 0
    cost = min(_Segment(course, 0, count, family).cost for family in CURVES)
    cost = min(cost, _cost_of_smooth(course))
    if cost < asked:
        return 0
    split, cost_of_two = _best_split(course)
    return split if cost - cost_of_two > asked and _breaks(course, split) else 0


def _best_split(course: Course) -> tuple[int, float]:
    """Return the index at which two curves fit best, and what they leave."""
    first, last = FEWEST_IN_PHASE, len(course) - FEWEST_IN_PHASE
    stride = max(1, (last - first) // SPLITS)
    splits = range(first, last + 1, stride)
    costs = {split: _cost_of_two(course, split) for split in splits}
    best = min(costs, key=costs.__getitem__)
    around = range(max(first, best - stride + 1), min(last + 1, best + stride))
    costs |= {split: _cost_of_two(course, split) for split in around if split != best}
    best = min(costs, key=costs.__getitem__)
    return best, costs[best]


def _cost_of_smooth(course: Course) -> float:
    """Return what a cubic leaves: no family, but one phase all the same."""
    roots = np.sqrt(course.weights)
    # Asked for all it knows, NumPy does not print that points are unevenly spread.
    cubic, _ = np.polynomial.Polynomial.fit(
        course.work, course.heights, 3, w=roots, full=True
    )
    misses = roots * (course.heights - cubic(course.work)) / scatter_of(course)
    return float(8 * np.sum(np.sqrt(1 + misses**2) - 1))


class _Segment:
    """A family's curve through some of a course's points, all weighing as told."""

    def __init__(
        self, course: Course, start: int, stop: int, family: Family = POWER
    ) -> None:
        self._family = family
        step = course.work[start] - course.work[start - 1] if start else 0.0
        self._origin = course.work[start] - step if start else 0.0
        work = self._work(course.work[start:stop])
        found = project(
            family.basis(work, family.shapes),
            course.heights[start:stop],
            course.weights[start:stop],
            lowest=-1.0,
            scatter=scatter_of(course),
        )
        best = int(np.argmin(found.costs))
        self.cost = 4 * float(found.costs[best])
        self._shape = family.shapes[best : best + 1]
        self._gain, self._floor = found.gains[best], found.floors[best]

    def height(self, work: float) -> float:
        """Return the curve at *work*."""
        basis = self._family.basis(self._work(np.array([work])), self._shape)
        return float(self._floor + self._gain * basis[0, 0])

    def _work(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(work - self._origin)


def _cost_of_two(course: Course, split: int) -> float:
    before = _Segment(course, 0, split)
    return before.cost + _Segment(course, split, len(course)).cost


def _breaks(course: Course, split: int) -> bool:
    """Tell whether level or slope break at *split*, by the curves of both sides."""
    before = _Segment(course, 0, split)
    after = _Segment(course, split, len(course))
    end, start = course.work[split - 1], course.work[split]
    # A fall of one step is what any steep curve does: only what the curve before
    # would not have done by then is a jump.
    jump = abs(before.height(start) - after.height(start))
    if jump > max(LEAST_JUMP, JUMP_OF_NOISE * course.noise):
        return True
    further = start + (course.work[-1] - start) / 4
    old = before.height(end) - before.height(further)
    new = after.height(start) - after.height(further)
    return max(old, new) > LEAST_JUMP and max(old, new) > LEAST_BEND * min(old, new)


# ----------------------------------------------------------------------
# The last digits of a fit, between the shapes of the grid.

MOST_EVALUATIONS = 30


def polished(fit: Fit, course: Course) -> Fit:
    """Return *fit* with all of its parameters at the robust least-squares minimum.

    SciPy's trust-region reflective method, from the grid's best shape and within the
    grid's bounds; ``soft_l1`` as in the grid search.
    """
    if fit.family.parameters == 1 or len(course) <= fit.family.parameters:
        return fit
    from scipy.optimize import least_squares  # noqa: PLC0415 - half a second to import

    lowest = fit.family.shapes.min(axis=0)
    highest = fit.family.shapes.max(axis=0)
    scale = _scale(fit, course)
    roots = np.sqrt(fading_weights(course)) / scatter_of(course)

    def misses(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        *shape, gain, floor = parameters
        basis = fit.family.basis(course.work, np.array([shape]))[0] / scale
        return np.asarray(roots * (floor + gain * basis - course.heights))

    low = np.array([*lowest, 0.0, lowest_floor(course)])
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
    return with_lag(better, course)


def _scale(fit: Fit, course: Course) -> float:
    """Return the basis at the first point: divided by it, gains are heights."""
    first = fit.family.basis(course.work[:1], fit.shape[None, :])[0, 0]
    return max(float(first), 1e-30)


# ----------------------------------------------------------------------
# From told values to a forecast.

FEWEST_POINTS_estimate = 3
"""Usable ones; two are a line through anything."""


def fit_forecast(points: Iterable[Point], better: Better) -> FittedForecast | None:
    """Return what *points* say of what is to come, or None where they say nothing.

    Args:
        points: In the order in which they were told; anything may be among them.
        better: Which values are good.

    Returns:
        None with fewer than three usable points.
    """
    return fit_history(History(points), better)


def fit_history(history: History, better: Better) -> FittedForecast | None:
    """Return the forecast of a history; as :func:`fit_forecast`."""
    samples, values = history.samples, history.values
    if samples.size < FEWEST_POINTS_estimate:
        return None
    scale = scale_of(thin(samples, values), better)
    diverging = is_diverging(values, scale, broken=history.broken)
    start = 0 if diverging else present_start(samples, values, better)
    course, frame = framed(samples[start:], values[start:], better)
    choice = Choice(FLAT, ()) if diverging else choose(course)
    return FittedForecast(
        better=better,
        points=history.points,
        is_diverging=diverging,
        phase_samples=float(samples[start]),
        frame=frame,
        fit=polished(fit_family(choice.family, course), course),
        spread=spread_of(course, choice.trials),
        scale=scale,
    )


def present_start(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: Better
) -> int:
    """Return how many points are warm-up or of earlier phases.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        better: Which values are good.
    """
    course = framed(samples, values, better)[0]
    warm = int(np.sum(course.weights[: warm_up_end(course)]))
    course = framed(samples[warm:], values[warm:], better)[0]
    return warm + int(np.sum(course.weights[: phase_start(course)]))


def framed(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: Better
) -> tuple[Course, Frame]:
    """Return points as a course, and its frame; arguments as above."""
    thinned = thin(samples, values)
    frame = frame_of(thinned, better)
    return course_of(thinned, frame).without_spikes(), frame


# ----------------------------------------------------------------------
# A forecast as JSON, so that one tick can leave it to the next and none is fitted.

_VERSION = 2
"""Of the form and of the fits: nothing that another one kept is believed."""


def fingerprint(points: Iterable[Point], better: Better) -> str:
    """Return what is the same for the same points only."""
    numbers = array("d")
    for point in points:
        numbers.extend((point.t_s, point.samples, point.value))
    return sha256(better.encode() + numbers.tobytes()).hexdigest()


def to_state(forecast: FittedForecast) -> dict[str, object]:
    """Return *forecast* as JSON has it, but for its points: they are kept anyway."""
    fit = forecast.fit
    return {
        "version": _VERSION,
        "is_diverging": forecast.is_diverging,
        "phase_samples": forecast.phase_samples,
        "frame": asdict(forecast.frame),
        "family": forecast.family,
        "shape": fit.shape.tolist(),
        "curve": [fit.gain, fit.floor, fit.lag, fit.end],
        "spread": asdict(forecast.spread),
        "scale": asdict(forecast.scale),
    }


def from_state(
    state: Mapping[str, Any], history: History, better: Better
) -> FittedForecast:
    """Return the forecast that :func:`to_state` was given.

    Args:
        state: What it returned.
        history: The same points again.
        better: Which values are good.

    Raises:
        BadDataError: It is no such state, or another release's.
    """
    if state.get("version") != _VERSION:
        raise _refusal(f"version {state.get('version')!r} instead of {_VERSION}")
    try:
        return FittedForecast(
            better=better,
            points=history.points,
            is_diverging=state["is_diverging"],
            phase_samples=state["phase_samples"],
            frame=Frame(**state["frame"]),
            fit=_fit(state),
            spread=Spread(**state["spread"]),
            scale=Scale(**state["scale"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _refusal(f"something else than a forecast ({error!r})") from error


def _fit(state: Mapping[str, Any]) -> Fit:
    family = {one.name: one for one in KNOWN}[state["family"]]
    return Fit(family, np.array(state["shape"], dtype=np.float64), *state["curve"])


def _refusal(found: str) -> BadDataError:
    return BadDataError(
        f"what was kept of a forecast has {found}. It was left out; the curve will be "
        f"fitted afresh."
    )


# ----------------------------------------------------------------------
# The forecasts of all trainers, kept while little has changed.

REFIT_SHARE = 0.1
"""By how much of its usable points a history grows before it is fitted again."""


@dataclass(slots=True)
class _Entry:
    """What is remembered of one trainer."""

    better: Better
    history: History
    told: int = 0
    last: Point | None = None
    fitted_points: int = 0
    forecast: FittedForecast | None = None


class LossForecasts:
    """Answers as ``fit_forecast`` does, for the price of what is new.

    Between fits a forecast's points are all there and its forecast starts where the
    trainer is; only its curve and its scale are some points old. Answers depend on
    the looks made before, and on nothing else.
    """

    def __init__(self, *, refit_share: float = REFIT_SHARE) -> None:
        self._refit_share = refit_share
        self._entries: dict[str, _Entry] = {}

    def look(
        self, name: str, points: Sequence[Point], better: Better
    ) -> LossForecast | None:
        """Return the forecast of the trainer *name*, None where nothing can be said.

        Args:
            name: Unique among trainers.
            points: All it has told, in order; what was given at the last look comes
                first. Where it does not, everything starts over.
            better: Which values are good.
        """
        entry = self._entries.get(name)
        if entry is None or not _continues(entry, points, better):
            entry = self._entries[name] = _Entry(better, History())
        new = points[entry.told :]
        if new:
            entry.history.extend(new)
            entry.told, entry.last = len(points), points[-1]
            self._move_on(entry)
        return entry.forecast or broken_forecast(entry.history, better)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all trainers but *names*."""
        kept = set(names)
        self._entries = {k: v for k, v in self._entries.items() if k in kept}

    def _move_on(self, entry: _Entry) -> None:
        count = len(entry.history)
        old = entry.forecast
        grown = count - entry.fitted_points
        if old is None or not 0 <= grown < self._refit_share * entry.fitted_points:
            self._fit(entry)
            return
        entry.forecast = old.refreshed(entry.history)
        if entry.forecast.is_diverging != old.is_diverging:
            self._fit(entry)

    def _fit(self, entry: _Entry) -> None:
        entry.forecast = fit_history(entry.history, entry.better)
        entry.fitted_points = len(entry.history)


def _continues(entry: _Entry, points: Sequence[Point], better: Better) -> bool:
    """Tell whether *points* begin with those of the last look."""
    if entry.better is not better or len(points) < entry.told:
        return False
    return (
        entry.told == 0
        or points[entry.told - 1] is entry.last
        or (points[entry.told - 1] == entry.last)
    )
