"""Which family is chosen, and on what grounds."""

import numpy as np
import pytest

from freetrain.losscurve.curve import FLAT, KNOWN, POWER, NormalizedCurve, normalized
from freetrain.losscurve.fit import back_tests_of, choose, error_of
from freetrain.losscurve.forecast import Better
from tests.losscurve.reported import STEP, noisy, steps


def curve(values: np.ndarray) -> NormalizedCurve:
    found, _ = normalized(STEP * steps(values.size), values, Better.LOWER)
    return found


def changed_after(original: NormalizedCurve, count: int) -> NormalizedCurve:
    heights = original.heights.copy()
    heights[count:] += 7.0
    return NormalizedCurve(original.work, heights, original.weights, original.noise)


def test_forecasts_of_the_past_do_not_know_what_came() -> None:
    """Whatever follows the last cut, what was said at it stays the same."""
    whole = curve(noisy(steps(50) ** -0.5, noise=0.02, seed=0))
    other = changed_after(whole, 45)
    for family in KNOWN:
        said = back_tests_of(family, whole)[-1]
        repeated = back_tests_of(family, other)[-1]

        assert said.misses.size == 5
        assert np.allclose(repeated.misses - said.misses, 7.0)


def test_the_error_counts_what_is_near_twice() -> None:
    back_test = back_tests_of(FLAT, curve(10 - steps(20)))[2]
    near = np.abs(back_test.misses[back_test.ahead <= 0.15]).mean()

    assert error_of([back_test]) == pytest.approx(
        (near + np.abs(back_test.misses).mean()) / 2
    )


def test_where_nothing_could_be_tried_no_further_gain_is_chosen() -> None:
    assert choose(curve(np.array([3.0, 2.0, 1.0])))[0] is FLAT


@pytest.mark.parametrize("seed", range(5))
def test_on_a_plateau_no_further_gain_is_chosen(seed: int) -> None:
    assert choose(curve(noisy(np.ones(60), noise=0.1, seed=seed)))[0] is FLAT


def test_values_that_stay_the_same_are_no_further_gain() -> None:
    assert choose(curve(np.ones(30)))[0] is FLAT


@pytest.mark.parametrize("seed", range(5))
def test_a_power_law_is_recognised(seed: int) -> None:
    falling = noisy(0.3 + 2 * steps(60) ** -0.5, noise=0.02, seed=seed)

    assert choose(curve(falling))[0] is POWER


@pytest.mark.parametrize("seed", range(5))
def test_exponential_decay_is_not_taken_for_a_power_law(seed: int) -> None:
    falling = noisy(0.3 + 2 * np.exp(-steps(60) / 25), noise=0.01, seed=seed)

    assert choose(curve(falling))[0] is not POWER


def test_choosing_twice_is_choosing_once() -> None:
    falling = curve(noisy(0.3 + 2 * steps(60) ** -0.5, noise=0.05, seed=9))

    assert choose(falling)[0] is choose(falling)[0]
