"""Who is idle in a look, and what is planned there."""

from __future__ import annotations

from slurm.holes import find_idle
from slurm.records import NodeState
from tests.slurm_library.clusters import NOW_S, look, node, running, waiting


def test_nodes_are_idle_that_nobody_holds_but_us() -> None:
    nodes = (node("n1"), node("n2", NodeState.ALLOCATED), node("n3", NodeState.MIXED))
    jobs = (running(7, "n2"), running(8, "n3"))

    found = find_idle(look(nodes=nodes, jobs=jobs), is_ours=lambda job: job.job_id == 7)

    assert found.nodes == {"n1", "n2"}
    assert not found.unclear


def test_what_passes_by_itself_is_unclear_unless_somebody_else_is_there() -> None:
    nodes = (
        node("n1", NodeState.IDLE, NodeState.COMPLETING),
        node("n2", NodeState.UNKNOWN),
        node("n3", NodeState.MIXED, NodeState.COMPLETING),
        node("n4", NodeState.IDLE, NodeState.DRAIN),
    )

    found = find_idle(
        look(nodes=nodes, jobs=(running(8, "n3"),)), is_ours=lambda _: False
    )

    assert found.unclear == {"n1", "n2"}
    assert not found.nodes


def test_a_broken_or_drained_node_has_left_also_while_it_does_not_respond() -> None:
    # Slurm writes DOWN* for days of a node that died, and IDLE* for minutes before.
    nodes = (
        node("n1", NodeState.DOWN, NodeState.NOT_RESPONDING),
        node("n2", NodeState.IDLE, NodeState.DRAIN, NodeState.NOT_RESPONDING),
        node("n3", NodeState.IDLE, NodeState.DRAIN, NodeState.COMPLETING),
        node("n4", NodeState.IDLE, NodeState.NOT_RESPONDING),
    )

    found = find_idle(look(nodes=nodes), is_ours=lambda _: False)

    assert found.unclear == {"n4"}
    assert not found.nodes


def test_the_first_start_that_others_plan_on_an_idle_node_counts() -> None:
    nodes = (node("n1", NodeState.IDLE, NodeState.PLANNED), node("n2"))
    jobs = (
        waiting(3, "n[1-2]", NOW_S + 900.0),
        waiting(4, "n1", NOW_S + 60.0),
        waiting(7, "n2", NOW_S + 1.0),
    )

    found = find_idle(look(nodes=nodes, jobs=jobs), is_ours=lambda job: job.job_id == 7)

    assert {name: plan.job_id for name, plan in found.planned.items()} == {
        "n1": 4,
        "n2": 3,
    }
