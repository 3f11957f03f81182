"""Curves of ratings: the cache, hysteresis, floors and the background."""

import pytest

from freetrain.planning.rating import planned_curves
from freetrain.priority.base import DEFAULT_GAIN, CurveCache, Rating, WithHysteresis
from freetrain.priority.speed import Throughput, Weight
from milp.planner import Planner
from milp.problem import NodeClass, Problem, ProblemTrainer, custom
from tests.priority.inputs import contender, inputs_of, planned_by, speeds

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


def test_kinds_of_worth_sizes_and_weights_make_different_curves() -> None:
    curves = CurveCache()
    fewer = contender("fewer", samples_per_s=OTHER.samples_per_s, sizes=(1, 8))
    plain = curves.throughput(OTHER)
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


# Hysteresis: no change for less than a set gain, as the planner decides


@pytest.mark.parametrize(("more", "moves"), [(1.04, False), (1.06, True)])
def test_nodes_move_only_for_more_than_the_set_gain(
    more: float, *, moves: bool
) -> None:
    sizes = (4,)
    holding = contender("holding", sizes=sizes, held=4)
    waiting = contender("waiting", sizes=sizes, weight=more)
    inputs = inputs_of(holding, waiting, nodes=4)
    plain = planned_by(Weight(), inputs)
    steady = planned_by(WithHysteresis(Weight(), DEFAULT_GAIN), inputs)
    assert plain == {"holding": 0, "waiting": 4}
    assert (steady == plain) is moves


def test_growth_by_less_than_the_gain_is_not_worth_a_rescale() -> None:
    one = contender("a", held=7)  # the eighth node brings 13 %
    inputs = inputs_of(one)
    assert planned_by(WithHysteresis(Throughput(), 0.12), inputs) == {"a": 8}
    assert planned_by(WithHysteresis(Throughput(), 0.14), inputs) == {"a": 7}


def test_no_nodes_or_an_odd_count_has_no_bonus() -> None:
    inputs = inputs_of(contender("a"), contender("b", sizes=(2, 4), held=3))
    plain = Throughput().rate(inputs, {}).ratings
    steady = WithHysteresis(Throughput(), DEFAULT_GAIN).rate(inputs, {}).ratings
    for one, other in zip(plain, steady, strict=True):
        assert (one.curve.value_per_s == other.curve.value_per_s).all()


# Floors and background once the planner decides

STEEP = custom([0.0, 10.0, 20.0, 30.0, 40.0])
FLAT = custom([0.0, 1.0, 2.0, 2.5, 2.6])


def counts(*ratings: Rating, nodes: int = 4) -> list[int]:
    """Plan for trainers that hold nothing and whose changes are free."""
    trainers = tuple(
        ProblemTrainer(name=str(k), curve=curve, held=(0,), up_s=0.0, down_s=0.0)
        for k, curve in enumerate(planned_curves(ratings))
    )
    problem = Problem((NodeClass("idle", nodes),), trainers, 120.0)
    return [row[0] for row in Planner().plan(problem).plan.counts]


def test_without_floors_and_background_curves_stay_the_very_same() -> None:
    curves = planned_curves((Rating(curve=STEEP), Rating(curve=FLAT)))

    assert curves[0] is STEEP
    assert curves[1] is FLAT


def test_the_background_gets_what_the_others_leave() -> None:
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


def test_a_trainer_that_is_worth_nothing_at_any_size_gets_nothing() -> None:
    assert counts(Rating(curve=custom([0.0, 0.0, 0.0]))) == [0]
