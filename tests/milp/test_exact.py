"""The exact solver against the textbook dynamic program, ties included."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milp.answer import MalformedProblemError
from milp.exact import ExactSolver, Limit, SizeTable, search_all
from milp.problem import (
    Curve,
    NodeClass,
    Problem,
    ProblemTrainer,
    custom,
    gain,
    plan_gain,
)
from tests.milp.planning_problems import one_class_problems


def plain_best(problem: Problem) -> tuple[list[int], float]:
    """The textbook dynamic program, one cell at a time (docs/reference/model.md, E1).

    Each trainer in order takes the smallest count that is best for the pool
    that is left; written out without NumPy so that it shares nothing with the
    solver but the gain.
    """
    pool = problem.classes[0].nodes
    best = [0.0] * (pool + 1)
    choices: list[list[int]] = []
    for trainer in problem.trainers:
        after, choice = [], []
        for left in range(pool + 1):
            options = [0, *(n for n in trainer.curve.sizes if n <= left)]
            values = [
                best[left - n] + gain(trainer, n, problem.t_fwd_s) for n in options
            ]
            after.append(max(values))
            choice.append(options[values.index(max(values))])
        best = after
        choices.append(choice)
    left, counts = pool, []
    for choice in reversed(choices):
        counts.append(choice[left])
        left -= counts[-1]
    return counts[::-1], best[pool]


def assert_plain_best(problem: Problem) -> None:
    counts, value = plain_best(problem)

    plan = ExactSolver().solve(problem)

    assert [row[0] for row in plan.counts] == counts
    assert plan.gain == value == plan_gain(problem, plan.counts) == plan.bound


@settings(max_examples=200)
@given(one_class_problems())
def test_exact_gives_each_trainer_the_count_of_the_plain_dynamic_program(
    problem: Problem,
) -> None:
    assert_plain_best(problem)


@given(one_class_problems())
def test_the_search_by_arrays_without_a_limit_is_the_plain_dynamic_program(
    problem: Problem,
) -> None:
    table = SizeTable()
    priced = table.priced(table.rows_of(problem), 0.0)
    everything = Limit(math.inf, 0.0, problem.classes[0].nodes)

    found = search_all([row.within(math.inf) for row in priced], everything)

    assert found == plain_best(problem)


@st.composite
def ragged_curves(draw: st.DrawFn) -> Curve:
    """Thirty-odd sizes on one line, some of them off it by a little."""
    steps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.25, -0.5]), min_size=30))
    return custom([0.0, *(n * 10.0 + off for n, off in enumerate(steps, start=1))])


def problem_of(several: list[Curve], held: list[int], nodes: int) -> Problem:
    trainers = tuple(
        ProblemTrainer(f"t{k}", several[k % len(several)], (n,), 18.0, 12.0)
        for k, n in enumerate(held)
    )
    return Problem((NodeClass("idle", nodes),), trainers, 120.0)


@settings(max_examples=60)
@given(
    st.lists(ragged_curves(), min_size=1, max_size=4),
    st.lists(st.integers(0, 12), min_size=2, max_size=9),
    st.integers(0, 60),
)
def test_ties_of_ragged_and_repeated_curves_are_broken_as_by_the_plain_program(
    several: list[Curve], held: list[int], free: int
) -> None:
    assert_plain_best(problem_of(several, held, sum(held) + free))


@pytest.mark.parametrize(
    ("nodes", "trainers", "held"),
    [(90, 12, 5), (150, 10, 12), (33, 30, 1), (700, 9, 8)],
)
def test_ties_of_identical_trainers_are_broken_as_by_the_plain_program(
    nodes: int, trainers: int, held: int
) -> None:
    curve = custom([min(n, 8) * 10.0 + max(0, n - 8) * 7.0 for n in range(65)])
    each = [held if k % 3 else 0 for k in range(trainers)]

    assert_plain_best(problem_of([curve], each, nodes))


@given(st.lists(one_class_problems(), max_size=6))
def test_answers_do_not_depend_on_earlier_calls(several: list[Problem]) -> None:
    solver = ExactSolver()

    for problem in several:
        assert solver.solve(problem) == ExactSolver().solve(problem)


@given(one_class_problems())
def test_the_same_trainers_are_planned_anew_for_other_nodes_and_another_look_ahead(
    problem: Problem,
) -> None:
    solver = ExactSolver()
    more = NodeClass("more", problem.classes[0].nodes + 2)
    longer = replace(problem, t_fwd_s=10.0 * problem.t_fwd_s + 10.0)

    for asked in (problem, replace(problem, classes=(more,)), longer, problem):
        assert solver.solve(asked) == ExactSolver().solve(asked)


def test_a_trainer_that_may_use_no_class_gets_nothing_unlike_its_equal() -> None:
    usual = ProblemTrainer("t", custom([0.0, 5.0]), (0,), 1.0, 1.0)
    barred = replace(usual, usable=frozenset())
    solver = ExactSolver()

    for trainers, counts in (
        ((usual,), ((1,),)),
        ((barred,), ((0,),)),
        ((), ()),
    ):
        plan = solver.solve(Problem((NodeClass("idle", 4),), trainers, 10.0))
        assert plan.counts == counts
    assert plan.gain == 0.0


def test_several_classes_are_refused() -> None:
    two = (NodeClass("fast", 1), NodeClass("slow", 1))

    with pytest.raises(MalformedProblemError, match="this problem has 2"):
        ExactSolver().solve(Problem(two, (), 10.0))
