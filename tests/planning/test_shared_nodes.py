"""Requests in which several leases share a node, to every policy."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.planning.equal import Equal
from freetrain.planning.freetrain import FreeTrain, Static
from freetrain.planning.lookahead import ProvingSearch
from freetrain.planning.policy import (
    PlanTrainer,
    Request,
    Tools,
    make_policy,
    problem_of,
)
from freetrain.planning.settings import LIVE_POLICIES
from milp.answer import PlanStatus
from milp.planner import Planner
from milp.problem import custom, throughput, violations
from tests.milp.shared_nodes import shared_at_random
from tests.planning.requests import TOOLS, plan_of, request_from

PROVING = Tools(
    solver=Planner,
    start_solver=Planner,
    search=lambda: ProvingSearch(1.0, lambda: 0.0),
)


@settings(deadline=None)
@given(st.randoms(use_true_random=True), st.sampled_from(LIVE_POLICIES))
def test_every_policy_of_ticks_breaks_no_constraint_whoever_is_in_the_background(
    rng: Random, name: str
) -> None:
    problem = shared_at_random(rng).problem
    last = frozenset(t.name for t in problem.trainers if rng.random() < 0.4)
    request = request_from(problem, background=last)

    planned = make_policy(name, PROVING).plan(request)

    assert violations(problem, plan_of(planned, request, problem)) == ()


@settings(deadline=None)
@given(st.randoms(use_true_random=True))
def test_a_request_is_the_same_problem_in_units(rng: Random) -> None:
    problem = shared_at_random(rng).problem

    asked = problem_of(request_from(problem))

    assert [c.nodes for c in asked.classes] == [c.nodes for c in problem.classes]
    for own, other in zip(asked.trainers, problem.trainers, strict=True):
        assert own.held == other.held
        assert [own.width(k) for k in range(len(own.held))] == list(other.widths or ())


@settings(deadline=None)
@given(st.randoms(use_true_random=True))
def test_the_background_takes_nothing_from_the_others(rng: Random) -> None:
    problem = shared_at_random(rng).problem
    last = frozenset(t.name for t in problem.trainers if rng.random() < 0.5)
    first = [t.name not in last for t in problem.trainers]
    request = request_from(problem, background=last)
    free = dict(request.free)
    for trainer, is_first in zip(request.trainers, first, strict=True):
        for k, units in trainer.units(trainer.held).items():
            free[k] += 0 if is_first else units
    those = [t for t, its in zip(request.trainers, first, strict=True) if its]
    alone = replace(request, trainers=those, free=free, background=frozenset())

    planned = FreeTrain(TOOLS).plan(request)

    best = FreeTrain(TOOLS).plan(alone)
    own = [h for h, its in zip(planned.holdings, first, strict=True) if its]
    assert planned.outcome is not PlanStatus.KEPT
    if any(first):
        assert own == list(best.holdings)


LINEAR = throughput(range(17))


def trainer(name: str, width: int, held: int = 0) -> PlanTrainer:
    return PlanTrainer(
        name=name,
        curve=LINEAR,
        held={0: held} if held else {},
        up_s=0.0,
        down_s=0.0,
        start_s=0.0,
        widths={0: width, 1: width},
    )


def test_a_background_trainer_keeps_the_leases_that_still_fit() -> None:
    # Of 8 GPUs the first trainer leaves 3: one of three leases of 2 GPUs.
    only = custom([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [5])
    first = trainer("first", 1)
    first.curve = only
    request = Request(
        trainers=[first, trainer("last", 2, held=3)],
        free={0: 2},
        t_fwd_s=10.0,
        background=frozenset({"last"}),
    )

    assert FreeTrain(TOOLS).plan(request).holdings == [{0: 5}, {0: 1}]


@pytest.mark.parametrize(
    ("free", "leases"), [(24, (12, 3)), (25, (13, 3)), (7, (4, 0)), (8, (4, 1))]
)
def test_equal_shares_are_of_gpus_and_whole_leases(
    free: int, leases: tuple[int, int]
) -> None:
    request = Request(
        trainers=[trainer("narrow", 1), trainer("wide", 4)],
        free={0: free},
        t_fwd_s=10.0,
    )

    planned = Equal(TOOLS).plan(request)

    assert tuple(own.get(0, 0) for own in planned.holdings) == leases


def test_dedicated_nodes_are_planned_by_width() -> None:
    policy = Static(TOOLS)
    for width, leases in ((1, 7), (4, 1), (1, 7)):
        request = Request(trainers=[trainer("t", width)], free={0: 7}, t_fwd_s=10.0)
        assert policy.plan(request).holdings == [{0: leases}]
