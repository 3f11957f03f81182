"""From reported losses to a forecast.

``fit_forecast`` has all steps: clean the values, leave out warm-up and earlier phases,
choose the family of curves that would have forecast the past best, fit it, and learn
from the same back-tests how wide intervals have to be. The sections of this module
follow that order. ``to_state`` keeps a forecast as JSON from one tick to the next;
``LossForecasts`` keeps the forecasts of all trainers within a replay.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import BadDataError
from freetrain.losscurve.curve import (
    CHI_OF_COST,
    CURVES,
    FLAT,
    KNOWN,
    POWER,
    Fit,
    Frame,
    LossHistory,
    QualityScale,
    costs_of,
    downsample,
    fit_family,
    normalized,
    polished,
    project,
    quality_scale,
    refreshed_lag,
    running_median,
    scatter_of,
    weighted_quantile,
)
from freetrain.losscurve.forecast import Expected, MetricDirection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from freetrain.losscurve.curve import Family, NormalizedCurve
    from freetrain.losscurve.forecast import LossForecast, MetricPoint

_FEWEST_TO_FIT = 3
"""Usable points; two are a line through anything."""


def fit_forecast(
    points: Iterable[MetricPoint], better: MetricDirection
) -> FittedForecast | None:
    """Return the forecast from *points*; None with fewer than three usable points.

    Args:
        points: In the order in which they were reported; with any values.
        better: Which values are good.
    """
    return fit_history(LossHistory(points), better)


def fit_history(history: LossHistory, better: MetricDirection) -> FittedForecast | None:
    """Return the forecast of a history; as :func:`fit_forecast`."""
    samples, values = history.samples, history.values
    if samples.size < _FEWEST_TO_FIT:
        return None
    scale = quality_scale(downsample(samples, values), better)
    diverging = is_diverging(values, scale, broken=history.broken)
    start = 0 if diverging else present_start(samples, values, better)
    curve, frame = normalized(samples[start:], values[start:], better)
    family, back_tests = (FLAT, ()) if diverging else choose(curve)
    return FittedForecast(
        better=better,
        points=history.points,
        is_diverging=diverging,
        phase_samples=float(samples[start]),
        frame=frame,
        fit=polished(fit_family(family, curve), curve),
        spread=spread_of(curve, back_tests),
        scale=scale,
    )


FURTHEST = 1e4
"""Times the work done: a value that is not reached by then never is."""

STEPS = 400
"""Of the search for the work at which a value is reached."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedForecast:
    """A forecast by a curve through the present phase; a ``LossForecast``.

    Attributes:
        better: Which values are good.
        points: The usable values, ascending in samples.
        is_diverging: Whether the training has gone wrong.
        phase_samples: Where the present phase began, or the warm-up ended.
        frame: The units of *fit* and *spread*.
        fit: The chosen family's curve.
        spread: How wide its intervals are.
        scale: The unit of quality.
    """

    better: MetricDirection
    points: tuple[MetricPoint, ...]
    is_diverging: bool
    phase_samples: float
    frame: Frame
    fit: Fit
    spread: Spread
    scale: QualityScale

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

    def refreshed(self, history: LossHistory) -> FittedForecast:
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


FEWEST_BROKEN = 3
"""Values in a row that are not finite; a single one may be an accident."""


@dataclass(frozen=True, slots=True)
class BrokenForecast:
    """A ``LossForecast`` that expects nothing, perhaps without any usable value."""

    better: MetricDirection
    points: tuple[MetricPoint, ...]
    family: str = "none"
    is_diverging: bool = True

    def expected(self, samples: float) -> Expected:
        """Return the last usable value, with an interval without ends."""
        del samples
        last = self.points[-1].value if self.points else math.nan
        return Expected(last, -math.inf, math.inf)

    def quality(self, value: float) -> float:
        """Return 0: there is nothing to measure *value* by."""
        del value
        return 0.0

    def samples_to(self, value: float) -> float:
        """Return inf: no value is expected."""
        del value
        return math.inf


