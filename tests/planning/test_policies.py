"""Every policy by its name: what it is made with, and that it plans."""

import operator
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.config.site import PlannerSettings
from freetrain.planning.lookahead import ProvingSearch, QuickSearch
from freetrain.planning.policy import PlanTrainer, Tools, TrainerStates, make_policy
from freetrain.planning.settings import LIVE_POLICIES, POLICIES, Solver
from freetrain.tick.plan import tools_for
from milp.planner import Planner, SolverName
from milp.problem import Problem, custom, violations
from tests.milp.planning_problems import problems
from tests.planning.requests import plan_of, request_from


class AskedError(Exception):
    """A solver was made."""


def no_solver() -> NoReturn:
    raise AskedError


def test_a_policy_that_needs_no_solver_makes_none() -> None:
    tools = Tools(solver=no_solver, start_solver=no_solver, search=QuickSearch)

    make_policy("equal", tools)
    with pytest.raises(AskedError):
        make_policy("freetrain", tools)


@pytest.mark.parametrize("solver", list(Solver))
def test_ticks_make_the_solver_that_the_site_names(solver: Solver) -> None:
    settings = PlannerSettings(solver=solver, solver_limit_s=3.0)

    made = tools_for(settings, lambda: 0.0).solver()

    assert isinstance(made, Planner)
    assert (made.solver, made.limit_s) == (SolverName(solver), 3.0)


def test_policies_of_ticks_are_the_first_that_replays_offer() -> None:
    assert LIVE_POLICIES == ("freetrain", "equal", "lookahead")
    assert tuple(POLICIES) == (
        "freetrain",
        "equal",
        "scavenger",
        "static",
        "lookahead",
        "adaptive",
    )


@given(problem=problems(), data=st.data())
def test_every_policy_of_ticks_breaks_no_constraint_whoever_is_in_the_background(
    problem: Problem, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(LIVE_POLICIES))
    names = [trainer.name for trainer in problem.trainers]
    last = data.draw(st.frozensets(st.sampled_from(names)) if names else st.just(()))
    tools = Tools(
        solver=Planner,
        start_solver=Planner,
        search=lambda: ProvingSearch(1.0, lambda: 0.0),
    )
    request = request_from(problem, background=frozenset(last))

    planned = make_policy(name, tools).plan(request)

    assert violations(problem, plan_of(planned, request, problem)) == ()


def test_the_states_of_two_thousand_trainers_are_kept_for_the_next_request() -> None:
    curve = custom([0.0, 1.0])
    trainers = [
        PlanTrainer(
            name=f"t{k}", curve=curve, held={}, up_s=1.0, down_s=1.0, start_s=0.0
        )
        for k in range(2_000)
    ]
    states = TrainerStates()

    first = states.of(trainers, (0,))

    assert all(map(operator.is_, states.of(trainers, (0,)), first))
