"""Leases of several widths on shared nodes: the best plan, and one that can be packed.

The yardstick places leases on pieces of nodes (``tests/milp/shared_model.py``).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milp.answer import Plan, PlanStatus
from milp.exact import ExactSolver
from milp.planner import Planner, SolverName, node_costs, plan_counts
from milp.problem import (
    NodeClass,
    Problem,
    ProblemTrainer,
    as_one_class,
    check_problem,
    constraint_violations,
    custom,
    gain,
    keep,
    plan_gain,
    violations,
)
from milp.program import COUNT_OPTIONS, Cbc
from tests.milp.shared_model import best_gain, blocks_as_pieces, nodes_as_pieces
from tests.milp.shared_nodes import (
    COSTS_S,
    SharedProblem,
    curve_at_random,
    key_of,
    shared_at_random,
)

# Unlike composite strategies these seldom draw the smallest problems, of no nodes or
# trainers, which decide nothing here.
RANDOM = st.randoms(use_true_random=True)


def is_same(gain: float, other: float) -> bool:
    return math.isclose(gain, other, rel_tol=1e-6, abs_tol=1e-6)


def best_plan(problem: Problem) -> Plan:
    answer = Planner(limit_s=60.0).plan(problem)
    assert answer.outcome is PlanStatus.PROVEN
    assert violations(problem, answer.plan) == ()
    assert answer.plan.gain >= keep(problem).gain
    return answer.plan


@settings(max_examples=300, deadline=None)
@given(RANDOM)
def test_a_plan_gains_as_much_as_the_best_one_that_places_leases_on_blocks(
    rng: Random,
) -> None:
    shared = shared_at_random(rng)
    plan = best_plan(shared.problem)

    pieces = blocks_as_pieces(shared)
    best = best_gain(shared.trainers, pieces, shared.problem.t_fwd_s)
    assert is_same(plan.gain, best)


@settings(max_examples=100, deadline=None)
@given(RANDOM)
def test_cutting_nodes_into_blocks_loses_nothing_where_no_lease_is_held(
    rng: Random,
) -> None:
    shared = shared_at_random(rng, are_held=False)
    plan = best_plan(shared.problem)

    pieces = nodes_as_pieces(shared)
    best = best_gain(shared.trainers, pieces, shared.problem.t_fwd_s)
    assert is_same(plan.gain, best)


def place(
    shared: SharedProblem, counts: Sequence[Sequence[int]]
) -> list[tuple[int, int, int]]:
    """Return trainer, node and GPU of all that leases take, or fail.

    Trainers that shrink give up any leases of the class; then leases are started, the
    widest first, on any block of the class that has room.
    """
    first_gpu, next_gpu = list[int](), Counter[int]()
    for block in shared.blocks:
        first_gpu.append(next_gpu[block.node])
        next_gpu[block.node] += block.size
    taken = [0] * len(shared.blocks)
    placed, starting = list[tuple[int, int, int]](), list[tuple[int, int, int]]()

    def lease(j: int, i: int, width: int) -> None:
        begin = first_gpu[i] + taken[i]
        gpus = range(begin, begin + width)
        placed.extend((j, shared.blocks[i].node, gpu) for gpu in gpus)
        taken[i] += width

    for (j, row), (k, key) in product(enumerate(counts), enumerate(shared.keys)):
        own = [
            i
            for i, block in enumerate(shared.blocks)
            if block.holder == j and key_of(block) == key
        ]
        width = shared.trainers[j].widths[key[2]]
        for i in own[: row[k]]:
            lease(j, i, width)
        starting += [(width, j, k)] * (row[k] - len(own))
    for width, j, k in sorted(starting, reverse=True):
        i = next(
            i
            for i, block in enumerate(shared.blocks)
            if key_of(block) == shared.keys[k] and taken[i] + width <= block.size
        )
        lease(j, i, width)
    return placed


@settings(max_examples=200, deadline=None)
@given(RANDOM)
def test_a_plan_for_classes_of_blocks_can_be_placed_on_the_gpus_of_nodes(
    rng: Random,
) -> None:
    shared = shared_at_random(rng, nodes=8, trainers=6)
    counts = best_plan(shared.problem).counts

    placed = place(shared, counts)

    gpus = [(node, gpu) for _, node, gpu in placed]
    assert len(set(gpus)) == len(gpus)
    used = Counter(node for node, _ in gpus)
    for at, piece in enumerate(nodes_as_pieces(shared)):
        assert used[at] <= piece.size


def wide_problem(
    rng: Random, pools: Sequence[int], *, trainers: int = 3, most: int = 8
) -> Problem:
    """Return a problem of any widths, whether its leases could be packed or not.

    Args:
        rng: Randomness.
        pools: Most units of each class that no trainer holds.
        trainers: Most trainers.
        most: Most leases of a trainer.
    """
    every = range(len(pools))
    units = [rng.randint(0, free) for free in pools]
    team = []
    for place in range(rng.randint(1, trainers)):
        curve = curve_at_random(rng, most)
        room, held = len(curve.value_per_s) - 1, list[int]()
        for _ in every:
            held.append(rng.randint(0, room) if rng.random() < 0.4 else 0)
            room -= held[-1]
        widths = tuple(rng.choices((1, 1, 2, 3, 4), k=len(pools)))
        usable = frozenset(rng.sample(every, rng.randint(0, len(pools))))
        trainer = ProblemTrainer(
            f"t{place}",
            curve,
            tuple(held),
            rng.choice(COSTS_S),
            rng.choice(COSTS_S),
            rng.choice(COSTS_S),
            usable=rng.choice((None, usable)),
            widths=rng.choice((None, widths, widths)),
        )
        team.append(trainer)
        for k in every:
            units[k] += held[k] * trainer.width(k)
    classes = tuple(NodeClass(f"c{k}", own) for k, own in enumerate(units))
    return Problem(classes, tuple(team), rng.choice((1.0, 10.0, 120.0)))


def every_plan(problem: Problem) -> Iterator[list[tuple[int, ...]]]:
    """Yield all plans that break no constraint, by trying all counts."""
    rows = [
        [
            row
            for row in product(
                *[
                    range(c.nodes // t.width(k) + 1)
                    for k, c in enumerate(problem.classes)
                ]
            )
            if not constraint_violations(_alone(problem, t), [row])
        ]
        for t in problem.trainers
    ]

    def complete(
        chosen: list[tuple[int, ...]], left: list[int]
    ) -> Iterator[list[tuple[int, ...]]]:
        if len(chosen) == len(rows):
            yield chosen
            return
        trainer = problem.trainers[len(chosen)]
        for row in rows[len(chosen)]:
            after = [
                own - n * trainer.width(k)
                for k, (own, n) in enumerate(zip(left, row, strict=True))
            ]
            if min(after) >= 0:
                yield from complete([*chosen, row], after)

    yield from complete([], [c.nodes for c in problem.classes])


def _alone(problem: Problem, trainer: ProblemTrainer) -> Problem:
    return Problem(problem.classes, (trainer,), problem.t_fwd_s)


@settings(max_examples=300, deadline=None)
@given(RANDOM)
def test_with_any_widths_a_plan_gains_as_much_as_the_best_of_all_plans(
    rng: Random,
) -> None:
    problem = wide_problem(rng, (5, 4), most=4)
    plan = best_plan(problem)

    best = max(plan_gain(problem, counts) for counts in every_plan(problem))
    assert is_same(plan.gain, best)


def plain_counts(problem: Problem) -> list[int]:
    """Return the plan of the textbook dynamic program over the units of one class."""
    pool = problem.classes[0].nodes
    best, choices = [0.0] * (pool + 1), []
    for trainer in problem.trainers:
        width, after, choice = trainer.width(0), [], []
        sizes = () if trainer.usable == frozenset() else trainer.curve.sizes
        for left in range(pool + 1):
            options = [0, *(n for n in sizes if n * width <= left)]
            values = [
                best[left - n * width] + gain(trainer, n, problem.t_fwd_s)
                for n in options
            ]
            after.append(max(values))
            choice.append(options[values.index(max(values))])
        best = after
        choices.append(choice)
    left, counts = pool, list[int]()
    for trainer, choice in zip(
        reversed(problem.trainers), reversed(choices), strict=True
    ):
        counts.append(choice[left])
        left -= counts[-1] * trainer.width(0)
    return counts[::-1]


@settings(max_examples=200, deadline=None)
@given(RANDOM)
def test_in_one_class_wide_leases_are_planned_as_by_the_plain_dynamic_program(
    rng: Random,
) -> None:
    problem = wide_problem(rng, (24,), trainers=6)
    plan = ExactSolver().solve(problem)

    assert [row[0] for row in plan.counts] == plain_counts(problem)
    assert violations(problem, plan) == ()
    count = plan_counts(problem, Cbc(options=COUNT_OPTIONS), limit_s=60.0)
    assert count.outcome is PlanStatus.PROVEN
    assert is_same(count.plan.gain, plan.gain)
    assert violations(problem, count.plan) == ()


@given(RANDOM)
def test_a_problem_as_one_class_contradicts_itself_no_more_than_it_did(
    rng: Random,
) -> None:
    problem = wide_problem(rng, (2, 2, 2))
    check_problem(problem)

    check_problem(as_one_class(problem))


def test_a_lease_costs_the_price_of_all_its_units_and_cheap_ones_come_first() -> None:
    trainer = ProblemTrainer("t", custom([0.0] * 6), (0, 0), 1.0, 1.0, widths=(1, 4))
    problem = Problem((NodeClass("dear", 2), NodeClass("cheap", 11)), (trainer,), 10.0)

    costs = node_costs(trainer, problem, [2.0, 1.0])

    assert costs.tolist() == [0.0, 2.0, 4.0, 8.0, 12.0, math.inf]


def test_trainers_that_differ_in_width_alone_are_told_apart() -> None:
    curve = custom([0.0, 5.0, 9.0])
    narrow, wide = (
        ProblemTrainer("t", curve, (0,), 1.0, 1.0, widths=(width,)) for width in (1, 4)
    )
    planner = Planner()

    for trainer, counts in ((narrow, ((2,),)), (wide, ((1,),))):
        problem = Problem((NodeClass("gpus", 7),), (trainer,), 10.0)
        assert planner.plan(problem).plan.counts == counts


# Which classes leases are in, where plans gain the same.


def earlier(problem: Problem, plan: Plan) -> Iterator[list[list[int]]]:
    """Yield the plans in which one lease is in a class named earlier."""
    classes = range(len(problem.classes))
    for j, k, late in product(range(len(plan.counts)), classes, classes):
        if k < late and plan.counts[j][late]:
            changed = [list(row) for row in plan.counts]
            changed[j][k] += 1
            changed[j][late] -= 1
            yield changed


@settings(max_examples=300, deadline=None)
@given(RANDOM, st.sampled_from(SolverName))
def test_no_lease_could_be_in_a_class_named_earlier(
    rng: Random, solver: SolverName
) -> None:
    any_widths = wide_problem(rng, (6, 5, 5), trainers=4)
    problem = rng.choice((any_widths, shared_at_random(rng).problem))

    plan = Planner(solver).plan(problem).plan

    for changed in earlier(problem, plan):
        assert constraint_violations(problem, changed) != ()


IN_USE_FIRST = (NodeClass("beside jobs", 4), NodeClass("idle", 16))


@pytest.mark.parametrize("solver", list(SolverName))
@pytest.mark.parametrize(
    "pair", [frozenset({0, 1}), frozenset({0})], ids=["anywhere", "bound"]
)
def test_no_idle_node_is_broken_while_gpus_beside_jobs_are_free(
    solver: SolverName, pair: frozenset[int]
) -> None:
    # The second trainer takes at most what is left beside jobs.
    trainers = (
        ProblemTrainer("a", custom([0.0, 4.0]), (0, 0), 1.0, 1.0, widths=(2, 2)),
        ProblemTrainer(
            "b", custom([0.0, 4.0, 7.0]), (0, 0), 1.0, 1.0, usable=pair, widths=(1, 1)
        ),
    )
    problem = Problem(IN_USE_FIRST, trainers, 10.0)

    assert Planner(solver).plan(problem).plan.counts == ((1, 0), (2, 0))


def test_a_trainer_that_shrinks_gives_up_the_class_named_last() -> None:
    small = custom([0.0, 9.0, 9.0, 0.0, 0.0], [1, 2])
    shrinks = ProblemTrainer("a", small, (2, 2), 0.0, 0.0)
    problem = Problem(IN_USE_FIRST, (shrinks,), 10.0)

    assert keep(problem).counts == ((2, 0),)
    assert Planner().plan(problem).plan.counts == ((1, 0),)
