"""``tradl``: trainers near their delivery come first, those beyond it count less."""

import json
from dataclasses import replace

import numpy as np

from freetrain.priority.base import Contender, Memory, Rating, RatingInputs, Target
from freetrain.priority.tradl import (
    DELIVERED,
    FARTHEST,
    FIRST_S,
    LAST_S,
    PROMISED,
    TURN_S,
    Tradl,
)
from tests.priority.inputs import (
    FakeForecast,
    contender,
    exponential,
    inputs_of,
    later,
    planned,
    power_law,
    speeds,
)

HAD_ENOUGH = {
    "ahead_node_s": 1e9,
    "at_s": 1000.0,
    "had_s": 1e9,
    "held": 0,
    "since_s": 0.0,
}
"""The memory of a trainer to which nothing is promised for long."""


def rated(inputs: RatingInputs) -> tuple[Rating, ...]:
    """Return the ratings where nothing is promised to any trainer."""
    memory = {own.name: HAD_ENOUGH for own in inputs.contenders}
    return Tradl().rate(inputs, memory).ratings


def counts_of(inputs: RatingInputs) -> dict[str, int]:
    return planned(inputs, rated(inputs))


DONE = 1e5
LOSS = exponential(at=1e5, floor=0.0)  # .37 by now, .14 after as much again


def aiming(name: str, deliver: float, **changes: object) -> Contender:
    target = Target(deliver=deliver, final=0.01)
    settings = {"target": target, "forecast": FakeForecast(truth=LOSS, done=DONE)}
    return contender(name, **(settings | changes))


def test_where_nodes_are_few_the_trainer_near_its_delivery_comes_first() -> None:
    inputs = inputs_of(aiming("far", 0.02), aiming("near", 0.2), nodes=1)
    assert counts_of(inputs) == {"far": 0, "near": 1}


def test_worth_goes_by_the_samples_left() -> None:
    inputs = inputs_of(
        aiming("far", 0.37 * np.exp(-3)), aiming("near", 0.37 * np.exp(-1))
    )
    far, near = rated(inputs)
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
        ratings = rated(inputs)
        assert ratings[0].reason.startswith("ends after")
        assert planned(inputs, ratings) == {"a": 5, "b": 3}


def test_a_delivered_trainer_counts_a_twentieth_and_by_what_is_left_to_its_end() -> (
    None
):
    end = 0.37 * np.exp(-1)
    done = aiming("done", 0.5, target=Target(deliver=0.5, final=end))
    far = aiming("far", 0.5, target=Target(deliver=0.5, final=0.37 * np.exp(-3)))
    first, near, last = rated(inputs_of(done, aiming("near", end), far))
    worth = [each.curve.value_per_s[1] for each in (first, near, last)]
    assert np.isclose(worth[0] / worth[1], DELIVERED)
    assert np.isclose(worth[0] / worth[2], 3.0, rtol=0.02)


def test_beyond_its_final_target_a_trainer_gets_nothing() -> None:
    own = aiming("a", 0.6, target=Target(deliver=0.6, final=0.5))
    inputs = inputs_of(own)
    ratings = rated(inputs)
    assert planned(inputs, ratings) == {"a": 0}
    assert "final target is reached" in ratings[0].reason


def test_a_target_out_of_sight_counts_as_ten_times_the_work_done() -> None:
    never = FakeForecast(truth=power_law(at=1e5, floor=0.2), done=DONE)
    inputs = inputs_of(aiming("never", 0.1, forecast=never), aiming("near", 0.2))
    ratings = rated(inputs)
    assert f"{FARTHEST * DONE:.3g}" in ratings[0].reason
    counts = planned(inputs, ratings)
    assert counts["near"] > counts["never"]
    assert not ratings[0].is_background


def test_without_a_target_the_end_counts_as_delivery() -> None:
    inputs = inputs_of(
        contender("short", total_samples=DONE + 2e4), aiming("long", 0.37 * np.exp(-3))
    )
    counts = counts_of(inputs)
    assert counts["short"] > counts["long"]


def test_the_last_samples_before_a_delivery_are_not_worth_everything() -> None:
    one = contender("a", total_samples=DONE + 1e-9)
    other = contender("b", total_samples=DONE + 2e4)
    first, second = rated(inputs_of(one, other))
    assert first.curve.value_per_s[1] < 2 * second.curve.value_per_s[1]


