"""What is read again may be torn, or another's."""

import math

import pytest

from freetrain.lookahead.counts import (
    LEAST,
    MOST,
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    members,
    share,
    table,
    whole,
)


def test_numbers_that_can_be_come_back() -> None:
    assert amounts([0, 1.5], 2) == [0.0, 1.5]
    assert amounts_above_0([0.5], 1) == [0.5]
    assert table([[0.0], [1.0]], 2, 1) == [[0.0], [1.0]]
    assert [amount(0), amount(MOST)] == [0.0, MOST]
    assert whole(7) == 7
    assert members([3, 1]) == {1, 3}
    assert [share(0), share(1.0)] == [0.0, 1.0]


@pytest.mark.parametrize(
    "wrong", ["1", True, None, [], -1, 2 * MOST, 10**400, math.nan, math.inf]
)
def test_what_is_no_number_that_can_be_is_refused(wrong: object) -> None:
    for check in (amount, whole, share):
        with pytest.raises(ValueError, match=r"no number|no whole number|none of the"):
            check(wrong)


@pytest.mark.parametrize("wrong", [1.0, 0.5])
def test_what_is_counted_is_whole(wrong: float) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        whole(wrong)


def test_more_than_all_is_refused() -> None:
    with pytest.raises(ValueError, match="more than all"):
        share(1.01)
    with pytest.raises(ValueError, match="no parts"):
        check_shares([1.0, 2.0], [1.0, 1.9])
    check_shares([0.1 + 0.2], [0.3])  # rounded


def test_a_node_is_told_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        members([1, 2, 1])


@pytest.mark.parametrize("wrong", [[1.0], [1.0, -1.0], [math.inf, 1], [math.nan, 1]])
def test_numbers_that_cannot_be_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="numbers of 0 or more"):
        amounts(wrong, 2)


def test_what_nothing_was_counted_into_is_refused_where_it_is_divided_by() -> None:
    with pytest.raises(ValueError, match="above 0"):
        amounts_above_0([1.0, 0.0], 2)
    with pytest.raises(ValueError, match="above 0"):
        amounts_above_0([1.0, LEAST / 2.0], 2)


@pytest.mark.parametrize("wrong", [[[1.0, 1.0]], [[1.0], [1.0]], []])
def test_a_table_of_another_shape_is_refused(wrong: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"expected 1|1 numbers"):
        table(wrong, 1, 1)
