"""From reported losses to a forecast.

``fit_forecast`` has all steps: clean the values, leave out warm-up and earlier phases,
fit a shifted power law, and say how far from it values may be. Where trainings of the
same program have finished, their way on counts as much as the curve's. The sections of
this module follow that order. ``to_state`` keeps a forecast as JSON from one tick to
the next; ``LossForecasts`` keeps the forecasts of all trainers within a replay.
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
    PLAIN_SHAPES,
    SHAPES,
    Fit,
    Frame,
    LossHistory,
    QualityScale,
    basis_of,
    downsample,
    fit_curve,
    fit_level,
    normalized,
    project,
    quality_scale,
    refreshed_lag,
    running_median,
    scatter_of,
    without_blow_ups,
)
from freetrain.losscurve.forecast import Expected, MetricDirection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from freetrain.losscurve.curve import NormalizedCurve
    from freetrain.losscurve.forecast import LossForecast, MetricPoint

_FEWEST_TO_FIT = 3
"""Usable points; two are a line through anything."""


def fit_forecast(
    points: Iterable[MetricPoint],
    better: MetricDirection,
    *,
    lr_steps: Sequence[float] = (),
    siblings: Sequence[Sibling] = (),
) -> FittedForecast | None:
    """Return the forecast from *points*; None with fewer than three usable points.

    Args:
        points: In the order in which they were reported; with any values.
        better: Which values are good.
        lr_steps: Samples after which the learning rate falls, ascending; empty where
            that is not known.
        siblings: Finished trainings of the same program, by the same metric.
    """
    history = LossHistory(points)
    return fit_history(history, better, lr_steps=lr_steps, siblings=siblings)


def fit_history(
    history: LossHistory,
    better: MetricDirection,
    *,
    lr_steps: Sequence[float] = (),
    siblings: Sequence[Sibling] = (),
) -> FittedForecast | None:
    """Return the forecast of a history; as :func:`fit_forecast`."""
    samples, values = history.samples, history.values
    if samples.size < _FEWEST_TO_FIT:
        return None
    scale = quality_scale(downsample(samples, values), better)
    diverging = is_diverging(values, scale, broken=history.broken)
    start = 0
    if not diverging:
        values = without_blow_ups(samples, values, better)
        start = present_start(samples, values, better, lr_steps=lr_steps)
    curve, frame = normalized(samples[start:], values[start:], better)
    return FittedForecast(
        better=better,
        points=history.points,
        is_diverging=diverging,
        phase_samples=float(samples[start]),
        frame=frame,
        fit=fit_level(curve) if diverging else fit_curve(curve),
        spread=spread_of(curve),
        scale=scale,
        lr_steps=tuple(lr_steps),
        siblings=tuple(siblings),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sibling:
    """A finished training of the same program, by the same metric.

    Attributes:
        samples: Work done, ascending, shape (n,).
        values: The metric, spikes set aside, shape (n,).
    """

    samples: NDArray[np.float64]
    values: NDArray[np.float64]

    def gains(self, done: float, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much its value changed from *done* to *samples*, shape (k,).

        After its end it changes no more.
        """
        at = np.interp(np.append(done, samples), self.samples, self.values)
        return np.asarray(at[1:] - at[0])


def sibling_of(points: Iterable[MetricPoint]) -> Sibling | None:
    """Return a finished training by its *points*; None with too few that are usable."""
    history = LossHistory(points)
    if len(history) < _FEWEST_TO_FIT:
        return None
    calm = downsample(history.samples, history.values)
    return Sibling(calm.samples, running_median(calm.values))


FURTHEST = 1e4
"""Times the work done: a value that is not reached by then never is."""

STEPS = 400
"""Of the search for the work at which a value is reached."""

FEWEST_SIBLINGS = 2
"""Finished trainings with which nine of ten outcomes are in the range."""

GAIN_OF_STEP = 0.5
"""Of the gain so far: by so much the first fall of the learning rate that is to come
widens the range on its better side. What it brings cannot be known before."""

NEXT_STEP = 0.3
"""By how much each further one does, as a share of the one before."""

OWN_OF_RANGE = 0.7
"""Of the range without siblings, beside the differences between siblings."""