def test_without_target_and_end_a_trainer_keeps_its_smallest_size() -> None:
    endless = contender("a", total_samples=None, forecast=None)
    deaf = aiming("b", 0.1, forecast=None)
    first, second = rated(inputs_of(endless, deaf))
    assert first.reason.startswith("no target given, and no end known")
    assert second.reason.startswith("no usable loss")
    assert first.floor == second.floor == endless.sizes[0]


def nodes_over_time(*team: Contender, hours: float = 10.0) -> dict[str, float]:
    """Return how many nodes each held in the mean, of one that is there for all."""
    inputs = inputs_of(*team, nodes=1)
    memory: Memory = {}
    held = dict.fromkeys([own.name for own in team], 0)
    total = dict.fromkeys(held, 0.0)
    for _ in range(int(hours * 60)):
        now = later(inputs, 60.0)
        team = tuple([replace(own, held=held[own.name]) for own in now.contenders])
        inputs = replace(now, contenders=team)
        result = Tradl().rate(inputs, memory)
        memory = json.loads(json.dumps(result.memory))
        held = planned(inputs, result.ratings)
        total = {name: total[name] + held[name] for name in total}
    return {name: nodes / (hours * 60) for name, nodes in total.items()}


def test_a_delivered_trainer_has_the_promised_part_of_its_share_over_time() -> None:
    done = aiming("done", 0.2, target=Target(deliver=0.2, is_delivered=True))
    shares = nodes_over_time(done, aiming("near", 0.1))
    assert PROMISED / 2 <= shares["done"] < 0.5
    assert sum(shares.values()) == 1.0


def test_a_delivered_trainer_that_needs_all_nodes_has_its_turn_too() -> None:
    said = Target(deliver=0.2, is_delivered=True)
    sizes = {"sizes": (4,), "samples_per_s": speeds(4)}
    large = aiming("large", 0.2, target=said, **sizes)
    (rating, _) = (
        Tradl().rate(inputs_of(large, aiming("near", 0.1), nodes=4), {}).ratings
    )
    assert rating.floor == 4


def test_a_trainer_too_large_for_the_nodes_makes_the_promise_no_larger() -> None:
    sizes = {"sizes": (12,), "samples_per_s": speeds(12)}
    small = {"sizes": (1,), "samples_per_s": speeds(1)}
    crowd = [aiming(f"s{k}", 0.1, **small) for k in range(12)]
    inputs = inputs_of(aiming("huge", 0.1, **sizes), *crowd, nodes=10)
    behind = HAD_ENOUGH | {"ahead_node_s": -1.0}
    memory = {own.name: behind for own in inputs.contenders}
    floors = [rating.floor for rating in Tradl().rate(inputs, memory).ratings]
    assert floors[0] == 0
    assert sum(floors) == PROMISED * 10


def test_a_trainer_has_nodes_for_its_first_minutes_whatever_it_had_of_its_share() -> (
    None
):
    said = Target(deliver=0.2, is_delivered=True)
    new = aiming("new", 0.2, target=said, held=1)
    inputs = inputs_of(new, aiming("near", 0.1), nodes=1)
    for had_s, floors in ((FIRST_S - 1.0, (1, 0)), (FIRST_S, (0, 0))):
        memory = {"new": HAD_ENOUGH | {"had_s": had_s}, "near": HAD_ENOUGH}
        ratings = Tradl().rate(inputs, memory).ratings
        assert tuple(rating.floor for rating in ratings) == floors


def test_those_in_their_first_minutes_keep_their_nodes_while_others_arrive() -> None:
    own = aiming("own", 0.1, held=1)
    inputs = inputs_of(own, *(aiming(f"late{k}", 0.2) for k in range(3)), nodes=2)
    memory = {"own": HAD_ENOUGH | {"had_s": FIRST_S - 60.0, "held": 1}}
    floors = [rating.floor for rating in Tradl().rate(inputs, memory).ratings]
    assert floors[0] == 1
    assert sum(floors) == 2


