"""What the checks refuse, and the plan that changes nothing."""

import math
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given

from milp.answer import MalformedProblemError, Plan
from milp.exact import ExactSolver
from milp.planner import feasible_gains, greedy, reduce
from milp.problem import (
    NodeClass,
    Problem,
    ProblemTrainer,
    check_problem,
    custom,
    keep,
    loose_bound,
    plan_gain,
    violations,
)
from tests.milp.planning_problems import many_class_problems, one_class_problems

CURVE = custom([0.0, 10.0, 15.0, 30.0, 31.0], [1, 2, 3])
# Two classes; "a" holds one node of each, "b" may use the second class only.
A = ProblemTrainer("a", CURVE, (1, 1), 18.0, 12.0)
B = ProblemTrainer("b", CURVE, (0, 0), 18.0, 12.0, usable=frozenset({1}))
PROBLEM = Problem((NodeClass("fast", 3), NodeClass("slow", 2)), (A, B), 100.0)
SOUND = Plan(((1, 1), (0, 1)), 1500.0 + 1000.0, 2500.0)


Counts = tuple[tuple[int, ...], ...]


def with_counts(counts: object) -> Plan:
    return Plan(cast("Counts", counts), 2500.0, math.inf)


def test_a_sound_plan_breaks_nothing() -> None:
    assert violations(PROBLEM, SOUND) == ()


@pytest.mark.parametrize(
    ("counts", "broken"),
    [
        (((1, 1), (0, 0.5)), "M1: b: 0.5 is not a whole number"),
        (((1, 1), (0, -1)), "M1: b: -1 is not a whole number"),
        (((1, 1), (0, True)), "M1: b: True is not a whole number"),
        (((1, 1),), "M1: 1 rows for 2 trainers"),
        (((1, 1), (0, 1, 0)), "M1: b: 3 counts for 2 classes"),
        (((3, 1), (0, 1)), "M2: a: 4 nodes is not a size"),
        (((1, 2), (0, 1)), "M3: 3 nodes given of class slow, which has 2"),
        (((2, 0), (0, 1)), "M4: a: goes from 2 to 2 nodes, but from 1 to 2"),
        (((3, 0), (0, 1)), "M4: a: goes from 2 to 3 nodes, but from 1 to 0"),
        (((1, 1), (1, 0)), "M5: b: 1 nodes of class 0, not usable"),
    ],
)
def test_each_broken_constraint_is_named(counts: object, broken: str) -> None:
    found = violations(PROBLEM, with_counts(counts))

    assert any(one.startswith(broken) for one in found), found


def test_a_fractional_point_is_refused_every_time() -> None:
    half = with_counts(((1, 1), (0, 0.5000001)))

    assert all(violations(PROBLEM, half) for _ in range(20))


@pytest.mark.parametrize("gain", [2499.0, 2501.0, math.nan, math.inf])
def test_a_wrong_claim_of_gain_is_refused(gain: float) -> None:
    found = violations(PROBLEM, replace(SOUND, gain=gain, bound=math.inf))

    assert {one[:2] for one in found} == {"M6"}


@pytest.mark.parametrize("bound", [2400.0, math.nan])
def test_a_bound_under_the_gain_is_refused(bound: float) -> None:
    found = violations(PROBLEM, replace(SOUND, bound=bound))

    assert [one[:2] for one in found] == ["M6"]


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        (replace(PROBLEM, t_fwd_s=-1.0), "look-ahead of -1.0"),
        (replace(PROBLEM, t_fwd_s=math.nan), "look-ahead of nan"),
        (replace(PROBLEM, trainers=(A, A)), "one name"),
        (replace(PROBLEM, trainers=(replace(A, held=(1,)),)), r"a holds \(1,\)"),
        (replace(PROBLEM, trainers=(replace(A, held=(-1, 2)),)), "a holds"),
        (replace(PROBLEM, trainers=(replace(A, held=(3, 2)),)), "curve reaches"),
        (replace(PROBLEM, trainers=(replace(A, held=(0, 3)),)), "3 of 2 nodes held"),
        (replace(PROBLEM, trainers=(replace(A, up_s=-1.0),)), "costs of"),
    ],
)
def test_a_problem_that_contradicts_itself_is_refused(
    problem: Problem, fault: str
) -> None:
    with pytest.raises(MalformedProblemError, match=fault):
        check_problem(problem)


def test_a_sound_problem_passes() -> None:
    check_problem(PROBLEM)


@given(many_class_problems())
def test_the_kept_plan_breaks_nothing(problem: Problem) -> None:
    assert violations(problem, keep(problem)) == ()


def test_what_is_held_stays_as_it_is() -> None:
    curve = custom([0.0, 1.0, 2.0, 3.0])
    trainer = ProblemTrainer("t", curve, (1, 2), 1.0, 1.0)
    problem = Problem((NodeClass("a", 5), NodeClass("b", 5)), (trainer,), 10.0)

    assert keep(problem).counts == ((1, 2),)


def test_a_trainer_off_its_sizes_gives_up_the_shortest_lived_nodes() -> None:
    curve = custom([0.0, 1.0, 2.0, 3.0, 4.0], [2, 4])
    trainer = ProblemTrainer("t", curve, (1, 2), 1.0, 1.0)
    classes = (NodeClass("long", 5, 900.0), NodeClass("short", 5, 60.0))

    assert keep(Problem(classes, (trainer,), 10.0)).counts == ((1, 1),)


@given(many_class_problems())
def test_greedy_breaks_nothing_and_gains_no_less_than_keeping(
    problem: Problem,
) -> None:
    rows = feasible_gains(problem)
    kept = keep(problem)
    held = [sum(row) for row in kept.counts]

    counts = greedy(problem, rows, targets=held, price=[0.0] * len(problem.classes))
    gain = plan_gain(problem, counts)

    assert violations(problem, Plan(tuple(map(tuple, counts)), gain, math.inf)) == ()
    assert gain >= kept.gain


@given(one_class_problems())
def test_any_price_gives_a_bound_and_the_plan_known_breaks_nothing(
    problem: Problem,
) -> None:
    rows = feasible_gains(problem)
    best = ExactSolver().solve(problem)

    for price in (0.0, 1.0, 50.0, 5000.0):
        reduction = reduce(problem, rows, [price], [])

        plan = reduction.plan(proven=False)
        assert violations(problem, plan) == ()
        assert reduction.bound + reduction.rounding >= best.gain >= plan.gain
    assert loose_bound(problem) >= best.gain - reduction.rounding
