"""Decisions by what is expected of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.decide import Decision, request_of
from freetrain.broker.limits import Refusal
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.promises import Promise
from freetrain.planning.policy import counts_of, problem_of
from milp.answer import PlanStatus
from milp.problem import plan_gain
from tests.broker.broker_records import NOW_S, hole, holes, key
from tests.broker.foretold import (
    HORIZON_S,
    Told,
    decided,
    foresight,
    trainer,
    watched,
)

if TYPE_CHECKING:
    from freetrain.broker.pool import Trainer
    from slurm.holes import Hole


EIGHT = holes(*(f"n{k}" for k in range(8)))


def test_nodes_that_leave_together_go_to_one_trainer() -> None:
    odd = Told(
        {f"n{k}": "odd" for k in (1, 3, 5, 7)}, {"odd": Prospect(390.0, 0.1, 1.0)}
    )
    two = (trainer("a", 4), trainer("b", 4))

    ahead = decided(two, EIGHT, *range(8), by=foresight(odd))
    published = decided(two, EIGHT, *range(8))

    together = {frozenset(one.leases) for one in ahead.wanted.trainers}
    assert frozenset(map(key, (1, 3, 5, 7))) in together
    assert together != {frozenset(one.leases) for one in published.wanted.trainers}


def test_the_rest_of_its_own_group_costs_a_trainer_no_second_hit() -> None:
    names = [f"n{k}" for k in range(8)]
    rack = Told(dict.fromkeys(names, "rack"), {"rack": Prospect(350.0, 0.4, 0.9)})
    plan = decided(
        (trainer("a", 8, 0, 1, 2, 3, loss_s=1_800.0),),
        EIGHT,
        *range(4),
        by=foresight(rack, hit_weight=0.37, wait_s=30.0),
    )

    assert plan.wanted.trainers[0].planned_nodes == 8


def test_a_wide_trainer_to_whom_a_change_is_dear_leaves_a_node_promised_away() -> None:
    promise = {"n4": Promise(NOW_S + 90.0, "99")}
    short = (*EIGHT[:4], hole("n4", NOW_S + 80.0))
    wide = (trainer("a", 5, 0, 1, 2, 3, cost_s=15.0),)
    ahead = decided(wide, short, *range(5), by=foresight(watched(promised=promise)))
    lasting = decided(wide, EIGHT[:5], *range(5), by=foresight(watched()))
    assert ahead.wanted.trainers[0].planned_nodes == 4
    assert lasting.wanted.trainers[0].planned_nodes == 5


def test_the_background_gets_what_the_others_leave() -> None:
    two = (trainer("late", 4), trainer("a", 3))

    plan = decided(
        two,
        EIGHT[:4],
        *range(4),
        by=foresight(watched()),
        background=frozenset({"late"}),
    )

    assert [one.planned_nodes for one in plan.wanted.trainers] == [1, 3]
    assert plan.planned.is_by_m0 is False
    assert plan.planned.gap == pytest.approx(0.0, abs=1e-5)


def test_trainers_of_other_kinds_of_node_are_planned_each_with_its_own() -> None:
    found = decided(
        (trainer("a", 4), replace(trainer("b", 2), shape="gpu")),
        {"any": holes("n0", "n1"), "gpu": holes("n2", "n3")},
        by=foresight(watched()),
    )

    assert [one.planned_nodes for one in found.wanted.trainers] == [2, 2]
    assert "left out" not in found.planned.reason
    # Two windows: two trainers that start, in 5 s, on two nodes each.
    worth = 2.0 * 2.0**0.9 * (HORIZON_S - 5.0)
    assert found.planned.judged is not None
    assert found.planned.judged[:2] == pytest.approx((worth, worth), rel=1e-5)
    assert not found.planned.is_by_m0
    assert found.planned.outcome is PlanStatus.PROVEN
    assert found.planned.gap == pytest.approx(0.0, abs=1e-5)


def test_where_kinds_of_node_overlap_the_published_plan_stands_in() -> None:
    found = decided(
        (trainer("a", 4), replace(trainer("b", 2), shape="gpu")),
        {"any": holes("n0", "n1", "n2"), "gpu": holes("n0", "n1")},
        by=foresight(watched()),
    )
    assert "share some kinds of node" in found.planned.reason
    assert (found.planned.is_by_m0, found.planned.gap) == (True, 0.0)
    assert sum(one.planned_nodes for one in found.wanted.trainers) == 3


def test_a_plan_without_time_is_a_plan_all_the_same() -> None:
    two = (trainer("a", 4, 0, 1), trainer("b", 4))
    plan = decided(two, EIGHT, *range(8), by=foresight(watched()), limit_s=0.0)
    assert plan.planned.outcome in PlanStatus
    assert plan.planned.is_by_m0 is False
    assert 0.0 < plan.planned.gap < 1.0
    assert plan.wanted.trainers[0].planned_nodes >= 2


def test_a_node_with_a_lease_is_worth_more_than_one_that_waits_for_it() -> None:
    lives_s = (365.0, 365.0, 345.0, 345.0)
    told = Told(
        prospects={
            f"n{k}": Prospect(life_s, 0.2, 1.0) for k, life_s in enumerate(lives_s)
        }
    )
    one = (trainer("a", 2),)

    held = decided(one, EIGHT[:4], 2, 3, by=foresight(told, wait_s=30.0))
    best = decided(one, EIGHT[:4], 2, 3, by=foresight(told))

    assert held.wanted.trainers[0].leases == {key(2), key(3)}
    assert not best.wanted.trainers[0].leases


def test_beyond_the_cap_on_leases_whole_groups_that_last_are_kept() -> None:
    told = Told(
        {"n0": "short", "n1": "long", "n2": "short", "n3": "long"},
        {"short": Prospect(200.0, 0.5, 1.0), "long": Prospect(390.0, 0.1, 1.0)},
    )
    found = decided((trainer("a", 4),), EIGHT[:4], by=foresight(told), most_leases=2)
    assert {node.name for node in found.classes.pool.nodes} == {"n1", "n3"}
    assert found.classes.pool.refused == dict.fromkeys(("n0", "n2"), Refusal.LEASE_CAP)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Trainer, ...], tuple[Hole, ...]]:
    nodes = draw(st.integers(1, 8))
    free = list(range(nodes))
    trainers = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        mine = draw(st.sets(st.sampled_from(free), max_size=4)) if free else set()
        free = [k for k in free if k not in mine]
        most = draw(st.integers(max(1, len(mine)), 8))
        cost_s = draw(st.sampled_from([0.0, 5.0, 60.0, 300.0]))
        trainers.append(trainer(name, most, *sorted(mine), cost_s=cost_s))
    return tuple(trainers), EIGHT[:nodes]


def gained(trainers: tuple[Trainer, ...], found: Decision) -> float:
    """Return what a plan gains by the published objective."""
    request = request_of(trainers, found.classes, t_fwd_s=HORIZON_S)
    counts = counts_of(found.planned.holdings, request)
    return plan_gain(problem_of(request), counts)


@settings(deadline=None)
@given(worlds())
def test_with_nothing_learned_a_plan_is_no_worse_than_the_published_one(
    world: tuple[tuple[Trainer, ...], tuple[Hole, ...]],
) -> None:
    trainers, found = world
    fearful = tuple(replace(one, loss_s=3_000.0) for one in trainers)
    ahead = decided(fearful, found, *range(len(found)), by=foresight(watched()))
    published = decided(trainers, found, *range(len(found)))
    best = gained(trainers, published)
    assert gained(trainers, ahead) >= best - 1e-9 * (1.0 + abs(best))
    assert "left out" not in ahead.planned.reason
