"""LossForecasts that are asked for again and again."""

import math
from dataclasses import replace

import numpy as np
import pytest

from freetrain.losscurve.fit import FittedForecast, LossForecasts, fit_forecast
from freetrain.losscurve.forecast import Better, Point
from tests.losscurve.reported import STEP, noisy, reported, steps

POINTS = reported(noisy(0.5 + 2 * steps(120) ** -0.5, noise=0.02, seed=0))


def test_the_same_points_get_the_same_object() -> None:
    forecasts = LossForecasts()

    first = forecasts.update("a", POINTS[:50], Better.LOWER)

    assert forecasts.update("a", list(POINTS[:50]), Better.LOWER) is first


def test_the_curve_is_kept_until_the_history_has_grown_by_a_tenth() -> None:
    forecasts = LossForecasts()
    looks = [forecasts.update("a", POINTS[:n], Better.LOWER) for n in range(50, 56)]
    shapes = [look.fit.shape for look in looks if isinstance(look, FittedForecast)]

    assert all(shape is shapes[0] for shape in shapes[:5])
    assert shapes[5] is not shapes[0]


def test_between_fits_all_points_are_there_and_now_is_now() -> None:
    forecasts = LossForecasts()
    forecasts.update("a", POINTS[:50], Better.LOWER)

    kept = forecasts.update("a", POINTS[:54], Better.LOWER)
    fresh = fit_forecast(POINTS[:54], Better.LOWER)

    assert kept is not None
    assert fresh is not None
    assert kept.points == tuple(POINTS[:54])
    assert kept.expected(0.0) == kept.expected(54 * STEP)
    for count in (54, 60, 100):
        near = kept.expected(count * STEP).value - fresh.expected(count * STEP).value
        assert abs(near) < 0.03


def test_a_refit_says_what_a_first_fit_would() -> None:
    forecasts = LossForecasts()
    for count in range(3, 100, 7):
        forecasts.update("a", POINTS[:count], Better.LOWER)

    kept = forecasts.update("a", POINTS, Better.LOWER)
    fresh = fit_forecast(POINTS, Better.LOWER)

    assert kept is not None
    assert fresh is not None
    assert kept.expected(200 * STEP) == fresh.expected(200 * STEP)


def test_divergence_is_reported_at_once() -> None:
    forecasts = LossForecasts()
    forecasts.update("a", POINTS[:100], Better.LOWER)

    broken = [*POINTS[:100], replace(POINTS[100], value=float("nan"))]
    look = forecasts.update("a", broken, Better.LOWER)

    assert look is not None
    assert look.is_diverging
    assert look.family == "no further gain"


def test_a_history_that_was_rewritten_is_read_anew() -> None:
    forecasts = LossForecasts()
    forecasts.update("a", POINTS[:100], Better.LOWER)
    other = reported(np.linspace(3.0, 1.0, 60))

    look = forecasts.update("a", other, Better.LOWER)

    assert look is not None
    assert look.points == tuple(other)


def test_a_metric_that_turned_round_is_read_anew() -> None:
    forecasts = LossForecasts()
    forecasts.update("a", POINTS[:50], Better.LOWER)

    look = forecasts.update("a", POINTS[:50], Better.HIGHER)

    assert look is not None
    assert look.better is Better.HIGHER


def test_a_restart_is_fitted_anew() -> None:
    forecasts = LossForecasts()
    forecasts.update("a", POINTS[:100], Better.LOWER)
    again = [*POINTS[:100], *POINTS[40:44]]

    look = forecasts.update("a", again, Better.LOWER)
    fresh = fit_forecast(again, Better.LOWER)

    assert look is not None
    assert fresh is not None
    assert len(look.points) == 44
    assert look.expected(100 * STEP) == fresh.expected(100 * STEP)


def test_trainers_share_no_points_and_may_be_forgotten() -> None:
    forecasts = LossForecasts()
    one = forecasts.update("a", POINTS[:50], Better.LOWER)
    two = forecasts.update("b", POINTS[:60], Better.LOWER)
    forecasts.keep(["b"])

    assert forecasts.update("b", POINTS[:60], Better.LOWER) is two
    assert forecasts.update("a", POINTS[:50], Better.LOWER) is not one


def test_two_caches_with_the_same_calls_forecast_the_same() -> None:
    first, second = LossForecasts(), LossForecasts()
    for count in range(3, 120, 5):
        one = first.update("a", POINTS[:count], Better.LOWER)
        two = second.update("a", POINTS[:count], Better.LOWER)

        assert one is not None
        assert two is not None
        assert one.expected(200 * STEP) == two.expected(200 * STEP)


# Trainings whose values stop being numbers before a curve could be fitted


def points(*values: float) -> list[Point]:
    return [Point(float(n), 64.0 * n, value) for n, value in enumerate(values)]


@pytest.mark.parametrize("before", [(), (2.3,), (2.3, 2.2)])
def test_three_values_that_are_no_numbers_are_a_divergence(
    before: tuple[float, ...],
) -> None:
    values = (*before, math.inf, math.nan, math.nan)

    forecast = LossForecasts().update("a", points(*values), Better.LOWER)

    assert forecast is not None
    assert forecast.is_diverging
    assert [point.value for point in forecast.points] == list(before)
    assert forecast.samples_to(0.0) == math.inf
    assert forecast.quality(1.0) == 0.0
    assert forecast.expected(1e6).low == -math.inf


@pytest.mark.parametrize(
    "values", [(), (math.nan, math.nan), (math.nan, math.nan, math.nan, 2.3)]
)
def test_fewer_or_a_number_after_them_say_nothing_yet(
    values: tuple[float, ...],
) -> None:
    assert LossForecasts().update("a", points(*values), Better.LOWER) is None


def test_a_trainer_that_recovers_is_fitted_again() -> None:
    forecasts = LossForecasts()
    broken = [2.3, math.nan, math.nan, math.nan]
    lost = forecasts.update("a", points(*broken), Better.LOWER)
    back = forecasts.update("a", points(*broken, 2.2, 2.1, 2.0), Better.LOWER)

    assert lost is not None
    assert lost.is_diverging
    assert back is not None
    assert not back.is_diverging
