"""Whatever a solver does, the answer is a plan that breaks nothing."""

import subprocess
import sys

import numpy as np
import pulp
import pytest
from hypothesis import given, settings

from milp.answer import Answer, MalformedProblemError, PlanStatus, SolverStatus
from milp.planner import Planner, SolverName
from milp.problem import (
    Curve,
    NodeClass,
    Problem,
    ProblemTrainer,
    custom,
    keep,
    violations,
)
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
from tests.milp.planning_problems import many_class_problems

HARD = Problem(
    (NodeClass("fast", 7), NodeClass("slow", 6)),
    tuple(
        ProblemTrainer(f"t{k}", RAGGED_CURVES[k % 3], held, 8.0, 5.0)
        for k, held in enumerate([(2, 0), (0, 3), (2, 0), (0, 0)])
    ),
    20.0,
)


def return_too_much_of_one_class(
    model: pulp.LpProblem, found: SolverStatus
) -> SolverStatus:
    # Sizes stay allowed, but all nodes come out of the first class.
    for variable in model.variables():
        if variable.name.startswith("x_"):
            trainer, k = variable.name.split("_")[1:]
            variable.varValue = 2.0 if k == "0" else float(trainer == "1")
    return found


def call_the_present_plan_optimal(
    model: pulp.LpProblem, _: SolverStatus
) -> SolverStatus:
    for variable in model.variables():
        if variable.name.startswith("x_"):
            trainer, k = map(int, variable.name.split("_")[1:])
            variable.varValue = float(HARD.trainers[trainer].held[k])
    return SolverStatus.OPTIMUM


def answer(fake: FakeSolver) -> Answer:
    return Planner(SolverName.CBC, model_solver=fake).plan(HARD)


def test_the_hard_problem_needs_the_solver_and_is_then_proven() -> None:
    fake = FakeSolver(tell_the_truth)

    assert answer(fake).outcome is PlanStatus.PROVEN
    assert fake.calls >= 2


@pytest.mark.parametrize(
    "spoil",
    [
        *OUTRIGHT_LIES,
        return_too_much_of_one_class,
        call_the_present_plan_optimal,
    ],
)
def test_a_solver_that_lies_or_dies_leaves_the_present_plan(
    spoil: Spoil,
) -> None:
    result = answer(FakeSolver(spoil, good_calls=1))

    assert result.outcome is PlanStatus.KEPT
    assert result.plan == keep(HARD)
    assert "The present plan stays." in result.reason


def test_at_a_limit_the_incumbent_is_used_and_not_called_optimal() -> None:
    best = answer(FakeSolver(tell_the_truth)).plan

    result = answer(FakeSolver(time_out_with_the_point, good_calls=1))

    assert result.outcome is PlanStatus.INCUMBENT
    assert violations(HARD, result.plan) == ()
    assert keep(HARD).gain < result.plan.gain <= best.gain < result.plan.bound


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

    best = answer(FakeSolver(tell_the_truth)).plan
    assert answer(fake).outcome is PlanStatus.PROVEN
    assert answer(fake).plan.gain == pytest.approx(best.gain)


@settings(max_examples=20, deadline=None)
@given(many_class_problems())
def test_nothing_but_sound_plans_come_out_of_a_fraction_solver(
    problem: Problem,
) -> None:
    planner = Planner(SolverName.CBC, model_solver=FakeSolver(return_fractions))

    result = planner.plan(problem)

    assert violations(problem, result.plan) == ()
    assert result.plan.gain >= keep(problem).gain


def test_a_plan_of_the_exact_solver_is_verified_too() -> None:
    # Only a curve that was not made by milp.curve can be written to.
    writable = Curve(np.array([0.0, 1.0]), (1,))
    trainer = ProblemTrainer("t", writable, (0,), 1.0, 1.0)
    problem = Problem((NodeClass("idle", 1),), (trainer,), 1.0)
    planner = Planner()
    assert planner.plan(problem).outcome is PlanStatus.PROVEN

    writable.value_per_s[1] = 5.0
    result = planner.plan(problem)

    assert result.outcome is PlanStatus.KEPT
    assert "claims a gain of 1.0" in result.reason


def test_what_the_exact_solver_says_can_be_had_unverified_and_then_is_the_same() -> (
    None
):
    curve = custom([0.0, 2.0, 3.0, 5.0])
    trainers = tuple(ProblemTrainer(f"t{k}", curve, (1,), 1.0, 1.0) for k in range(3))
    sound = Problem((NodeClass("idle", 6),), trainers, 10.0)
    broken = Problem((NodeClass("idle", 2),), trainers, 10.0)

    assert Planner(verifies=False).plan(sound) == Planner().plan(sound)
    assert Planner(verifies=False).plan(broken).outcome is PlanStatus.PROVEN
    with pytest.raises(MalformedProblemError):
        Planner().plan(broken)


def test_a_problem_that_contradicts_itself_reaches_no_solver() -> None:
    broken = Problem(HARD.classes, HARD.trainers, -1.0)

    with pytest.raises(MalformedProblemError, match="Nothing was planned"):
        Planner().plan(broken)


@pytest.mark.parametrize("solver", list(SolverName))
def test_every_solver_plans_several_classes_alike(solver: SolverName) -> None:
    assert Planner(solver).plan(HARD).plan.gain == pytest.approx(
        answer(FakeSolver(tell_the_truth)).plan.gain
    )


def test_planners_load_pulp_only_for_a_program_that_is_solved() -> None:
    asked = "import sys, milp.window_planner; print('pulp' in sys.modules)"

    ran = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )

    assert ran.stdout == "False\n"
