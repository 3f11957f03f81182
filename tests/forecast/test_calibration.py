from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.forecast.calibration import Calibration

LESSONS = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 50), st.floats(0, 1)))


def test_who_was_told_nothing_corrects_nothing() -> None:
    calibration = Calibration()

    for said in (0.0, 0.03, 0.4, 0.77, 1.0):
        assert calibration.of(said) == pytest.approx(said)


def test_what_was_said_too_low_is_raised() -> None:
    calibration = Calibration()
    for _ in range(1000):
        calibration.learn(0.42, came=3, of=4)

    assert calibration.of(0.42) > 0.5
    assert calibration.of(0.5) > 0.65


def test_nodes_that_fare_alike_weigh_the_root_of_their_number() -> None:
    calibration = Calibration()

    calibration.learn(0.425, came=0, of=100)

    assert calibration.of(0.425) == pytest.approx(0.425 * 150 / 160, rel=1e-3)


def test_what_came_long_ago_weighs_less_than_what_came_lately() -> None:
    calibration = Calibration()
    for came in (0, 1):
        for _ in range(7000):
            calibration.learn(0.42, came=came, of=1)

    assert calibration.of(0.42) > 0.6


@given(LESSONS, st.lists(st.floats(0.0, 1.0), min_size=2))
def test_corrections_are_probabilities_and_never_cross(
    lessons: list[tuple[float, int, float]], asked: list[float]
) -> None:
    calibration = Calibration()
    for said, of, share in lessons:
        calibration.learn(said, came=round(of * share), of=of)

    corrected = [calibration.of(said) for said in sorted(asked)]

    assert all(0.0 <= one <= 1.0 for one in corrected)
    assert all(a <= b + 1e-12 for a, b in pairwise(corrected))
    assert calibration.of(0.0) == 0.0
    assert calibration.of(1.0) == 1.0
