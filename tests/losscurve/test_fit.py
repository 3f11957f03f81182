"""The steps of a fit: the present phase, the choice of a family, and the interval."""

import numpy as np
import pytest
from numpy.typing import NDArray

from freetrain.losscurve.curve import FLAT, KNOWN, POWER, NormalizedCurve, normalized
from freetrain.losscurve.fit import (
    NORMAL,
    NORMAL_90,
    USUAL_GROWTH,
    BackTest,
    Spread,
    back_tests_of,
    choose,
    error_of,
    growth_of,
    present_start,
    spread_of,
    usual_growth,
    warm_up_end,
)
from freetrain.losscurve.forecast import MetricDirection
from tests.losscurve.reported import STEP, noisy, steps


def curve(values: NDArray[np.float64]) -> NormalizedCurve:
    return normalized(STEP * steps(values.size), values, MetricDirection.LOWER)[0]


# The present phase


K = steps(100)
SMOOTH = {
    "power": 0.2 + 2 * K**-0.5,
    "exponential": 0.3 + 2 * np.exp(-K / 20),
    "inverse": 0.1 + 1 / (0.1 * K + 0.4),
    "flat": np.ones(100),
    "linear": 3 - K / 50,
}


def start(
    values: NDArray[np.float64], better: MetricDirection = MetricDirection.LOWER
) -> int:
    return present_start(STEP * steps(values.size), values, better)


def stepped(at: int, k: NDArray[np.float64] = K) -> NDArray[np.float64]:
    before = 0.8 + 1.5 * k**-0.6
    after = 0.4 + 0.3 * np.exp(-(k - at) / 4)
    return np.where(at >= k, before, after)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_curve_is_one_phase_without_warm_up(name: str) -> None:
    for noise in (0.0, 0.005, 0.05):
        for seed in range(4):
            assert start(noisy(SMOOTH[name], noise=noise, seed=seed)) == 0
    assert warm_up_end(curve(noisy(SMOOTH[name], noise=0.05))) == 0


@pytest.mark.parametrize("at", [20, 50, 80])
def test_a_step_of_the_learning_rate_starts_a_phase(at: int) -> None:
    for seed in range(4):
        values = noisy(stepped(at), noise=0.02, seed=seed)
        assert abs(start(values) - at) <= 1
        assert abs(start(-values, MetricDirection.HIGHER) - at) <= 1
        assert start(values[:at]) == 0, "seen before it happens"


def test_a_step_within_a_long_history_is_found_to_the_bin() -> None:
    values = noisy(stepped(50, 1 + steps(20_000) / 200), noise=0.1)

    assert abs(start(values) - 9_800) < 20_000 / 40


def test_work_that_leaps_is_fitted_without_a_warning() -> None:
    samples = np.append(STEP * steps(20), 1e15)
    values = np.append(noisy(SMOOTH["power"][:20], noise=0.3), 0.5)

    assert present_start(samples, values, MetricDirection.LOWER) <= 20


@pytest.mark.parametrize("slope", [0.05, 0.0])
def test_a_warm_up_that_rises_or_stays_is_left_out(slope: float) -> None:
    descent = 0.3 + 2.5 * np.maximum(K - 9, 1) ** -0.5
    values = np.where(K < 10, 2.8 + slope * K, descent)
    for seed in range(4):
        assert 8 <= start(noisy(values, noise=0.02, seed=seed)) <= 16

    descent = 0.3 + 2.5 * np.maximum(K - 4, 1) ** -0.3
    short = np.where(K < 5, 2.8 + slope * K, descent)
    assert warm_up_end(curve(noisy(short, noise=0.02))) in {3, 4}


@pytest.mark.parametrize("at", [3, 20, 60, 97])
def test_a_single_spike_is_neither_warm_up_nor_a_phase(at: int) -> None:
    values = noisy(SMOOTH["power"], noise=0.02, seed=at)
    values[at] += 30.0

    assert start(values) == 0


# The choice of a family


def test_back_tests_do_not_know_the_values_after_their_cut() -> None:
    whole = curve(noisy(steps(50) ** -0.5, noise=0.02))
    heights = whole.heights.copy()
    heights[45:] += 7.0
    other = NormalizedCurve(whole.work, heights, whole.weights, whole.noise)
    for family in KNOWN:
        before, after = (back_tests_of(family, own)[-1] for own in (whole, other))

        assert before.misses.size == 5
        assert np.allclose(after.misses - before.misses, 7.0)


