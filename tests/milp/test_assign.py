from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milp.answer import MalformedProblemError, assign
from milp.exact import ExactSolver
from milp.problem import Problem
from tests.milp.planning_problems import one_class_problems


def test_shrinking_drops_what_dies_first_and_growing_takes_what_lives_longest() -> None:
    life_s = {"a": 10, "b": 30, "c": 20, "d": 5, "e": 40}

    sets = assign([(1,), (2,)], [{"a", "b"}, {"c"}], free="de", rank=life_s.__getitem__)

    assert [set(one) for one in sets] == [{"b"}, {"c", "e"}]


def test_by_node_number_it_does_what_the_published_replay_does() -> None:
    # The first shrinks by its lowest-numbered; the others take the highest free.
    sets = assign(
        [(1,), (2,), (2,)], [{3, 7, 5}, set(), {1}], free=[2, 9], rank=lambda n: n
    )

    assert [set(one) for one in sets] == [{7}, {9, 5}, {1, 3}]


def test_classes_do_not_mix() -> None:
    sets = assign(
        [(0, 2), (1, 0)],
        [{10}, set()],
        free=[1, 2, 11],
        rank=lambda n: n,
        class_of=lambda n: n // 10,
    )

    assert [set(one) for one in sets] == [{10, 11}, {2}]


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

    assert [len(one) for one in sets] == [row[0] for row in plan.counts]
    assert all(new <= old or old <= new for old, new in zip(held, sets, strict=True))
    assert len(frozenset().union(*sets)) == sum(map(len, sets))
