"""The usable values of what a trainer reported, and few points in place of many."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.losscurve.curve import MOST_POINTS, LossHistory, downsample
from freetrain.losscurve.forecast import Point
from tests.losscurve.reported import reported

ANY_POINT = st.builds(
    Point,
    t_s=st.floats(0, 1e6),
    samples=st.one_of(st.integers(0, 30).map(float), st.floats()),
    value=st.floats(),
)


def kept(samples: list[float], values: list[float]) -> list[tuple[float, float]]:
    history = LossHistory(reported(values, samples))
    return [(point.samples, point.value) for point in history.points]


@given(st.lists(ANY_POINT, max_size=30))
def test_usable_points_are_finite_and_strictly_ascend(points: list[Point]) -> None:
    history = LossHistory(points)

    samples = [point.samples for point in history.points]
    assert all(a < b for a, b in pairwise(samples))
    assert all(math.isfinite(point.value) for point in history.points)
    assert samples == history.samples.tolist()
    assert [point.value for point in history.points] == history.values.tolist()
    assert len(samples) == len(history)


@given(st.lists(ANY_POINT, max_size=30), st.integers(0, 30))
def test_reporting_in_two_parts_is_reporting_at_once(
    points: list[Point], cut: int
) -> None:
    history = LossHistory(points[:cut])
    _ = history.points, history.samples
    history.extend(points[cut:])

    assert history.points == LossHistory(points).points


@given(st.lists(ANY_POINT, min_size=1, max_size=30))
def test_the_newest_usable_value_is_kept(points: list[Point]) -> None:
    fit = [p for p in points if math.isfinite(p.samples) and p.samples >= 0]
    usable = [p for p in fit if abs(p.value) <= 1e100]

    assert not usable or usable[-1] in LossHistory(points).points


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_values_that_are_no_numbers_are_left_out(bad: float) -> None:
    history = LossHistory(reported([3.0, bad, 2.0]))

    assert history.values.tolist() == [3.0, 2.0]
    assert history.broken == 0


def test_values_that_are_no_numbers_at_the_end_are_remembered() -> None:
    assert LossHistory(reported([3.0, 2.0, math.nan, math.inf])).broken == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_points_at_impossible_samples_are_left_out(bad: float) -> None:
    history = LossHistory(reported([3.0, 2.0], [bad, 10.0]))

    assert len(history) == 1


def test_a_restart_voids_what_came_after_its_checkpoint() -> None:
    samples = [10.0, 20.0, 30.0, 40.0, 25.0, 35.0]
    values = [5.0, 4.0, 3.0, 2.0, 3.4, 2.4]

    history = LossHistory(reported(values, samples))

    assert history.samples.tolist() == [10.0, 20.0, 25.0, 35.0]
    assert history.values.tolist() == [5.0, 4.0, 3.4, 2.4]


def test_the_first_value_after_a_restart_is_the_newest_at_once() -> None:
    assert kept([10.0, 20.0, 30.0, 15.0], [4.0, 3.0, 2.0, 3.5]) == [
        (10.0, 4.0),
        (15.0, 3.5),
    ]


def test_late_values_of_several_writers_take_their_places() -> None:
    samples = [20.0, 10.0, 40.0, 30.0, 60.0, 50.0, 70.0]
    values = [5.0, 6.0, 3.0, 4.0, 1.0, 2.0, 0.0]

    assert kept(samples, values) == [(10.0 * i, 7.0 - i) for i in range(1, 8)]


def test_of_two_values_for_the_same_samples_the_later_counts() -> None:
    history = LossHistory(reported([4.0, 3.0, 2.0], [10.0, 20.0, 20.0]))

    assert history.values.tolist() == [4.0, 2.0]


# Down-sampling


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