def broken_forecast(
    history: LossHistory, better: MetricDirection
) -> BrokenForecast | None:
    """Return a forecast where the last three values are not finite; else None."""
    if history.broken < FEWEST_BROKEN:
        return None
    return BrokenForecast(better, history.points)


# ----------------------------------------------------------------------
# Whether a training has gone wrong

_FEWEST_TO_DIVERGE = 4

TAIL = 3

TAIL_SHARE = 0.02
"""Of the values: the last, whose middle has to be bad. One bad value is a spike."""

LOST_OF_GAIN = 0.5

LOST_OF_NOISE = 8.0

LOST_OF_VALUE = 0.01


def is_diverging(
    values: NDArray[np.float64], scale: QualityScale, *, broken: int
) -> bool:
    """Tell whether the last values are not numbers, or far worse than the best.

    Far is more than half of the largest gain so far, more than the noise explains, and
    more than a hundredth of the value itself: a warm-up may be a little worse than
    the very start.

    Args:
        values: The usable values, in order, shape (n,).
        scale: Of the same history.
        broken: How many values that were not finite came after the last usable one.
    """
    if broken:
        return True
    if values.size < _FEWEST_TO_DIVERGE:
        return False
    tail = max(TAIL, int(TAIL_SHARE * values.size))
    lost = scale.sign * (scale.best - float(np.median(values[-tail:])))
    return lost > max(
        LOST_OF_GAIN * scale.gained,
        LOST_OF_NOISE * scale.noise,
        LOST_OF_VALUE * max(abs(scale.best), abs(scale.start)),
    )


def has_diverged(points: Iterable[MetricPoint], better: MetricDirection) -> bool:
    """Tell whether the last values of a metric are not finite, or far worse.

    Args:
        points: All points of the metric, in order.
        better: Which values are good.
    """
    history = LossHistory(points)
    if not history.points:
        return history.broken > 0
    samples, values = history.samples, history.values
    scale = quality_scale(downsample(samples, values), better)
    return is_diverging(values, scale, broken=history.broken)


# ----------------------------------------------------------------------
# Where the present phase of a training began

_FEWEST_FOR_PHASES = 12
"""With fewer, two curves fit anything."""

FEWEST_IN_PHASE = 5

SPLITS = 20
"""Tried at first; then those between the best and its neighbours."""

GAIN_OF_SPLIT = 8.0
"""Times the natural logarithm of the number of points: by so many squared deviations
two curves must fit better than one. Twice what BIC asks for four parameters, because
the place of the split was searched for."""

LEAST_JUMP = 0.05
"""In heights, at the split from one curve to the other; in noise, four."""

JUMP_OF_NOISE = 4.0

LEAST_BEND = 3.0
"""The least factor between the slopes at a split without a jump."""

WARM_UP_SHARE = 1 / 3

WARM_UP_DROP = 0.02
"""In heights: less is no descent yet, nor is twice the noise."""

FALL_OF_DROP = 4.0
"""Times the drop: the least fall within as many points again. A slow start that goes
on as slowly is no warm-up."""


def present_start(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: MetricDirection
) -> int:
    """Return how many points are warm-up or of earlier phases.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        better: Which values are good.
    """
    curve = normalized(samples, values, better)[0]
    warm = int(np.sum(curve.weights[: warm_up_end(curve)]))
    curve = normalized(samples[warm:], values[warm:], better)[0]
    return warm + int(np.sum(curve.weights[: phase_start(curve)]))


