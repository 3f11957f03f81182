"""Curves that no fit is made for: whatever is reported, the forecast stays sensible."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.losscurve.curve import LossHistory
from freetrain.losscurve.fit import (
    FittedForecast,
    fit_forecast,
    has_diverged,
)
from freetrain.losscurve.forecast import LossForecast, MetricDirection, MetricPoint
from tests.losscurve.reported import STEP, falling, noisy, reported, steps

LOWER, HIGHER = MetricDirection
MILLION = 1_000_000

COUNTS = st.integers(3, 60)
SEEDS = st.integers(0, 1_000)
VALUES = st.floats(-1e6, 1e6)
DIRECTIONS = st.sampled_from(MetricDirection)


def forecast_of(
    points: Sequence[MetricPoint], better: MetricDirection = LOWER
) -> FittedForecast:
    forecast = fit_forecast(points, better)
    assert forecast is not None
    return forecast


def ahead(forecast: LossForecast) -> list[float]:
    """Return the values expected now and later."""
    done = forecast.points[-1].samples
    return [forecast.expected(done * times).value for times in (1.0, 1.5, 3.0, 100.0)]


# Constant


@given(st.floats(-1e99, 1e99), COUNTS, DIRECTIONS)
def test_a_constant_metric_stays_as_it_is(
    value: float, count: int, better: MetricDirection
) -> None:
    forecast = forecast_of(reported([value] * count), better)

    assert ahead(forecast) == pytest.approx([value] * 4, rel=1e-6, abs=1e-12)
    assert not forecast.is_diverging
    assert forecast.quality(value) == 0.0
    sign = 1 if better is HIGHER else -1
    assert forecast.samples_to(value + sign * max(1.0, abs(value))) == math.inf


# Rewards that rise


@given(st.lists(st.floats(0, 100), min_size=3, max_size=60), VALUES)
def test_rewards_that_never_fall_are_no_divergence_and_expected_to_go_on(
    gains: list[float], start: float
) -> None:
    rewards = start + np.cumsum(gains)
    forecast = forecast_of(reported(rewards), HIGHER)

    assert not forecast.is_diverging
    assert not has_diverged(reported(rewards), HIGHER)
    late, last = (  # both where the lag of the last points has faded
        forecast.expected(forecast.points[-1].samples * times).value
        for times in (10.0, 100.0)
    )
    span = float(np.ptp(rewards))
    assert rewards[0] - 1e-6 <= late <= last + 1e-6 + 1e-6 * span
    assert last <= rewards[-1] + 1.01 * span + 1e-6, "it gains at most as much again"


@given(st.lists(st.integers(-1_000, 1_000), min_size=3, max_size=60))
def test_a_reward_is_a_loss_upside_down(rewards: list[int]) -> None:
    up = forecast_of(reported(rewards), HIGHER)
    down = forecast_of(reported([-reward for reward in rewards]), LOWER)

    assert up.is_diverging == down.is_diverging
    mirrored = [-value for value in ahead(down)]
    assert ahead(up) == pytest.approx(mirrored, rel=1e-6, abs=1e-6)


# Divergence


@given(
    count=st.integers(4, 80),
    seed=SEEDS,
    end=st.sampled_from([(math.nan, math.inf, -math.inf, 1e200), (1e30, 1e99, 50.0)])
    .map(st.sampled_from)
    .flatmap(lambda kind: st.lists(kind, min_size=3, max_size=10)),
)
def test_a_training_that_blows_up_is_diverging_and_expected_to_stay_so(
    count: int, seed: int, end: list[float]
) -> None:
    points = reported([*falling(count, seed=seed), *end])
    forecast = forecast_of(points)

    assert has_diverged(points, LOWER)
    assert forecast.is_diverging
    now, *later = ahead(forecast)
    assert later == [now] * 3
    assert not forecast.guides


@given(
    at=st.integers(5, 60),
    length=st.integers(1, 8),
    factor=st.floats(5.0, 1e9),
    seed=SEEDS,
    better=DIRECTIONS,
)
def test_a_training_that_blew_up_and_came_back_is_forecast_as_if_it_had_not(
    at: int, length: int, factor: float, seed: int, better: MetricDirection
) -> None:
    sign = 1.0 if better is LOWER else -1.0
    calm = sign * falling(80, seed=seed)
    wild = calm.copy()
    wild[at : at + length] = sign * factor * (1.0 + np.arange(length) % 3)
    forecasts = [forecast_of(reported(values), better) for values in (calm, wild)]

    assert not forecasts[1].is_diverging
    plain, other = (own.expected(240 * STEP) for own in forecasts)
    assert other.value == pytest.approx(plain.value, abs=0.25)
    assert other.high - other.low < 2.0 * (plain.high - plain.low)


# Restarts


@given(
    count=st.integers(3, 60),
    back=st.integers(1, 60),
    again=st.integers(2, 60),
    seed=SEEDS,
)
def test_after_a_restart_only_the_values_up_to_its_checkpoint_count(
    count: int, back: int, again: int, seed: int
) -> None:
    before = reported(falling(count, seed=seed))
    checkpoint = max(0, count - back)
    whole = reported(falling(checkpoint + again, seed=seed + 1))
    went_on = whole[checkpoint:]

    history = LossHistory([*before, *went_on])

    assert history.points == (*before[:checkpoint], *went_on)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    SEEDS,
)
def test_any_number_of_restarts_leaves_one_training(
    lengths: list[int], seed: int
) -> None:
    truth = reported(falling(50, seed=seed))
    points, at = [], 0
    for length in lengths:
        points += truth[at : at + length + 3]
        at = max(0, min(at + length, 45) - 2)  # the checkpoint is older than the end
    points += truth[at:]

    assert LossHistory(points).points == tuple(truth)


# Out of order, and more than once


@given(count=st.integers(2, 40), late=st.integers(1, 5), seed=SEEDS)
def test_two_writers_of_whom_one_is_late_show_one_curve(
    count: int, late: int, seed: int
) -> None:
    truth = reported(falling(2 * (count + late), seed=seed))
    behind, ahead_of = truth[0::2], truth[1::2]
    turns = zip(behind, ahead_of[late:], strict=False)
    mixed = [*ahead_of[:late], *(point for turn in turns for point in turn)]

    expected = [point for point in truth if point in mixed]
    assert LossHistory(mixed).points == tuple(expected)


@given(st.permutations(range(12)), DIRECTIONS)
def test_values_in_any_order_have_a_forecast_that_goes_on_from_the_last(
    order: list[int], better: MetricDirection
) -> None:
    truth = reported(falling(12))
    forecast = fit_forecast([truth[place] for place in order], better)

    if forecast is not None:
        assert forecast.points[-1] in truth
        assert all(map(math.isfinite, ahead(forecast)))


@given(count=st.integers(5, 60), times=st.integers(2, 5), seed=SEEDS)
def test_what_is_reported_several_times_counts_once(
    count: int, times: int, seed: int
) -> None:
    once = reported(falling(count, seed=seed))
    each = [point for point in once for _ in range(times)]

    for repeated in (each, once * times):
        assert LossHistory(repeated).points == tuple(once)
        assert ahead(forecast_of(repeated)) == ahead(forecast_of(once))


# A million values

ORDERS: dict[str, Callable[[list[MetricPoint]], list[MetricPoint]]] = {
    "in order": lambda points: points,
    "from the last to the first": lambda points: [*points[:-1][::-1], points[-1]],
    "by two writers of whom one is far behind": lambda points: [
        point
        for pair in zip(points[MILLION // 2 :], points, strict=False)
        for point in pair
    ],
    "with a restart each thousand": lambda points: [
        replace(point, samples=point.samples - 500 * STEP * (place // 1_000))
        for place, point in enumerate(points)
    ],
}
MOST_S = 20.0
"""Processor time; it takes two seconds, and many minutes where time is quadratic."""


@pytest.fixture(scope="module")
def million() -> list[MetricPoint]:
    return reported(noisy(0.5 + steps(MILLION) ** -0.3, noise=0.02))


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_million_values_in_any_order_are_forecast_in_seconds(
    million: list[MetricPoint],
    order: Callable[[list[MetricPoint]], list[MetricPoint]],
) -> None:
    points = order(million)

    before = os.times().user
    forecast = forecast_of(points)
    spent_s = os.times().user - before

    assert spent_s < MOST_S
    assert not forecast.is_diverging
    assert all(0.4 < value < 0.7 for value in ahead(forecast))