_LOOKS = 8
"""Of the way to a later value, at which continuations are compared: they may cross."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedForecast:
    """A forecast by a curve through the present phase; a ``LossForecast``.

    Attributes:
        better: Which values are good.
        points: The usable values, ascending in samples.
        is_diverging: Whether the training has gone wrong.
        phase_samples: Where the present phase began, or the warm-up ended.
        frame: The units of *fit* and *spread*.
        fit: The curve.
        spread: How far values may be from it.
        scale: The unit of quality.
        lr_steps: Samples after which the learning rate falls.
        siblings: Finished trainings of the same program.
    """

    better: MetricDirection
    points: tuple[MetricPoint, ...]
    is_diverging: bool
    phase_samples: float
    frame: Frame
    fit: Fit
    spread: Spread
    scale: QualityScale
    lr_steps: tuple[float, ...] = ()
    siblings: tuple[Sibling, ...] = ()

    @property
    def family(self) -> str:
        """The kind of curve that was fitted."""
        return "no further gain" if self.is_diverging else "shifted power law"

    @property
    def guides(self) -> tuple[Sibling, ...]:
        """The siblings that show how it may go on: those that went on from here."""
        done = self.points[-1].samples
        return tuple(
            sibling
            for sibling in self.siblings
            if sibling.samples[0] <= done < sibling.samples[-1]
            and not self.is_diverging
        )

    @property
    def is_calibrated(self) -> bool:
        """Whether ranges are made to hold nine of ten outcomes."""
        return len(self.guides) >= FEWEST_SIBLINGS

    def expected(self, samples: float) -> Expected:
        """Return the value expected after *samples* in all, at least those done."""
        way = np.linspace(self._done, max(samples, self._done), _LOOKS + 1)[1:]
        values, halves = self._ahead(way)
        value, half = float(values[-1]), float(halves[-1])
        brought = self._gain_of_steps(samples)
        return Expected(
            value, value - half + min(brought, 0.0), value + half + max(brought, 0.0)
        )

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
        return self._future_samples_to(value)

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

    @property
    def _done(self) -> float:
        """Samples at which the forecast begins."""
        return self.frame.samples(self.fit.end)

    def _ahead(
        self, samples: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return values expected at *samples*, ascending, and half widths of ranges.

        The curve's way on from the present level counts as one sibling's does. By how
        much they differ, up to the sample in question, widens the range.
        """
        frame, done = self.frame, self._done
        work = (samples - frame.origin_samples) / frame.unit_samples
        work = np.maximum(work, self.fit.end)
        now, *later = self.fit.forecast(np.append(self.fit.end, work))
        heights = np.array(later)
        halves = abs(frame.span) * self.spread.half_widths(
            work / self.fit.end - 1, now - heights
        )
        own = frame.span * (heights - now)
        guides = self.guides
        if guides:
            ways = np.array([own, *(guide.gains(done, samples) for guide in guides)])
            apart = np.maximum.accumulate(ways.std(axis=0, ddof=1))
            own = ways.mean(axis=0)
            halves = np.hypot(OWN_OF_RANGE * halves, apart)
        return frame.value(now) + own, halves

    def _gain_of_steps(self, samples: float) -> float:
        """Return what falls of the learning rate until *samples* may bring, signed.

        Siblings show what they bring, and nothing is added to that.
        """
        if self.guides:
            return 0.0
        passed = sum(step <= self._done for step in self.lr_steps)
        coming = sum(self._done < step <= samples for step in self.lr_steps)
        shares = (NEXT_STEP**k for k in range(passed, passed + coming))
        return GAIN_OF_STEP * sum(shares) * self.scale.sign * self.scale.gained

    def _future_samples_to(self, value: float) -> float:
        """Return the samples at which *value* is first expected; inf for never."""
        sign, done = self.scale.sign, self._done
        work = done - self.frame.origin_samples
        samples = self.frame.origin_samples + work * np.geomspace(1.0, FURTHEST, STEPS)
        for _ in range(2):
            reached = np.flatnonzero(sign * (self._ahead(samples)[0] - value) >= 0)
            if reached.size == 0:
                return math.inf
            first = int(reached[0])
            samples = np.linspace(samples[max(first - 1, 0)], samples[first], STEPS)
        return float(samples[-1])


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

LOST_OF_SPAN = 10.0
"""Of what all values before spanned. Among few values, those that blew up would be
taken for noise."""

LOST_OF_VALUE = 0.01


def is_diverging(
    values: NDArray[np.float64], scale: QualityScale, *, broken: int
) -> bool:
    """Tell whether the last values are not numbers, or far worse than the best.

    Far is more than half of the largest gain so far, more than the noise explains, and
    more than a hundredth of the value itself: a warm-up may be a little worse than
    the very start. Ten times what all values before spanned is far, too.

    Args:
        values: The usable values, in order, shape (n,).
        scale: Of the same history.
        broken: How many values that were not finite came after the last usable one.
    """
    if broken >= FEWEST_BROKEN:
        return True
    if values.size < _FEWEST_TO_DIVERGE:
        return False
    tail = max(TAIL, int(TAIL_SHARE * values.size))
    lost = scale.sign * (scale.best - float(np.median(values[-tail:])))
    if lost <= LOST_OF_VALUE * max(abs(scale.best), abs(scale.start)):
        return False
    explained = max(LOST_OF_GAIN * scale.gained, LOST_OF_NOISE * scale.noise)
    return lost > explained or _blew_up(scale.sign * values)


