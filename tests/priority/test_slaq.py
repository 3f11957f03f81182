"""Nodes go where quality is expected to rise, by the planner's choice."""

import math

import numpy as np
import pytest

from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import Contender
from freetrain.priority.losses import FEWEST_POINTS, LossStatus
from freetrain.priority.slaq import (
    HALF_TRUSTED,
    USUAL,
    Slaq,
    SlaqMin,
    expected_way,
)
from tests.priority.inputs import (
    T_FWD_S,
    FakeForecast,
    contender,
    exponential,
    flat,
    inputs_of,
    planned_by,
    power_law,
)

BOTH = pytest.mark.parametrize("priority", [Slaq(), SlaqMin()])

LOSS = power_law(at=1e5, steepness=1.0)
RISING = FakeForecast(truth=lambda s: abs(s - 1e5) / 1e5 + 0.1, done=1e5, reported=99)


def steep(name: str = "steep", **changes: object) -> Contender:
    early = FakeForecast(truth=LOSS, done=1e5)
    return contender(name, forecast=early, done_samples=1e5, **changes)


def gentle(name: str = "gentle", **changes: object) -> Contender:
    late = FakeForecast(truth=power_law(at=1e4, steepness=0.5), done=1e6)
    return contender(name, forecast=late, done_samples=1e6, **changes)


def worth_of(*team: Contender, nodes: int = 8) -> list[float]:
    """Return what the first node is worth to each."""
    rated = Slaq().rate(inputs_of(*team, nodes=nodes), {})
    return [rating.curve.value_per_s.item(1) for rating in rated.ratings]


def test_the_way_is_that_of_the_forecast_and_the_usual_one_by_values_so_far() -> None:
    one, more = steep(total_samples=4e5), np.array([5e4, 3e5])
    assert one.forecast is not None
    values = len(one.forecast.points)

    way, gains = expected_way(one, LossStatus.LEARNING, more)

    def gone(samples: float) -> float:
        own = (LOSS(0) - LOSS(samples)) / (LOSS(0) - LOSS(4e5))
        usual = (1 - math.exp(-samples / 4e5 / USUAL)) / (1 - math.exp(-1 / USUAL))
        return (values * own + HALF_TRUSTED * usual) / (values + HALF_TRUSTED)

    assert way == pytest.approx(gone(1e5))
    assert gains == pytest.approx([gone(1e5 + x) - gone(1e5) for x in more.tolist()])


def test_worth_is_the_most_that_a_node_second_brings_until_the_end() -> None:
    """A gain that comes late counts as one that comes at the same rate at once."""

    def late(samples: float) -> float:
        begun = 0.001 * min(samples, 1e5)
        return 1.0 - (begun + 0.999 * max(samples - 2e5, 0.0)) / 1e5

    def early(samples: float) -> float:
        return 1.0 - min(samples, 3e5) / 3e5

    slow, quick = (
        contender(
            name,
            total_samples=3e5,
            forecast=FakeForecast(truth=truth, done=1e5, reported=1000),
        )
        for name, truth in (("slow", late), ("quick", early))
    )
    first, second = worth_of(slow, quick, nodes=1)
    # All of its way in the 2e5 samples to come, of which the other gains two thirds.
    assert first / second == pytest.approx(3 / 2, rel=0.02)


def test_a_share_of_the_nodes_is_worth_all_and_nodes_beyond_it_a_tenth() -> None:
    rated = Slaq().rate(inputs_of(steep(), gentle(), nodes=6), {}).ratings
    for rating in rated:
        worth = np.diff(rating.curve.value_per_s)
        assert worth / worth[0] == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.1])


def test_where_trainers_are_more_than_nodes_the_steepest_have_a_node_each() -> None:
    team = [gentle(f"g{k}") for k in range(4)] + [steep(f"s{k}") for k in range(3)]
    counts = planned_by(Slaq(), inputs_of(*team, nodes=3))
    assert counts == {f"g{k}": 0 for k in range(4)} | {f"s{k}": 1 for k in range(3)}


@pytest.mark.parametrize("done", [0.0, 1e5, 5e5])
def test_a_trainer_alone_uses_all_nodes(done: float) -> None:
    forecast = FakeForecast(truth=LOSS, done=done)
    alone = inputs_of(
        contender("a", done_samples=done, total_samples=6e5, forecast=forecast, held=1)
    )
    assert planned_by(Slaq(), alone) == {"a": 8}


def test_of_newcomers_the_shorter_training_comes_first() -> None:
    inputs = inputs_of(
        contender("long", done_samples=0.0, total_samples=1e7),
        contender("short", done_samples=0.0, total_samples=1e6),
        nodes=1,
    )
    assert planned_by(Slaq(), inputs) == {"long": 0, "short": 1}


