"""How often a priority is asked, and with whom."""

from freetrain.priority.base import (
    Memory,
    Rating,
    RatingBasis,
    RatingInputs,
    RatingResult,
)
from freetrain.replay.policies.ratings import (
    GivenSpeeds,
    RatedAtEveryEvent,
    RatedOnce,
)
from milp.problem import throughput
from tests.replay.worlds import linear, run, view


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
