"""Equal shares, and the background that gets what they leave."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.planning.equal import Equal, equal_counts
from freetrain.planning.policy import Planned, Request, plan_in_order
from milp.answer import Judged, PlanStatus, gap
from milp.problem import (
    NodeClass,
    Problem,
    ProblemTrainer,
    as_one_class,
    loose_bound,
    plan_gain,
    throughput,
    violations,
)
from tests.milp.planning_problems import problems
from tests.planning.requests import TOOLS, plan_of, request_from

CURVE = throughput([0.0, 1.0, 2.0])


def test_an_equal_share_gives_the_remainder_to_the_first() -> None:
    sizes = [range(1, 65)] * 4

    assert equal_counts(sizes, 11) == [3, 3, 3, 2]
    assert equal_counts(sizes, 2) == [1, 1, 0, 0]
    assert equal_counts(sizes, 300) == [64, 64, 64, 64]


def test_an_equal_share_keeps_to_sizes_that_trainers_can_run_on() -> None:
    powers = (1, 2, 4, 8)

    # Level 3: 2 + 2 + 3 nodes; of the 4 that remain, 2 lift the first to 4, and
    # then 2 lift the second; none is left for the third.
    assert equal_counts([powers, powers, range(1, 9)], 11) == [4, 4, 3]
    # Nobody runs on less than 4, so one trainer gets 4 and the other waits.
    assert equal_counts([(4, 8), (4, 8)], 7) == [4, 0]


@given(st.integers(1, 50), st.integers(1, 300), st.integers(1, 70))
def test_an_equal_share_of_plain_trainers_is_a_division(
    trainers: int, pool: int, most: int
) -> None:
    share, more = divmod(pool, trainers)

    counts = equal_counts([range(1, most + 1)] * trainers, pool)

    assert counts == [min(most, share + (k < more)) for k in range(trainers)]


@given(problem=problems())
def test_equal_shares_break_no_constraint_and_are_held_against_the_best(
    problem: Problem,
) -> None:
    request = request_from(problem)

    planned = Equal(TOOLS).plan(request)

    plan = plan_of(planned, request, problem)
    assert violations(problem, plan) == ()
    assert planned.outcome is not PlanStatus.KEPT
    bound = max(plan.gain, loose_bound(problem))
    assert planned.gap == gap(plan_gain(problem, plan.counts), bound)


@given(problem=problems())
def test_equal_shares_of_one_kind_of_node_are_alike_in_ticks_and_replays(
    problem: Problem,
) -> None:
    alike = as_one_class(problem)

    tick, replay = (
        Equal(replace(TOOLS, verifies=verifies)).plan(request_from(alike))
        for verifies in (True, False)
    )

    assert list(tick.holdings) == list(replay.holdings)


@given(problem=problems(), data=st.data())
def test_the_background_takes_nothing_from_the_others(
    problem: Problem, data: st.DataObject
) -> None:
    names = [trainer.name for trainer in problem.trainers]
    last = data.draw(
        st.frozensets(st.sampled_from(names)) if names else st.just(frozenset())
    )
    first = tuple(t for t in problem.trainers if t.name not in last)
    request = request_from(problem, background=last)

    planned = Equal(TOOLS).plan(request)
    alone = Equal(TOOLS).plan(request_from(replace(problem, trainers=first)))

    assert violations(problem, plan_of(planned, request, problem)) == ()
    if planned.outcome is not PlanStatus.KEPT:
        own = zip(names, planned.holdings, strict=True)
        assert [sum(held.values()) for name, held in own if name not in last] == [
            sum(held.values()) for held in alone.holdings
        ]


def by_lives(request: Request) -> Planned:
    """Return equal shares, said to gain 8 of 10 by an objective of their own."""
    planned = Equal(TOOLS).plan(request)
    return replace(planned, judged=Judged(8.0, 10.0))


def by_lives_where_two(request: Request) -> Planned:
    two = len(request.trainers) == 2
    return by_lives(request) if two else Equal(TOOLS).plan(request)


def test_the_background_counts_by_what_the_others_left_it() -> None:
    classes = (NodeClass("any", 6),)
    team = tuple(ProblemTrainer(name, CURVE, (0,), 1.0, 1.0) for name in "abc")
    problem = Problem(classes, team, 100.0)
    request = request_from(problem, background=frozenset({"c"}))

    planned = plan_in_order(by_lives, request)
    mixed = plan_in_order(by_lives_where_two, request)

    assert planned.judged == Judged(16.0, 20.0)
    assert planned.gap == pytest.approx(0.2)
    # What was made by two objectives is held against the published one.
    assert mixed.is_by_m0
    plan = plan_of(mixed, request, problem)
    assert mixed.gap == gap(plan.gain, loose_bound(problem))


def test_plans_of_the_published_objective_stay_so_with_a_background() -> None:
    team = tuple(ProblemTrainer(name, CURVE, (0,), 1.0, 1.0) for name in "abc")
    problem = Problem((NodeClass("any", 6),), team, 100.0)
    request = request_from(problem, background=frozenset({"c"}))

    for plan, is_m0 in ((Equal(TOOLS).plan, True), (by_lives, False)):
        assert plan_in_order(plan, request).is_by_m0 is is_m0
