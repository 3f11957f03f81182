"""Nodes go where quality is expected to rise, by the planner's choice."""

import math

import numpy as np
import pytest

from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import DEFAULT_GAIN, Contender, WithHysteresis
from freetrain.priority.losses import FEWEST_FOR_PLATEAU, FEWEST_POINTS
from freetrain.priority.slaq import (
    HALF_TRUSTED,
    ROOM,
    USUAL,
    Slaq,
    SlaqMin,
    horizons_s,
    qualities,
)
from tests.priority.inputs import (
    T_FWD_S,
    FakeForecast,
    contender,
    exponential,
    flat,
    inputs_of,
    planned,
    planned_by,
    power_law,
    speeds,
)

BOTH = pytest.mark.parametrize("priority", [Slaq(), SlaqMin()])


LOSS = power_law(at=1e5, steepness=1.0)
RISING = FakeForecast(truth=lambda s: abs(s - 1e5) / 1e5 + 0.1, done=1e5)
NEARLY_DONE = FakeForecast(truth=exponential(at=2e4), done=1e5)


def steep(name: str = "steep", **changes: object) -> Contender:
    early = FakeForecast(truth=LOSS, done=1e5)
    return contender(name, forecast=early, done_samples=1e5, **changes)


def gentle(name: str = "gentle", **changes: object) -> Contender:
    late = FakeForecast(truth=power_law(at=1e4, steepness=0.5), done=1e6)
    return contender(name, forecast=late, done_samples=1e6, **changes)


def test_worth_is_the_share_of_its_way_expected_to_be_gained() -> None:
    one = steep(total_samples=4e5)
    (rating,) = Slaq(horizon_s=1e3).rate(inputs_of(one, nodes=7), {}).ratings
    assert one.forecast is not None
    values = len(one.forecast.points)

    def gained(n: int) -> float:
        """The expected gain and the usual gain, weighted by the values so far."""
        then = 1e5 + one.samples_per_s.item(n) * 1e3
        own = (LOSS(1e5) - LOSS(then)) / (LOSS(0) - LOSS(4e5))
        usual = math.exp(-1e5 / 4e5 / USUAL) - math.exp(-then / 4e5 / USUAL)
        return (values * own + HALF_TRUSTED * usual) / (values + HALF_TRUSTED)

    worth = rating.curve.value_per_s
    for n in (2, 3):
        assert worth[n] == pytest.approx(gained(n) / gained(1))


def test_the_horizon_is_half_of_the_work_on_an_equal_share_of_the_nodes() -> None:
    team = [contender(k, total_samples=6e5, samples_per_s=speeds(8)) for k in "ab"]
    for nodes, share in ((1, 1), (2, 1), (8, 4), (99, 8)):
        expected_s = 3e5 / speeds(8)[share]
        assert horizons_s(inputs_of(*team, nodes=nodes)) == pytest.approx(
            [expected_s] * 2
        )


def test_the_horizon_ends_with_the_training_but_not_before_the_look_ahead() -> None:
    near = contender("near", done_samples=5e5, total_samples=6e5)
    over = contender("over", done_samples=6e5, total_samples=6e5)
    horizons = horizons_s(inputs_of(near, over, nodes=2))
    assert horizons == pytest.approx([1e5 / speeds(1)[1], T_FWD_S])


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
    ("nodes", "one", "floor", "is_background", "why"),
    [
        (7, contender("a", done_samples=0.0, total_samples=1e6), 0, False, "as train"),
        (8, contender("a", done_samples=5e5, total_samples=1e6), 1, False, "speed-up"),
        (7, contender("a", forecast=RISING), 0, True, "plateau"),
        (7, contender("a", forecast=NEARLY_DONE), 0, True, "plateau"),
    ],
    ids=["new", "silent by half of its work", "a rising loss", "0.7 % to go"],
)
def test_a_trainer_that_cannot_be_forecast_or_gains_nothing(
    nodes: int, one: Contender, floor: int, *, is_background: bool, why: str
) -> None:
    (rating,) = Slaq().rate(inputs_of(one, nodes=nodes), {}).ratings
    assert (rating.floor, rating.is_background) == (floor, is_background)
    assert why in rating.reason


@BOTH
def test_the_steep_one_gets_more_than_the_gentle_one(priority: Slaq | SlaqMin) -> None:
    inputs = inputs_of(gentle(held=4), steep(held=4))
    counts = planned_by(priority, inputs)
    assert counts["steep"] > 4 > counts["gentle"]


def test_many_sizes_are_rated_as_few_are() -> None:
    wide = steep(sizes=tuple(range(1, 65)), samples_per_s=speeds(64))
    many = qualities(wide, FakeForecast(truth=LOSS, done=1e5), T_FWD_S)
    exact = [LOSS(0) - LOSS(1e5 + speed * T_FWD_S) for speed in speeds(64)]
    shown = LOSS(0) - LOSS(1e5)
    gains = np.array(exact) / shown - 1
    assert np.allclose(many[1:] - many[0], gains[1:], rtol=0.03)


def test_work_since_the_last_value_is_not_gained_again() -> None:
    ahead = contender("a", done_samples=2e5)
    now = qualities(ahead, FakeForecast(truth=LOSS, done=1e5), T_FWD_S)[0]
    assert now == pytest.approx((LOSS(0) - LOSS(2e5)) / (LOSS(0) - LOSS(1e5)))


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


