"""Curves, the objective, checks of problems and plans, and node sets from counts."""

import math
from dataclasses import replace
from random import Random
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milp.answer import MalformedProblemError, Plan, assign, gap
from milp.exact import ExactSolver
from milp.planner import feasible_gains, greedy, reduce
from milp.problem import (
    NodeClass,
    Problem,
    ProblemTrainer,
    check_problem,
    custom,
    gain,
    gains,
    keep,
    loose_bound,
    plan_gain,
    speed_up,
    throughput,
    violations,
    weighted,
)
from tests.milp.planning_problems import many_class_problems, one_class_problems


def test_a_curve_cannot_be_written_to_and_keeps_its_own_copy() -> None:
    values = np.array([0.0, 1.0])
    curve = throughput(values)
    values[1] = 9.0

    assert curve.value_per_s[1] == 1.0
    assert not curve.value_per_s.flags.writeable
    assert curve.value_per_s.dtype == np.float64


def test_speed_up_over_no_work_is_refused() -> None:
    with pytest.raises(MalformedProblemError, match="no speed-up over 1 nodes"):
        speed_up([0.0, 0.0, 3.0])


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_not_above_0_is_refused(weight: float) -> None:
    with pytest.raises(MalformedProblemError, match="not above 0"):
        weighted(custom([0, 1]), weight)


@pytest.mark.parametrize(
    ("values", "sizes", "why"),
    [
        ([0.0], None, "at least 1 nodes"),
        ([[0.0, 1.0]], None, "shape"),
        ([1.0, 2.0], None, "0 at 0 nodes"),
        ([0.0, float("nan")], None, "1 not finite"),
        ([0.0, 1.0], [2], "do not fit"),
        ([0.0, 1.0], [0, 1], "do not fit"),
        ([0.0, 1.0], [], "do not fit"),
    ],
)
def test_a_curve_that_contradicts_itself_is_refused(
    values: list[float], sizes: list[int] | None, why: str
) -> None:
    with pytest.raises(MalformedProblemError, match=why):
        custom(values, sizes)


@pytest.mark.parametrize(
    ("held", "nodes", "worth"),
    [
        ((0,), 0, 0.0),
        ((0,), 3, 100 * 30.0 - 5 * 30.0),  # starting costs of the new worth
        ((1,), 3, 100 * 30.0 - 18 * 10.0),  # growing costs of the old worth
        ((3,), 1, 100 * 10.0 - 12 * 30.0),  # so does shrinking
        ((3,), 0, -12 * 30.0),
        ((3,), 3, 100 * 30.0),  # staying is free
        ((1, 2), 3, 100 * 30.0),  # a trainer holds the sum over classes
    ],
)
def test_gain_is_worth_over_the_look_ahead_less_the_cost_of_change(
    held: tuple[int, ...], nodes: int, worth: float
) -> None:
    curve = custom([0.0, 10.0, 15.0, 30.0], [1, 3])

    assert (
        gain(ProblemTrainer("t", curve, held, 18.0, 12.0, 5.0), nodes, 100.0) == worth
    )


@given(one_class_problems())
def test_gains_in_bulk_are_the_single_ones_to_the_last_bit(problem: Problem) -> None:
    for trainer in problem.trainers:
        for nodes, value in enumerate(gains(trainer, problem.t_fwd_s)):
            allowed = nodes == 0 or nodes in trainer.curve.sizes
            single = gain(trainer, nodes, problem.t_fwd_s)
            assert value == (single if allowed else -math.inf)


@pytest.mark.parametrize(
    ("gain", "bound", "expected"),
    [
        (90.0, 100.0, 0.1),
        (100.0, 100.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 5.0, 1.0),
        (-5.0, 5.0, 2.0),
        (-1.0, 99.0, 100.0 / 99.0),
        (-10.0, -8.0, 0.2),
        (-10.0, 0.0, 1.0),
    ],
)
def test_a_gap_is_the_missing_gain_over_the_larger_of_gain_and_bound(
    gain: float, bound: float, expected: float
) -> None:
    assert gap(gain, bound) == pytest.approx(expected)


