"""Trainings whose values stop being numbers before a curve could be fitted."""

import math

import pytest

from freetrain.losscurve.fit import LossForecasts
from freetrain.losscurve.forecast import Better, Point


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


def test_one_who_finds_back_is_fitted_like_anybody() -> None:
    forecasts = LossForecasts()
    broken = [2.3, math.nan, math.nan, math.nan]
    lost = forecasts.update("a", points(*broken), Better.LOWER)
    back = forecasts.update("a", points(*broken, 2.2, 2.1, 2.0), Better.LOWER)

    assert lost is not None
    assert lost.is_diverging
    assert back is not None
    assert not back.is_diverging