@BOTH
def test_a_trainer_on_a_plateau_trains_on_what_is_left(
    priority: Slaq | SlaqMin,
) -> None:
    done = contender("done", forecast=FakeForecast(truth=flat(), done=1e5), held=8)
    alone, beside = inputs_of(done), inputs_of(done, steep())
    assert planned_by(priority, alone) == {"done": 8}
    counts = planned_by(priority, beside)
    assert counts == {"done": 0, "steep": 8}


def test_a_diverging_trainer_comes_after_one_on_a_plateau() -> None:
    flat_one = FakeForecast(truth=flat(), done=1e5)
    broken = FakeForecast(truth=flat(), done=1e5, is_diverging=True)
    inputs = inputs_of(
        contender("broken", forecast=broken), contender("flat", forecast=flat_one)
    )
    assert planned_by(Slaq(), inputs) == {"broken": 0, "flat": 8}


@BOTH
def test_a_trainer_with_few_values_gets_its_smallest_size_beside_steep_ones(
    priority: Slaq | SlaqMin,
) -> None:
    few = FakeForecast(truth=power_law(), done=1e5, reported=FEWEST_POINTS - 1)
    inputs = inputs_of(
        steep(),
        gentle("a"),
        gentle("b"),
        contender("new", done_samples=0.0),
        contender("short", forecast=few),
        contender("silent", done_samples=1e9),
    )
    counts = planned_by(priority, inputs)
    assert counts == {"steep": 5, "a": 0, "b": 0, "new": 1, "short": 1, "silent": 1}


def test_a_trainer_without_gain_within_the_horizon_still_gets_what_is_left() -> None:
    late_step = FakeForecast(
        truth=lambda s: 1.0 - (s > 0) * 0.1 - (s > 1.9e5), done=1e5
    )
    inputs = inputs_of(contender("a", forecast=late_step))
    assert planned_by(Slaq(), inputs) == {"a": 8}


@BOTH
@pytest.mark.parametrize(
    ("reported", "total_samples"),
    [(FEWEST_FOR_PLATEAU - 1, None), (30, 3e5)],
    ids=["few values", "early"],
)
def test_a_plateau_is_not_believed_at_once(
    priority: Slaq | SlaqMin, reported: int, total_samples: float | None
) -> None:
    resting = FakeForecast(truth=flat(), done=1e5, reported=reported)
    doubtful = contender("a", forecast=resting, total_samples=total_samples, held=4)
    inputs, alone = inputs_of(doubtful, steep("b"), steep("c")), inputs_of(doubtful)
    counts = planned_by(priority, inputs)
    assert 1 <= counts["a"] < min(counts["b"], counts["c"])
    assert planned_by(priority, alone) == {"a": 8}


def test_a_trainer_without_a_loss_counts_as_the_middle_one_of_the_others() -> None:
    inputs = inputs_of(steep(), gentle(), contender("silent"), nodes=12)
    by_name = dict(
        zip("sgn", Slaq().rate(inputs, {}).ratings, strict=True),
    )
    first = {name: own.curve.value_per_s[1] for name, own in by_name.items()}
    assert first["s"] > first["n"] == 1.0 > first["g"]


def test_work_beyond_the_end_of_the_training_is_worth_nothing() -> None:
    short = steep(total_samples=1e5 + 200 * T_FWD_S)
    worth = Slaq().rate(inputs_of(short, nodes=7), {}).ratings[0].curve.value_per_s
    assert worth[2] < worth[3] == worth[8]


@BOTH
def test_a_trainer_with_room_takes_all_its_nodes_though_half_gain_as_much(
    priority: Slaq | SlaqMin,
) -> None:
    late = gentle(total_samples=1.01e6, held=4, grow_s=30.0)
    steady = WithHysteresis(priority, DEFAULT_GAIN)
    assert planned(inputs_of(late), steady.rate(inputs_of(late), {}).ratings) == {
        "gentle": 8
    }


def test_a_trainer_with_room_leaves_the_rest_to_those_that_gain() -> None:
    small = contender(
        "small",
        sizes=(1, 2),
        samples_per_s=speeds(2),
        forecast=FakeForecast(truth=flat(), done=1e5),
    )
    inputs = inputs_of(small, steep(), nodes=8)
    ratings = Slaq().rate(inputs, {}).ratings
    assert [rating.reason == ROOM for rating in ratings] == [True, False]
    assert planned(inputs, ratings) == {"small": 2, "steep": 6}


def test_room_for_all_is_no_reason_to_reward_a_diverging_trainer() -> None:
    broken = FakeForecast(truth=flat(), done=1e5, is_diverging=True)
    inputs = inputs_of(contender("broken", forecast=broken), steep(), nodes=99)
    lost, learning = Slaq().rate(inputs, {}).ratings
    assert lost.is_background
    assert learning.reason == ROOM


def test_the_worst_trainer_comes_first_where_the_minimum_counts() -> None:
    def half_way(name: str, done: float, at: float) -> Contender:
        forecast = FakeForecast(truth=exponential(at=at), done=done)
        return contender(
            name, forecast=forecast, done_samples=done, total_samples=10 * at
        )

    # Behind, and slower: it has gone 26 % of its way, the other 63 %.
    inputs = inputs_of(half_way("ahead", 1e5, 1e5), half_way("behind", 1.5e5, 5e5))
    total = planned_by(Slaq(), inputs)
    worst = planned_by(SlaqMin(), inputs)
    assert worst["behind"] > total["behind"]
    assert worst["behind"] > worst["ahead"]