def test_rounding_alone_makes_no_gap() -> None:
    assert gap(0.1 + 0.2, 0.3) == 0.0
    assert gap(0.3, 0.1 + 0.2) == 0.0


ANY_GAIN = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(ANY_GAIN, ANY_GAIN, st.floats(1e-3, 1e3))
def test_a_gap_is_between_0_and_2_in_any_unit(
    one: float, other: float, unit: float
) -> None:
    gain, bound = sorted((one, other))

    assert 0.0 <= gap(gain, bound) <= 2.0
    assert gap(unit * gain, unit * bound) == pytest.approx(gap(gain, bound), abs=1e-8)


CURVE = custom([0.0, 10.0, 15.0, 30.0, 31.0], [1, 2, 3])
# Two classes; "a" holds one node of each, "b" may use the second class only.
A = ProblemTrainer("a", CURVE, (1, 1), 18.0, 12.0)
B = ProblemTrainer("b", CURVE, (0, 0), 18.0, 12.0, usable=frozenset({1}))
PROBLEM = Problem((NodeClass("fast", 3), NodeClass("slow", 2)), (A, B), 100.0)
SOUND = Plan(((1, 1), (0, 1)), 1500.0 + 1000.0, 2500.0)


def test_a_sound_plan_of_a_sound_problem_passes() -> None:
    check_problem(PROBLEM)
    assert violations(PROBLEM, SOUND) == ()


@pytest.mark.parametrize(
    ("counts", "broken"),
    [
        (((1, 1), (0, 0.5)), "M1: b: 0.5 is not a whole number"),
        (((1, 1), (0, 0.5000001)), "M1: b: 0.5000001 is not a whole number"),
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
    plan = Plan(cast("tuple[tuple[int, ...], ...]", counts), 2500.0, math.inf)

    assert any(fault.startswith(broken) for fault in violations(PROBLEM, plan))


def test_leases_of_several_units_take_as_much_of_a_class() -> None:
    wide = replace(PROBLEM, trainers=(A, replace(B, widths=(1, 2))))

    (broken,) = violations(wide, SOUND)

    assert broken == "M3: 3 nodes given of class slow, which has 2"


@pytest.mark.parametrize(
    ("gain", "bound"),
    [
        (2499.0, math.inf),
        (2501.0, math.inf),
        (math.nan, math.inf),
        (math.inf, math.inf),
        (2500.0, 2400.0),
        (2500.0, math.nan),
    ],
)
def test_a_wrong_claim_of_gain_or_bound_is_refused(gain: float, bound: float) -> None:
    found = violations(PROBLEM, replace(SOUND, gain=gain, bound=bound))

    assert {fault[:2] for fault in found} == {"M6"}


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
        (replace(PROBLEM, trainers=(replace(A, widths=(1,)),)), r"widths \(1,\) for 2"),
        (replace(PROBLEM, trainers=(replace(A, widths=(0, 1)),)), "a has widths"),
        (replace(PROBLEM, trainers=(replace(A, widths=(4, 1)),)), "4 of 3 nodes held"),
    ],
)
def test_a_problem_that_contradicts_itself_is_refused(
    problem: Problem, fault: str
) -> None:
    with pytest.raises(MalformedProblemError, match=fault):
        check_problem(problem)


@pytest.mark.parametrize(
    ("sizes", "kept"), [(None, (1, 2)), ([2, 4], (1, 1))], ids=["a size", "no size"]
)
def test_the_present_plan_stays_and_off_its_sizes_gives_up_the_shortest_lived(
    sizes: list[int] | None, kept: tuple[int, int]
) -> None:
    curve = custom([0.0, 1.0, 2.0, 3.0, 4.0], sizes)
    trainer = ProblemTrainer("t", curve, (1, 2), 1.0, 1.0)
    classes = (NodeClass("long", 5, 900.0), NodeClass("short", 5, 60.0))

    assert keep(Problem(classes, (trainer,), 10.0)).counts == (kept,)


