"""How wide intervals are."""

import numpy as np
import pytest
from numpy.typing import NDArray

from freetrain.losscurve.curve import NormalizedCurve
from freetrain.losscurve.fit import (
    NORMAL,
    NORMAL_90,
    USUAL_GROWTH,
    BackTest,
    Spread,
    growth_of,
    spread_of,
    usual_growth,
)
from tests.losscurve.reported import noisy, steps

WIDER = NORMAL_90 / NORMAL
"""What growth is learned from is an interval of 80 %; what is told is one of 90 %."""


def curve(heights: NDArray[np.float64]) -> NormalizedCurve:
    count = heights.size
    return NormalizedCurve(steps(count) / count, heights, np.ones(count), 0.0)


CALM = curve(np.linspace(1, 0, 10))


def back_test(misses: list[float], noise: float = 0.0) -> BackTest:
    count = len(misses)
    ahead = np.arange(1.0, count + 1.0) / count
    return BackTest(noise, ahead, np.array(misses), np.ones(count))


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
    outcomes = back_test(misses)

    spread = Spread(0.0, growth_of([outcomes]))

    inside = [
        WIDER * miss <= spread.half_width(float(ahead), 0.0)
        for ahead, miss in zip(outcomes.ahead, misses, strict=True)
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.02)


def test_noise_of_its_time_is_no_drift() -> None:
    assert growth_of([back_test([0.1, -0.1, 0.1], noise=0.1)]) == 0.0


def test_a_forecast_of_many_points_weighs_no_more_than_one_of_few() -> None:
    few, many = back_test([0.0] * 3), back_test([1.0] * 300)

    assert growth_of([few] * 9 + [many]) == 0.0


@pytest.mark.parametrize("own", [0.0, 0.01, 0.4, 2.0])
def test_the_fewer_points_the_less_a_trainer_is_taken_to_be_unlike_others(
    own: float,
) -> None:
    outcomes = [back_test([own / 2] * 5)]
    counts = (4, 10, 40, 120)

    found = [spread_of(curve(np.linspace(1, 0, n)), outcomes).growth for n in counts]

    itself = growth_of(outcomes)
    shares = [
        (growth - itself) / (usual_growth(n) - itself)
        for growth, n in zip(found, counts, strict=True)
    ]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < shares[0] < 1
    assert 0 < shares[-1] < 0.1


def test_of_few_values_much_may_come_that_nothing_was_seen_of() -> None:
    after = {count: usual_growth(count) for count in (3, 5, 8, 14, 100)}

    assert after[3] > 20 * after[14]
    assert after[5] > 5 * after[14]
    assert after[8] > 2 * after[14]
    assert after[14] == after[100] == USUAL_GROWTH


@pytest.mark.parametrize("count", [3, 4])
def test_where_no_forecast_could_be_tried_growth_is_what_is_usual_of_so_few(
    count: int,
) -> None:
    assert spread_of(curve(np.linspace(1, 0, count)), []).growth == usual_growth(count)


def test_a_share_of_a_few_samples_is_known_no_better_than_by_one_of_them() -> None:
    accuracy_of_50 = curve(np.array([1.0, *[0.06] * 3, *[0.04] * 17]))

    assert accuracy_of_50.late_noise == 0.0
    assert spread_of(accuracy_of_50, [back_test([0.0])]).noise == pytest.approx(0.02)


def test_values_that_may_be_anything_are_as_noisy_as_they_are() -> None:
    values = noisy(steps(100) ** -0.5, noise=0.01, seed=0)

    found = spread_of(curve(values), [back_test([0.0])])

    assert found.noise == curve(values).late_noise


def test_where_all_values_are_alike_there_is_no_step() -> None:
    assert spread_of(curve(np.zeros(6)), [back_test([0.0])]).noise == 0.0


def test_without_a_trial_the_drift_is_not_taken_for_none() -> None:
    assert spread_of(CALM, []).growth > 0.1
