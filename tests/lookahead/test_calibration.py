from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.learned import Calibration

LESSONS = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 50), st.floats(0, 1)))


def test_who_was_told_nothing_corrects_nothing() -> None:
    calibration = Calibration()

    for said in (0.0, 0.03, 0.4, 0.77, 1.0):
        assert calibration.of(said) == pytest.approx(said)


def test_what_was_said_too_low_is_raised() -> None:
    calibration = Calibration()
    for _ in range(1000):
        calibration.learn(0.42, stayed=3, nodes=4)

    assert calibration.of(0.42) > 0.5
    assert calibration.of(0.5) > 0.65


def test_nodes_that_fare_alike_weigh_the_root_of_their_number() -> None:
    calibration = Calibration()

    calibration.learn(0.5, stayed=0, nodes=100)

    assert calibration.of(0.5) == pytest.approx(0.5 * 50 / 60, rel=1e-3)


def test_what_is_nearly_certain_is_told_from_what_is_likely() -> None:
    calibration = Calibration()
    for _ in range(5000):
        calibration.learn(0.001, stayed=1, nodes=5)
        calibration.learn(0.04, stayed=1, nodes=4)
        calibration.learn(0.96, stayed=3, nodes=4)
        calibration.learn(0.999, stayed=4, nodes=5)

    for said, came in ((0.001, 0.2), (0.04, 0.25), (0.96, 0.75), (0.999, 0.8)):
        assert calibration.of(said) == pytest.approx(came, abs=0.02)


def test_what_nobody_said_for_months_is_a_number_still_and_soon_learned_anew() -> None:
    calibration = Calibration()
    for _ in range(300_000):
        calibration.learn(0.1, stayed=1, nodes=10)

    assert min(calibration.to_state()["count"]) > 0.9  # else it were 0 in years
    assert calibration.of(0.1) == pytest.approx(0.1, abs=0.01)
    for _ in range(20):
        calibration.learn(0.9, stayed=1, nodes=2)
    assert calibration.of(0.9) == pytest.approx(0.5, abs=0.05)


def test_one_that_was_kept_goes_on_as_it_would_have() -> None:
    calibration = Calibration()
    for _ in range(5000):
        calibration.learn(0.3, stayed=1, nodes=2)
    again = Calibration(calibration.to_state())

    for one in (calibration, again):
        one.learn(0.3, stayed=0, nodes=400)

    assert again.of(0.3) == calibration.of(0.3)


def test_what_came_long_ago_weighs_less_than_what_came_lately() -> None:
    calibration = Calibration()
    for came in (0, 1):
        for _ in range(7000):
            calibration.learn(0.42, stayed=came, nodes=1)

    assert calibration.of(0.42) > 0.6


@given(LESSONS, st.lists(st.floats(0.0, 1.0), min_size=2))
def test_corrections_are_probabilities_and_never_cross(
    lessons: list[tuple[float, int, float]], asked: list[float]
) -> None:
    calibration = Calibration()
    for said, of, share in lessons:
        calibration.learn(said, stayed=round(of * share), nodes=of)

    corrected = [calibration.of(said) for said in sorted(asked)]

    assert all(0.0 <= one <= 1.0 for one in corrected)
    assert all(a <= b + 1e-12 for a, b in pairwise(corrected))
    assert calibration.of(0.0) == 0.0
    assert calibration.of(1.0) == 1.0
