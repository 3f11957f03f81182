"""How far a tick's plan is from the best: equal shares, and the background's part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from freetrain.tick.planners import EqualShares, InOrder
from milp.planner import Answer, Judged
from milp.problem import NodeClass, Problem, TrainerState, gap, throughput
from milp.verify import loose_bound, plan_gain
from tests.milp.planning_problems import problems

CURVE = throughput([0.0, 1.0, 2.0])


@given(problem=problems())
def test_equal_shares_are_held_against_what_all_would_gain_at_their_best(
    problem: Problem,
) -> None:
    answer = EqualShares().plan(problem)

    assert answer.plan.gain == plan_gain(problem, answer.plan.counts)
    assert answer.plan.bound == max(answer.plan.gain, loose_bound(problem))
    assert answer.gap == gap(answer.plan.gain, answer.plan.bound)


class ByLives:
    """Equal shares, said to gain 8 of 10 by an objective of their own."""

    def plan(self, problem: Problem) -> Answer:
        answer = EqualShares().plan(problem)
        return replace(
            answer, by_own=Judged(8.0, 10.0), reason=str(len(problem.trainers))
        )


class ByLivesWhereTwo(ByLives):
    """The same for two trainers, and none for others."""

    def plan(self, problem: Problem) -> Answer:
        two = len(problem.trainers) == 2
        return super().plan(problem) if two else EqualShares().plan(problem)


def test_the_background_counts_by_what_the_others_left_it() -> None:
    classes = (NodeClass("any", 6),)
    team = tuple(TrainerState(name, CURVE, (0,), 1.0, 1.0) for name in "abc")
    problem = Problem(classes, team, 100.0)

    answer = InOrder(ByLives(), frozenset({"c"})).plan(problem)
    mixed = InOrder(ByLivesWhereTwo(), frozenset({"c"})).plan(problem)

    assert answer.by_own == Judged(16.0, 20.0)
    assert answer.gap == pytest.approx(0.2)
    # What was made by two objectives is held against the published one.
    assert mixed.by_own is None
    assert mixed.gap == gap(mixed.plan.gain, loose_bound(problem))


def test_plans_of_the_published_objective_stay_so_with_a_background() -> None:
    team = tuple(TrainerState(name, CURVE, (0,), 1.0, 1.0) for name in "abc")
    problem = Problem((NodeClass("any", 6),), team, 100.0)

    for planner, is_m0 in ((EqualShares(), True), (ByLives(), False)):
        answer = InOrder(planner, frozenset({"c"})).plan(problem)
        assert answer.is_by_m0 is is_m0
