"""What a forecast says, against trainings whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.losscurve.fit import FittedForecast, fit_forecast
from freetrain.losscurve.forecast import Better, LossForecast, Point
from tests.losscurve.reported import STEP, noisy, reported, steps

LOSSES = st.lists(
    st.one_of(st.floats(-1e3, 1e3), st.sampled_from([math.nan, math.inf, 1e30])),
    max_size=40,
)


def fitted(values: np.ndarray, better: Better = Better.LOWER) -> FittedForecast:
    forecast = fit_forecast(reported(values), better)
    assert forecast is not None
    return forecast


def falling(seed: int = 0, noise: float = 0.02) -> np.ndarray:
    return noisy(0.5 + 2 * steps(80) ** -0.5, noise=noise, seed=seed)


def test_it_is_what_priorities_are_promised() -> None:
    forecast: LossForecast = fitted(falling())

    assert forecast.family == "power law"


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [math.nan] * 9, [1.0, math.inf]])
def test_without_three_usable_values_there_is_none(values: list[float]) -> None:
    assert fit_forecast(reported(values), Better.LOWER) is None


@given(LOSSES, st.sampled_from(Better))
@settings(max_examples=60)
def test_forecasts_are_numbers_for_any_values(
    values: list[float], better: Better
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


@pytest.mark.parametrize("seed", range(5))
def test_a_power_law_is_forecast_within_its_interval(seed: int) -> None:
    forecast = fitted(falling(seed))

    for count in (81, 160, 800):
        truth = 0.5 + 2 * count**-0.5
        expected = forecast.expected(count * STEP)
        assert expected.value == pytest.approx(truth, abs=0.05)
        assert expected.low < truth < expected.high


def test_intervals_grow_with_distance() -> None:
    forecast = fitted(falling())
    near, far = forecast.expected(81 * STEP), forecast.expected(800 * STEP)

    assert near.high - near.low < far.high - far.low


def test_what_is_asked_of_the_past_is_answered_for_now() -> None:
    forecast = fitted(falling())

    assert forecast.expected(0.0) == forecast.expected(80 * STEP)


@pytest.mark.parametrize("seed", range(5))
def test_metrics_that_rise_are_losses_upside_down(seed: int) -> None:
    loss, gain = fitted(falling(seed)), fitted(-falling(seed), Better.HIGHER)
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
        said = plain.expected(count * STEP).value
        assert (other.expected(count * STEP).value - zero) / unit == pytest.approx(
            said, rel=1e-4
        )


def test_quality_is_0_at_the_start_and_1_at_the_best() -> None:
    forecast = fitted(np.array([4.0, 3.0, 2.0, 2.5, 2.2]))

    assert [forecast.quality(v) for v in (4.0, 3.0, 2.0, 1.0, 5.0)] == pytest.approx(
        [0.0, 0.5, 1.0, 1.5, -0.5]
    )
    assert forecast.quality(math.nan) == forecast.quality(math.inf) == 0.0


def test_one_spike_does_not_flatten_the_rest() -> None:
    calm, spiked = falling(), falling()
    spiked[40] = 1e6
    there, here = fitted(spiked), fitted(calm)

    assert there.quality(0.9) == pytest.approx(here.quality(0.9), abs=1e-6)
    assert there.quality(math.nan) == pytest.approx(0.0, abs=1e-6)
    assert there.expected(160 * STEP).value == pytest.approx(
        here.expected(160 * STEP).value, abs=0.02
    )
    assert not there.is_diverging


def test_a_step_decay_is_left_behind() -> None:
    k = steps(100)
    truth = np.where(k <= 60, 0.8 + 1.5 * k**-0.6, 0.4 + 0.3 * np.exp(-(k - 60) / 8))

    forecast = fitted(noisy(truth, noise=0.01, seed=0))

    assert forecast.phase_samples == pytest.approx(61 * STEP, abs=STEP)
    assert forecast.expected(110 * STEP).value == pytest.approx(0.4, abs=0.04)
    assert forecast.quality(truth[0]) == pytest.approx(0.0, abs=0.05)


def test_on_a_plateau_nothing_more_is_expected() -> None:
    values = np.append(falling()[:40], noisy(np.full(80, 0.8), noise=0.02, seed=1))

    forecast = fitted(values)

    expected = forecast.expected(240 * STEP)
    assert expected.value == pytest.approx(0.8, abs=0.03)
    assert forecast.samples_to(0.6) == math.inf


@pytest.mark.parametrize("end", [[math.nan], [math.inf] * 3, [3.0, 9.0, 50.0, 400.0]])
def test_a_diverging_training_is_flagged_and_expected_to_stay_so(
    end: list[float],
) -> None:
    forecast = fitted(np.append(falling(), end))

    assert forecast.is_diverging
    assert forecast.family == "no further gain"


def test_a_training_that_only_gets_worse_is_diverging() -> None:
    assert fitted(2.3 * 1.2 ** steps(12)).is_diverging


@pytest.mark.parametrize(
    "values",
    [
        falling(),
        np.append(falling(), [30.0]),
        np.append(falling()[:40], [math.nan, 0.9, 0.9]),
        noisy(np.ones(50), noise=0.3, seed=0),
        np.array([2.30, 2.305, 2.31, 2.308, 2.309]),
        np.append(falling(), np.linspace(0.75, 0.9, 20)),
    ],
    ids=["falls", "spike", "nan within", "noise", "warm-up", "over-fitting"],
)
def test_other_trainings_are_not_diverging(values: np.ndarray) -> None:
    assert not fitted(values).is_diverging


def test_a_value_that_was_reached_was_reached_then() -> None:
    forecast = fitted(np.array([4.0, 3.0, 2.0, 2.5, 2.2]))

    assert forecast.samples_to(3.0) == 2 * STEP
    assert forecast.samples_to(9.0) == STEP


def test_the_way_to_a_value_ends_where_it_is_expected() -> None:
    forecast = fitted(falling())

    samples = forecast.samples_to(0.65)

    assert forecast.expected(samples).value == pytest.approx(0.65, abs=1e-4)
    assert samples == pytest.approx((2 / 0.15) ** 2 * STEP, rel=0.4)


@pytest.mark.parametrize("never", [-5.0, math.nan, -math.inf])
def test_what_is_never_expected_is_infinitely_far(never: float) -> None:
    assert fitted(falling()).samples_to(never) == math.inf


def test_a_value_at_every_step_says_the_same_as_a_few() -> None:
    """A hundred thousand noisy steps, and their evaluations without noise."""
    k = steps(100_000)
    truth = 0.5 + 2 * (k / 1000) ** -0.3
    forecast = fit_forecast(
        [
            Point(0.0, float(s), float(v))
            for s, v in zip(k, noisy(truth, noise=0.2, seed=0), strict=True)
        ],
        Better.LOWER,
    )

    assert forecast is not None
    expected = forecast.expected(200_000.0)
    assert expected.value == pytest.approx(0.5 + 2 * 200**-0.3, abs=0.03)
    assert expected.high - expected.low == pytest.approx(2 * 1.645 * 0.2, rel=0.35)


@pytest.mark.parametrize(
    ("better", "good", "bad"), [(Better.LOWER, 0.4, 0.6), (Better.HIGHER, 0.6, 0.4)]
)
def test_a_target_is_reached_by_what_is_as_good_or_better(
    better: Better, good: float, bad: float
) -> None:
    reached = [better.is_reached(0.5, v) for v in (good, 0.5, bad, math.nan)]

    assert reached == [True, True, False, False]


def test_after_four_values_of_a_long_descent_its_end_is_not_ruled_out() -> None:
    values = np.exp(-steps(20) / 6)

    expected = fitted(values[:4]).expected(20 * STEP)

    assert expected.low < values[-1]
