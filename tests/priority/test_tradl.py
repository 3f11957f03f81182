"""``tradl``: trainers near their delivery come first, those beyond it last."""

import numpy as np

from freetrain.priority.base import Contender, Target
from freetrain.priority.tradl import FARTHEST, Tradl
from tests.priority.inputs import (
    FakeForecast,
    contender,
    exponential,
    inputs_of,
    planned,
    planned_by,
    power_law,
)

DONE = 1e5
LOSS = exponential(at=1e5, floor=0.0)  # .37 by now, .14 after as much again


def aiming(name: str, deliver: float, **changes: object) -> Contender:
    target = Target(deliver=deliver, final=0.01)
    settings = {"target": target, "forecast": FakeForecast(truth=LOSS, done=DONE)}
    return contender(name, **(settings | changes))


def test_a_trainer_near_its_delivery_gets_more_than_one_far_from_it() -> None:
    inputs = inputs_of(aiming("far", 0.02), aiming("near", 0.2))
    counts = planned_by(Tradl(), inputs)
    assert counts["near"] > counts["far"]


def test_worth_goes_by_the_samples_left() -> None:
    inputs = inputs_of(
        aiming("far", 0.37 * np.exp(-3)), aiming("near", 0.37 * np.exp(-1))
    )
    far, near = Tradl().rate(inputs, {}).ratings
    ratio = near.curve.value_per_s[1:] / far.curve.value_per_s[1:]
    assert np.allclose(ratio, 3.0, rtol=0.02)


def test_a_delivered_trainer_trains_on_what_others_leave() -> None:
    said = Target(deliver=0.2, is_delivered=True)
    for own in (
        aiming("a", 0.2, target=said),
        aiming("a", 0.2, target=said, forecast=None),
        aiming("a", 0.5),
    ):
        inputs = inputs_of(own, aiming("b", 0.1, sizes=(1, 2, 3)))
        first, second = Tradl().rate(inputs, {}).ratings
        assert (first.is_background, second.is_background) == (True, False)
        assert planned(inputs, (first, second)) == {"a": 5, "b": 3}


def test_beyond_its_final_target_a_trainer_gets_nothing() -> None:
    own = aiming("a", 0.6, target=Target(deliver=0.6, final=0.5))
    inputs = inputs_of(own)
    ratings = Tradl().rate(inputs, {}).ratings
    assert planned(inputs, ratings) == {"a": 0}
    assert "final target is reached" in ratings[0].reason


def test_a_target_out_of_sight_counts_as_ten_times_the_work_done() -> None:
    never = FakeForecast(truth=power_law(at=1e5, floor=0.2), done=DONE)
    inputs = inputs_of(aiming("never", 0.1, forecast=never), aiming("near", 0.2))
    ratings = Tradl().rate(inputs, {}).ratings
    assert f"{FARTHEST * DONE:.3g}" in ratings[0].reason
    counts = planned(inputs, ratings)
    assert counts["near"] > counts["never"]
    assert not ratings[0].is_background


def test_without_a_target_the_end_counts_as_delivery() -> None:
    inputs = inputs_of(
        contender("short", total_samples=DONE + 2e4), aiming("long", 0.37 * np.exp(-3))
    )
    counts = planned_by(Tradl(), inputs)
    assert counts["short"] > counts["long"]


def test_the_last_samples_before_a_delivery_are_not_worth_everything() -> None:
    one = contender("a", total_samples=DONE + 1e-9)
    other = contender("b", total_samples=DONE + 2e4)
    first, second = Tradl().rate(inputs_of(one, other), {}).ratings
    assert first.curve.value_per_s[1] < 2 * second.curve.value_per_s[1]


def test_without_target_and_end_a_trainer_keeps_its_smallest_size() -> None:
    endless = contender("a", total_samples=None, forecast=None)
    deaf = aiming("b", 0.1, forecast=None)
    first, second = Tradl().rate(inputs_of(endless, deaf), {}).ratings
    assert first.reason.startswith("no target given, and no end known")
    assert second.reason.startswith("no usable loss")
    assert first.floor == second.floor == endless.sizes[0]
