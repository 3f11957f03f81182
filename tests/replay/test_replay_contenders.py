"""What a priority is shown of a trainer, and how often it is asked."""

from collections.abc import Sequence

import numpy as np

from freetrain.losscurve.forecast import Better, Point
from freetrain.priority.base import (
    Basis,
    Contender,
    Memory,
    Rating,
    RatingInputs,
    RatingResult,
    Target,
)
from freetrain.replay.accounting import Run, usable_rates
from freetrain.replay.policies.base import View
from freetrain.replay.policies.ratings import (
    GivenSpeeds,
    RatedAtEveryEvent,
    RatedOnce,
    contender_of,
)
from freetrain.replay.trainers import QualityTruth, Scaling
from milp.problem import Curve, throughput
from tests.replay.worlds import linear, trainer

LOSS = QualityTruth(np.array([10.0, 20.0]), np.array([4.0, 2.0]), Better.LOWER)


class Counting:
    """Rates by throughput, and remembers how it was asked."""

    name = "counting"

    def __init__(self, basis: Basis) -> None:
        self.basis = basis
        self.looks: list[RatingInputs] = []
        self.memories: list[Memory] = []

    def rate(self, look: RatingInputs, memory: Memory) -> RatingResult:
        self.looks.append(look)
        self.memories.append(memory)
        ratings = [Rating(curve=_curve(one)) for one in look.contenders]
        return RatingResult(tuple(ratings), {"asked": len(self.looks)})


def _curve(one: Contender) -> Curve:
    return throughput(one.samples_per_s, one.sizes)


def run(serial: int = 0, **changes: object) -> Run:
    spec = trainer(f"t{serial}", **changes)
    return Run(serial, spec, usable_rates(spec.scaling), 7.0, held={1, 2})


def view(trainers: Sequence[Run], now_s: float = 0.0) -> View:
    return View(
        now_s=now_s,
        trainers=trainers,
        free=[],
        idle_nodes=4,
        since_s=[],
        joined=(),
        left=(),
    )


def test_a_contender_is_what_its_user_said_and_its_past() -> None:
    one = run(target=Target(deliver=2.0, final=1.0), quality=LOSS, deadline_s=99.0)
    one.done = 15.0
    one.points.append(Point(t_s=8.0, samples=10.0, value=4.0))

    early = contender_of(one, one.spec.scaling, None)
    one.points.append(Point(t_s=9.0, samples=20.0, value=2.0))
    late = contender_of(one, one.spec.scaling, None)

    assert (early.held, early.done_samples) == (2, 15.0)
    assert (early.total_samples, early.deadline_s) == (1e6, 99.0)
    assert early.target == Target(deliver=2.0, final=1.0, is_delivered=False)
    assert late.target == Target(deliver=2.0, final=1.0, is_delivered=True)


def test_a_contender_has_speeds_up_to_its_largest_size() -> None:
    scaling = Scaling("s", linear(most=8).samples_per_s, (1, 2))

    assert contender_of(run(), scaling, None).samples_per_s.tolist() == [0, 10, 20]


def test_what_is_rated_by_the_trainer_alone_is_rated_once() -> None:
    priority = Counting(Basis.TRAINER)
    worth = RatedOnce(priority, GivenSpeeds(), t_fwd_s=120.0)
    shared = linear()
    alike, heavy = run(1, scaling=shared), run(2, scaling=shared, weight=2.0)

    first = worth.curves(view([alike]))
    again = worth.curves(view([alike], now_s=60.0))
    more = worth.curves(view([alike, heavy, run(3, scaling=shared)]))

    assert len(priority.looks) == 2
    assert first[0] is again[0] is more[0] is more[2]
    assert more[1] is not more[0]


def test_what_changes_with_the_moment_is_rated_at_every_look_all_together() -> None:
    priority = Counting(Basis.MOMENT)
    worth = RatedAtEveryEvent(priority, GivenSpeeds(), None, t_fwd_s=120.0)
    team = [run(1), run(2)]

    first = worth.curves(view(team))
    again = worth.curves(view(team[1:], now_s=60.0))

    assert [len(look.contenders) for look in priority.looks] == [2, 1]
    assert [look.now_s for look in priority.looks] == [0.0, 60.0]
    assert priority.memories == [{}, {"asked": 1}]
    # The numbers are the same, so the object is: solvers keep what they derive.
    assert again[0] is first[1]
