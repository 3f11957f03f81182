"""What is read again may be torn, or another's."""

import math

import pytest

from freetrain.forecast.kept import amounts, amounts_above_0, table


def test_numbers_that_can_be_come_back() -> None:
    assert amounts([0, 1.5], 2) == [0.0, 1.5]
    assert amounts_above_0([0.5], 1) == [0.5]
    assert table([[0.0], [1.0]], 2, 1) == [[0.0], [1.0]]


@pytest.mark.parametrize("wrong", [[1.0], [1.0, -1.0], [math.inf, 1], [math.nan, 1]])
def test_numbers_that_cannot_be_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="numbers of 0 or more"):
        amounts(wrong, 2)


def test_what_nothing_was_counted_into_is_refused_where_it_is_divided_by() -> None:
    with pytest.raises(ValueError, match="above 0"):
        amounts_above_0([1.0, 0.0], 2)


@pytest.mark.parametrize("wrong", [[[1.0, 1.0]], [[1.0], [1.0]], []])
def test_a_table_of_another_shape_is_refused(wrong: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"expected 1|1 numbers"):
        table(wrong, 1, 1)
