"""What is left of what a trainer told."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.losscurve.forecast import Point
from freetrain.losscurve.history import LossHistory
from tests.losscurve.reported import told

ANY_POINT = st.builds(
    Point,
    t_s=st.floats(0, 1e6),
    samples=st.one_of(st.integers(0, 30).map(float), st.floats()),
    value=st.floats(),
)


def kept(samples: list[float], values: list[float]) -> list[tuple[float, float]]:
    history = LossHistory(told(values, samples))
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
def test_telling_in_two_parts_is_telling_at_once(points: list[Point], cut: int) -> None:
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
    history = LossHistory(told([3.0, bad, 2.0]))

    assert history.values.tolist() == [3.0, 2.0]
    assert history.broken == 0


def test_values_that_are_no_numbers_at_the_end_are_remembered() -> None:
    assert LossHistory(told([3.0, 2.0, math.nan, math.inf])).broken == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_points_at_impossible_samples_are_left_out(bad: float) -> None:
    history = LossHistory(told([3.0, 2.0], [bad, 10.0]))

    assert len(history) == 1


def test_a_restart_voids_what_came_after_its_checkpoint() -> None:
    samples = [10.0, 20.0, 30.0, 40.0, 25.0, 35.0]
    values = [5.0, 4.0, 3.0, 2.0, 3.4, 2.4]

    history = LossHistory(told(values, samples))

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
    history = LossHistory(told([4.0, 3.0, 2.0], [10.0, 20.0, 20.0]))

    assert history.values.tolist() == [4.0, 2.0]
