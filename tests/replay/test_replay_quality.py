"""Quality in replays: what trainers tell, when, and that nobody sees the future."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from freetrain.errors import UsageError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import PRIORITIES, Target
from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import ReplaySettings
from freetrain.replay.trainers import Costs, QualityTruth, TrainerSpec
from tests.replay.worlds import replay, trainer

COSTS = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0, checkpoint_every_s=40.0)


def truth(*values: float, step: float = 100.0) -> QualityTruth:
    """Return a loss that is evaluated every *step* samples."""
    samples = np.linspace(step, step * len(values), len(values))
    return QualityTruth(samples, np.array(values), MetricDirection.LOWER, "by hand")


def learner(name: str = "t", *values: float, **changes: Any) -> TrainerSpec:  # noqa: ANN401
    curve = truth(*(values or (4.0, 2.0, 1.0, 0.5)))
    work = float(curve.samples[-1])
    return trainer(name, **({"samples": work, "quality": curve} | changes))


def test_evaluations_are_told_when_they_are_passed() -> None:
    # 10 samples/s on one node: 100 samples at 10 s, and so on; done at 40 s.
    (way,) = replay({0: [(0.0, 90.0)]}, [learner()], policy="equal").learning

    assert way.times_s == (10.0, 20.0, 30.0, 40.0)
    assert way.finished_s == 40.0
    # From 4 down to 0.5: 2 is 4/7 of the way, 1 is 6/7.
    assert way.quality == pytest.approx((0, 4 / 7, 6 / 7, 1))


def test_what_is_lost_with_a_node_is_told_again_later() -> None:
    # Start until 5 s; 5-20 s: 150 samples, one evaluation at 15 s, seen at 16 s. The
    # node is lost at 20 s with all that, for no commit was made. From 30 s: start
    # until 35 s.
    (way,) = replay(
        {0: [(0.0, 20.0)], 1: [(30.0, 90.0)]},
        [learner(costs=COSTS)],
        policy="equal",
        look_every_s=4.0,
    ).learning

    assert way.times_s == (45.0, 55.0, 65.0, 75.0)


def test_a_final_target_ends_the_training_and_nobody_is_notified_before() -> None:
    target = Target(deliver=2.0, final=1.0)

    result = replay({0: [(0.0, 90.0)]}, [learner(target=target)], policy="equal")

    (way,) = result.learning
    assert (way.deliver_s, way.final_s, way.finished_s) == (20.0, 30.0, 30.0)
    assert result.samples == 300
    # Its best is the best that it has by its end.
    assert way.quality == pytest.approx((0, 2 / 3, 1))


def test_a_target_that_is_never_reached_leaves_the_samples_to_decide() -> None:
    target = Target(deliver=0.1, final=0.01)

    (way,) = replay(
        {0: [(0.0, 90.0)]}, [learner(target=target)], policy="equal"
    ).learning

    assert (way.deliver_s, way.final_s, way.finished_s) == (None, None, 40.0)


def test_a_diverging_trainer_keeps_its_best_and_one_that_never_learns_has_none() -> (
    None
):
    curves = learner("a", 4.0, 1.0, np.nan, np.inf), learner("b", 1.0, 2.0, 3.0, 9.0)

    ways = replay({0: [(0, 90)], 1: [(0, 90)]}, curves, policy="equal").learning

    assert ways[0].quality == (0, 1, 1, 1)
    assert ways[1].quality == (0, 0, 0, 0)


@pytest.mark.parametrize("policy", ["freetrain", "lookahead"])
def test_a_policy_whose_ratings_change_with_time_is_asked_every_minute(
    policy: str,
) -> None:
    pool = {0: [(0.0, 300.0)]}

    def plans(**choices: Any) -> int:  # noqa: ANN401
        gap = replay(pool, [trainer()], policy=policy, **choices).gap
        return 0 if gap is None else gap.plans

    assert plans(priority="throughput") == 1
    assert plans(priority="fair") == 5
    assert plans(priority="fair", look_every_s=30.0) == 10
    assert plans(priority="throughput", look_every_s=100.0) == 3


@pytest.mark.parametrize("every_s", [0.0, -5.0, float("nan")])
def test_looks_need_time_between_them(every_s: float) -> None:
    with pytest.raises(UsageError, match="seconds between looks: expected a number"):
        ReplaySettings(look_every_s=every_s)


def team(curves: Sequence[QualityTruth]) -> list[TrainerSpec]:
    target = Target(deliver=0.6, final=None)
    return [
        trainer(
            f"t{k}",
            samples=12_000.0,
            arrival_s=40.0 * k,
            costs=COSTS,
            quality=curve,
            target=target,
            deadline_s=900.0,
        )
        for k, curve in enumerate(curves)
    ]


def until(result: ReplayResult, end_s: float) -> list[object]:
    """Return everything that was decided before *end_s*."""
    return [step for step in result.steps if step.time_s < end_s]


POOL = {n: [(0.0, 900.0)] for n in range(5)} | {5: [(90.0, 300.0)]}
SAMPLES = np.linspace(400.0, 12_000.0, 30)


@pytest.mark.parametrize("priority", sorted(PRIORITIES))
def test_another_future_changes_nothing_before_it_comes(priority: str) -> None:
    curves = [
        QualityTruth(
            SAMPLES, 0.1 + np.exp(-fall * SAMPLES / 4_000), MetricDirection.LOWER
        )
        for fall in (0.3, 1.0, 0.05)
    ]
    known = replay(POOL, team(curves), policy="freetrain", priority=priority)
    # One of them turns out otherwise from its 13th evaluation on: bad, then nan.
    turned = curves[1].values.copy()
    turned[12:] = 5.0
    turned[20:] = np.nan
    others = [curves[0], replace(curves[1], values=turned), curves[2]]

    other = replay(POOL, team(others), policy="freetrain", priority=priority)

    parting_s = known.learning[1].times_s[12]
    assert until(known, parting_s) == until(other, parting_s)
    assert len(until(known, parting_s)) > 4


@pytest.mark.parametrize("priority", sorted(PRIORITIES))
def test_how_long_the_curve_goes_on_is_not_known_either(priority: str) -> None:
    whole = QualityTruth(SAMPLES, 1 / SAMPLES, MetricDirection.LOWER)
    short = replace(whole, samples=SAMPLES[:15], values=whole.values[:15])

    known, other = (
        replay(POOL, team([curve, whole]), policy="freetrain", priority=priority)
        for curve in (whole, short)
    )

    parting_s = known.learning[0].times_s[15]
    assert until(known, parting_s) == until(other, parting_s)


def test_what_trainers_told_changes_who_gets_nodes() -> None:
    good = QualityTruth(SAMPLES, 1 / SAMPLES, MetricDirection.LOWER)
    bad = replace(good, values=np.where(SAMPLES > 1_500, 9.0, good.values))

    known, other = (
        replay({0: POOL[0]}, team([curve, good]), policy="freetrain", priority="slaq")
        for curve in (good, bad)
    )

    assert known.steps != other.steps
