"""Rules that every priority keeps: a new name in ``PRIORITIES`` is tested by them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from freetrain.losscurve.fit import BrokenForecast
from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import (
    PRIORITIES,
    Memory,
    Rating,
    RatingBasis,
    RatingInputs,
    priority_named,
    settings_of,
)
from tests.priority.inputs import (
    FakeForecast,
    contender,
    inputs_of,
    later,
    looks,
    planned_by,
    power_law,
    speeds,
)

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "priorities.md"
EVERY = pytest.mark.parametrize("name", PRIORITIES)
BY_LOSSES = [n for n in PRIORITIES if priority_named(n).basis is RatingBasis.LOSSES]
EVERY_BY_LOSSES = pytest.mark.parametrize("name", BY_LOSSES)
LEARNING = FakeForecast(truth=power_law(at=1e5), done=1e5)


def rated_often(test: Callable[..., None]) -> Callable[..., None]:
    """Run *test* with every priority and random inputs."""
    few = settings(max_examples=20, deadline=None)
    often: Callable[..., None] = EVERY(few(given(inputs=looks())(test)))
    return often


def said(ratings: tuple[Rating, ...]) -> list[tuple[object, ...]]:
    """Return all that ratings say, to be compared."""
    return [
        (
            r.curve.value_per_s.tobytes(),
            r.curve.sizes,
            r.floor,
            r.is_background,
            r.reason,
        )
        for r in ratings
    ]


def a_minute_on(inputs: RatingInputs) -> RatingInputs:
    return later(inputs, 60.0, work=1.1, more=1.0)


@rated_often
def test_each_contender_is_rated_over_its_sizes_with_a_reason(
    name: str, inputs: RatingInputs
) -> None:
    ratings = priority_named(name).rate(inputs, {}).ratings
    for one, rating in zip(inputs.contenders, ratings, strict=True):
        worth = rating.curve.value_per_s
        assert rating.curve.sizes == one.sizes
        assert worth.shape == (one.sizes[-1] + 1,)
        assert (worth >= 0).all(), "a curve below 0 would keep nodes from a trainer"
        assert rating.floor == 0 or rating.floor in one.sizes
        assert not (rating.floor and rating.is_background)
        assert len(rating.reason.splitlines()) == 1
        assert not rating.reason.endswith(".")
        assert "nan" not in rating.reason


@rated_often
def test_the_order_of_trainers_changes_no_rating(
    name: str, inputs: RatingInputs
) -> None:
    turned = replace(inputs, contenders=inputs.contenders[::-1])
    forth = priority_named(name).rate(inputs, {})
    back = priority_named(name).rate(turned, {})
    assert said(back.ratings) == said(forth.ratings)[::-1]


@rated_often
def test_a_memory_goes_through_json_and_forgets_trainers_that_are_gone(
    name: str, inputs: RatingInputs
) -> None:
    memory = priority_named(name).rate(inputs, {}).memory
    read = json.loads(json.dumps(memory, allow_nan=False))
    fresh = priority_named(name).rate(a_minute_on(inputs), read)
    same = priority_named(name).rate(a_minute_on(inputs), memory)
    assert said(fresh.ratings) == said(same.ratings)
    assert fresh.memory == same.memory
    staying = a_minute_on(replace(inputs, contenders=inputs.contenders[1:]))
    after = priority_named(name).rate(staying, memory).memory
    assert '"trainer-0"' not in json.dumps(after)


@EVERY
@pytest.mark.parametrize(
    "memory", [{"a": 1}, {"a": {"strikes": "x"}, "b": None}, {"a": []}], ids=str
)
def test_a_memory_of_something_else_is_no_obstacle(name: str, memory: Memory) -> None:
    inputs = inputs_of(contender("a"), contender("b"))
    assert len(priority_named(name).rate(inputs, memory).ratings) == 2


@EVERY
def test_a_curve_stays_the_same_object_while_nothing_changed(name: str) -> None:
    priority = priority_named(name)
    first = priority.rate(inputs_of(contender("a")), {}).ratings[0].curve
    again = priority.rate(inputs_of(contender("a", samples_per_s=speeds(8))), {})
    assert again.ratings[0].curve is first


@EVERY
def test_it_has_the_name_it_is_called_by_and_a_row_in_the_guide(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert priority_named(name).name == name
    assert priority_named(name, {"hysteresis": 0.2}).name == name
    assert f"| [`{name}`](" in page
    own = set(settings_of(name)) if name != "flowcon" else set()
    assert all(f"`{setting}`" in page for setting in own)


@EVERY_BY_LOSSES
@pytest.mark.parametrize(
    "broken",
    [replace(LEARNING, is_diverging=True), BrokenForecast(MetricDirection.LOWER, ())],
    ids=["diverging", "never a number"],
)
def test_a_diverging_trainer_gets_nothing_that_another_wants(
    name: str, broken: FakeForecast | BrokenForecast
) -> None:
    inputs = inputs_of(
        contender("broken", forecast=broken, held=8),
        contender("sound", forecast=LEARNING),
        contender("silent"),
    )
    counts = planned_by(priority_named(name), inputs)
    assert counts["broken"] == 0 < counts["sound"]
    lost, sound, _ = priority_named(name).rate(inputs, {}).ratings
    assert lost.is_background
    assert not sound.is_background
    assert "diverging" in lost.reason


# FlowCon and SpeCon hand out shares of nodes, also to trainers that report no loss.
@pytest.mark.parametrize("name", sorted({*BY_LOSSES} - {"flowcon", "specon"}))
def test_a_trainer_without_a_loss_counts_by_its_speed_up(name: str) -> None:
    inputs = inputs_of(contender("a", done_samples=1e6))
    (rating,) = priority_named(name, {"hysteresis": 0}).rate(inputs, {}).ratings
    speed, worth = inputs.contenders[0].samples_per_s, rating.curve.value_per_s
    assert np.allclose(worth / worth[1], speed / speed[1])
    assert "speed-up" in rating.reason


@EVERY_BY_LOSSES
def test_all_without_losses_share_as_by_speed_up(name: str) -> None:
    inputs = inputs_of(*[contender(k, done_samples=1e6) for k in "abc"], nodes=9)
    assert planned_by(priority_named(name), inputs) == {"a": 3, "b": 3, "c": 3}
