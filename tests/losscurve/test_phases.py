"""Where a present phase begins."""

import numpy as np
import pytest

from freetrain.losscurve.curve import normalized
from freetrain.losscurve.fit import present_start, warm_up_end
from freetrain.losscurve.forecast import Better
from tests.losscurve.reported import STEP, noisy, steps

K = steps(100)
SMOOTH = {
    "power": 0.2 + 2 * K**-0.5,
    "exponential": 0.3 + 2 * np.exp(-K / 20),
    "inverse": 0.1 + 1 / (0.1 * K + 0.4),
    "flat": np.ones(100),
    "linear": 3 - K / 50,
}


def start(values: np.ndarray, better: Better = Better.LOWER) -> int:
    return present_start(STEP * steps(values.size), values, better)


def stepped(at: int) -> np.ndarray:
    before = 0.8 + 1.5 * K**-0.6
    after = 0.4 + 0.3 * np.exp(-(K - at) / 4)
    return np.where(at >= K, before, after)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("noise", [0.0, 0.005, 0.05])
def test_a_smooth_curve_is_one_phase(name: str, noise: float) -> None:
    for seed in range(4):
        assert start(noisy(SMOOTH[name], noise=noise, seed=seed)) == 0


@pytest.mark.parametrize("at", [20, 50, 80])
def test_a_step_of_the_learning_rate_starts_a_phase(at: int) -> None:
    for seed in range(4):
        assert abs(start(noisy(stepped(at), noise=0.02, seed=seed)) - at) <= 1


def test_a_step_is_found_in_metrics_that_rise_too() -> None:
    assert abs(start(-noisy(stepped(50), noise=0.02, seed=0), Better.HIGHER) - 50) <= 1


def test_a_step_within_a_long_history_is_found_to_the_bin() -> None:
    k = 1 + steps(20_000) / 200
    values = np.where(k <= 50, 0.8 + 1.5 * k**-0.6, 0.4 + 0.3 * np.exp(-(k - 50) / 4))

    found = start(noisy(values, noise=0.1, seed=0))

    assert abs(found - 9_800) < 20_000 / 40


def test_work_that_leaps_is_fitted_without_a_warning() -> None:
    samples = np.append(STEP * steps(20), 1e15)
    values = np.append(noisy(SMOOTH["power"][:20], noise=0.3, seed=0), 0.5)

    assert present_start(samples, values, Better.LOWER) <= 20


def test_a_step_is_not_seen_before_it_happens() -> None:
    seen = noisy(stepped(50), noise=0.02, seed=0)[:50]

    assert start(seen) == 0


@pytest.mark.parametrize("slope", [0.05, 0.0])
def test_a_warm_up_that_rises_or_stays_is_left_out(slope: float) -> None:
    falling = 0.3 + 2.5 * np.maximum(K - 9, 1) ** -0.5
    values = np.where(K < 10, 2.8 + slope * K, falling)
    for seed in range(4):
        assert 8 <= start(noisy(values, noise=0.02, seed=seed)) <= 16


@pytest.mark.parametrize("slope", [0.05, 0.0])
def test_a_warm_up_too_small_to_be_a_phase_is_found(slope: float) -> None:
    values = np.where(K < 5, 2.8 + slope * K, 0.3 + 2.5 * np.maximum(K - 4, 1) ** -0.3)

    curve, _ = normalized(STEP * K, noisy(values, noise=0.02, seed=0), Better.LOWER)

    assert warm_up_end(curve) in {3, 4}


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_curve_has_no_warm_up(name: str) -> None:
    curve, _ = normalized(
        STEP * K, noisy(SMOOTH[name], noise=0.05, seed=0), Better.LOWER
    )

    assert warm_up_end(curve) == 0


def test_one_spike_is_neither_warm_up_nor_a_phase() -> None:
    for at in (3, 20, 60, 97):
        values = noisy(SMOOTH["power"], noise=0.02, seed=at)
        values[at] += 30.0

        assert start(values) == 0
