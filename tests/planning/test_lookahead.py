"""Published counts that a search by forecasts starts from: asked for once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.planning.lookahead import KnownTrainer, KnownTrainers, Starts
from freetrain.planning.policy import PlanTrainer
from milp.answer import Answer, PlanStatus
from milp.planner import Planner
from milp.problem import NodeClass, Problem, custom

HORIZON_S = 50.0
CURVES = (custom([0.0, 10.0, 19.0, 27.0]), custom([0.0, 10.0, 20.0], (2,)))
COSTS = ((0.0, 0.0, 0.0), (4.0, 2.0, 3.0), (4.0, 2.0, 9.0))
Team = list[tuple[int, int, int]]
Asked = tuple[Team, int, float]

# Few sizes of few kinds, so that the same is asked again and again.
teams = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), max_size=4
)
moments = st.lists(st.tuples(teams, st.integers(0, 2)), max_size=12)


class Counting(Planner):
    """Counts how often it is asked."""

    calls = 0

    def plan(self, problem: Problem) -> Answer:
        self.calls += 1
        return super().plan(problem)


class Stopped(Counting):
    """Proves nothing."""

    def plan(self, problem: Problem) -> Answer:
        return replace(super().plan(problem), outcome=PlanStatus.INCUMBENT)


def known(trainers: KnownTrainers, team: Team) -> list[KnownTrainer]:
    """Return trainers of curves, costs and counts as *team* says."""
    return trainers.of(
        [
            PlanTrainer(
                name=str(place),
                curve=CURVES[curve],
                held={place: held} if held else {},
                up_s=COSTS[costs][0],
                down_s=COSTS[costs][1],
                start_s=COSTS[costs][2],
            )
            for place, (curve, costs, held) in enumerate(team)
        ]
    )


@given(moments)
def test_counts_that_are_known_are_those_that_would_be_answered_anew(
    asked: list[tuple[Team, int]],
) -> None:
    starts, trainers = Starts(Planner()), KnownTrainers()
    for team, spare in asked:
        own = known(trainers, team)
        nodes = spare + sum(held for _, _, held in team)

        states = tuple(one.state for one in own)
        fresh = Planner().plan(
            Problem((NodeClass("idle", nodes),), states, t_fwd_s=HORIZON_S)
        )
        counts = starts.counts(own, nodes, HORIZON_S)
        assert list(counts) == [n for (n,) in fresh.plan.counts]


ALIKE: list[Asked] = [([(0, 0, 1), (1, 1, 2)], 4, HORIZON_S)]
DIFFERENT: list[Asked] = [
    ([(0, 0, 1)], 2, 120.0),
    ([(0, 0, 1)], 3, 120.0),
    ([(0, 0, 2)], 3, 120.0),
    ([(1, 0, 2)], 3, 120.0),
    ([(1, 1, 2)], 3, 120.0),
    ([(1, 2, 2)], 3, 120.0),
    ([(1, 1, 2)], 3, 500.0),
]


@pytest.mark.parametrize(
    ("solver", "asked", "calls"),
    [(Counting(), ALIKE * 2, 1), (Stopped(), ALIKE * 2, 2), (Counting(), DIFFERENT, 7)],
    ids=[
        "the same is asked once",
        "an answer that is not proven is asked for again",
        "another pool, count, curve, cost or look-ahead is asked anew",
    ],
)
def test_the_published_planner_is_asked(
    solver: Counting, asked: list[Asked], calls: int
) -> None:
    starts, trainers = Starts(solver), KnownTrainers()
    for team, nodes, t_fwd_s in asked:
        starts.counts(known(trainers, team), nodes, t_fwd_s)

    assert solver.calls == calls


def test_what_is_derived_from_a_trainer_is_derived_once() -> None:
    trainers = KnownTrainers()
    one = PlanTrainer(
        name="a",
        curve=CURVES[0],
        held={7: 2, 8: 1},
        up_s=2.0,
        down_s=3.0,
        start_s=4.0,
        loss_s=8.0,
    )

    (first,), (again,) = trainers.of([one]), trainers.of([one])

    assert again is first
    holder, state = first.holder, first.state
    assert holder.held == {7: 2, 8: 1}
    assert (holder.up_s, holder.down_s, holder.start_s, holder.loss_s) == (2, 3, 4, 8)
    assert state.held == (3,)
    assert (state.up_s, state.down_s, state.start_s) == (2, 3, 4)