def warm_up_end(curve: NormalizedCurve) -> int:
    """Return the index of the first point that is not warm-up.

    Warm-up is a rise or a plateau before the descent that ends within the first third
    of the points.
    """
    limit = int(WARM_UP_SHARE * len(curve))
    if limit < FEWEST_IN_PHASE:
        return 0
    calm = running_median(curve.heights)
    drop = max(2 * curve.noise, WARM_UP_DROP)
    high = np.flatnonzero(calm[: limit + 1] >= calm[: limit + 1].max() - drop)
    last = int(high[-1])
    fall = calm[last] - calm[min(2 * last, len(curve) - 1)]
    return last if 1 < last < limit and fall > FALL_OF_DROP * drop else 0


def phase_start(curve: NormalizedCurve) -> int:
    """Return the index of the first point of the present phase; 0 for one phase.

    Two power laws, one up to a split and one from there on, against the best of all
    families for the whole: the best split counts where it fits far better, and level
    or slope break there.
    """
    count = len(curve)
    least_gain = GAIN_OF_SPLIT * np.log(count)
    if count < _FEWEST_FOR_PHASES:
        return 0
    cost = min(_Segment(curve, 0, count, family).cost for family in CURVES)
    cost = min(cost, _cost_of_smooth(curve))
    if cost < least_gain:
        return 0
    split, cost_of_two = _best_split(curve)
    is_split = cost - cost_of_two > least_gain and _breaks(curve, split)
    return split if is_split else 0


