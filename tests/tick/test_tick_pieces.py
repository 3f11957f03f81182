"""What a tick asks of nodes for trainers of GPUs, and where it finds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.tick.plan import TickPlan, make_plan
from slurm.records import Gres, NodeState
from tests.tick.tick_worlds import TickWorld, observing, tick_world

if TYPE_CHECKING:
    from pathlib import Path

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


def planned(world: TickWorld) -> TickPlan:
    """Return the plan of a tick on nodes with GPUs."""
    with observing(world) as (context, observed):
        nodes = tuple(map(with_gpus, observed.snapshot.nodes))
        snapshot = replace(observed.snapshot, nodes=nodes)
        return make_plan(context, replace(observed, snapshot=snapshot))


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
