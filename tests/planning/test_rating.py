"""What a priority says of trainers, and what the planner is given of it."""

from collections.abc import Collection, Mapping

import numpy as np

from freetrain.planning.rating import Ratings, rate
from freetrain.priority.base import (
    Contender,
    Memory,
    Rating,
    RatingBasis,
    RatingInputs,
    RatingResult,
)
from milp.problem import throughput

CURVE = throughput([0.0, 5.0, 8.0])


class Scripted:
    """A priority that says what it is told to, and keeps what it saw."""

    name = "scripted"
    basis = RatingBasis.MOMENT

    def __init__(self, ratings: Mapping[str, Rating]) -> None:
        self.looks: list[tuple[RatingInputs, Memory]] = []
        self._ratings = ratings

    def rate(self, look: RatingInputs, memory: Memory, /) -> RatingResult:
        self.looks.append((look, memory))
        usual = Rating(curve=CURVE, reason="so it is")
        ratings = [self._ratings.get(one.name, usual) for one in look.contenders]
        return RatingResult(tuple(ratings), {"looks": len(self.looks)})


def rated(
    *names: str,
    ratings: Mapping[str, Rating] | None = None,
    background: Collection[str] | None = None,
) -> Ratings:
    contenders = tuple(
        Contender(
            name=name,
            sizes=(1, 2),
            samples_per_s=np.array([0.0, 5.0, 8.0]),
            held=0,
            done_samples=0.0,
        )
        for name in names
    )
    look = RatingInputs(now_s=5.0, contenders=contenders, nodes=8, t_fwd_s=120.0)
    return rate(look, Scripted(ratings or {}), {"was": 1}, background=background)


SOME = {
    "rated": Rating(curve=CURVE, is_background=True, reason="it diverges"),
    "floored": Rating(curve=CURVE, floor=1),
}


def test_the_background_is_that_of_job_files_and_of_ratings() -> None:
    names = ("normal", "asked", "rated", "floored")

    ratings = rated(*names, ratings=SOME, background=["asked"])

    assert ratings.background == {"asked", "rated"}
    assert ratings.curves["rated"] is CURVE, "being last is enough"
    assert ratings.curves["floored"].value_per_s[1] > 4 * CURVE.value_per_s[1]
    assert ratings.reasons["rated"] == "it diverges"


def test_where_all_are_planned_together_curves_say_who_comes_last() -> None:
    ratings = rated("normal", "rated", ratings=SOME)

    assert not ratings.background
    lowered = ratings.curves["rated"].value_per_s
    assert 0.0 < lowered[2] < 1e-3 * CURVE.value_per_s[2]
    assert ratings.curves["normal"] is CURVE


def test_a_priority_is_given_its_memory_and_what_it_returns_is_kept() -> None:
    priority = Scripted({})
    look = RatingInputs(now_s=5.0, contenders=(), nodes=8, t_fwd_s=120.0)

    ratings = rate(look, priority, {"was": 1})

    assert priority.looks == [(look, {"was": 1})]
    assert ratings.memory == {"looks": 1}
    assert ratings.curves == {}
    assert ratings.background == frozenset()
