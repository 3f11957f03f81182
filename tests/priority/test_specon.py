"""``specon``: slow growers make room after two strikes, where that pays."""

from dataclasses import replace

import pytest

from freetrain.priority.base import Contender, Rating, RatingInputs
from freetrain.priority.specon import SpeCon
from tests.priority.inputs import (
    FakeForecast,
    contender,
    exponential,
    inputs_of,
    later,
    planned,
    power_law,
    rated_in_turn,
)

SLOW = power_law(at=1e3, steepness=0.5)  # .05 an e-fold of work at 1e5 samples
FAST = exponential(at=1e5)
BROKEN = FakeForecast(truth=FAST, done=1e5, is_diverging=True)
SLOWER = FakeForecast(truth=power_law(at=1e3, steepness=1.0), done=1e5)


def slow(name: str = "slow", **changes: object) -> Contender:
    forecast = FakeForecast(truth=SLOW, done=1e5)
    return contender(name, **({"forecast": forecast, "held": 4} | changes))


def fast(name: str = "fast", **changes: object) -> Contender:
    forecast = FakeForecast(truth=FAST, done=1e5)
    return contender(name, **({"forecast": forecast, "held": 4} | changes))


def after_looks(*inputs: RatingInputs) -> tuple[Rating, ...]:
    return rated_in_turn(SpeCon, inputs).ratings


def after_two(inputs: RatingInputs) -> tuple[Rating, ...]:
    """Return the ratings once every slow grower has two strikes."""
    return after_looks(inputs, later(inputs, 10.0, work=1.01))


def test_a_slow_grower_is_moved_to_its_smallest_size_at_the_second_strike() -> None:
    inputs = inputs_of(slow(), fast())
    assert planned(inputs, after_looks(inputs)) == {"slow": 4, "fast": 4}
    assert planned(inputs, after_two(inputs)) == {"slow": 1, "fast": 7}


@pytest.mark.parametrize(
    ("after_s", "work"), [(9.0, 1.01), (10.0, 1.0)], ids=["too soon", "no work"]
)
def test_ratings_too_close_or_without_work_are_no_strikes(
    after_s: float, work: float
) -> None:
    inputs = inputs_of(slow(), fast())
    nothing_new = later(inputs, after_s, work=work)
    assert planned(inputs, after_looks(inputs, nothing_new)) == {"slow": 4, "fast": 4}


def test_growing_again_clears_the_strikes() -> None:
    inputs = inputs_of(slow(), fast())
    awake = replace(inputs, contenders=(fast("slow"), fast()))
    looks = (
        inputs,
        later(awake, 10.0, work=1.01),
        later(inputs, 20.0, work=1.1),
    )
    assert planned(inputs, after_looks(*looks)) == {"slow": 4, "fast": 4}


def test_a_slow_grower_comes_back_when_there_is_room() -> None:
    inputs = inputs_of(slow(held=1), fast(), nodes=16)
    small = fast(sizes=(1, 2, 3, 4))
    left = inputs_of(slow(held=1), small, nodes=10)
    assert planned(inputs, after_two(inputs)) == {"slow": 8, "fast": 8}
    assert planned(left, after_two(left)) == {"slow": 6, "fast": 4}
    assert "room for all" in after_two(inputs)[0].reason


def test_a_move_that_costs_more_than_it_brings_is_not_made() -> None:
    dear = inputs_of(slow(shrink_s=1500.0), fast())
    slow_rating, _ = after_two(dear)
    assert "costs more" in slow_rating.reason
    dear = inputs_of(slow(), fast(grow_s=120.0))
    slow_rating, _ = after_two(dear)
    assert "costs more" in slow_rating.reason


def test_a_trainer_that_would_finish_last_makes_no_room() -> None:
    for held in (1, 4):
        long = inputs_of(slow(total_samples=3e5, held=held), fast(total_samples=3e5))
        rating, _ = after_two(long)
        assert "last to finish" in rating.reason
    for others in (3e5, None):
        short = inputs_of(slow(total_samples=1.2e5), fast(total_samples=others))
        ratings = after_two(short)
        assert planned(short, ratings) == {"slow": 1, "fast": 7}


def test_a_trainer_that_made_room_stays_small_while_others_want_nodes() -> None:
    inputs = inputs_of(slow(held=1), fast(held=7))
    assert planned(inputs, after_two(inputs)) == {"slow": 1, "fast": 7}
    assert "makes room" in after_two(inputs)[0].reason


def test_fast_growers_have_equal_shares_of_what_slow_ones_leave() -> None:
    inputs = inputs_of(
        slow(), fast("a", held=2), fast("b", held=2), contender("silent")
    )
    inputs = replace(inputs, nodes=13)
    counts = planned(inputs, after_two(inputs))
    assert counts == {"slow": 1, "a": 4, "b": 4, "silent": 4}


@pytest.mark.parametrize(
    "team",
    [
        (slow(), fast("broken", forecast=BROKEN)),
        (slow("a", forecast=SLOWER, held=7), slow("b", held=1)),
        (slow("a"), slow("b")),
    ],
    ids=["a diverging one", "a slow one that has nothing", "a slow one"],
)
def test_no_trainer_makes_room_for(team: tuple[Contender, ...]) -> None:
    rating, _ = after_two(inputs_of(*team))
    assert "costs more than others gain" in rating.reason
