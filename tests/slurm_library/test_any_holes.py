"""Holes of recorded clusters, and what holds of those of every look."""

import math
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from slurm.holes import HoleEnd, find_holes
from slurm.hostlist import expand
from slurm.records import JobRecord, Node, NodeState
from slurm.snapshot import Snapshot
from tests.slurm_library.clusters import (
    HOUR_S,
    NOW_S,
    look,
    node,
    recorded_snapshot,
    running,
    waiting,
)
from tests.slurm_library.holes_found import ANY, holes, is_ours, ours


def test_the_recorded_busy_cluster_has_the_one_hole_it_had() -> None:
    snapshot = recorded_snapshot("busy")

    found = holes(snapshot)

    assert list(found) == ["n6"]
    assert found["n6"].ends_by is HoleEnd.RESERVATION
    assert found["n6"].blocker == "daily1"


def test_the_recorded_leases_hold_two_holes_until_the_big_job_starts() -> None:
    snapshot = recorded_snapshot("leases")
    big = next(job for job in snapshot.jobs if job.name == "big")

    found = holes(snapshot)

    assert {name: hole.held_by for name, hole in found.items()} == {
        "n7": (32,),
        "n8": (33,),
    }
    assert {hole.end_s for hole in found.values()} == {big.start_s}
    assert {hole.blocker for hole in found.values()} == {str(big.job_id)}


def test_the_recorded_broken_nodes_are_no_holes() -> None:
    assert list(holes(recorded_snapshot("broken"))) == ["n4", "n6", "n7", "n8"]


def test_the_recorded_hidden_plans_make_holes_of_unknown_length() -> None:
    found = holes(recorded_snapshot("private"))

    unknown = [name for name, hole in found.items() if hole.end_s is None]
    assert unknown == ["n4", "n5", "n6", "n7"]
    assert found["n8"].ends_by is HoleEnd.PARTITION_LIMIT


def test_the_recorded_quiet_cluster_is_open_up_to_the_partitions_limit() -> None:
    snapshot = recorded_snapshot("quiet")

    found = holes(snapshot, window_s=86_400.0)

    assert len(found) == 8
    assert {hole.end_s for hole in found.values()} == {snapshot.time_s + 4 * HOUR_S}


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    states = st.sets(st.sampled_from(NodeState), max_size=2).map(tuple)
    nodes = [node(f"n{k}", *draw(states)) for k in range(draw(st.integers(1, 6)))]
    hostlists = st.sampled_from(["n0", "n[0-2]", "n[1,3]", "n[2-5]"])
    starts = st.one_of(st.none(), st.floats(NOW_S - HOUR_S, NOW_S + 9 * HOUR_S))
    plans = draw(st.lists(st.tuples(hostlists, starts, st.booleans()), max_size=5))
    holders = draw(st.lists(st.tuples(hostlists, st.booleans()), max_size=2))
    jobs: list[JobRecord] = []
    for number, (names, start_s, is_mine) in enumerate(plans):
        job = waiting(number, names, start_s)
        jobs.append(ours(job) if is_mine else job)
    for number, (names, is_mine) in enumerate(holders, start=100):
        job = running(number, names)
        jobs.append(ours(job) if is_mine else job)
    return look(nodes=nodes, jobs=jobs)


def others(snapshot: Snapshot) -> list[JobRecord]:
    return [job for job in snapshot.jobs if not is_ours(job)]


@given(snapshots(), st.floats(0, HOUR_S))
def test_no_hole_reaches_into_anybodys_plan_or_onto_anybodys_node(
    snapshot: Snapshot, margin_s: float
) -> None:
    found = holes(snapshot, margin_s=margin_s)

    held = chain.from_iterable(
        expand(j.nodes) for j in others(snapshot) if j.holds_nodes
    )
    assert not found.keys() & set(held)
    for job in others(snapshot):
        if not job.is_planned or job.start_s is None:
            continue
        for name in expand(job.planned_nodes or ""):
            if name in found:
                end_s = found[name].end_s
                assert end_s is None or end_s <= job.start_s - margin_s


@given(snapshots())
def test_every_hole_is_open_now_and_there_is_one_a_node_at_most(
    snapshot: Snapshot,
) -> None:
    found = find_holes(snapshot, ANY, is_ours=is_ours, margin_s=0)

    names = [hole.node for hole in found]
    assert len(set(names)) == len(names)
    nodes: dict[str, Node] = {n.name: n for n in snapshot.nodes}
    for hole in found:
        assert hole.end_s is None or hole.start_s < hole.end_s
        assert hole.held_by or NodeState.IDLE in nodes[hole.node].states


@given(snapshots(), st.floats(0, HOUR_S))
def test_a_larger_margin_never_makes_a_hole_longer(
    snapshot: Snapshot, margin_s: float
) -> None:
    wide, narrow = holes(snapshot), holes(snapshot, margin_s=margin_s)

    assert narrow.keys() <= wide.keys()
    for name, hole in narrow.items():
        assert (hole.end_s or math.inf) <= (wide[name].end_s or math.inf)
