"""Many points by few."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from freetrain.losscurve.history import MOST_POINTS, downsample


@given(st.integers(1, 3000), st.integers(4, 200))
def test_few_points_stand_for_all_of_them(count: int, most: int) -> None:
    samples = np.arange(count, dtype=np.float64)

    few = downsample(samples, -samples, most=most)

    assert few.samples.size <= most
    assert few.weights.sum() == count
    assert (np.diff(few.samples) > 0).all()
    assert np.isclose(few.samples @ few.weights, samples.sum())


def test_short_histories_are_left_alone() -> None:
    values = np.array([3.0, 1.0, 2.0])

    few = downsample(np.arange(3.0), values)

    assert few.values is values
    assert few.weights.tolist() == [1.0, 1.0, 1.0]


def test_spikes_do_not_move_the_points_that_stand_for_them() -> None:
    samples = np.arange(10_000, dtype=np.float64)
    values = np.ones(10_000)
    values[5000::50] = 1e9

    assert downsample(samples, values).values.max() == 1.0


def test_start_and_end_of_a_long_history_keep_their_detail() -> None:
    few = downsample(np.arange(100_000.0), np.zeros(100_000))

    assert few.weights[0] == 1.0
    assert few.weights.max() < 100_000 / MOST_POINTS * 3
