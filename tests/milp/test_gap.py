"""The distance of a plan from its bound: one figure, whatever the gain is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milp.problem import gap

gains = st.floats(-1e9, 1e9, allow_subnormal=False)


@pytest.mark.parametrize(
    ("gain", "bound", "expected"),
    [
        (90.0, 100.0, 0.1),
        (100.0, 100.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 5.0, 1.0),
        (-5.0, 5.0, 2.0),
        (-1.0, 99.0, 100.0 / 99.0),
        (-10.0, -8.0, 0.2),
        (-10.0, 0.0, 1.0),
    ],
)
def test_a_gap_is_what_is_missing_over_the_larger_of_gain_and_bound(
    gain: float, bound: float, expected: float
) -> None:
    assert gap(gain, bound) == pytest.approx(expected)


def test_what_rounding_alone_makes_is_no_gap() -> None:
    assert gap(0.1 + 0.2, 0.3) == 0.0
    assert gap(0.3, 0.1 + 0.2) == 0.0


@given(gains, gains, st.floats(1e-3, 1e3))
def test_a_gap_is_between_0_and_2_in_whatever_unit(
    one: float, other: float, unit: float
) -> None:
    gain, bound = sorted((one, other))

    assert 0.0 <= gap(gain, bound) <= 2.0
    assert gap(unit * gain, unit * bound) == pytest.approx(gap(gain, bound), abs=1e-8)