@given(many_class_problems())
def test_the_kept_plan_is_sound_and_the_greedy_one_too_and_gains_no_less(
    problem: Problem,
) -> None:
    kept = keep(problem)
    assert violations(problem, kept) == ()
    held = [sum(row) for row in kept.counts]

    rows, price = feasible_gains(problem), [0.0] * len(problem.classes)
    counts = greedy(problem, rows, targets=held, price=price)

    plan = Plan(tuple(map(tuple, counts)), plan_gain(problem, counts), math.inf)
    assert violations(problem, plan) == ()
    assert plan.gain >= kept.gain


def test_a_trainer_off_its_sizes_comes_to_one_whatever_counts_are_to_be_filled() -> (
    None
):
    curve = custom([0.0, 1.0, 2.0, 3.0, 4.0], [2, 4])
    off = ProblemTrainer("off", curve, (2, 1), 1.0, 1.0)
    other = ProblemTrainer("other", custom([0.0, 9.0]), (0, 0), 1.0, 1.0)
    problem = Problem((NodeClass("a", 2), NodeClass("b", 2)), (off, other), 10.0)
    rows = feasible_gains(problem)

    # As where a relaxed plan has 2 and 1.6 nodes for the one, 0.4 for the other.
    counts = greedy(
        problem, rows, targets=[4, 1], price=[0.0, 0.0], first=[[2, 1], [0, 1]]
    )

    assert counts == [[2, 2], [0, 0]]


@given(one_class_problems())
def test_any_price_gives_a_bound_and_a_sound_plan(problem: Problem) -> None:
    rows = feasible_gains(problem)
    best = ExactSolver().solve(problem)

    for price in (0.0, 1.0, 50.0, 5000.0):
        reduction = reduce(problem, rows, [price], [])

        plan = reduction.plan(proven=False)
        assert violations(problem, plan) == ()
        assert reduction.bound + reduction.rounding >= best.gain >= plan.gain
    assert loose_bound(problem) >= best.gain - reduction.rounding


@pytest.mark.parametrize(
    ("counts", "held", "free", "expected"),
    [
        # As in the published replay: the first shrinks by its lowest-numbered; the
        # others take the highest free.
        ([(1,), (2,), (2,)], [{3, 7, 5}, set(), {1}], [2, 9], [{7}, {9, 5}, {1, 3}]),
        ([(0, 2), (1, 0)], [{10}, set()], [1, 2, 11], [{10, 11}, {2}]),
    ],
    ids=["by node number", "classes do not mix"],
)
def test_nodes_are_given_by_rank_within_their_class(
    counts: list[tuple[int, ...]],
    held: list[set[int]],
    free: list[int],
    expected: list[set[int]],
) -> None:
    sets = assign(counts, held, free=free, rank=lambda n: n, class_of=lambda n: n // 10)

    assert [set(nodes) for nodes in sets] == expected


def test_more_nodes_than_there_are_is_refused() -> None:
    with pytest.raises(MalformedProblemError, match="needs 2 free nodes of class 0"):
        assign([(2,)], [set[int]()], free=[1], rank=lambda n: n)


@given(one_class_problems(), st.randoms())
def test_old_and_new_sets_are_nested_and_no_node_is_given_twice(
    problem: Problem, rng: Random
) -> None:
    nodes = list(range(problem.classes[0].nodes))
    rng.shuffle(nodes)
    left = iter(nodes)
    held = [{next(left) for _ in range(t.held[0])} for t in problem.trainers]
    plan = ExactSolver().solve(problem)

    sets = assign(plan.counts, held, free=list(left), rank=lambda n: n)

    assert [len(own) for own in sets] == [row[0] for row in plan.counts]
    assert all(new <= old or old <= new for old, new in zip(held, sets, strict=True))
    assert len(frozenset().union(*sets)) == sum(map(len, sets))
