"""Curves stay the same objects while they are the same curves, and are not hoarded."""

from freetrain.priority.base import CurveCache
from tests.priority.inputs import contender, speeds

ONE, OTHER, THIRD = (
    contender(name, samples_per_s=speeds(8, one_node=speed))
    for name, speed in (("a", 1.0), ("b", 2.0), ("c", 3.0))
)


def test_equal_numbers_are_the_same_curve() -> None:
    curves = CurveCache()
    again = contender("again", samples_per_s=speeds(8, one_node=1.0))
    assert curves.speed_up(ONE) is curves.speed_up(again)
    assert curves.weighted(curves.speed_up(ONE), 2.0) is curves.weighted(
        curves.speed_up(again), 2.0
    )


def test_kinds_of_worth_sizes_and_weights_are_told_apart() -> None:
    curves = CurveCache()
    fewer = contender("fewer", samples_per_s=OTHER.samples_per_s, sizes=(1, 8))
    plain = curves.throughput(OTHER)
    assert curves.speed_up(OTHER) is not plain
    assert curves.throughput(fewer) is not plain
    assert curves.weighted(plain, 2.0) is not curves.weighted(plain, 3.0)


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    curves = CurveCache(most_kept=2)
    first, second = curves.throughput(ONE), curves.throughput(OTHER)
    assert curves.throughput(ONE) is first
    curves.throughput(THIRD)
    assert curves.throughput(ONE) is first
    assert curves.throughput(OTHER) is not second
