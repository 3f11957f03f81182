"""What a tick asks of nodes for trainers of GPUs, and where it finds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.tick.plan import TickPlan, make_plan
from slurm.records import Gres, NodeState
from tests.broker.broker_records import lease
from tests.tick.tick_worlds import TickWorld, observing, tick_world

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import Lease
    from slurm.records import Node


def with_gpus(node: Node) -> Node:
    """Return *node* with four GPUs, of which jobs have one on n1, and all on n2."""
    used = {"n1": 1, "n2": 4}.get(node.name, 0)
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
