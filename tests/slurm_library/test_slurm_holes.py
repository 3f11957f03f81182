"""Holes: which nodes, until when, and why not longer; jobs named ft-… are ours."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmRefusedError, UnreadableOutputError
from slurm.holes import (
    Hole,
    HoleEnd,
    Snapshot,
    carry_plans,
    find_holes,
    find_idle,
    plans_of,
)
from slurm.records import (
    Gres,
    JobRecord,
    JobState,
    Node,
    NodeState,
    Requirement,
    Reservation,
    expand,
)
from tests.slurm_library.clusters import (
    HOUR_S,
    NOW_S,
    node,
    recorded_snapshot,
    running,
    snapshot_of,
    statistics,
    waiting,
)

ANY = Requirement(partition="freetrain")


def is_ours(job: JobRecord) -> bool:
    return job.name.startswith("ft-")


def holes(
    snapshot: Snapshot, requirement: Requirement = ANY, *, margin_s: float = 0.0,
    window_s: float = math.inf,
) -> dict[str, Hole]:  # fmt: skip
    found = find_holes(
        snapshot, requirement, is_ours=is_ours, margin_s=margin_s, window_s=window_s
    )
    return {hole.node: hole for hole in found}


def ours(job: JobRecord) -> JobRecord:
    return replace(job, name="ft-1")


HARMLESS = {
    NodeState.IDLE,
    NodeState.PLANNED,
    NodeState.CLOUD,
    NodeState.DYNAMIC_NORM,
}


def test_a_node_under_our_own_lease_stays_a_hole_and_names_the_lease() -> None:
    nodes = [node("n1", NodeState.ALLOCATED), node("n2", NodeState.MIXED)]
    jobs = [ours(running(5, "n[1-2]")), waiting(7, "n1", NOW_S + HOUR_S)]

    found = holes(snapshot_of(nodes=nodes, jobs=jobs))

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

    found = holes(snapshot_of(nodes=nodes, jobs=[ours(running(5, "n1"))]))

    assert set(found) == {"n1"}


def test_a_job_that_has_ended_takes_no_node_and_one_that_cleans_up_does() -> None:
    ended = replace(running(6, "n1"), states=frozenset({JobState.COMPLETED}))
    cleaning = replace(ended, states=ended.states | {JobState.COMPLETING})

    assert "n1" in holes(snapshot_of(nodes=[node("n1")], jobs=[ended]))
    assert holes(snapshot_of(nodes=[node("n1")], jobs=[cleaning])) == {}


@pytest.mark.parametrize("state", sorted(set(NodeState) - HARMLESS))
def test_every_state_but_the_harmless_ones_closes_a_node(state: NodeState) -> None:
    assert holes(snapshot_of(nodes=[node("n1", NodeState.IDLE, state)])) == {}


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

    assert list(holes(snapshot_of(nodes=[node("n1"), rich]), requirement)) == names


def test_a_partition_that_is_not_there_is_refused_and_the_others_named() -> None:
    with pytest.raises(SlurmRefusedError, match=r"no partition 'gone'.*freetrain"):
        holes(snapshot_of(nodes=[node("n1")]), Requirement(partition="gone"))


def reservation(start_s: float, end_s: float | None, *flags: str) -> Reservation:
    return Reservation("r", start_s, end_s, nodes="n1", flags=frozenset(flags))


OUR_LEASE = ours(running(5, "n1"))


@pytest.mark.parametrize(
    "snapshot",
    [
        snapshot_of(
            nodes=[node("n1", NodeState.MIXED)], jobs=[OUR_LEASE, running(6, "n1")]
        ),
        *(
            snapshot_of(
                nodes=[node("n1", NodeState.ALLOCATED, state)], jobs=[OUR_LEASE]
            )
            for state in (NodeState.DRAIN, NodeState.COMPLETING, NodeState.FAIL)
        ),
        snapshot_of(nodes=[node("n1")], jobs=[running(6, "n1")]),  # started since
        snapshot_of(
            nodes=[replace(node("n1"), unknown_states=frozenset({"BEWITCHED"}))]
        ),
        snapshot_of(nodes=[replace(node("n1"), partitions=("main",))]),
        *(
            snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "n1", NOW_S - late_s)])
            for late_s in (0.0, 1.0, 900.0)
        ),
        *(
            snapshot_of(
                nodes=[node("n1")], reservations=[reservation(NOW_S - HOUR_S, end_s)]
            )
            for end_s in (NOW_S + 1, None)
        ),
    ],
    ids=[
        *("shared with another", "draining", "completing", "failing", "just taken"),
        *("unknown state", "other partition", "plan due", "plan late", "plan overdue"),
        *("reserved now", "reserved for ever"),
    ],
)
def test_a_node_that_a_lease_could_not_use_now_is_no_hole(snapshot: Snapshot) -> None:
    assert holes(snapshot) == {}


def test_a_partition_that_is_down_has_no_holes() -> None:
    snapshot = snapshot_of(nodes=[node("n1")])
    (partition,) = snapshot.partitions

    assert holes(snapshot).keys() == {"n1"}
    assert not holes(replace(snapshot, partitions=(replace(partition, is_up=False),)))


def test_a_hole_ends_where_the_earliest_planned_job_starts_less_the_margin() -> None:
    jobs = [
        waiting(8, "n[1-2]", NOW_S + 2 * HOUR_S),
        waiting(7, "n1", NOW_S + HOUR_S),
    ]
    found = holes(snapshot_of(nodes=[node("n1"), node("n2")], jobs=jobs), margin_s=60)

    assert found["n1"] == Hole(
        "n1", NOW_S, NOW_S + HOUR_S - 60, HoleEnd.PLANNED_JOB, "7"
    )
    assert found["n2"].end_s == NOW_S + 2 * HOUR_S - 60
    assert found["n2"].blocker == "8"


def test_a_start_without_planned_nodes_ends_no_hole() -> None:
    found = holes(snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "", NOW_S + 60)]))

    assert found["n1"].ends_by is HoleEnd.PARTITION_LIMIT


def test_a_plan_within_the_margin_leaves_no_hole() -> None:
    snapshot = snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "n1", NOW_S + 60)])

    assert holes(snapshot, margin_s=60) == {}
    assert holes(snapshot, margin_s=59)["n1"].end_s == NOW_S + 1


def test_our_own_waiting_leases_hold_no_plan_against_us() -> None:
    jobs = [ours(waiting(7, "n1", NOW_S + 60))]

    assert holes(snapshot_of(nodes=[node("n1")], jobs=jobs))["n1"].blocker == ""


def test_a_node_planned_for_our_own_lease_is_not_for_a_hidden_job() -> None:
    nodes = [node("n1", NodeState.IDLE, NodeState.PLANNED)]
    jobs = [ours(waiting(7, "n1", NOW_S + 60))]

    found = holes(snapshot_of(nodes=nodes, jobs=jobs))

    assert found["n1"].ends_by is HoleEnd.PARTITION_LIMIT


def test_a_node_planned_for_no_job_we_see_is_a_hole_of_unknown_length() -> None:
    found = holes(snapshot_of(nodes=[node("n1", NodeState.IDLE, NodeState.PLANNED)]))

    assert found["n1"].end_s is None
    assert found["n1"].ends_by is HoleEnd.UNKNOWN_PLANNER


def test_jobs_from_a_source_without_plans_are_refused() -> None:
    job = replace(waiting(7, "", None), planned_nodes=None)

    with pytest.raises(UnreadableOutputError, match="without planned nodes"):
        holes(snapshot_of(nodes=[node("n1")], jobs=[job]))


@pytest.mark.parametrize(
    ("max_time_s", "window_s", "end_s", "ends_by"),
    [
        (HOUR_S, math.inf, NOW_S + HOUR_S, HoleEnd.PARTITION_LIMIT),
        (HOUR_S, 2 * HOUR_S, NOW_S + HOUR_S, HoleEnd.PARTITION_LIMIT),
        (3 * HOUR_S, 2 * HOUR_S, NOW_S + 2 * HOUR_S, HoleEnd.BACKFILL_WINDOW),
        (math.inf, 2 * HOUR_S, NOW_S + 2 * HOUR_S, HoleEnd.BACKFILL_WINDOW),
        (math.inf, math.inf, math.inf, HoleEnd.OPEN),
    ],
)
def test_a_hole_for_which_no_job_waits_ends_with_the_limit_or_the_window(
    max_time_s: float, window_s: float, end_s: float, ends_by: HoleEnd
) -> None:
    snapshot = snapshot_of(nodes=[node("n1")], max_time_s=max_time_s)

    found = holes(snapshot, margin_s=60, window_s=window_s)

    assert (found["n1"].end_s, found["n1"].ends_by) == (end_s, ends_by)


@pytest.mark.parametrize("flag", ["MAINT", "MAGNETIC", "TIME_FLOAT", "SPEC_NODES"])
def test_a_hole_ends_where_any_kind_of_reservation_begins(flag: str) -> None:
    coming = reservation(NOW_S + HOUR_S, NOW_S + 2 * HOUR_S, flag)

    found = holes(
        snapshot_of(nodes=[node("n1"), node("n2")], reservations=[coming]), margin_s=9
    )

    assert (found["n1"].end_s, found["n1"].blocker) == (NOW_S + HOUR_S - 9, "r")
    assert found["n2"].ends_by is HoleEnd.PARTITION_LIMIT


def test_a_reservation_that_is_over_ends_no_hole() -> None:
    over = reservation(NOW_S - HOUR_S, NOW_S)

    found = holes(snapshot_of(nodes=[node("n1")], reservations=[over]))

    assert found["n1"].ends_by is HoleEnd.PARTITION_LIMIT


@pytest.mark.parametrize(
    ("flag", "next_s"),
    [
        ("HOURLY", NOW_S + 0.25 * HOUR_S),
        ("DAILY", NOW_S + 14.25 * HOUR_S),
        ("WEEKDAY", NOW_S + 14.25 * HOUR_S),
        ("WEEKEND", NOW_S + 14.25 * HOUR_S),
        ("WEEKLY", NOW_S + 158.25 * HOUR_S),
    ],
)
def test_a_recurring_reservation_that_is_over_comes_again(
    flag: str, next_s: float
) -> None:
    over = reservation(NOW_S - 9.75 * HOUR_S, NOW_S - 9.25 * HOUR_S, flag)
    snapshot = snapshot_of(nodes=[node("n1")], reservations=[over], max_time_s=math.inf)

    found = holes(snapshot)

    assert (found["n1"].end_s, found["n1"].ends_by) == (next_s, HoleEnd.RESERVATION)


def test_no_phantom_hole_opens_while_backfill_makes_its_plans_anew() -> None:
    planned = waiting(7, "n1", NOW_S + HOUR_S)
    before = snapshot_of(nodes=[node("n1")], jobs=[planned])
    cleared = replace(planned, start_s=None, planned_nodes="")
    torn = snapshot_of(
        nodes=[node("n1")], jobs=[cleared], statistic=statistics(is_active=True)
    )

    found = holes(carry_plans(plans_of(before), torn, max_age_s=60))

    assert found == holes(before)
    assert holes(torn) != found


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
    return snapshot_of(nodes=nodes, jobs=jobs)


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


def test_nodes_that_only_our_leases_hold_are_idle() -> None:
    nodes = (node("n1"), node("n2", NodeState.ALLOCATED), node("n3", NodeState.MIXED))
    jobs = (running(7, "n2"), running(8, "n3"))

    found = find_idle(
        snapshot_of(nodes=nodes, jobs=jobs), is_ours=lambda job: job.job_id == 7
    )

    assert found.nodes == {"n1", "n2"}
    assert not found.unclear


def test_a_state_that_passes_is_unclear_unless_another_job_is_there() -> None:
    nodes = (
        node("n1", NodeState.IDLE, NodeState.COMPLETING),
        node("n2", NodeState.UNKNOWN),
        node("n3", NodeState.MIXED, NodeState.COMPLETING),
        node("n4", NodeState.IDLE, NodeState.DRAIN),
    )

    found = find_idle(
        snapshot_of(nodes=nodes, jobs=(running(8, "n3"),)), is_ours=lambda _: False
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

    found = find_idle(snapshot_of(nodes=nodes), is_ours=lambda _: False)

    assert found.unclear == {"n4"}
    assert not found.nodes


def test_the_first_start_that_others_plan_on_an_idle_node_counts() -> None:
    nodes = (node("n1", NodeState.IDLE, NodeState.PLANNED), node("n2"))
    jobs = (
        waiting(3, "n[1-2]", NOW_S + 900.0),
        waiting(4, "n1", NOW_S + 60.0),
        waiting(7, "n2", NOW_S + 1.0),
    )

    found = find_idle(
        snapshot_of(nodes=nodes, jobs=jobs), is_ours=lambda job: job.job_id == 7
    )

    assert {name: plan.job_id for name, plan in found.planned.items()} == {
        "n1": 4,
        "n2": 3,
    }
