"""No change for less than a set gain, as the planner decides."""

import pytest

from freetrain.priority.registry import WithHysteresis
from freetrain.priority.speed import Throughput, Weight
from tests.priority.inputs import contender, look, planned


@pytest.mark.parametrize(("more", "moves"), [(1.04, False), (1.06, True)])
def test_nodes_move_only_for_more_than_the_set_gain(
    more: float, *, moves: bool
) -> None:
    sizes = (4,)
    holding = contender("holding", sizes=sizes, held=4)
    waiting = contender("waiting", sizes=sizes, weight=more)
    seen = look(holding, waiting, nodes=4)
    plain = planned(seen, Weight().rate(seen, {}).ratings)
    steady = planned(seen, WithHysteresis(Weight()).rate(seen, {}).ratings)
    assert plain == {"holding": 0, "waiting": 4}
    assert (steady == plain) is moves


def test_growth_by_less_than_the_gain_is_not_worth_a_rescale() -> None:
    one = contender("a", held=7)  # the eighth node brings 13 %
    seen = look(one)
    assert planned(seen, WithHysteresis(Throughput(), 0.12).rate(seen, {}).ratings) == {
        "a": 8
    }
    assert planned(seen, WithHysteresis(Throughput(), 0.14).rate(seen, {}).ratings) == {
        "a": 7
    }


def test_who_holds_nothing_or_an_odd_count_has_no_bonus() -> None:
    seen = look(contender("a"), contender("b", sizes=(2, 4), held=3))
    plain = Throughput().rate(seen, {}).ratings
    steady = WithHysteresis(Throughput()).rate(seen, {}).ratings
    for one, other in zip(plain, steady, strict=True):
        assert (one.curve.value_per_s == other.curve.value_per_s).all()
