"""What holds of every priority, whatever it goes by."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from freetrain.losscurve.fit import BrokenForecast
from freetrain.losscurve.forecast import Better
from freetrain.priority.base import (
    PRIORITIES,
    Basis,
    Memory,
    Rating,
    RatingInputs,
    priority_named,
)
from tests.priority.fake_forecast import FakeForecast, power_law
from tests.priority.inputs import contender, inputs_of, planned_by
from tests.priority.scenes import looks

EVERY = pytest.mark.parametrize("name", PRIORITIES)
BY_LOSSES = [n for n in PRIORITIES if priority_named(n).basis is Basis.LOSSES]
LATER_S = 60.0
BROKEN = BrokenForecast(Better.LOWER, ())


def later(inputs: RatingInputs) -> RatingInputs:
    """Return the look a minute on, everybody having trained on what it holds."""
    trained = [
        replace(one, done_samples=one.done_samples * 1.1 + 1)
        for one in inputs.contenders
    ]
    return replace(inputs, now_s=inputs.now_s + LATER_S, contenders=tuple(trained))


def told(rating: Rating) -> tuple[object, ...]:
    """Return all that a rating says, to be compared."""
    curve = rating.curve
    bits = curve.value_per_s.tobytes()
    return bits, curve.sizes, rating.floor, rating.is_background, rating.reason


@EVERY
@settings(max_examples=20, deadline=None)
@given(inputs=looks())
def test_each_contender_is_rated_by_a_curve_over_its_sizes(
    name: str, inputs: RatingInputs
) -> None:
    ratings = priority_named(name).rate(inputs, {}).ratings
    for one, rating in zip(inputs.contenders, ratings, strict=True):
        worth = rating.curve.value_per_s
        assert rating.curve.sizes == one.sizes
        assert worth.shape == (one.sizes[-1] + 1,)
        assert (worth >= 0).all(), "nobody is paid for keeping nodes from a trainer"
        assert rating.floor == 0 or rating.floor in one.sizes
        assert not (rating.floor and rating.is_background)


@EVERY
@settings(max_examples=20, deadline=None)
@given(inputs=looks())
def test_each_rating_says_why_in_a_line(name: str, inputs: RatingInputs) -> None:
    for rating in priority_named(name).rate(inputs, {}).ratings:
        assert rating.reason
        assert not rating.reason.endswith(".")
        assert len(rating.reason.splitlines()) == 1
        assert "nan" not in rating.reason


@EVERY
@settings(max_examples=20, deadline=None)
@given(inputs=looks())
def test_the_order_of_trainers_changes_no_rating(
    name: str, inputs: RatingInputs
) -> None:
    turned = replace(inputs, contenders=inputs.contenders[::-1])
    forth = priority_named(name).rate(inputs, {})
    back = priority_named(name).rate(turned, {})
    assert list(map(told, back.ratings)) == list(map(told, forth.ratings))[::-1]


@EVERY
@settings(max_examples=20, deadline=None)
@given(inputs=looks())
def test_a_memory_goes_through_json_and_means_the_same(
    name: str, inputs: RatingInputs
) -> None:
    memory = priority_named(name).rate(inputs, {}).memory
    read = json.loads(json.dumps(memory, allow_nan=False))
    fresh = priority_named(name).rate(later(inputs), read)
    same = priority_named(name).rate(later(inputs), memory)
    assert list(map(told, fresh.ratings)) == list(map(told, same.ratings))
    assert fresh.memory == same.memory


@EVERY
@settings(max_examples=20, deadline=None)
@given(inputs=looks())
def test_nothing_is_remembered_of_trainers_that_are_gone(
    name: str, inputs: RatingInputs
) -> None:
    priority = priority_named(name)
    memory = priority.rate(inputs, {}).memory
    staying = replace(later(inputs), contenders=later(inputs).contenders[1:])
    text = json.dumps(priority.rate(staying, memory).memory)
    assert '"trainer-0"' not in text


@EVERY
def test_a_memory_of_something_else_is_no_obstacle(name: str) -> None:
    inputs = inputs_of(contender("a"), contender("b"))
    others: list[Memory] = [{"a": 1}, {"a": {"strikes": "x"}, "b": None}, {"a": []}]
    for memory in others:
        rated = priority_named(name).rate(inputs, memory)
        assert len(rated.ratings) == 2


@pytest.mark.parametrize("name", BY_LOSSES)
def test_a_diverging_trainer_gets_nothing_that_another_wants(name: str) -> None:
    learning = FakeForecast(truth=power_law(at=1e5), done=1e5)
    broken = replace(learning, is_diverging=True)
    inputs = inputs_of(
        contender("broken", forecast=broken, held=8),
        contender("sound", forecast=learning),
        contender("silent"),
    )
    counts = planned_by(priority_named(name), inputs)
    assert counts["broken"] == 0
    assert counts["sound"] > 0


# FlowCon and SpeCon hand out shares of nodes, to those who tell no loss as well.
@pytest.mark.parametrize("name", sorted({*BY_LOSSES} - {"flowcon", "specon"}))
def test_a_trainer_without_a_loss_counts_by_its_speed_up_and_the_reason_says_so(
    name: str,
) -> None:
    inputs = inputs_of(contender("a", done_samples=1e6))
    (rating,) = priority_named(name, {"hysteresis": 0}).rate(inputs, {}).ratings
    speed = inputs.contenders[0].samples_per_s
    worth = rating.curve.value_per_s
    assert np.allclose(worth / worth[1], speed / speed[1])
    assert "speed-up" in rating.reason


@pytest.mark.parametrize("name", BY_LOSSES)
def test_all_without_losses_share_as_by_speed_up(name: str) -> None:
    inputs = inputs_of(*[contender(k, done_samples=1e6) for k in "abc"], nodes=9)
    counts = planned_by(priority_named(name), inputs)
    assert counts == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize("name", BY_LOSSES)
def test_a_trainer_that_never_reported_a_number_gets_what_the_others_leave(
    name: str,
) -> None:
    inputs = inputs_of(
        contender(
            "good", held=1, forecast=FakeForecast(truth=power_law(at=1e5), done=1e5)
        ),
        contender("lost", held=7, forecast=BROKEN),
        nodes=8,
    )
    good, lost = priority_named(name).rate(inputs, {}).ratings

    assert lost.is_background
    assert not good.is_background
    assert "diverging" in lost.reason
