"""The same optimum from every formulation, wherever CBC proves one."""

import math

from hypothesis import given, settings

from milp.answer import Plan, PlanStatus, SolverStatus
from milp.exact import ExactSolver
from milp.planner import Planner, SolverName, feasible_gains, plan_counts
from milp.problem import (
    NodeClass,
    Problem,
    ProblemTrainer,
    constraint_violations,
    custom,
    keep,
    plan_gain,
    violations,
)
from milp.program import COUNT_OPTIONS, Cbc, Highs, count_model
from tests.milp.node_model import plan_nodes
from tests.milp.planning_problems import many_class_problems, one_class_problems

# CBC's own tolerance; ours would be 1e-9.
RELATIVE = 1e-6


def is_same(gain: float, other: float) -> bool:
    return math.isclose(gain, other, rel_tol=RELATIVE, abs_tol=1e-6)


def node_optimum(problem: Problem) -> Plan:
    plan = plan_nodes(problem, Cbc(), limit_s=60.0)
    assert plan is not None
    assert plan.bound == plan.gain
    return plan


def count_optimum(problem: Problem) -> Plan:
    answer = plan_counts(problem, Cbc(options=COUNT_OPTIONS), limit_s=60.0)
    assert answer.outcome is PlanStatus.PROVEN
    return answer.plan


def model_gain(problem: Problem) -> float:
    """Gain of the count model over all sizes by the solver alone: nothing ruled out."""
    options = [
        {n: gain for n, gain in enumerate(row.tolist()) if gain > -math.inf}
        for row in feasible_gains(problem)
    ]
    if not options:  # CBC crashes on a model without variables
        return 0.0
    model = count_model(problem, options)
    assert Cbc().solve(model.model, limit_s=60.0) is SolverStatus.OPTIMUM
    assert constraint_violations(problem, model.counts()) == ()
    return plan_gain(problem, model.counts())


@settings(max_examples=25, deadline=None)
@given(one_class_problems())
def test_in_one_class_count_and_exact_and_node_agree(problem: Problem) -> None:
    exact = ExactSolver().solve(problem)

    for plan in (count_optimum(problem), node_optimum(problem)):
        assert violations(problem, plan) == ()
        assert is_same(plan.gain, exact.gain)
    assert is_same(model_gain(problem), exact.gain)


@settings(max_examples=25, deadline=None)
@given(many_class_problems())
def test_in_several_classes_count_and_node_agree(problem: Problem) -> None:
    count, node = count_optimum(problem), node_optimum(problem)

    assert violations(problem, count) == violations(problem, node) == ()
    assert is_same(count.gain, node.gain)
    assert is_same(model_gain(problem), node.gain)


def test_a_shrinking_trainer_does_not_move_to_another_class() -> None:
    # Moving "a" to the slow node would free both fast ones for "b" at no loss.
    a = ProblemTrainer("a", custom([0.0, 9.0, 10.0]), (2, 0), 0.0, 0.0)
    pair = custom([0.0, 0.0, 6.0], [2])
    b = ProblemTrainer("b", pair, (0, 0), 0.0, 0.0, usable=frozenset({0}))
    problem = Problem((NodeClass("fast", 2), NodeClass("slow", 1)), (a, b), 1.0)

    assert count_optimum(problem).counts == ((2, 0), (0, 0))
    assert node_optimum(problem).counts == ((2, 0), (0, 0))


@settings(max_examples=25, deadline=None)
@given(many_class_problems())
def test_highs_finds_what_cbc_finds_and_never_less_than_keeping(
    problem: Problem,
) -> None:
    plan = plan_counts(problem, Highs(), limit_s=60.0).plan

    assert violations(problem, plan) == ()
    assert is_same(plan.gain, count_optimum(problem).gain)
    assert plan.gain >= keep(problem).gain


@settings(max_examples=50, deadline=None)
@given(one_class_problems())
def test_the_planner_proves_its_answer_on_small_problems(problem: Problem) -> None:
    answer = Planner(SolverName.EXACT).plan(problem)

    assert answer.outcome is PlanStatus.PROVEN
    assert violations(problem, answer.plan) == ()
