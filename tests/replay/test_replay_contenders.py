"""What a priority is shown of a trainer, and how often it is asked."""

import numpy as np

from freetrain.losscurve.forecast import MetricDirection, MetricPoint
from freetrain.priority.base import (
    Memory,
    Rating,
    RatingBasis,
    RatingInputs,
    RatingResult,
    Target,
)
from freetrain.replay.policies.ratings import (
    GivenSpeeds,
    RatedAtEveryEvent,
    RatedOnce,
    contender_of,
)
from freetrain.replay.trainers import QualityTruth, Scaling
from milp.problem import throughput
from tests.replay.worlds import linear, run, view

LOSS = QualityTruth(np.array([10.0, 20.0]), np.array([4.0, 2.0]), MetricDirection.LOWER)


class Counting:
    """Rates by throughput, and remembers how it was asked."""

    name = "counting"

    def __init__(self, basis: RatingBasis) -> None:
        self.basis = basis
        self.looks: list[RatingInputs] = []
        self.memories: list[Memory] = []

    def rate(self, look: RatingInputs, memory: Memory) -> RatingResult:
        self.looks.append(look)
        self.memories.append(memory)
        curves = [throughput(c.samples_per_s, c.sizes) for c in look.contenders]
        ratings = tuple(Rating(curve=curve) for curve in curves)
        return RatingResult(ratings, {"asked": len(self.looks)})


def test_a_contender_is_what_its_user_said_and_its_past() -> None:
    target = Target(deliver=2.0, final=1.0)
    one = run(0, 1, 2, target=target, quality=LOSS, deadline_s=99.0)
    one.done = 15.0
    one.points.append(MetricPoint(t_s=8.0, samples=10.0, value=4.0))

    early = contender_of(one, one.spec.scaling, None)
    one.points.append(MetricPoint(t_s=9.0, samples=20.0, value=2.0))
    late = contender_of(one, one.spec.scaling, None)

    assert (early.held, early.done_samples) == (2, 15.0)
    assert (early.total_samples, early.deadline_s) == (1e6, 99.0)
    assert early.target == Target(deliver=2.0, final=1.0, is_delivered=False)
    assert late.target == Target(deliver=2.0, final=1.0, is_delivered=True)
    few = Scaling("s", linear(most=8).samples_per_s, (1, 2))
    assert contender_of(run(), few, None).samples_per_s.tolist() == [0, 10, 20]


def test_what_is_rated_by_the_trainer_alone_is_rated_once() -> None:
    priority = Counting(RatingBasis.TRAINER)
    worth = RatedOnce(priority, GivenSpeeds(), t_fwd_s=120.0)
    shared = linear()
    alike, heavy = run(1, scaling=shared), run(2, scaling=shared, weight=2.0)

    first = worth.curves(view(alike))
    again = worth.curves(view(alike, now_s=60.0))
    more = worth.curves(view(alike, heavy, run(3, scaling=shared)))

    assert len(priority.looks) == 2
    assert first[0] is again[0] is more[0] is more[2]
    assert more[1] is not more[0]


def test_what_changes_with_the_moment_is_rated_at_every_look_all_together() -> None:
    priority = Counting(RatingBasis.MOMENT)
    worth = RatedAtEveryEvent(priority, GivenSpeeds(), None, t_fwd_s=120.0)
    team = [run(1), run(2)]

    first = worth.curves(view(*team))
    again = worth.curves(view(*team[1:], now_s=60.0))

    assert [len(look.contenders) for look in priority.looks] == [2, 1]
    assert [look.now_s for look in priority.looks] == [0.0, 60.0]
    assert priority.memories == [{}, {"asked": 1}]
    # The numbers are the same, so the object is: solvers keep what they derive.
    assert again[0] is first[1]
