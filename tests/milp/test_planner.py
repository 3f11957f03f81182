"""Whatever a solver does, the answer is a plan that breaks nothing."""

from collections.abc import Callable

import numpy as np
import pulp
import pytest
from hypothesis import given, settings

from milp.curve import custom
from milp.errors import (
    MalformedProblemError,
    SolverFailedError,
    SolverUnavailableError,
)
from milp.keep import keep
from milp.planner import Answer, Outcome, Planner, SolverName
from milp.problem import Curve, NodeClass, Problem, TrainerState
from milp.proposal import Found
from milp.solver import Cbc
from milp.verify import violations
from tests.milp.planning_problems import many_class_problems

# Sizes of which no greedy plan fills the pool: the solver must be asked.
CURVES = [
    custom([0, 3, 7, 8, 30, 31, 47, 50], [2, 4, 6]),
    custom([0, 1, 9, 14, 22, 23, 41, 41.5], [3, 5, 7]),
    custom([0, 2, 5, 16, 17, 29, 30, 48], [2, 3, 7]),
]
HARD = Problem(
    (NodeClass("fast", 7), NodeClass("slow", 6)),
    tuple(
        TrainerState(f"t{k}", CURVES[k % 3], held, 8.0, 5.0)
        for k, held in enumerate([(2, 0), (0, 3), (2, 0), (0, 0)])
    ),
    20.0,
)


class FakeSolver:
    """Solves by CBC and then spoils the answer, after so many good ones."""

    def __init__(
        self, spoil: Callable[[pulp.LpProblem, Found], Found], *, good_calls: int = 0
    ) -> None:
        self.spoil = spoil
        self.good_calls = good_calls
        self.calls = 0

    def solve(self, model: pulp.LpProblem, *, limit_s: float | None) -> Found:
        found = Cbc().solve(model, limit_s=limit_s)
        self.calls += 1
        return found if self.calls <= self.good_calls else self.spoil(model, found)


def set_all(model: pulp.LpProblem, value: float | None) -> None:
    for variable in model.variables():
        variable.varValue = value


def return_fractions(model: pulp.LpProblem, found: Found) -> Found:
    set_all(model, 0.5)
    return found


def return_everything(model: pulp.LpProblem, found: Found) -> Found:
    for variable in model.variables():
        variable.varValue = variable.upBound
    return found


def return_too_much_of_one_class(model: pulp.LpProblem, found: Found) -> Found:
    # Sizes stay allowed, but all nodes come out of the first class.
    for variable in model.variables():
        if variable.name.startswith("x_"):
            trainer, k = variable.name.split("_")[1:]
            variable.varValue = 2.0 if k == "0" else float(trainer == "1")
    return found


def call_the_present_plan_optimal(model: pulp.LpProblem, _: Found) -> Found:
    for variable in model.variables():
        if variable.name.startswith("x_"):
            trainer, k = map(int, variable.name.split("_")[1:])
            variable.varValue = float(HARD.trainers[trainer].held[k])
    return Found.OPTIMUM


def return_nan(model: pulp.LpProblem, found: Found) -> Found:
    set_all(model, float("nan"))
    return found


def lose_the_values(model: pulp.LpProblem, found: Found) -> Found:
    set_all(model, None)
    return found


def claim_infeasible(model: pulp.LpProblem, _: Found) -> Found:
    set_all(model, None)
    return Found.INFEASIBLE


def crash(_: pulp.LpProblem, __: Found) -> Found:
    raise SolverFailedError("CBC failed: killed.")


def be_missing(_: pulp.LpProblem, __: Found) -> Found:
    raise SolverUnavailableError("CBC cannot be run.")


def time_out_empty(model: pulp.LpProblem, _: Found) -> Found:
    set_all(model, None)
    return Found.NOTHING


def time_out_with_the_point(_: pulp.LpProblem, __: Found) -> Found:
    return Found.INCUMBENT


def answer(fake: FakeSolver) -> Answer:
    return Planner(SolverName.CBC, model_solver=fake).plan(HARD)


def test_the_hard_problem_needs_the_solver_and_is_then_proven() -> None:
    fake = FakeSolver(lambda _, found: found)

    assert answer(fake).outcome is Outcome.PROVEN
    assert fake.calls >= 2


@pytest.mark.parametrize(
    "spoil",
    [
        return_fractions,
        return_nan,
        return_everything,
        return_too_much_of_one_class,
        call_the_present_plan_optimal,
        lose_the_values,
        claim_infeasible,
        crash,
        be_missing,
    ],
)
def test_a_solver_that_lies_or_dies_leaves_the_present_plan(
    spoil: Callable[[pulp.LpProblem, Found], Found],
) -> None:
    result = answer(FakeSolver(spoil, good_calls=1))

    assert result.outcome is Outcome.KEPT
    assert result.plan == keep(HARD)
    assert "The present plan stays." in result.reason


def test_at_a_limit_the_incumbent_is_used_and_not_called_optimal() -> None:
    best = answer(FakeSolver(lambda _, found: found)).plan

    result = answer(FakeSolver(time_out_with_the_point, good_calls=1))

    assert result.outcome is Outcome.INCUMBENT
    assert violations(HARD, result.plan) == ()
    assert keep(HARD).gain < result.plan.gain <= best.gain < result.plan.bound


def test_a_limit_without_an_incumbent_gives_the_greedy_plan_never_an_empty_one() -> (
    None
):
    result = answer(FakeSolver(time_out_empty))

    assert result.outcome is Outcome.INCUMBENT
    assert violations(HARD, result.plan) == ()
    assert result.plan.gain >= keep(HARD).gain > 0
    assert "greedy" in result.reason


def test_spoiled_prices_cost_time_and_nothing_else() -> None:
    def spoil_first(model: pulp.LpProblem, found: Found) -> Found:
        if fake.calls == 1:
            set_all(model, float("nan"))
            for row in model.constraints():
                row.pi = float("nan")
        return found

    fake = FakeSolver(spoil_first)

    best = answer(FakeSolver(lambda _, found: found)).plan
    assert answer(fake).outcome is Outcome.PROVEN
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
    trainer = TrainerState("t", writable, (0,), 1.0, 1.0)
    problem = Problem((NodeClass("idle", 1),), (trainer,), 1.0)
    planner = Planner()
    assert planner.plan(problem).outcome is Outcome.PROVEN

    writable.value_per_s[1] = 5.0
    result = planner.plan(problem)

    assert result.outcome is Outcome.KEPT
    assert "claims a gain of 1.0" in result.reason


def test_a_problem_that_contradicts_itself_reaches_no_solver() -> None:
    broken = Problem(HARD.classes, HARD.trainers, -1.0)

    with pytest.raises(MalformedProblemError, match="Nothing was planned"):
        Planner().plan(broken)


@pytest.mark.parametrize("solver", list(SolverName))
def test_every_solver_plans_several_classes_alike(solver: SolverName) -> None:
    assert Planner(solver).plan(HARD).plan.gain == pytest.approx(
        answer(FakeSolver(lambda _, found: found)).plan.gain
    )
