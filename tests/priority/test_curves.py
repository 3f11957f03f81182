"""Curves: by speed alone, the cache, hysteresis, floors and the background."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.planning.rating import planned_curves
from freetrain.priority.base import (
    DEFAULT_GAIN,
    CurveCache,
    Rating,
    WithHysteresis,
    priority_named,
)
from freetrain.priority.speed import Price, Throughput, Weight
from milp.answer import MalformedProblemError
from milp.planner import Planner
from milp.problem import custom, speed_up, throughput, weighted
from tests.priority.inputs import (
    contender,
    inputs_of,
    planned_by,
    problem_of,
    speeds,
)

ONE, OTHER, THIRD = (
    contender(name, samples_per_s=speeds(8, one_node=speed))
    for name, speed in (("a", 1.0), ("b", 2.0), ("c", 3.0))
)
SPEEDS = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=8)


def test_the_plain_priorities_are_the_objectives_to_the_bit() -> None:
    sizes, own = (2, 4, 8), speeds(8, one_node=1 / 3)
    one = contender("a", sizes=sizes, samples_per_s=own, weight=0.7, held=4)
    for name, wanted in {
        "throughput": throughput(own, sizes),
        "speedup": speed_up(own, sizes),
        "weight": weighted(speed_up(own, sizes), 0.7),
    }.items():
        one_rated, other = priority_named(name).rate(inputs_of(one, OTHER), {}).ratings
        bits = one_rated.curve.value_per_s.tobytes()
        assert bits == wanted.value_per_s.tobytes(), name
        assert one_rated.curve.sizes == sizes
        assert (one_rated.floor, one_rated.is_background) == (0, False)
        assert other.curve is not one_rated.curve


def price(speed: list[float], *, weight: float = 1.0) -> list[float]:
    sizes, per_s = tuple(range(1, len(speed) + 1)), throughput([0.0, *speed])
    one = contender("t", sizes=sizes, samples_per_s=per_s.value_per_s, weight=weight)
    (rating,) = Price(mu=0.5).rate(inputs_of(one), {}).ratings
    values: list[float] = rating.curve.value_per_s.tolist()
    return values


@given(SPEEDS, st.floats(0.01, 100.0))
def test_by_price_no_size_is_worth_more_than_its_nodes_and_one_is_worth_just_them(
    speed: list[float], faster: float
) -> None:
    over = [value - (n + 0.5) for n, value in enumerate(price(speed))]

    assert max(over[1:]) == pytest.approx(0.0, abs=1e-9)
    assert price([own * faster for own in speed]) == pytest.approx(price(speed))


def test_by_price_a_users_weight_counts_and_a_trainer_must_do_some_work() -> None:
    assert price([3.0, 5.0], weight=4.0) == pytest.approx(
        [4 * value for value in price([3.0, 5.0])]
    )
    with pytest.raises(MalformedProblemError, match="t does no work"):
        price([0.0, 0.0])


def test_equal_numbers_and_only_these_are_the_same_curve() -> None:
    curves = CurveCache()
    again = contender("again", samples_per_s=speeds(8, one_node=1.0))
    fewer = contender("fewer", samples_per_s=OTHER.samples_per_s, sizes=(1, 8))
    plain = curves.throughput(OTHER)
    assert curves.speed_up(ONE) is curves.speed_up(again)
    assert curves.weighted(curves.speed_up(ONE), 2.0) is curves.weighted(
        curves.speed_up(again), 2.0
    )
    assert curves.speed_up(OTHER) is not plain
    assert curves.throughput(fewer) is not plain
    assert curves.weighted(plain, 2.0) is not curves.weighted(plain, 3.0)


def test_the_least_recently_used_curve_is_dropped_first() -> None:
    curves = CurveCache(most_kept=2)
    first, second = curves.throughput(ONE), curves.throughput(OTHER)
    assert curves.throughput(ONE) is first
    curves.throughput(THIRD)
    assert curves.throughput(ONE) is first
    assert curves.throughput(OTHER) is not second


@pytest.mark.parametrize(("more", "moves"), [(1.04, False), (1.06, True)])
def test_nodes_move_only_for_more_than_the_set_gain(
    more: float, *, moves: bool
) -> None:
    holding = contender("holding", sizes=(4,), held=4)
    waiting = contender("waiting", sizes=(4,), weight=more)
    inputs = inputs_of(holding, waiting, nodes=4)
    plain = planned_by(Weight(), inputs)
    steady = planned_by(WithHysteresis(Weight(), DEFAULT_GAIN), inputs)
    assert plain == {"holding": 0, "waiting": 4}
    assert (steady == plain) is moves


def test_growth_by_less_than_the_gain_is_not_worth_a_rescale() -> None:
    inputs = inputs_of(contender("a", held=7))  # the eighth node brings 13 %
    assert planned_by(WithHysteresis(Throughput(), 0.12), inputs) == {"a": 8}
    assert planned_by(WithHysteresis(Throughput(), 0.14), inputs) == {"a": 7}


def test_no_nodes_or_an_odd_count_has_no_bonus() -> None:
    inputs = inputs_of(contender("a"), contender("b", sizes=(2, 4), held=3))
    plain = Throughput().rate(inputs, {}).ratings
    steady = WithHysteresis(Throughput(), DEFAULT_GAIN).rate(inputs, {}).ratings
    for one, other in zip(plain, steady, strict=True):
        assert (one.curve.value_per_s == other.curve.value_per_s).all()


STEEP = custom([0.0, 10.0, 20.0, 30.0, 40.0])
FLAT = custom([0.0, 1.0, 2.0, 2.5, 2.6])


def counts(*ratings: Rating, nodes: int = 4) -> list[int]:
    """Plan for trainers that hold nothing and whose changes are free."""
    team = [contender(str(k)) for k in range(len(ratings))]
    problem = problem_of(team, ratings, nodes)
    return [row[0] for row in Planner().plan(problem).plan.counts]


def test_without_floors_and_background_curves_stay_the_very_same() -> None:
    steep, flat = planned_curves((Rating(curve=STEEP), Rating(curve=FLAT)))

    assert steep is STEEP
    assert flat is FLAT


def test_the_background_gets_the_nodes_that_others_leave() -> None:
    behind = Rating(curve=STEEP, is_background=True)

    assert counts(Rating(curve=FLAT), behind) == [4, 0]
    assert counts(Rating(curve=FLAT), behind, nodes=6) == [4, 2]
    assert counts(behind, behind, nodes=6) == [4, 2]


def test_floors_are_met_before_any_trainer_gets_more() -> None:
    assert counts(Rating(curve=FLAT), Rating(curve=STEEP)) == [0, 4]
    assert counts(Rating(curve=FLAT, floor=2), Rating(curve=STEEP)) == [2, 2]
    floors = Rating(curve=FLAT, floor=2), Rating(curve=STEEP, floor=1)
    assert counts(*floors, nodes=5) == [2, 3]


def test_idle_nodes_go_to_any_trainer_that_wants_them_without_loss_to_others() -> None:
    late = Rating(curve=custom([0.0, 0.0, 0.0, 0.0, 0.5]))

    assert counts(late, nodes=3) == [3]
    assert counts(late, Rating(curve=FLAT), nodes=3) == [0, 3]
    assert counts(late, Rating(curve=FLAT), nodes=6) == [2, 4]
    assert counts(Rating(curve=custom([0.0, 0.0, 0.0]))) == [0]