def test_the_error_counts_near_misses_twice() -> None:
    back_test = back_tests_of(FLAT, curve(10 - steps(20)))[2]
    near = np.abs(back_test.misses[back_test.ahead <= 0.15]).mean()

    assert error_of([back_test]) == pytest.approx(
        (near + np.abs(back_test.misses).mean()) / 2
    )


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.array([3.0, 2.0, 1.0]), id="too few values for a back-test"),
        pytest.param(np.ones(30), id="all values alike"),
        *(
            pytest.param(noisy(np.ones(60), noise=0.1, seed=n), id=f"plateau {n}")
            for n in range(5)
        ),
    ],
)
def test_no_further_gain_is_chosen(values: NDArray[np.float64]) -> None:
    assert choose(curve(values))[0] is FLAT


@pytest.mark.parametrize("seed", range(5))
def test_a_power_law_is_distinguished_from_exponential_decay(seed: int) -> None:
    power = noisy(0.3 + 2 * steps(60) ** -0.5, noise=0.02, seed=seed)
    exponential = noisy(0.3 + 2 * np.exp(-steps(60) / 25), noise=0.01, seed=seed)

    assert choose(curve(power))[0] is POWER
    assert choose(curve(exponential))[0] is not POWER


def test_a_family_that_would_have_forecast_better_but_fits_worse_is_not_chosen() -> (
    None
):
    exponential = noisy(0.3 + 2 * np.exp(-steps(60) / 20), noise=0.05, seed=3)

    assert choose(curve(exponential))[0].name == "exponential"


# The interval


WIDER = NORMAL_90 / NORMAL
"""Growth is learned for an interval of 80 %; forecasts have one of 90 %."""


def heights(values: NDArray[np.float64]) -> NormalizedCurve:
    count = values.size
    return NormalizedCurve(steps(count) / count, values, np.ones(count), 0.0)


def straight(count: int) -> NormalizedCurve:
    return heights(np.linspace(1, 0, count))


def back_test(misses: list[float], noise: float = 0.0) -> BackTest:
    count = len(misses)
    return BackTest(noise, steps(count) / count, np.array(misses), np.ones(count))


def test_the_interval_has_noise_drift_and_doubt_of_the_gain() -> None:
    drift = [Spread(0.0, 0.5).half_width(ahead, 0.0) for ahead in (0.1, 1.0, 10.0, 1e9)]

    assert Spread(0.1, 5.0).half_width(0.0, 0.0) == pytest.approx(0.1 * NORMAL_90)
    assert drift == sorted(drift)
    assert drift[1] == pytest.approx(0.25 * WIDER)
    assert drift[-1] == pytest.approx(0.5 * WIDER)
    assert Spread(0.0, 0.0).half_width(1.0, 0.2) > 0.0


def test_four_of_five_past_outcomes_are_inside_an_interval_of_80_percent() -> None:
    misses = [0.01 * i for i in range(1, 101)]
    outcomes = back_test(misses)

    spread = Spread(0.0, growth_of([outcomes]))

    inside = [
        WIDER * miss <= spread.half_width(float(ahead), 0.0)
        for ahead, miss in zip(outcomes.ahead, misses, strict=True)
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.02)


def test_noise_is_no_drift_and_every_back_test_weighs_the_same() -> None:
    assert growth_of([back_test([0.1, -0.1, 0.1], noise=0.1)]) == 0.0
    assert growth_of([back_test([0.0] * 3)] * 9 + [back_test([1.0] * 300)]) == 0.0


@pytest.mark.parametrize("own", [0.0, 0.01, 0.4, 2.0])
def test_with_few_points_the_growth_is_near_the_usual(own: float) -> None:
    outcomes, counts = [back_test([own / 2] * 5)], (4, 10, 40, 120)
    itself = growth_of(outcomes)

    shares = [
        (spread_of(straight(n), outcomes).growth - itself) / (usual_growth(n) - itself)
        for n in counts
    ]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < shares[0] < 1
    assert 0 < shares[-1] < 0.1


def test_after_few_values_the_usual_growth_is_large() -> None:
    after = {count: usual_growth(count) for count in (3, 5, 8, 14, 100)}

    assert after[3] > 20 * after[14]
    assert after[5] > 5 * after[14]
    assert after[8] > 2 * after[14]
    assert after[14] == after[100] == USUAL_GROWTH
    for count in (3, 4):
        assert spread_of(straight(count), []).growth == usual_growth(count)
    assert spread_of(straight(10), []).growth > 0.1


def test_the_noise_is_at_least_the_step_in_which_values_come() -> None:
    accuracy_of_50 = heights(np.array([1.0, *[0.06] * 3, *[0.04] * 17]))
    smooth = heights(noisy(steps(100) ** -0.5, noise=0.01))
    tests = [back_test([0.0])]

    assert accuracy_of_50.late_noise == 0.0
    assert spread_of(accuracy_of_50, tests).noise == pytest.approx(0.02)
    assert spread_of(smooth, tests).noise == smooth.late_noise
    assert spread_of(heights(np.zeros(6)), tests).noise == 0.0
