"""The published planner: sound plans whatever a solver does, one optimum from all."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pulp
import pytest
from hypothesis import given, settings

from milp.answer import Answer, MalformedProblemError, Plan, PlanStatus, SolverStatus
from milp.exact import ExactSolver
from milp.planner import Planner, SolverName, feasible_gains, plan_counts
from milp.problem import (
    Curve,
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
from tests.milp.lying_solvers import (
    OUTRIGHT_LIES,
    RAGGED_CURVES,
    FakeSolver,
    Spoil,
    find_nothing,
    return_fractions,
    set_all,
    tell_the_truth,
    time_out_with_the_point,
)
from tests.milp.node_model import plan_nodes
from tests.milp.planning_problems import many_class_problems, one_class_problems


def is_same(gain: float, other: float) -> bool:
    # CBC's own tolerance; ours would be 1e-9.
    return math.isclose(gain, other, rel_tol=1e-6, abs_tol=1e-6)


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
    """Return the gain of the count model over all sizes: nothing is ruled out."""
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
    exact = Planner(SolverName.EXACT).plan(problem)

    assert exact.outcome is PlanStatus.PROVEN
    for plan in (exact.plan, count_optimum(problem), node_optimum(problem)):
        assert violations(problem, plan) == ()
        assert is_same(plan.gain, ExactSolver().solve(problem).gain)
    assert is_same(model_gain(problem), exact.plan.gain)


@settings(max_examples=25, deadline=None)
@given(many_class_problems())
def test_in_several_classes_count_and_node_and_highs_agree(problem: Problem) -> None:
    count, node = count_optimum(problem), node_optimum(problem)
    highs = plan_counts(problem, Highs(), limit_s=60.0).plan

    for plan in (count, node, highs):
        assert violations(problem, plan) == ()
        assert is_same(plan.gain, node.gain)
        assert plan.gain >= keep(problem).gain or plan is node
    assert is_same(model_gain(problem), node.gain)


def test_a_shrinking_trainer_does_not_move_to_another_class() -> None:
    # Moving "a" to the slow node would free both fast ones for "b" at no loss.
    a = ProblemTrainer("a", custom([0.0, 9.0, 10.0]), (2, 0), 0.0, 0.0)
    pair = custom([0.0, 0.0, 6.0], [2])
    b = ProblemTrainer("b", pair, (0, 0), 0.0, 0.0, usable=frozenset({0}))
    problem = Problem((NodeClass("fast", 2), NodeClass("slow", 1)), (a, b), 1.0)

    assert count_optimum(problem).counts == ((2, 0), (0, 0))
    assert node_optimum(problem).counts == ((2, 0), (0, 0))


ANY = Problem(
    (NodeClass("fast", 7), NodeClass("slow", 6)),
    tuple(
        ProblemTrainer(f"t{k}", RAGGED_CURVES[k % 3], held, 8.0, 5.0)
        for k, held in enumerate([(2, 0), (0, 3), (2, 0), (0, 0)])
    ),
    20.0,
)
"""A problem in which every trainer may use every node."""

HARD = replace(
    ANY, trainers=(*ANY.trainers[:3], replace(ANY.trainers[3], usable=frozenset({0})))
)
"""A problem that needs the solver, as its last trainer may use no slow node."""


def test_where_every_trainer_may_use_every_node_no_solver_is_asked() -> None:
    fake = FakeSolver(tell_the_truth)

    found = plan_counts(ANY, fake, limit_s=5.0)

    assert fake.calls == 0
    assert found.outcome is PlanStatus.PROVEN
    assert violations(ANY, found.plan) == ()
    assert is_same(found.plan.gain, node_optimum(ANY).gain)


def set_counts(model: pulp.LpProblem, counts: list[tuple[int, int]]) -> None:
    for variable in model.variables():
        if variable.name.startswith("x_"):
            trainer, k = map(int, variable.name.split("_")[1:])
            variable.varValue = float(counts[trainer][k])


def return_too_much_of_one_class(
    model: pulp.LpProblem, found: SolverStatus
) -> SolverStatus:
    # Sizes stay allowed, but all nodes come out of the first class.
    set_counts(model, [(2, 0), (2, 1), (2, 0), (2, 0)])
    return found


def call_the_present_plan_optimal(
    model: pulp.LpProblem, _: SolverStatus
) -> SolverStatus:
    set_counts(model, [(2, 0), (0, 3), (2, 0), (0, 0)])
    return SolverStatus.OPTIMUM


def answer(fake: FakeSolver) -> Answer:
    return Planner(SolverName.CBC, model_solver=fake).plan(HARD)


def best_gain() -> float:
    fake = FakeSolver(tell_the_truth)
    found = answer(fake)
    assert found.outcome is PlanStatus.PROVEN
    assert fake.calls >= 2
    return found.plan.gain


LIES = OUTRIGHT_LIES | {
    "gives a node twice": return_too_much_of_one_class,
    "calls the present plan optimal": call_the_present_plan_optimal,
}


@pytest.mark.parametrize("spoil", LIES.values(), ids=LIES)
def test_a_solver_that_lies_or_dies_leaves_the_present_plan(spoil: Spoil) -> None:
    result = answer(FakeSolver(spoil, good_calls=1))

    assert result.outcome is PlanStatus.KEPT
    assert result.plan == keep(HARD)
    assert result.reason.endswith(". The present plan stays.")


def test_at_a_limit_the_incumbent_is_used_and_not_called_optimal() -> None:
    result = answer(FakeSolver(time_out_with_the_point, good_calls=1))

    assert result.outcome is PlanStatus.INCUMBENT
    assert violations(HARD, result.plan) == ()
    assert keep(HARD).gain < result.plan.gain <= best_gain() < result.plan.bound


def test_a_limit_without_an_incumbent_gives_the_greedy_plan_never_an_empty_one() -> (
    None
):
    result = answer(FakeSolver(find_nothing))

    assert result.outcome is PlanStatus.INCUMBENT
    assert violations(HARD, result.plan) == ()
    assert result.plan.gain >= keep(HARD).gain > 0
    assert "greedy" in result.reason


def test_spoiled_prices_cost_time_and_nothing_else() -> None:
    def spoil_first(model: pulp.LpProblem, found: SolverStatus) -> SolverStatus:
        if fake.calls == 1:
            set_all(model, float("nan"))
            for row in model.constraints():
                row.pi = float("nan")
        return found

    fake = FakeSolver(spoil_first)
    result = answer(fake)

    assert result.outcome is PlanStatus.PROVEN
    assert result.plan.gain == pytest.approx(best_gain())


@settings(max_examples=20, deadline=None)
@given(many_class_problems())
def test_nothing_but_sound_plans_come_out_of_a_fraction_solver(
    problem: Problem,
) -> None:
    planner = Planner(SolverName.CBC, model_solver=FakeSolver(return_fractions))

    result = planner.plan(problem)

    assert violations(problem, result.plan) == ()
    assert result.plan.gain >= keep(problem).gain


@pytest.mark.parametrize("solver", list(SolverName))
def test_every_solver_plans_several_classes_alike(solver: SolverName) -> None:
    assert Planner(solver).plan(HARD).plan.gain == pytest.approx(best_gain())


def test_a_plan_of_the_exact_solver_is_verified_too() -> None:
    # Only a curve that `custom` did not make can be written to.
    writable = Curve(np.array([0.0, 1.0]), (1,))
    trainer = ProblemTrainer("t", writable, (0,), 1.0, 1.0)
    problem = Problem((NodeClass("idle", 1),), (trainer,), 1.0)
    planner = Planner()
    assert planner.plan(problem).outcome is PlanStatus.PROVEN

    writable.value_per_s[1] = 5.0
    result = planner.plan(problem)

    assert result.outcome is PlanStatus.KEPT
    assert "claims a gain of 1.0" in result.reason


def test_problems_are_checked_unless_the_caller_verifies_and_plans_are_the_same() -> (
    None
):
    curve = custom([0.0, 2.0, 3.0, 5.0])
    trainers = tuple(ProblemTrainer(f"t{k}", curve, (1,), 1.0, 1.0) for k in range(3))
    sound = Problem((NodeClass("idle", 6),), trainers, 10.0)
    broken = Problem((NodeClass("idle", 2),), trainers, 10.0)

    assert Planner(verifies=False).plan(sound) == Planner().plan(sound)
    assert Planner(verifies=False).plan(broken).outcome is PlanStatus.PROVEN
    with pytest.raises(MalformedProblemError, match="Nothing was planned"):
        Planner().plan(broken)
    with pytest.raises(MalformedProblemError, match="Nothing was planned"):
        Planner().plan(Problem(HARD.classes, HARD.trainers, -1.0))


def test_planners_load_pulp_only_for_a_program_that_is_solved() -> None:
    asked = "import sys, milp.window_planner; print('pulp' in sys.modules)"

    ran = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )

    assert ran.stdout == "False\n"
