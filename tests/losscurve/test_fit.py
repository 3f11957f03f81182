"""The steps of a fit: the present phase, and the range of later values."""

import numpy as np
import pytest
from numpy.typing import NDArray

from freetrain.losscurve.curve import NormalizedCurve, normalized
from freetrain.losscurve.fit import (
    NORMAL_90,
    Spread,
    present_start,
    spread_of,
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


@pytest.mark.parametrize("at", [5, 20, 50, 95])
def test_a_known_step_of_the_learning_rate_starts_a_phase(at: int) -> None:
    values = noisy(SMOOTH["power"], noise=0.02)

    for known in ([STEP * at], [STEP, STEP * at], [STEP * at, STEP * 500]):
        assert (
            present_start(STEP * K, values, MetricDirection.LOWER, lr_steps=known) == at
        )


def test_a_known_step_counts_once_enough_values_have_followed() -> None:
    values = noisy(stepped(50)[:53], noise=0.02)

    for known, found in (([50.0], 0), ([20.0, 50.0], 20), ([80.0], 0)):
        lr_steps = [STEP * step for step in known]
        start = present_start(
            STEP * steps(53), values, MetricDirection.LOWER, lr_steps=lr_steps
        )
        assert start == found


# The range


def heights(values: NDArray[np.float64]) -> NormalizedCurve:
    count = values.size
    return NormalizedCurve(steps(count) / count, values, np.ones(count), 0.0)


def half(spread: Spread, ahead: float, gain: float = 0.0) -> float:
    return float(spread.half_widths(np.array([ahead]), np.array([gain]))[0])


def test_the_range_has_noise_drift_and_doubt_of_the_gain() -> None:
    drift = [half(Spread(0.0, 0.5), ahead) for ahead in (0.1, 1.0, 10.0, 1e9)]

    assert half(Spread(0.1, 5.0), 0.0) == pytest.approx(0.1 * NORMAL_90)
    assert drift == sorted(drift)
    assert drift[1] == pytest.approx(0.25)
    assert drift[-1] == pytest.approx(0.5)
    assert half(Spread(0.0, 0.0), 1.0, 0.2) == pytest.approx(0.2)


def test_after_few_values_the_drift_is_large() -> None:
    after = {n: spread_of(heights(np.linspace(1, 0, n))).drift for n in (3, 5, 8, 14)}

    assert after[3] > 20 * after[14]
    assert after[5] > 5 * after[14]
    assert after[8] > 2 * after[14]
    assert spread_of(heights(np.linspace(1, 0, 100))).drift == after[14]


def test_the_noise_is_at_least_the_step_in_which_values_come() -> None:
    accuracy_of_50 = heights(np.array([1.0, *[0.06] * 3, *[0.04] * 17]))
    smooth = heights(noisy(steps(100) ** -0.5, noise=0.01))

    assert accuracy_of_50.late_noise == 0.0
    assert spread_of(accuracy_of_50).noise == pytest.approx(0.02)
    assert spread_of(smooth).noise == smooth.late_noise
    assert spread_of(heights(np.zeros(6))).noise == 0.0
