"""What a tick asks of nodes for trainers of GPUs, and where it finds it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.reconcile import Submit
from freetrain.state.files import AssignedLease, AssignmentFile
from freetrain.state.tables import TrainerState, put_forecast
from freetrain.tick.lookahead import save
from freetrain.tick.plan import TickPlan, make_plan, nodes_to_exclude
from slurm.records import Gres, NodeState
from tests.broker.broker_records import lease
from tests.tick.tick_worlds import TickWorld, observing, tick_world

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from freetrain.broker.lease import Lease
    from slurm.records import Node


USED = {"n1": 1, "n2": 4}


def with_gpus(node: Node, all_used: Mapping[str, int] = USED) -> Node:
    """Return *node* with four GPUs, of which jobs have some, by node."""
    used = all_used.get(node.name, 0)
    return replace(
        node,
        states=frozenset({NodeState.MIXED if used else NodeState.IDLE}),
        gres=(Gres("gpu", "a100", 4),),
        allocated_gres=(Gres("gpu", "a100", used),) if used else (),
        cpus=16,
        memory_mib=16_000,
        allocated_cpus=4 * used,
        allocated_memory_mib=4_000 * used,
    )


def planned(world: TickWorld, *held: Lease) -> TickPlan:
    """Return the plan of a tick on nodes with GPUs, with leases beside our own."""
    with observing(world) as (context, observed):
        nodes = tuple(map(with_gpus, observed.snapshot.nodes))
        snapshot = replace(observed.snapshot, nodes=nodes)
        leases = (*observed.belief.leases, *held)
        belief = replace(observed.belief, leases=leases)
        seen = replace(observed, snapshot=snapshot, belief=belief)
        return make_plan(context, seen)


def test_a_trainer_of_gpus_has_holes_beside_jobs_and_others_whole_nodes(
    tmp_path: Path,
) -> None:
    world = tick_world(tmp_path)
    launch = '[launch]\nlauncher = "srun"'
    world.submit("pieces", nodes=f"gpus_per_lease = 1\n{launch}")
    world.submit("whole")

    plan = planned(world)

    shape = "freetrain gres=gpu:1 memory=4000MiB cpus=4 piece"
    assert plan.shapes.keys() == {shape, "freetrain"}
    holes = {
        name: {hole.node: hole.room for hole in found}
        for name, found in plan.situation.holes.items()
    }
    assert holes[shape] == {"n1": 3} | {f"n{k}": 4 for k in range(3, 9)}
    assert holes["freetrain"] == {f"n{k}": 1 for k in range(3, 9)}


def test_held_pieces_are_used_unless_they_have_less_than_is_asked_for(
    tmp_path: Path,
) -> None:
    """Also where the job file says it; a lease of four GPUs is of another kind."""
    world = tick_world(tmp_path)
    launch = '[launch]\nlauncher = "srun"'
    world.submit("pieces", nodes=f"gpus_per_lease = 1\ncpus = 5\n{launch}")
    asked = "freetrain gres=gpu:1 memory=4000MiB cpus=5 piece"
    held = {
        "freetrain gres=gpu:1 memory=4000MiB cpus=4 piece": False,
        "freetrain gres=gpu:1 memory=3999MiB cpus=5 piece": False,
        "freetrain gres=gpu:1 memory=4001MiB cpus=6 piece": True,
        "freetrain gres=gpu:4 memory=4000MiB cpus=5 piece": False,
    }

    plan = planned(
        world, *(lease(task, "n3", shape=name) for task, name in enumerate(held))
    )

    assert plan.shapes.keys() == {asked}
    assert [one.shape for one in plan.situation.belief.leases] == [
        asked if is_used else name for name, is_used in held.items()
    ]


LOOKS = 60


@pytest.fixture
def ahead(tmp_path: Path) -> TickWorld:
    """Ticks that look ahead, and a trainer of single GPUs."""
    world = tick_world(tmp_path)
    world.change("planner", policy="lookahead")
    world.submit("pieces", nodes='gpus_per_lease = 1\n[launch]\nlauncher = "srun"')
    return world


def ticked(world: TickWorld, used: Mapping[str, int], *held: Lease) -> TickPlan:
    """Plan with so many GPUs in use on nodes, and save what was learned.

    The first trainer runs on the leases *held*.
    """
    with observing(world) as (context, observed):
        nodes = tuple(with_gpus(node, used) for node in observed.snapshot.nodes)
        first, *others = observed.trainers
        members = tuple(
            AssignedLease(key=x.key, job_id=1, display_id="1", node=x.node)
            for x in held
        )
        made = AssignmentFile(
            trainer=first.row.name,
            generation=1,
            members=members,
            created_s=world.now_s,
            author="broker",
            reason="",
        )
        if held:
            first = replace(first, newest=made)
        seen = replace(
            observed,
            snapshot=replace(observed.snapshot, nodes=nodes),
            belief=replace(observed.belief, leases=(*observed.belief.leases, *held)),
            trainers=(first, *others),
        )
        plan = make_plan(context, seen)
    assert plan.forecasts is not None
    with world.writing() as state:
        save(state, plan.forecasts, seen)
    return plan


def test_gpus_of_a_node_that_leave_together_are_learned_and_planned_together(
    ahead: TickWorld,
) -> None:
    for turn in range(LOOKS):
        ticked(ahead, {f"n{k}": 4 for k in range(1, 9) if (k + turn) % 2})
        ahead.now_s += 120.0

    plan = ticked(ahead, {f"n{k}": 4 for k in range(1, 9) if (k + LOOKS) % 2})

    classes = plan.decision.classes
    assert not plan.problems
    assert not plan.decision.planned.is_by_m0
    assert [known.nodes for known in classes.classes] == [4, 4, 4, 4]
    for k in range(4):
        own = [part for part in classes.nodes if classes.index[part.name] == k]
        assert len({part.node for part in own}) == 1


def test_what_was_learned_of_pieces_stays_while_none_are_wanted(
    ahead: TickWorld,
) -> None:
    ticked(ahead, {})
    learned = ahead.forecast()["pieces"]
    ahead.set_state("pieces", TrainerState.CANCELLED)
    ahead.now_s += 120.0

    ticked(ahead, {})

    assert len(learned["names"]) == 32
    assert ahead.forecast()["pieces"] == learned


def test_a_damaged_forecast_of_pieces_is_dropped_and_reported(
    ahead: TickWorld,
) -> None:
    ticked(ahead, {})
    kept = ahead.forecast()
    kept["pieces"]["names"] = kept["pieces"]["names"][:3]
    with ahead.writing() as state:
        put_forecast(state, json.dumps(kept))
    ahead.now_s += 60.0

    plan = ticked(ahead, {})

    (problem,) = plan.problems
    assert "the saved forecast of nodes cannot be used" in problem
    assert len(ahead.forecast()["pieces"]["names"]) == 32


def test_how_trainers_of_pieces_fare_is_learned_of_pieces(ahead: TickWorld) -> None:
    shape = "freetrain gres=gpu:1 memory=4000MiB cpus=4 piece"
    held = lease(0, "n3", shape=shape)

    alone = ticked(ahead, {}, held)
    kept = ahead.forecast()
    ahead.submit("whole")
    beside = ticked(ahead, {}, held)

    piece = kept["pieces"]["names"].index("n3#1")
    assert kept["pieces"]["experience"]["held"] == {"pieces": [piece]}
    assert kept["experience"]["held"] == {"pieces": []}
    assert alone.forecasts is not None
    assert alone.forecasts.weighing is alone.forecasts.pieces
    assert beside.forecasts is not None
    assert beside.forecasts.weighing is beside.forecasts.forecast


def test_each_piece_has_its_own_forecast(ahead: TickWorld) -> None:
    plan = ticked(ahead, {"n3": 2, "n4": 4})

    assert plan.forecasts is not None
    expected = {
        hole.piece: plan.forecasts.expected(hole.node, hole.piece)
        for hole in plan.decision.holes
        if hole.node in {"n3", "n4"}
    }
    assert expected.keys() == {"n3#1", "n3#2"}
    assert all(forecast is not None for forecast in expected.values())


def test_leases_of_pieces_are_kept_off_nodes_that_the_plan_leaves_idle(
    ahead: TickWorld,
) -> None:
    for turn in range(LOOKS):
        ticked(ahead, {f"n{k}": turn % 2 * 4 for k in range(1, 5)})
        ahead.now_s += 120.0

    plan = ticked(ahead, {"n5": 3})

    (submit,) = [a for a in plan.decision.actions if isinstance(a, Submit)]
    assert nodes_to_exclude(plan, submit) == "n[1-4,7-8]"