def _best_split(curve: NormalizedCurve) -> tuple[int, float]:
    """Return the index at which two curves fit best, and their cost."""
    first, last = FEWEST_IN_PHASE, len(curve) - FEWEST_IN_PHASE
    stride = max(1, (last - first) // SPLITS)
    splits = range(first, last + 1, stride)
    costs = {split: _cost_of_two(curve, split) for split in splits}
    best = min(costs, key=costs.__getitem__)
    around = range(max(first, best - stride + 1), min(last + 1, best + stride))
    costs |= {split: _cost_of_two(curve, split) for split in around if split != best}
    best = min(costs, key=costs.__getitem__)
    return best, costs[best]


def _cost_of_two(curve: NormalizedCurve, split: int) -> float:
    before = _Segment(curve, 0, split)
    return before.cost + _Segment(curve, split, len(curve)).cost


def _cost_of_smooth(curve: NormalizedCurve) -> float:
    """Return the cost of a cubic: no family, but one phase all the same."""
    roots = np.sqrt(curve.weights)
    # With full=True, NumPy does not warn about unevenly spread points.
    cubic, _ = np.polynomial.Polynomial.fit(
        curve.work, curve.heights, 3, w=roots, full=True
    )
    misses = roots * (curve.heights - cubic(curve.work)) / scatter_of(curve)
    return float(8 * np.sum(np.sqrt(1 + misses**2) - 1))


def _breaks(curve: NormalizedCurve, split: int) -> bool:
    """Tell whether level or slope break at *split*, by the curves of both sides."""
    before = _Segment(curve, 0, split)
    after = _Segment(curve, split, len(curve))
    end, start = curve.work[split - 1], curve.work[split]
    # Any steep curve falls within one step: a jump is only the part that the curve
    # before would not have fallen by then.
    jump = abs(before.height(start) - after.height(start))
    if jump > max(LEAST_JUMP, JUMP_OF_NOISE * curve.noise):
        return True
    further = start + (curve.work[-1] - start) / 4
    old = before.height(end) - before.height(further)
    new = after.height(start) - after.height(further)
    return max(old, new) > LEAST_JUMP and max(old, new) > LEAST_BEND * min(old, new)


class _Segment:
    """A family's curve through some of a curve's points, without fading weights."""

    def __init__(
        self, curve: NormalizedCurve, start: int, stop: int, family: Family = POWER
    ) -> None:
        self._family = family
        step = curve.work[start] - curve.work[start - 1] if start else 0.0
        self._origin = curve.work[start] - step if start else 0.0
        work = self._work(curve.work[start:stop])
        costs, gains, floors = project(
            family.basis(work, family.shapes),
            curve.heights[start:stop],
            curve.weights[start:stop],
            lowest=-1.0,
            scatter=scatter_of(curve),
        )
        best = int(np.argmin(costs))
        self.cost = 4 * float(costs[best])
        self._shape = family.shapes[best : best + 1]
        self._gain, self._floor = gains[best], floors[best]

    def height(self, work: float) -> float:
        """Return the curve at *work*."""
        basis = self._family.basis(self._work(np.array([work])), self._shape)
        return float(self._floor + self._gain * basis[0, 0])

    def _work(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(work - self._origin)


# ----------------------------------------------------------------------
# Which family would have forecast the trainer's past best

HANDICAPS = {FLAT.name: 0.95, POWER.name: 1.0}
"""Factors of a family's error. No further gain wins ties. So does the power
law, which learning curves are known to follow, among the others: a few cuts of one
curve are weak evidence, and the best of five tries is always luck in part."""

HANDICAP = 1.1

MOST_MISFIT = 1.5
"""Errors are multiplied by at most the exponential of this for a worse fit."""

CUTS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Of the points: where the past is cut, and the rest predicted."""

FEWEST_SEEN = 4
"""Points; with fewer, no family has anything to fit."""

NEAR = 0.15
"""Work ahead, as a share of the work done, that is near."""


@dataclass(frozen=True, slots=True, eq=False)
class BackTest:
    """A forecast from the first part of a curve, and the points after that part.

    Arrays have the shape (n,), an entry for each later point.

    Attributes:
        noise: The noise at the cut, in heights, as it was known then.
        ahead: Work ahead, as a share of the work done at the cut.
        misses: Heights by which the points were above the forecast.
        weights: Reported points that each stands for.
    """

    noise: float
    ahead: NDArray[np.float64]
    misses: NDArray[np.float64]
    weights: NDArray[np.float64]


def choose(
    curve: NormalizedCurve, families: Sequence[Family] = KNOWN
) -> tuple[Family, tuple[BackTest, ...]]:
    """Return the family that would have forecast *curve* best, and its back-tests.

    Two things count: its errors in the back-tests, and how well it fits all points by
    the Bayesian information criterion. A family that fits no better than a constant is
    not tried, because its progress is noise. A family that fits worse than another has
    its errors multiplied. With too few points for a back-test: no further gain.
    """
    misfits = {family.name: _misfit(family, curve) for family in (FLAT, *families)}
    needed = [f for f in families if f is FLAT or misfits[f.name] < misfits[FLAT.name]]
    least = min(misfits.values())
    best = math.inf
    choice: tuple[Family, tuple[BackTest, ...]] = (FLAT, ())
    for family in needed:
        back_tests = back_tests_of(family, curve)
        error = error_of(back_tests) * HANDICAPS.get(family.name, HANDICAP)
        if family is not FLAT:
            error *= math.exp(min(misfits[family.name] - least, MOST_MISFIT))
        if error < best:
            best, choice = error, (family, back_tests)
    return choice


def _misfit(family: Family, curve: NormalizedCurve) -> float:
    """Return the information criterion of *family*'s best curve, for each point."""
    squares = CHI_OF_COST * float(costs_of(family, curve).min())
    return (squares + family.parameters * math.log(len(curve))) / len(curve)


def back_tests_of(family: Family, curve: NormalizedCurve) -> tuple[BackTest, ...]:
    """Return *family*'s forecasts of later parts of *curve* from earlier parts."""
    return tuple(_try(family, curve, count) for count in _cuts(len(curve)))


def _cuts(count: int) -> list[int]:
    seen = {max(FEWEST_SEEN, round(share * count)) for share in CUTS}
    return sorted(cut for cut in seen if cut < count)


def _try(family: Family, curve: NormalizedCurve, count: int) -> BackTest:
    past = curve.until(count)
    forecast = fit_family(family, past).forecast(curve.work[count:])
    return BackTest(
        noise=past.late_noise,
        ahead=curve.work[count:] / curve.work[count - 1] - 1,
        misses=curve.heights[count:] - forecast,
        weights=curve.weights[count:],
    )


def error_of(back_tests: Iterable[BackTest]) -> float:
    """Return the mean absolute miss: half of it near by, half over all later points.

    The near points decide which trainer gets nodes next, the far ones when a target is
    reached. In heights; inf without a back-test.
    """
    errors = [
        (_mean_miss(back_test, NEAR) + _mean_miss(back_test)) / 2
        for back_test in back_tests
    ]
    return float(np.mean(errors)) if errors else np.inf


def _mean_miss(back_test: BackTest, within: float = np.inf) -> float:
    counts = back_test.ahead <= max(within, back_test.ahead[0])
    return float(
        np.average(np.abs(back_test.misses[counts]), weights=back_test.weights[counts])
    )


# ----------------------------------------------------------------------
# How far from the forecast values may be, learned from the back-tests

SHARE = 0.8
"""Of the back-tests' outcomes that the growth has to cover: fewer than an interval has
to, because the outermost tenth of a few forecasts is chance."""

NORMAL = 1.2816
"""That share of normal values is within so many standard deviations."""

NORMAL_90 = 1.6449
"""Nine of ten are within so many."""

UNKNOWN_GROWTH = 0.3
"""In heights: without a back-test, as for a trainer that diverges."""

USUAL_GROWTH = 0.15

USUAL_POINTS = 10
"""A growth in heights that counts beside that of the back-tests, with the weight of so
many points. Five back-tests of a single curve are few and alike: where all of them were
right by chance, intervals were far too narrow (docs/notes/loss-curves.md)."""

FEW_POINTS = 14
"""With fewer, the usual growth rises with the square of the shortfall: most of the
descent may still come, and heights are measured by the little of it so far. Without
this, seven tenths of the values that came after the first four were outside of the
interval."""

DOUBT_OF_GAIN = 0.3
"""Of the gain that is forecast, which may always be less, or more."""


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


def spread_of(curve: NormalizedCurve, back_tests: Sequence[BackTest]) -> Spread:
    """Return the spread by the outcomes of *back_tests*; few points: nearer the usual.

    Without a back-test it is the usual growth, or the unknown growth where that is
    more. The noise is at least the step in which values come: the accuracy on fifty
    samples stays the same for long, and then changes by a fiftieth at once.
    """
    noise = max(curve.late_noise, _step_of(curve.heights))
    count = len(curve)
    usual = usual_growth(count)
    if not back_tests:
        return Spread(noise, max(usual, UNKNOWN_GROWTH))
    growth = count * growth_of(back_tests) + USUAL_POINTS * usual
    return Spread(noise, growth / (count + USUAL_POINTS))


def usual_growth(count: int) -> float:
    """Return the growth in heights that is usual after *count* points."""
    return USUAL_GROWTH * max(1.0, FEW_POINTS / count) ** 2


def growth_of(back_tests: Sequence[BackTest]) -> float:
    """Return the growth with which 80 % of the outcomes of *back_tests* were inside.

    Every back-test weighs the same, with few outcomes or with many: a wrong forecast
    is wrong at all of its points.
    """
    needed = np.concatenate([_growth_needed(back_test) for back_test in back_tests])
    weights = np.concatenate(
        [back_test.weights / back_test.weights.sum() for back_test in back_tests]
    )
    return weighted_quantile(needed, weights, SHARE)


def _step_of(heights: NDArray[np.float64]) -> float:
    """Return the smallest difference between two of *heights*; 0 where all are alike.

    Next to nothing for most metrics; for an accuracy on a few samples, one sample.
    """
    steps = np.diff(np.unique(heights))
    return float(steps.min()) if steps.size else 0.0


def _growth_needed(back_test: BackTest) -> NDArray[np.float64]:
    """Return the growth with which each of *back_test*'s outcomes is just inside.

    The noise is that known at the cut: more of it than now is no sign of drift.
    """
    beyond = np.maximum(back_test.misses**2 - (NORMAL * back_test.noise) ** 2, 0.0)
    return np.asarray(np.sqrt(beyond) / _reach(back_test.ahead))


def _reach(ahead: NDArray[np.float64]) -> NDArray[np.float64]:
    # Saturates: training does, too. Fitted to the residuals of curves with
    # 15-80 % seen, it covered as much as a logarithm with narrower intervals.
    return ahead / (1 + ahead)


# ----------------------------------------------------------------------
# A forecast as JSON, so that a tick without new values fits nothing

_VERSION = 2
"""Of the format and of the fits; forecasts of other versions are not used."""


def fingerprint(points: Iterable[MetricPoint], better: MetricDirection) -> str:
    """Return a hash of the points."""
    numbers = array("d")
    for point in points:
        numbers.extend((point.t_s, point.samples, point.value))
    return sha256(better.encode() + numbers.tobytes()).hexdigest()


def to_state(forecast: FittedForecast) -> dict[str, object]:
    """Return *forecast* as JSON, without its points, which are kept elsewhere."""
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
    state: Mapping[str, Any], history: LossHistory, better: MetricDirection
) -> FittedForecast:
    """Return the forecast of which :func:`to_state` made *state*.

    Args:
        state: The JSON.
        history: The same points again.
        better: Which values are good.

    Raises:
        BadDataError: Another release wrote it, or it is no such state.
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
            scale=QualityScale(**state["scale"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _refusal(f"something else than a forecast ({error!r})") from error


def _fit(state: Mapping[str, Any]) -> Fit:
    family = {family.name: family for family in KNOWN}[state["family"]]
    return Fit(family, np.array(state["shape"], dtype=np.float64), *state["curve"])


def _refusal(found: str) -> BadDataError:
    return BadDataError(
        f"a saved loss forecast has {found}. It was not used; the curve is fitted "
        f"again."
    )


# ----------------------------------------------------------------------
# The forecasts of all trainers, fitted again only when enough has changed

REFIT_SHARE = 0.1
"""A history is fitted again when it has grown by this share of its usable points."""


@dataclass(slots=True)
class _Entry:
    """The history and the last fit of one trainer."""

    better: MetricDirection
    history: LossHistory
    reported: int = 0
    last: MetricPoint | None = None
    fitted_points: int = 0
    forecast: FittedForecast | None = None


class LossForecasts:
    """Forecasts as ``fit_forecast`` does, but fits again only when enough has changed.

    Between fits a forecast has all points and starts where the trainer is; only its
    curve and its scale are some points old. Results depend on the earlier calls, and
    on nothing else.
    """

    def __init__(self, *, refit_share: float = REFIT_SHARE) -> None:
        self._refit_share = refit_share
        self._entries: dict[str, _Entry] = {}

    def update(
        self, name: str, points: Sequence[MetricPoint], better: MetricDirection
    ) -> LossForecast | None:
        """Add new points of the trainer *name*; return its forecast, None for none.

        Args:
            name: Unique among trainers.
            points: All its points, in order. Where they do not begin with those of the
                last call, its history starts over.
            better: Which values are good.
        """
        entry = self._entries.get(name)
        if entry is None or not _continues(entry, points, better):
            entry = self._entries[name] = _Entry(better, LossHistory())
        new = points[entry.reported :]
        if new:
            entry.history.extend(new)
            entry.reported, entry.last = len(points), points[-1]
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


def _continues(
    entry: _Entry, points: Sequence[MetricPoint], better: MetricDirection
) -> bool:
    """Tell whether *points* begin with those of the last call."""
    if entry.better is not better or len(points) < entry.reported:
        return False
    return (
        entry.reported == 0
        or points[entry.reported - 1] is entry.last
        or (points[entry.reported - 1] == entry.last)
    )
