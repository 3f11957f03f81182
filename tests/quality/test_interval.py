"""How wide intervals are."""

import numpy as np
import pytest

from freetrain.quality.backtest import Trial
from freetrain.quality.course import Course
from freetrain.quality.interval import NORMAL, NORMAL_90, Spread, spread_of

WIDER = NORMAL_90 / NORMAL
"""What growth is learned from is an interval of 80 %; what is told is one of 90 %."""

CALM = Course(np.arange(1.0, 11.0) / 10, np.linspace(1, 0, 10), np.ones(10), 0.0)


def trial(misses: list[float], noise: float = 0.0) -> Trial:
    count = len(misses)
    ahead = np.arange(1.0, count + 1.0) / count
    return Trial(noise, ahead, np.array(misses), np.ones(count))


def test_at_no_distance_there_is_only_noise() -> None:
    assert Spread(0.1, 5.0).half_width(0.0, 0.0) == pytest.approx(0.1 * NORMAL_90)


def test_drift_grows_with_distance_up_to_an_end() -> None:
    drift = [Spread(0.0, 0.5).half_width(ahead, 0.0) for ahead in (0.1, 1.0, 10.0, 1e9)]

    assert drift == sorted(drift)
    assert drift[1] == pytest.approx(0.25 * WIDER)
    assert drift[-1] == pytest.approx(0.5 * WIDER)


def test_what_is_to_be_gained_is_never_certain() -> None:
    assert Spread(0.0, 0.0).half_width(1.0, 0.2) > 0.0


def test_four_of_five_outcomes_of_the_past_are_inside_an_interval_of_80_percent() -> (
    None
):
    misses = [0.01 * i for i in range(1, 101)]
    outcomes = trial(misses)

    spread = spread_of(CALM, [outcomes])

    inside = [
        WIDER * miss <= spread.half_width(float(ahead), 0.0)
        for ahead, miss in zip(outcomes.ahead, misses, strict=True)
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.02)


def test_noise_of_its_time_is_no_drift() -> None:
    assert spread_of(CALM, [trial([0.1, -0.1, 0.1], noise=0.1)]).growth == 0.0


def test_a_forecast_of_many_points_weighs_no_more_than_one_of_few() -> None:
    few, many = trial([0.0] * 3), trial([1.0] * 300)

    assert spread_of(CALM, [few] * 9 + [many]).growth == 0.0


def test_without_a_trial_the_drift_is_not_taken_for_none() -> None:
    assert spread_of(CALM, []).growth > 0.1