@pytest.mark.parametrize(
    ("one", "floor", "is_background", "why"),
    [
        (contender("a", done_samples=0.0, total_samples=1e6), 0, False, "of its way"),
        (contender("a", done_samples=5e5, total_samples=1e6), 1, False, "speed-up"),
        (contender("a", done_samples=0.0), 1, False, "speed-up"),
        (contender("a", done_samples=1e6, total_samples=1e6), 1, False, "speed-up"),
        (steep("a", total_samples=1e5), 0, True, "no more gain"),
        (contender("a", forecast=RISING), 0, True, "no more gain"),
    ],
    ids=[
        "new",
        "silent by half of its work",
        "no end known",
        "silent",
        "over",
        "a rising loss",
    ],
)
def test_a_trainer_that_cannot_be_forecast_or_gains_nothing(
    one: Contender, floor: int, *, is_background: bool, why: str
) -> None:
    (rating,) = Slaq().rate(inputs_of(one, nodes=7), {}).ratings
    assert (rating.floor, rating.is_background) == (floor, is_background)
    assert why in rating.reason


@BOTH
def test_the_steep_one_gets_more_than_the_gentle_one(priority: Slaq | SlaqMin) -> None:
    counts = planned_by(priority, inputs_of(gentle(), steep(), nodes=5))
    assert counts["steep"] > counts["gentle"]


def test_work_since_the_last_value_is_not_gained_again() -> None:
    truth = FakeForecast(truth=LOSS, done=1e5, reported=100_000)
    ahead = contender("a", done_samples=2e5, forecast=truth, total_samples=4e5)
    way, _ = expected_way(ahead, LossStatus.LEARNING, np.array([1e5]))
    assert way == pytest.approx((LOSS(0) - LOSS(2e5)) / (LOSS(0) - LOSS(4e5)), rel=1e-3)


def test_higher_metrics_count_as_lower_ones_do() -> None:
    fall = power_law(at=1e5)
    rise = FakeForecast(
        truth=lambda s: -fall(s), done=1e5, better=MetricDirection.HIGHER
    )
    drop = FakeForecast(truth=fall, done=1e5)
    inputs = inputs_of(
        contender("rise", forecast=rise), contender("drop", forecast=drop)
    )
    first, second = Slaq().rate(inputs, {}).ratings
    assert first.curve.value_per_s == pytest.approx(second.curve.value_per_s)


def test_a_step_that_is_shorter_than_the_horizon_counts_for_no_more() -> None:
    """Values jump, and a rescale takes as long."""
    jump = FakeForecast(
        truth=lambda s: LOSS(s) - 0.2 * (s > 1e5 + 1), done=1e5, reported=30
    )
    one = contender("a", forecast=jump, total_samples=4e5)
    worth = []
    for horizon_s in (T_FWD_S, 5 * T_FWD_S):
        rated = Slaq(horizon_s=horizon_s).rate(inputs_of(one, steep(), nodes=1), {})
        first, second = rated.ratings
        worth.append(first.curve.value_per_s[1] / second.curve.value_per_s[1])
    assert worth[0] > 2 * worth[1]


@BOTH
def test_a_trainer_on_a_plateau_trains_on_what_is_left(
    priority: Slaq | SlaqMin,
) -> None:
    resting = FakeForecast(truth=flat(), done=1e5, reported=100)
    done = contender("done", forecast=resting, held=1)
    alone, beside = inputs_of(done), inputs_of(done, steep(), nodes=1)
    assert planned_by(priority, alone) == {"done": 8}
    assert planned_by(priority, beside) == {"done": 0, "steep": 1}


def test_a_diverging_trainer_comes_after_one_on_a_plateau() -> None:
    flat_one = FakeForecast(truth=flat(), done=1e5)
    broken = FakeForecast(truth=flat(), done=1e5, is_diverging=True)
    inputs = inputs_of(
        contender("broken", forecast=broken), contender("flat", forecast=flat_one)
    )
    assert planned_by(Slaq(), inputs) == {"broken": 0, "flat": 8}


@BOTH
def test_a_trainer_with_few_values_and_no_end_gets_its_smallest_size(
    priority: Slaq | SlaqMin,
) -> None:
    few = FakeForecast(truth=power_law(), done=1e5, reported=FEWEST_POINTS - 1)
    inputs = inputs_of(
        steep(),
        gentle("a"),
        gentle("b"),
        contender("new", done_samples=0.0),
        contender("short", done_samples=1e5, total_samples=1e5, forecast=few),
        nodes=3,
    )
    counts = planned_by(priority, inputs)
    assert counts == {"steep": 1, "a": 0, "b": 0, "new": 1, "short": 1}


def test_a_trainer_without_a_loss_counts_as_the_middle_one_of_the_others() -> None:
    silent = contender("silent", done_samples=0.0)
    first = worth_of(steep(), gentle(), silent, nodes=12)
    assert first[0] > first[2] == 1.0 > first[1]


def test_the_worst_trainer_comes_first_where_the_minimum_counts() -> None:
    def half_way(name: str, done: float, at: float) -> Contender:
        forecast = FakeForecast(truth=exponential(at=at), done=done)
        return contender(
            name, forecast=forecast, done_samples=done, total_samples=10 * at
        )

    # Behind, and slower: it has gone 26 % of its way, the other 63 %.
    ahead, behind = half_way("ahead", 1e5, 1e5), half_way("behind", 1.5e5, 5e5)
    inputs = inputs_of(ahead, behind, nodes=1)
    assert planned_by(Slaq(), inputs) == {"ahead": 1, "behind": 0}
    assert planned_by(SlaqMin(), inputs) == {"ahead": 0, "behind": 1}