def _blew_up(values: NDArray[np.float64]) -> bool:
    """Tell whether from some point on all values are far below all before.

    Args:
        values: More is better, shape (n,).
    """
    # Four values or more are before the point, and three after it.
    best, worst = np.maximum.accumulate(values), np.minimum.accumulate(values)
    best_after = np.maximum.accumulate(values[::-1])[::-1]
    fewest = _FEWEST_TO_DIVERGE
    lost = best[fewest - 1 : -TAIL] - best_after[fewest : 1 - TAIL]
    spans = (best - worst)[fewest - 1 : -TAIL]
    return bool(np.any((lost > LOST_OF_SPAN * spans) & (spans > 0)))


def has_diverged(points: Iterable[MetricPoint], better: MetricDirection) -> bool:
    """Tell whether the last values of a metric are not finite, or far worse.

    Args:
        points: All points of the metric, in order.
        better: Which values are good.
    """
    history = LossHistory(points)
    if not history.points:
        return history.broken >= FEWEST_BROKEN
    samples, values = history.samples, history.values
    scale = quality_scale(downsample(samples, values), better)
    return is_diverging(values, scale, broken=history.broken)


# ----------------------------------------------------------------------
# Where the present phase of a training began

_FEWEST_FOR_PHASES = 12
"""With fewer, two curves fit anything."""

FEWEST_IN_PHASE = 5

SPLITS = 8
"""Tried at first; then those halfway between the best and its neighbours, and so on."""

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
    samples: NDArray[np.float64],
    values: NDArray[np.float64],
    better: MetricDirection,
    *,
    lr_steps: Sequence[float] = (),
) -> int:
    """Return how many points are warm-up or of earlier phases.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        better: Which values are good.
        lr_steps: Samples after which the learning rate falls. Where there are any,
            phases begin there and nowhere else, once they have enough points.
    """
    passed = [int(n) for n in np.searchsorted(samples, lr_steps, side="right")]
    begun = [start for start in passed if start <= samples.size - FEWEST_IN_PHASE]
    if any(begun):
        return max(begun)
    curve = normalized(samples, values, better)[0]
    warm = int(np.sum(curve.weights[: warm_up_end(curve)]))
    if lr_steps:
        return warm
    if warm:
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

    Two power laws, one up to a split and one from there on, against a shifted one and
    a cubic for the whole: the best split counts where it fits far better, and level
    or slope break there.
    """
    count = len(curve)
    least_gain = GAIN_OF_SPLIT * np.log(count)
    if count < _FEWEST_FOR_PHASES:
        return 0
    whole = _Segment(curve, 0, count, shapes=SHAPES).cost
    cost = min(whole, _cost_of_smooth(curve))
    if cost < least_gain:
        return 0
    split, cost_of_two = _best_split(curve)
    is_split = cost - cost_of_two > least_gain and _breaks(curve, split)
    return split if is_split else 0


def _best_split(curve: NormalizedCurve) -> tuple[int, float]:
    """Return the index at which two curves fit best, and their cost."""
    first, last = FEWEST_IN_PHASE, len(curve) - FEWEST_IN_PHASE
    stride = max(1, (last - first) // SPLITS)
    costs: dict[int, float] = {}
    splits = range(first, last + 1, stride)
    while True:
        costs |= {k: _cost_of_two(curve, k) for k in splits if k not in costs}
        best = min(costs, key=costs.__getitem__)
        if stride == 1:
            return best, costs[best]
        stride = stride // 2
        splits = range(max(first, best - stride), min(last, best + stride) + 1, stride)


def _cost_of_two(curve: NormalizedCurve, split: int) -> float:
    before = _Segment(curve, 0, split)
    return before.cost + _Segment(curve, split, len(curve)).cost


def _cost_of_smooth(curve: NormalizedCurve) -> float:
    """Return the cost of a cubic: no power law, but one phase all the same."""
    roots = np.sqrt(curve.weights)
    # With full=True, NumPy does not warn about unevenly spread points.
    cubic, _ = np.polynomial.Polynomial.fit(
        curve.work, curve.heights, 3, w=roots, full=True
    )
    misses = roots * (curve.heights - cubic(curve.work)) / scatter_of(curve)
    return float(CHI_OF_COST * 2 * np.sum(np.sqrt(1 + misses**2) - 1))


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


_SEGMENT_ROUNDS = 2
"""Of reweighting; four find the same splits, in twice the time."""


class _Segment:
    """A power law through some of a curve's points, without fading weights."""

    def __init__(
        self,
        curve: NormalizedCurve,
        start: int,
        stop: int,
        *,
        shapes: NDArray[np.float64] = PLAIN_SHAPES,
    ) -> None:
        step = curve.work[start] - curve.work[start - 1] if start else 0.0
        self._origin = curve.work[start] - step if start else 0.0
        costs, gains, floors = project(
            basis_of(curve.work[start:stop] - self._origin, shapes),
            curve.heights[start:stop],
            curve.weights[start:stop],
            lowest=-1.0,
            scatter=scatter_of(curve),
            rounds=_SEGMENT_ROUNDS,
        )
        best = int(np.argmin(costs))
        self.cost = CHI_OF_COST * float(costs[best])
        self._shape = shapes[best : best + 1]
        self._gain, self._floor = gains[best], floors[best]

    def height(self, work: float) -> float:
        """Return the curve at *work*."""
        basis = basis_of(np.array([work - self._origin]), self._shape)
        return float(self._floor + self._gain * basis[0, 0])