def test_only_time_with_nodes_counts_as_first_minutes() -> None:
    own = aiming("own", 0.1)
    inputs = inputs_of(own, aiming("other", 0.2, held=3), nodes=4)
    memory = Tradl().rate(inputs, {}).memory
    memory = Tradl().rate(later(inputs, 240.0), memory).memory
    memory = json.loads(json.dumps(memory))
    assert [entry["had_s"] for entry in memory.values()] == [0.0, 240.0]


def test_what_a_trainer_had_alone_is_not_held_against_it() -> None:
    done = aiming("done", 0.2, target=Target(deliver=0.2, is_delivered=True), held=4)
    inputs = inputs_of(done, nodes=4)
    memory = Tradl().rate(inputs, {}).memory
    alone = later(inputs, 86400.0)
    memory = Tradl().rate(alone, memory).memory
    together = inputs_of(done, aiming("near", 0.1), nodes=2, now_s=alone.now_s)
    rating, _ = Tradl().rate(together, memory).ratings
    assert rating.floor == 1


def test_nothing_is_promised_to_a_trainer_that_diverges_or_is_finished() -> None:
    broken = FakeForecast(truth=LOSS, done=DONE, is_diverging=True)
    lost = aiming("lost", 0.1, forecast=broken)
    over = aiming("over", 0.6, target=Target(deliver=0.6, final=0.5))
    for own in (lost, over):
        shares = nodes_over_time(own, aiming("near", 0.1), hours=2.0)
        assert shares == {own.name: 0.0, "near": 1.0}


def test_a_turn_goes_on_until_the_trainer_is_ahead_by_a_turn() -> None:
    done = aiming("done", 0.2, target=Target(deliver=0.2, is_delivered=True))
    for ahead_node_s, held, has_turn in (
        (1.0, 0, False),
        (-1.0, 0, True),
        (1.0, 1, True),
        (TURN_S + 1.0, 1, False),
    ):
        own = replace(done, held=held)
        memory = {"done": HAD_ENOUGH | {"ahead_node_s": ahead_node_s, "held": held}}
        (rating,) = Tradl().rate(inputs_of(own), memory).ratings
        assert (rating.floor > 0) is has_turn


def test_where_there_are_nodes_for_all_the_promise_is_of_the_share() -> None:
    one, other = aiming("one", 0.1), aiming("other", 0.2)
    inputs = inputs_of(one, other, nodes=8)
    for had_s, floor in ((0.0, 4), (FIRST_S, int(PROMISED * 4))):
        memory = {
            own.name: HAD_ENOUGH | {"had_s": had_s, "ahead_node_s": -1.0}
            for own in (one, other)
        }
        ratings = Tradl().rate(inputs, memory).ratings
        assert [rating.floor for rating in ratings] == [floor, floor]


def test_a_trainer_that_is_nearly_done_is_let_end_whatever_it_had() -> None:
    for left_s, floor in ((LAST_S, 1), (LAST_S + 1.0, 0)):
        own = aiming("own", 0.1, total_samples=DONE + left_s * speeds(8)[1])
        inputs = inputs_of(own, aiming("other", 0.1), nodes=1)
        memory = dict.fromkeys(("own", "other"), HAD_ENOUGH)
        assert Tradl().rate(inputs, memory).ratings[0].floor == floor


def test_before_it_trains_nobody_knows_that_a_trainer_is_nearly_done() -> None:
    own = aiming("own", 0.1, total_samples=1.0, done_samples=0.0)
    inputs = inputs_of(own, aiming("other", 0.1), nodes=1)
    memory = dict.fromkeys(("own", "other"), HAD_ENOUGH)
    assert Tradl().rate(inputs, memory).ratings[0].floor == 0


def test_no_share_is_promised_that_takes_the_promise_of_another() -> None:
    large = {"sizes": (6,), "samples_per_s": speeds(6)}
    team = (aiming("large", 0.1, **large), aiming("one", 0.1), aiming("other", 0.1))
    ratings = Tradl().rate(inputs_of(*team, nodes=8), {}).ratings
    assert [rating.floor for rating in ratings] == [6, 1, 1]
    ratings = Tradl().rate(inputs_of(*team, nodes=18), {}).ratings
    assert [rating.floor for rating in ratings] == [6, 6, 6]
