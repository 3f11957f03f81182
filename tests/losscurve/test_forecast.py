"""Forecasts of trainings whose truth is known, kept in a cache and as JSON."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.errors import BadDataError
from freetrain.losscurve.curve import LossHistory
from freetrain.losscurve.fit import (
    FittedForecast,
    LossForecasts,
    Sibling,
    fingerprint,
    fit_forecast,
    from_state,
    has_diverged,
    sibling_of,
    to_state,
)
from freetrain.losscurve.forecast import LossForecast, MetricDirection, MetricPoint
from tests.losscurve.reported import STEP, falling, noisy, reported, steps

LOWER, HIGHER = MetricDirection


def fitted(
    values: Iterable[float], better: MetricDirection = MetricDirection.LOWER
) -> FittedForecast:
    forecast = fit_forecast(reported(values), better)
    assert forecast is not None
    return forecast


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [math.nan] * 9, [1.0, math.inf]])
def test_without_three_usable_values_there_is_no_forecast(values: list[float]) -> None:
    assert fit_forecast(reported(values), MetricDirection.LOWER) is None


@given(
    st.lists(
        st.one_of(st.floats(-1e3, 1e3), st.sampled_from([math.nan, math.inf, 1e30])),
        max_size=40,
    ),
    st.sampled_from(MetricDirection),
)
@settings(max_examples=60)
def test_forecasts_are_numbers_for_any_values(
    values: list[float], better: MetricDirection
) -> None:
    forecast = fit_forecast(reported(values), better)
    if forecast is None:
        return

    for samples in (0.0, 20 * STEP, 1e12):
        expected = forecast.expected(samples)
        assert math.isfinite(expected.value)
        assert expected.low <= expected.value <= expected.high
    assert math.isfinite(forecast.quality(math.nan))
    assert forecast.samples_to(0.5) > 0


# Expected values and their intervals


@pytest.mark.parametrize("seed", range(5))
def test_a_power_law_is_forecast_within_an_interval_that_grows(seed: int) -> None:
    forecast: LossForecast = fitted(falling(seed=seed))

    widths = []
    for count in (81, 160, 800):
        truth = 0.5 + 2 * count**-0.5
        expected = forecast.expected(count * STEP)
        assert expected.value == pytest.approx(truth, abs=0.08)
        assert expected.low < truth < expected.high
        widths.append(expected.high - expected.low)
    assert forecast.family == "shifted power law"
    assert widths == sorted(widths)
    assert forecast.expected(0.0) == forecast.expected(80 * STEP), "the past is now"


@pytest.mark.parametrize("seed", range(5))
def test_metrics_that_rise_are_losses_upside_down(seed: int) -> None:
    loss = fitted(falling(seed=seed))
    gain = fitted(-falling(seed=seed), MetricDirection.HIGHER)
    down, up = loss.expected(200 * STEP), gain.expected(200 * STEP)

    assert (up.value, up.low, up.high) == pytest.approx(
        (-down.value, -down.high, -down.low)
    )
    assert gain.quality(-0.7) == pytest.approx(loss.quality(0.7))
    assert gain.samples_to(-0.65) == pytest.approx(loss.samples_to(0.65))
    assert gain.family == loss.family


@pytest.mark.parametrize(("unit", "zero"), [(1e6, 0.0), (1e-6, 0.0), (3.0, -1e3)])
def test_the_unit_of_the_metric_does_not_matter(unit: float, zero: float) -> None:
    plain, other = fitted(falling()), fitted(unit * falling() + zero)

    assert other.family == plain.family
    for count in (100, 300):
        expected = pytest.approx(plain.expected(count * STEP).value, rel=1e-4)
        assert (other.expected(count * STEP).value - zero) / unit == expected


def test_a_step_decay_is_left_behind() -> None:
    k = steps(100)
    truth = np.where(k <= 60, 0.8 + 1.5 * k**-0.6, 0.4 + 0.3 * np.exp(-(k - 60) / 8))

    forecast = fitted(noisy(truth, noise=0.01))

    assert forecast.phase_samples == pytest.approx(61 * STEP, abs=STEP)
    assert forecast.expected(110 * STEP).value == pytest.approx(0.4, abs=0.04)
    assert forecast.quality(truth[0]) == pytest.approx(0.0, abs=0.05)


def test_on_a_plateau_nothing_more_is_expected() -> None:
    values = np.append(falling()[:40], noisy(np.full(80, 0.8), noise=0.02, seed=1))

    forecast = fitted(values)

    assert forecast.expected(240 * STEP).value == pytest.approx(0.8, abs=0.03)
    assert forecast.samples_to(0.6) == math.inf


def test_a_hundred_thousand_noisy_steps_show_as_much_as_a_few_evaluations() -> None:
    k = steps(100_000)
    values = noisy(0.5 + 2 * (k / 1000) ** -0.3, noise=0.2)
    forecast = fit_forecast(reported(values, k.tolist()), MetricDirection.LOWER)

    assert forecast is not None
    expected = forecast.expected(200_000.0)
    assert expected.value == pytest.approx(0.5 + 2 * 200**-0.3, abs=0.05)


def test_after_four_values_of_a_long_descent_its_end_is_not_ruled_out() -> None:
    values = np.exp(-steps(20) / 6)

    assert fitted(values[:4]).expected(20 * STEP).low < values[-1]


# Quality, targets, divergence


def test_quality_is_0_at_the_start_and_1_at_the_best() -> None:
    forecast = fitted([4.0, 3.0, 2.0, 2.5, 2.2])

    assert [forecast.quality(v) for v in (4.0, 3.0, 2.0, 1.0, 5.0)] == pytest.approx(
        [0.0, 0.5, 1.0, 1.5, -0.5]
    )
    assert forecast.quality(math.nan) == forecast.quality(math.inf) == 0.0


def test_a_single_spike_does_not_flatten_the_rest() -> None:
    spiked = falling()
    spiked[40] = 1e6
    there, here = fitted(spiked), fitted(falling())

    assert there.quality(0.9) == pytest.approx(here.quality(0.9), abs=1e-6)
    assert there.quality(math.nan) == pytest.approx(0.0, abs=1e-6)
    assert there.expected(160 * STEP).value == pytest.approx(
        here.expected(160 * STEP).value, abs=0.02
    )
    assert not there.is_diverging


def test_a_target_is_reached_by_a_value_as_good_or_better() -> None:
    values = (0.4, 0.5, 0.6, math.nan)

    for better, reached in (
        (MetricDirection.LOWER, [True, True, False, False]),
        (MetricDirection.HIGHER, [False, True, True, False]),
    ):
        assert [better.is_reached(0.5, value) for value in values] == reached


def test_a_value_is_reached_where_it_was_or_where_it_is_expected() -> None:
    past, future = fitted([4.0, 3.0, 2.0, 2.5, 2.2]), fitted(falling())
    samples = future.samples_to(0.65)

    assert [past.samples_to(value) for value in (3.0, 9.0)] == [2 * STEP, STEP]
    assert future.expected(samples).value == pytest.approx(0.65, abs=1e-4)
    assert (2 / 0.15) ** 2 * STEP < samples < 600 * STEP, "later than in truth"
    for never in (-5.0, math.nan, -math.inf):
        assert future.samples_to(never) == math.inf


@pytest.mark.parametrize(
    "end", [[math.nan] * 3, [math.inf] * 3, [3.0, 9.0, 50.0, 400.0]]
)
def test_a_diverging_training_is_expected_to_gain_nothing(end: list[float]) -> None:
    forecast = fitted(np.append(falling(), end))

    assert forecast.is_diverging
    assert forecast.family == "no further gain"


def test_a_training_that_only_gets_worse_is_diverging() -> None:
    assert fitted(2.3 * 1.2 ** steps(12)).is_diverging


SOUND = {
    "falls": falling(),
    "spike": np.append(falling(), [30.0]),
    "nan within": np.append(falling()[:40], [math.nan, 0.9, 0.9]),
    "noise": noisy(np.ones(50), noise=0.3),
    "warm-up": np.array([2.30, 2.305, 2.31, 2.308, 2.309]),
    "overfits": np.append(falling(), np.linspace(0.75, 0.9, 20)),
}


@pytest.mark.parametrize("values", SOUND.values(), ids=SOUND)
def test_other_trainings_are_not_diverging(values: NDArray[np.float64]) -> None:
    assert not fitted(values).is_diverging


# Finished trainings of the same program, and falls of the learning rate


def dropping(seed: int, *, at: int = 50, lowest: float = 0.2) -> NDArray[np.float64]:
    """Return losses on a plateau until a fall of the learning rate after *at* steps."""
    k = steps(100)
    before = 0.9 + k**-0.7
    return noisy(np.where(k <= at, before, lowest), noise=0.02, seed=seed)


def siblings(*many: NDArray[np.float64]) -> list[Sibling]:
    found = [sibling_of(reported(values)) for values in many]
    return [sibling for sibling in found if sibling is not None]


def test_finished_trainings_show_a_step_that_the_own_past_does_not() -> None:
    seen = reported(dropping(0)[:40])
    alone = fit_forecast(seen, LOWER)
    guided = fit_forecast(seen, LOWER, siblings=siblings(dropping(1), dropping(2)))

    assert alone is not None
    assert guided is not None
    assert alone.expected(90 * STEP).value > 0.8
    expected = guided.expected(90 * STEP)
    assert expected.value == pytest.approx(0.45, abs=0.05), "two of three ways fall"
    assert expected.low < 0.2 < expected.high
    assert guided.samples_to(0.6) == pytest.approx(51 * STEP, abs=STEP)
    assert alone.samples_to(0.6) == math.inf
    assert (alone.is_calibrated, guided.is_calibrated) == (False, True)


def test_the_range_is_wide_where_finished_trainings_differ() -> None:
    seen = reported(falling()[:40])
    alike = siblings(falling(seed=1), falling(seed=2))
    unlike = siblings(dropping(1, at=45), dropping(2, lowest=1.4))

    close, wide = (fit_forecast(seen, LOWER, siblings=ways) for ways in (alike, unlike))
    assert close is not None
    assert wide is not None
    ends = [own.expected(75 * STEP) for own in (close, wide)]
    assert ends[1].high - ends[1].low > 3 * (ends[0].high - ends[0].low)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([], id="none"),
        pytest.param([falling(30)], id="ended before"),
        pytest.param([np.array([1.0, 0.9])], id="too few values"),
    ],
)
def test_what_did_not_go_on_from_here_says_nothing(
    others: list[NDArray[np.float64]],
) -> None:
    seen = reported(falling()[:40])
    alone = fit_forecast(seen, LOWER)
    guided = fit_forecast(seen, LOWER, siblings=siblings(*others))

    assert alone is not None
    assert guided is not None
    assert guided.expected(80 * STEP) == alone.expected(80 * STEP)
    assert not guided.is_calibrated


def test_a_diverging_training_is_guided_by_none() -> None:
    ways = siblings(falling(seed=1), falling(seed=2))
    seen = reported(np.append(falling()[:40], [9.0, 50.0, 400.0]))
    forecast = fit_forecast(seen, LOWER, siblings=ways)

    assert forecast is not None
    assert not forecast.guides
    assert forecast.expected(80 * STEP).value == forecast.expected(43 * STEP).value


def test_a_known_fall_to_come_widens_the_better_side_from_there_on() -> None:
    seen, at = reported(falling()), [100 * STEP, 150 * STEP]
    for better, sign in ((LOWER, 1), (HIGHER, -1)):
        points = [replace(point, value=sign * point.value) for point in seen]
        plain = fit_forecast(points, better)
        forecast = fit_forecast(points, better, lr_steps=at)
        assert plain is not None
        assert forecast is not None
        for where, falls in ((99, 0), (101, 1), (160, 2)):
            one, two = (own.expected(where * STEP) for own in (plain, forecast))
            wider = sign * (one.low - two.low + one.high - two.high)
            assert two.value == pytest.approx(one.value)
            assert wider / abs(forecast.scale.gained) == pytest.approx(
                (0.0, 0.5, 0.65)[falls]
            )


# The forecasts of a replay


POINTS = reported(falling(120))


class Cache:
    """The forecasts of one trainer."""

    def __init__(self, *counts: int) -> None:
        self.forecasts = LossForecasts()
        for count in counts:
            self.update(POINTS[:count])

    def update(
        self, points: list[MetricPoint], better: MetricDirection = MetricDirection.LOWER
    ) -> LossForecast:
        forecast = self.forecasts.update("a", points, better)
        assert forecast is not None
        return forecast


def test_the_curve_is_kept_until_the_history_has_grown_by_a_tenth() -> None:
    cache = Cache()
    first, *later = [cache.update(POINTS[:n]) for n in range(50, 56)]

    assert cache.update(POINTS[:55]) is later[-1], "no new points"
    gains = [own.fit.gain for own in later if isinstance(own, FittedForecast)]
    assert isinstance(first, FittedForecast)
    assert all(gain == first.fit.gain for gain in gains[:4])
    assert gains[4] != first.fit.gain


def test_between_fits_all_points_are_there_and_now_is_now() -> None:
    kept, fresh = (
        Cache(50).update(POINTS[:54]),
        fit_forecast(POINTS[:54], MetricDirection.LOWER),
    )

    assert fresh is not None
    assert kept.points == tuple(POINTS[:54])
    assert kept.expected(0.0) == kept.expected(54 * STEP)
    for count in (54, 60, 100):
        near = kept.expected(count * STEP).value - fresh.expected(count * STEP).value
        assert abs(near) < 0.03


REFITS = {
    "a refit": (range(3, 100, 7), POINTS, LOWER, 120),
    "a restart": ([100], [*POINTS[:100], *POINTS[40:44]], LOWER, 44),
    "a history that was rewritten": (
        *([100], reported(np.linspace(3.0, 1.0, 60)), LOWER, 60),
    ),
    "a metric that turned round": ([50], POINTS[:50], HIGHER, 50),
}


@pytest.mark.parametrize(
    ("before", "points", "better", "usable"), REFITS.values(), ids=REFITS
)
def test_a_new_fit_is_as_the_first_fit_of_these_points(
    before: Iterable[int],
    points: list[MetricPoint],
    better: MetricDirection,
    usable: int,
) -> None:
    kept, fresh = Cache(*before).update(points, better), fit_forecast(points, better)

    assert fresh is not None
    assert kept.better is better
    assert len(kept.points) == usable
    assert kept.points == fresh.points
    assert kept.expected(200 * STEP) == fresh.expected(200 * STEP)


def test_three_values_that_are_no_numbers_are_reported_as_a_divergence_at_once() -> (
    None
):
    broken = [replace(point, value=math.nan) for point in POINTS[100:103]]
    forecast = Cache(100).update([*POINTS[:100], *broken])

    assert forecast.is_diverging
    assert forecast.family == "no further gain"
    assert has_diverged([*POINTS[:100], *broken], MetricDirection.LOWER)


@pytest.mark.parametrize("after", [0, 1, 40])
def test_one_or_two_steps_that_mixed_precision_skips_are_no_divergence(
    after: int,
) -> None:
    skipped = [replace(point, value=math.nan) for point in POINTS[100:102]]
    points = [*POINTS[:100], *skipped, *POINTS[102 : 102 + after]]

    assert not has_diverged(points, MetricDirection.LOWER)
    assert not has_diverged(skipped, MetricDirection.LOWER)
    assert not Cache(100).update(points).is_diverging


def test_trainers_share_no_points_and_may_be_forgotten() -> None:
    forecasts = LossForecasts()
    first = forecasts.update("a", POINTS[:50], MetricDirection.LOWER)
    second = forecasts.update("b", POINTS[:60], MetricDirection.LOWER)
    forecasts.keep(["b"])

    assert forecasts.update("b", POINTS[:60], MetricDirection.LOWER) is second
    assert forecasts.update("a", POINTS[:50], MetricDirection.LOWER) is not first


@pytest.mark.parametrize("before", [(), (2.3,), (2.3, 2.2)])
def test_three_broken_values_are_a_divergence_before_any_curve_is_fitted(
    before: tuple[float, ...],
) -> None:
    values = (*before, math.inf, math.nan, math.nan)

    forecast = Cache().update(reported(values))

    assert forecast.is_diverging
    assert [point.value for point in forecast.points] == list(before)
    assert forecast.samples_to(0.0) == math.inf
    assert forecast.quality(1.0) == 0.0
    assert forecast.expected(1e6).low == -math.inf


@pytest.mark.parametrize(
    "values", [(), (math.nan, math.nan), (math.nan, math.nan, math.nan, 2.3)]
)
def test_fewer_broken_values_or_a_number_after_them_show_nothing_yet(
    values: tuple[float, ...],
) -> None:
    assert LossForecasts().update("a", reported(values), MetricDirection.LOWER) is None


def test_a_trainer_that_recovers_is_fitted_again() -> None:
    cache, broken = Cache(), [2.3, math.nan, math.nan, math.nan]

    assert cache.update(reported(broken)).is_diverging
    assert not cache.update(reported([*broken, 2.2, 2.1, 2.0])).is_diverging


# As JSON


SAVED = {
    "learning": noisy(0.5 + 2 * steps(60) ** -0.5, noise=0.02),
    "flat": np.full(10, 0.25),
    "gone wrong": np.array([3.0, 2.0, 1.0, 9.0, 9.0, 9.0, 9.0]),
    "broken": np.array([3.0, 2.0, 1.5, 1.2, math.nan]),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("better", MetricDirection)
def test_a_saved_forecast_answers_as_before(name: str, better: MetricDirection) -> None:
    points = reported(SAVED[name])
    before = fit_forecast(
        points, better, lr_steps=[70 * STEP], siblings=siblings(falling())
    )
    assert before is not None

    state = json.loads(json.dumps(to_state(before)))
    again = from_state(state, LossHistory(points), better, siblings=before.siblings)

    for field in ("better", "points", "family", "is_diverging", "phase_samples"):
        assert getattr(again, field) == getattr(before, field)
    for work in (0.0, 80 * STEP, 1e9):
        assert again.expected(work) == before.expected(work)
    values = [*SAVED[name][:3].tolist(), 0.4]
    assert [*map(again.quality, values)] == [*map(before.quality, values)]
    assert [*map(again.samples_to, values)] == [*map(before.samples_to, values)]


OTHERS: dict[str, object] = {
    "version": 2,
    "frame": None,
    "fit": [1.0],
    "lr_steps": ["x"],
    "scale": {},
}


@pytest.mark.parametrize(("part", "value"), OTHERS.items(), ids=OTHERS)
def test_a_forecast_that_another_release_saved_is_refused(
    part: str, value: object
) -> None:
    state = to_state(fitted(SAVED["learning"]))

    with pytest.raises(BadDataError, match="fitted again"):
        from_state(state | {part: value}, LossHistory(), MetricDirection.LOWER)


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=8), st.data())
def test_any_change_of_the_points_changes_the_fingerprint(
    values: list[float], data: st.DataObject
) -> None:
    points = reported(values)
    at = data.draw(st.integers(0, len(values) - 1))
    other = [*values[:at], 0.5 if values[at] != 0.5 else 0.25, *values[at + 1 :]]

    own = fingerprint(points, MetricDirection.LOWER)

    assert own == fingerprint(reported(values), MetricDirection.LOWER)
    assert own != fingerprint(reported(other), MetricDirection.LOWER)
    assert own != fingerprint(reported([*values, 0.5]), MetricDirection.LOWER)
    assert own != fingerprint(points, MetricDirection.HIGHER)