# ----------------------------------------------------------------------
# How far from the forecast values may be

NORMAL_90 = 1.6449
"""Nine of ten normal values are within so many standard deviations."""

USUAL_DRIFT = 0.2
"""In heights: half of the range that a training may leave the curve by in the end."""

FEW_POINTS = 14
"""With fewer, the drift rises with the square of the shortfall: most of the descent may
still come, and heights are measured by the little of it so far."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Half of the range of later values, as it grows with distance.

    Attributes:
        noise: Standard deviation of single values, in heights.
        drift: Half width without noise and gain at the far end, in heights.
    """

    noise: float
    drift: float

    def half_widths(
        self, ahead: NDArray[np.float64], gains: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the half widths in heights, shape (n,).

        Args:
            ahead: Work ahead, as a share of the work done, 0 or more, shape (n,).
            gains: Heights that are forecast to be gained by then, shape (n,).
        """
        # The drift saturates: training does, too.
        drift = self.drift * ahead / (1 + ahead)
        # The gain that is forecast may be nothing, or twice as much.
        calm = np.hypot(drift, gains)
        return np.asarray(np.hypot(NORMAL_90 * self.noise, calm))


def spread_of(curve: NormalizedCurve) -> Spread:
    """Return the spread round a curve.

    The noise is at least the step in which values come: the accuracy on fifty samples
    stays the same for long, and then changes by a fiftieth at once.
    """
    noise = max(curve.late_noise, _step_of(curve.heights))
    return Spread(noise, USUAL_DRIFT * max(1.0, FEW_POINTS / len(curve)) ** 2)


def _step_of(heights: NDArray[np.float64]) -> float:
    """Return the smallest difference between two of *heights*; 0 where all are alike.

    Next to nothing for most metrics; for an accuracy on a few samples, one sample.
    """
    steps = np.diff(np.unique(heights))
    return float(steps.min()) if steps.size else 0.0


# ----------------------------------------------------------------------
# A forecast as JSON, so that a tick without new values fits nothing

_VERSION = 3
"""Of the format and of the fits; forecasts of other versions are not used."""


def fingerprint(points: Iterable[MetricPoint], better: MetricDirection) -> str:
    """Return a hash of the points."""
    numbers = array("d")
    for point in points:
        numbers.extend((point.t_s, point.samples, point.value))
    return sha256(better.encode() + numbers.tobytes()).hexdigest()


def to_state(forecast: FittedForecast) -> dict[str, object]:
    """Return *forecast* as JSON, without its points, which are kept elsewhere."""
    return {
        "version": _VERSION,
        "is_diverging": forecast.is_diverging,
        "phase_samples": forecast.phase_samples,
        "frame": asdict(forecast.frame),
        "fit": asdict(forecast.fit),
        "spread": asdict(forecast.spread),
        "scale": asdict(forecast.scale),
        "lr_steps": list(forecast.lr_steps),
    }


def from_state(
    state: Mapping[str, Any],
    history: LossHistory,
    better: MetricDirection,
    *,
    siblings: Sequence[Sibling] = (),
) -> FittedForecast:
    """Return the forecast of which :func:`to_state` made *state*.

    Args:
        state: The JSON.
        history: The same points again.
        better: Which values are good.
        siblings: Finished trainings of the same program, by the same metric.

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
            fit=Fit(**state["fit"]),
            spread=Spread(**state["spread"]),
            scale=QualityScale(**state["scale"]),
            lr_steps=tuple(map(float, state["lr_steps"])),
            siblings=tuple(siblings),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _refusal(f"something else than a forecast ({error!r})") from error


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
