"""Which nodes are holes: idle or ours, and with what a lease asks for."""

from dataclasses import replace

import pytest

from slurm.errors import SlurmRefusedError
from slurm.records import (
    Gres,
    JobState,
    NodeState,
    Requirement,
)
from tests.slurm_library.clusters import (
    HOUR_S,
    NOW_S,
    look,
    node,
    running,
    waiting,
)
from tests.slurm_library.holes_found import holes, ours

HARMLESS = {
    NodeState.IDLE,
    NodeState.PLANNED,
    NodeState.CLOUD,
    NodeState.DYNAMIC_NORM,
}


def test_a_node_under_our_own_lease_stays_a_hole_and_names_the_lease() -> None:
    nodes = [node("n1", NodeState.ALLOCATED), node("n2", NodeState.MIXED)]
    jobs = [ours(running(5, "n[1-2]")), waiting(7, "n1", NOW_S + HOUR_S)]

    found = holes(look(nodes=nodes, jobs=jobs))

    assert found["n1"].held_by == found["n2"].held_by == (5,)
    assert found["n1"].end_s == NOW_S + HOUR_S


@pytest.mark.parametrize(
    "states",
    [(NodeState.UNKNOWN,), (NodeState.ALLOCATED, NodeState.NOT_RESPONDING)],
)
def test_a_node_that_slurmctld_has_not_heard_of_yet_stays_with_our_lease(
    states: tuple[NodeState, ...],
) -> None:
    nodes = [node("n1", *states), node("n2", *states)]

    found = holes(look(nodes=nodes, jobs=[ours(running(5, "n1"))]))

    assert set(found) == {"n1"}


@pytest.mark.parametrize(
    "state", [NodeState.DRAIN, NodeState.COMPLETING, NodeState.FAIL]
)
def test_a_node_under_our_lease_that_is_going_away_is_no_hole(state: NodeState) -> None:
    nodes = [node("n1", NodeState.ALLOCATED, state)]

    assert holes(look(nodes=nodes, jobs=[ours(running(5, "n1"))])) == {}


def test_a_node_that_we_share_with_somebody_is_no_hole() -> None:
    jobs = [ours(running(5, "n1")), running(6, "n1")]

    assert holes(look(nodes=[node("n1", NodeState.MIXED)], jobs=jobs)) == {}


def test_a_job_that_started_since_the_nodes_were_read_takes_its_node() -> None:
    assert holes(look(nodes=[node("n1")], jobs=[running(6, "n1")])) == {}


def test_a_job_that_has_ended_takes_no_node_and_one_that_cleans_up_does() -> None:
    ended = replace(running(6, "n1"), states=frozenset({JobState.COMPLETED}))
    cleaning = replace(ended, states=ended.states | {JobState.COMPLETING})

    assert "n1" in holes(look(nodes=[node("n1")], jobs=[ended]))
    assert holes(look(nodes=[node("n1")], jobs=[cleaning])) == {}


@pytest.mark.parametrize("state", sorted(set(NodeState) - HARMLESS))
def test_every_state_but_the_harmless_ones_closes_a_node(state: NodeState) -> None:
    assert holes(look(nodes=[node("n1", NodeState.IDLE, state)])) == {}


def test_a_state_that_is_not_known_closes_a_node() -> None:
    strange = replace(node("n1"), unknown_states=frozenset({"BEWITCHED"}))

    assert holes(look(nodes=[strange])) == {}


@pytest.mark.parametrize(
    ("requirement", "names"),
    [
        (Requirement(partition="freetrain"), ["n1", "n2"]),
        (Requirement(partition="freetrain", features=frozenset({"ib"})), ["n2"]),
        (Requirement(partition="freetrain", memory_mib=2001), ["n2"]),
        (Requirement(partition="freetrain", cpus=3), ["n2"]),
        (Requirement(partition="freetrain", gres=(Gres("gpu", "", 3),)), ["n2"]),
        (Requirement(partition="freetrain", gres=(Gres("gpu", "a100", 2),)), ["n2"]),
        (Requirement(partition="freetrain", gres=(Gres("gpu", "a100", 3),)), []),
        (Requirement(partition="freetrain", gres=(Gres("nic", "", 1),)), []),
    ],
)
def test_nodes_that_lack_what_a_lease_asks_for_are_no_holes(
    requirement: Requirement, names: list[str]
) -> None:
    rich = replace(
        node("n2"),
        features=frozenset({"ib", "a100"}),
        gres=(Gres("gpu", "a100", 2), Gres("gpu", "v100", 1)),
        cpus=4,
        memory_mib=4000,
    )

    assert list(holes(look(nodes=[node("n1"), rich]), requirement)) == names


def test_a_node_of_other_partitions_is_no_hole() -> None:
    assert holes(look(nodes=[replace(node("n1"), partitions=("main",))])) == {}


def test_a_partition_that_is_down_has_no_holes() -> None:
    snapshot = look(nodes=[node("n1")])
    (partition,) = snapshot.partitions

    down = replace(snapshot, partitions=(replace(partition, is_up=False),))

    assert holes(down) == {}


def test_a_partition_that_is_not_there_is_refused_and_the_others_named() -> None:
    with pytest.raises(SlurmRefusedError, match=r"no partition 'gone'.*freetrain"):
        holes(look(nodes=[node("n1")]), Requirement(partition="gone"))
