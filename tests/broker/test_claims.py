"""Whom the broker yields to."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from freetrain.broker.backfill import (
    Backfill,
    BackfillState,
    Bookings,
    LeaseSpan,
    could_start,
    idle_first,
)
from freetrain.broker.yielding import find_claims
from slurm.holes import HoleEnd
from slurm.records import Gres, JobRecord, JobState, Node
from tests.broker.broker_records import NOW_S, UID, hole

NODES = {
    name: Node(name, frozenset(), features=frozenset({"fast"}), partitions=("main",))
    for name in ("n0", "n1", "n2")
} | {"g0": Node("g0", frozenset(), gres=(Gres("gpu", "", 2),), partitions=("gpu",))}


def waiting(number: int = 1, nodes: int = 1, **changes: object) -> JobRecord:
    fields: dict[str, object] = {
        "partitions": ("main",),
        "reason": "Resources",
        "priority": 100,
        "uid": 1,
        "limit_s": 600.0,
    }
    return JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.PENDING}),
        node_count=nodes,
        **(fields | changes),  # type: ignore[arg-type]
    )


def claimed(
    *jobs: JobRecord, leased: str = "n1 n2", end_s: float = math.inf
) -> tuple[set[str], set[str]]:
    holes = tuple(hole(name, end_s) for name in NODES)
    ground = BackfillState(holes, NODES, frozenset(leased.split()))
    claims = find_claims(jobs, ground, is_ours=lambda job: job.uid == UID, now_s=NOW_S)
    return set(claims.leased), set(claims.idle)


def test_idle_nodes_are_claimed_before_leased_ones() -> None:
    assert claimed(waiting()) == (set(), {"n0"})
    assert claimed(waiting(nodes=2)) == ({"n1"}, {"n0"})
    assert claimed(waiting(1), waiting(2)) == ({"n1"}, {"n0"})


def test_a_job_that_could_not_start_even_so_claims_nothing() -> None:
    assert claimed(waiting(nodes=4)) == (set(), set())


def test_jobs_come_in_order_of_priority() -> None:
    large, small = waiting(1, 3, priority=1), waiting(2, 1, priority=9)

    assert claimed(large, small) == (set(), {"n0"})


@pytest.mark.parametrize(
    "reason",
    [
        *("Dependency", "DependencyNeverSatisfied", "Licenses", "JobHeldUser"),
        *("QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "JobArrayTaskLimit"),
        *("PartitionTimeLimit", "BeginTime", "ReservationDeleted"),
    ],
)
def test_jobs_that_nodes_would_not_help_do_not_count(reason: str) -> None:
    assert claimed(waiting(nodes=3, reason=reason)) == (set(), set())


@pytest.mark.parametrize("reason", ["Resources", "Priority", "", "None", "NewReason"])
def test_a_reason_that_is_unknown_counts(reason: str) -> None:
    assert could_start(waiting(reason=reason), NOW_S)


def test_held_later_and_our_own_jobs_do_not_count() -> None:
    assert not could_start(waiting(priority=0), NOW_S)
    assert not could_start(waiting(eligible_s=NOW_S + 1), NOW_S)
    assert claimed(waiting(uid=UID)) == (set(), set())


def test_a_node_must_be_in_the_partition_and_have_what_is_asked() -> None:
    assert claimed(waiting(partitions=("gpu",))) == (set(), {"g0"})
    assert claimed(waiting(features="slow")) == (set(), set())
    assert claimed(waiting(features="slow|fast")) == (set(), {"n0"})
    assert claimed(waiting(gres_per_node="gres/gpu:1")) == (set(), set())
    assert claimed(waiting(gres_per_job="gres/gpu:1")) == (set(), set())
    assert claimed(waiting(gres_per_job="gres/gpu:1", nodes=2)) == ({"n1"}, {"n0"})
    assert claimed(waiting(requested_nodes="n2")) == ({"n2"}, set())
    assert claimed(waiting(requested_nodes="n[[")) == (set(), {"n0"})


def test_nobody_but_the_planned_job_fits_before_its_planned_start() -> None:
    soon = NOW_S + 300

    assert claimed(waiting(), end_s=soon) == (set(), set())
    assert claimed(waiting(limit_s=200.0), end_s=soon) == (set(), {"n0"})
    assert claimed(waiting(99), end_s=soon) == (set(), {"n0"})


def test_who_is_over_sooner_or_needs_less_may_start_where_one_like_it_cannot() -> None:
    long, short = waiting(1), waiting(2, limit_s=200.0)

    assert claimed(long, short, end_s=NOW_S + 300) == (set(), {"n0"})
    assert claimed(waiting(1, nodes=4), waiting(2, nodes=3)) == ({"n1", "n2"}, {"n0"})


def test_a_job_gets_the_nodes_that_it_insists_on_and_others_beside_them() -> None:
    both = waiting(nodes=2, requested_nodes="n2")

    assert claimed(both) == ({"n2"}, {"n0"})
    assert claimed(waiting(requested_nodes="n[1-2]", nodes=2)) == ({"n1", "n2"}, set())
    assert claimed(waiting(requested_nodes="n[2,9]", nodes=3)) == (set(), set())


def test_nodes_that_others_share_help_a_job_to_start_and_are_not_ours_to_keep() -> None:
    nodes = NODES | {"n3": replace(NODES["n0"], name="n3")}
    holes = tuple(hole(name) for name in NODES)
    ground = BackfillState(
        holes, nodes, frozenset({"n1", "n2"}), partly=frozenset({"n3"})
    )

    job = waiting(nodes=4)
    claims = find_claims([job], ground, is_ours=lambda _: False, now_s=NOW_S)

    assert claims.nodes == {"n0", "n1", "n2"}


def test_leases_of_anybodys_freetrain_claim_nothing() -> None:
    theirs = waiting(name="freetrain-0f8fad5b-d9cb-469f-a165-70867728950e")
    named_alike = waiting(name="freetrain-of-thoughts")

    assert claimed(theirs) == (set(), set())
    assert claimed(named_alike) == (set(), {"n0"})


@pytest.mark.parametrize(
    ("tasks", "nodes"),
    [
        ("", 1),
        ("4", 1),
        ("0-1", 2),
        ("1,7", 2),
        ("0-9", 3),
        ("0-9%2", 2),
        ("0-1...", 3),
    ],
)
def test_every_task_that_could_start_gets_its_node_at_once(
    tasks: str, nodes: int
) -> None:
    leased, idle = claimed(waiting(array_tasks=tasks))

    assert len(leased | idle) == nodes


def test_an_array_of_a_million_tasks_beside_shared_nodes_takes_no_longer_than_one() -> (
    None
):
    nodes = NODES | {"n3": replace(NODES["n0"], name="n3")}
    holes = tuple(hole(name) for name in NODES)
    ground = BackfillState(
        holes, nodes, frozenset({"n1", "n2"}), partly=frozenset({"n3"})
    )
    array = waiting(array_tasks="0-999999999")

    claims = find_claims([array], ground, is_ours=lambda _: False, now_s=NOW_S)

    assert claims.nodes == {"n0", "n1", "n2"}


def test_the_last_wide_task_of_an_array_may_be_on_shared_nodes_in_part() -> None:
    nodes = NODES | {"n3": replace(NODES["n0"], name="n3")}
    holes = tuple(hole(name) for name in NODES)
    ground = BackfillState(
        holes, nodes, frozenset({"n1", "n2"}), partly=frozenset({"n3"})
    )

    def claimed_by(wide: int) -> set[str]:
        array = waiting(nodes=wide, array_tasks="0-9")
        found = find_claims([array], ground, is_ours=lambda _: False, now_s=NOW_S)
        return set(found.nodes)

    assert claimed_by(2) == {"n0", "n1", "n2"}
    assert claimed_by(5) == set()


def test_an_array_of_wide_tasks_claims_whole_tasks_only() -> None:
    assert claimed(waiting(nodes=2, array_tasks="0-9")) == ({"n1"}, {"n0"})


def put_off(
    *jobs: JobRecord,
    lease_s: tuple[float, float] = (-600.0, 3_600.0),
    busy_s: float = 200.0,
) -> set[str]:
    """Return what is claimed of two leases beside a node that is busy for a while."""
    nodes = {name: NODES[name] for name in ("n0", "n1", "n2")}
    start_s, end_s = (NOW_S + seconds for seconds in lease_s)
    ground = BackfillState(
        holes=tuple(hole(name) for name in ("n1", "n2")),
        nodes=nodes,
        leased=frozenset({"n1", "n2"}),
        spans={name: LeaseSpan(start_s, end_s) for name in ("n1", "n2")},
        busy_until_s={"n0": NOW_S + busy_s},
    )
    claims = find_claims(jobs, ground, is_ours=lambda _: False, now_s=NOW_S)
    assert not claims.idle
    return set(claims.leased)


def planned(in_s: float, nodes: int = 3, **changes: object) -> JobRecord:
    return replace(
        waiting(nodes=nodes),
        submit_s=NOW_S - 300,
        start_s=NOW_S + in_s,
        planned_nodes="n[0-2]",
        **changes,  # type: ignore[arg-type]
    )


def test_leases_go_that_put_off_the_planned_start_of_a_job_that_waits_for_others() -> (
    None
):
    assert put_off(planned(3_600)) == {"n1", "n2"}


@pytest.mark.parametrize(
    "job",
    [
        planned(250),  # in time but for the grain of plans
        waiting(nodes=3, submit_s=NOW_S - 300),  # nobody goes ahead of no plan
        planned(3_600, nodes=4),  # never, whatever we do
        planned(3_600, reason="Dependency"),
    ],
)
def test_leases_stay_that_put_nobody_off(job: JobRecord) -> None:
    assert put_off(job) == set()


def test_leases_stay_that_are_over_by_the_time_the_job_could_start() -> None:
    assert put_off(planned(3_600), lease_s=(-600, 200)) == set()


def test_a_lease_goes_however_young_since_new_ones_end_in_time() -> None:
    assert put_off(planned(3_600), lease_s=(-1, 3_600)) == {"n1", "n2"}


def test_leases_that_begin_now_should_end_before_somebody_else_is_booked() -> None:
    nodes = {name: NODES[name] for name in ("n0", "n1", "n2")}
    ground = BackfillState(
        holes=(hole("n1"), hole("n2")),
        nodes=nodes,
        leased=frozenset(),
        busy_until_s={"n0": NOW_S + 200},
    )
    wide, long = waiting(nodes=2, requested_nodes="n0"), waiting(2, limit_s=9_000.0)

    claims = find_claims([wide, long], ground, is_ours=lambda _: False, now_s=NOW_S)

    # Nothing is planned there yet: backfill looks later.
    assert claims.booked_s == {"n0": NOW_S + 200, "n1": NOW_S + 200}
    assert claims.idle == {"n2": 2}


def test_leased_nodes_are_claimed_where_slurms_choice_lets_one_more_start() -> None:
    # Without leases the first has n0 and the third n2; the second has n0 again, as the
    # first of those that are free all the time. If the first had n2, which is idle, the
    # second would have n0, and the third would wait for it.
    nodes = {name: NODES[name] for name in ("n0", "n1", "n2")}
    ground = BackfillState(
        holes=(hole("n0"), hole("n2")),
        nodes=nodes,
        leased=frozenset({"n0"}),
        busy_until_s={"n1": NOW_S + 600},
    )
    first, third = waiting(1), waiting(3, limit_s=1_000.0)
    second = waiting(2, nodes=2)

    claims = find_claims(
        [first, second, third], ground, is_ours=lambda _: False, now_s=NOW_S
    )

    assert claims.leased == {"n0": 1}
    assert claims.idle == {"n2": 3}


def test_leases_stay_where_slurms_choice_lets_nobody_else_start() -> None:
    ground = BackfillState((hole("n0"), hole("n1")), NODES, frozenset({"n0"}))

    claims = find_claims([waiting()], ground, is_ours=lambda _: False, now_s=NOW_S)

    assert (claims.leased, claims.idle) == ({}, {"n1": 1})


def test_idle_nodes_are_claimed_as_slurm_would_take_them() -> None:
    nodes = {name: NODES[name] for name in ("n1", "n0")}  # as Slurm lists them
    planned_hole = replace(hole("n0", NOW_S + 900), blocker="2")
    behind = waiting(2, nodes=2, priority=1, start_s=NOW_S + 900, planned_nodes="n0")
    ground = BackfillState((planned_hole, hole("n1")), nodes, frozenset())

    claims = find_claims(
        [waiting(1), behind], ground, is_ours=lambda _: False, now_s=NOW_S
    )
    assert claims.idle == {"n1": 1}


def test_one_more_lease_than_needed_stays() -> None:
    assert put_off(planned(3_600, nodes=2, requested_nodes="n0")) == {"n1"}


def test_nobody_gets_leases_who_would_go_ahead_of_a_job_that_waits_for_others() -> None:
    short = waiting(2, limit_s=200.0, priority=1)
    long = waiting(3, limit_s=201.0, priority=1)

    assert put_off(planned(250), short) == {"n1"}
    assert put_off(planned(250), long) == set()


def test_leases_go_that_move_the_plan_of_a_job_before_one_that_could_start() -> None:
    # Without the lease of n2 backfill would plan the first there, not on n1, where the
    # second could start.
    nodes = {name: NODES[name] for name in ("n0", "n1", "n2")}
    busy_s = {"n0": NOW_S + 200}
    first = waiting(1, nodes=2, requested_nodes="n[0,2]", start_s=NOW_S + 240)
    first = replace(first, planned_nodes="n[0-1]")
    second = waiting(2, limit_s=3_000.0, priority=1)

    def claims(planned_s: float) -> set[str]:
        there = replace(hole("n1", NOW_S + planned_s), blocker="1")
        ground = BackfillState(
            holes=(there, hole("n2")),
            nodes=nodes,
            leased=frozenset({"n2"}),
            spans={"n2": LeaseSpan(NOW_S - 600, NOW_S + 3_600)},
            busy_until_s=busy_s,
        )
        jobs = [first, second]
        found = find_claims(jobs, ground, is_ours=lambda _: False, now_s=NOW_S)
        return set(found.nodes)

    assert claims(planned_s=240.0) == {"n1", "n2"}
    assert claims(planned_s=3_001.0) == {"n1"}


@pytest.mark.parametrize(("lease_s", "given"), [(3_600.0, {"n0"}), (200.0, set())])
def test_leases_go_beside_which_backfill_would_not_start_whom_room_is_made_for(
    lease_s: float, given: set[str]
) -> None:
    # Without the lease of n0 the first has n0, n1 and n2 in 200 s, and the second n3.
    # Beside it the first would have n1, n2 and n3 then, and nothing tells so far.
    four = {f"n{k}": replace(NODES["n0"], name=f"n{k}") for k in range(4)}
    ground = BackfillState(
        holes=(hole("n0"), hole("n3"), hole("g0")),
        nodes=four | {"g0": NODES["g0"]},
        leased=frozenset({"n0", "g0"}),
        spans=dict.fromkeys(("n0", "g0"), LeaseSpan(NOW_S - 600, NOW_S + lease_s)),
        busy_until_s={"n1": NOW_S + 200, "n2": NOW_S + 200},
    )
    first, second = waiting(1, nodes=3), waiting(2, limit_s=1_000.0, priority=1)

    claims = find_claims([first, second], ground, is_ours=lambda _: False, now_s=NOW_S)

    assert claims.idle == {"n3": 2}
    assert claims.leased == dict.fromkeys(given, 2)


def test_leases_go_on_nodes_that_slurm_would_take_where_fewer_have_to_go_so() -> None:
    # Without leases the first has all in 600 s, and the third n0 and n2 until 100 s.
    # On n0 and n3 the second would go ahead of both for 1,000 s, as the lease of n2
    # puts the first off; that of n4 ends as early as may be.
    nodes = {f"n{k}": replace(NODES["n0"], name=f"n{k}") for k in range(5)}
    ground = BackfillState(
        holes=tuple(hole(name) for name in ("n0", "n2", "n3", "n4")),
        nodes=nodes,
        leased=frozenset({"n2", "n4"}),
        spans={
            "n2": LeaseSpan(NOW_S, NOW_S + 3_600),
            "n4": LeaseSpan(NOW_S, NOW_S + 700),
        },
        busy_until_s={"n1": NOW_S + 600},
    )
    jobs = [
        waiting(1, nodes=5, priority=3),
        waiting(2, nodes=2, priority=2, limit_s=1_000.0),
        waiting(3, nodes=2, priority=1, limit_s=100.0),
    ]

    claims = find_claims(jobs, ground, is_ours=lambda _: False, now_s=NOW_S)

    assert claims.idle == {"n0": 3}
    assert claims.leased == {"n2": 3}


def test_a_start_beyond_what_backfill_plans_holds_nothing() -> None:
    nodes = {name: NODES[name] for name in ("n0", "n1")}
    ground = BackfillState(
        holes=(hole("n1"),),
        nodes=nodes,
        leased=frozenset({"n1"}),
        busy_until_s={"n0": NOW_S + 3_600},
        backfill=Backfill(window_s=1_800.0),
    )
    wide, long = waiting(nodes=2), waiting(2, limit_s=9_000.0, priority=1)

    claims = find_claims([wide, long], ground, is_ours=lambda _: False, now_s=NOW_S)
    assert claims.leased == {"n1": 2}


def test_a_node_that_somebody_holds_past_its_limit_is_not_free_yet() -> None:
    ground = BackfillState(
        holes=(hole("n1"),),
        nodes={name: NODES[name] for name in ("n0", "n1")},
        leased=frozenset({"n1"}),
        busy_until_s={"n0": NOW_S - 1},
    )
    wide, short = waiting(nodes=2), waiting(2, limit_s=1.0, priority=1)

    claims = find_claims([wide, short], ground, is_ours=lambda _: False, now_s=NOW_S)
    assert claims.leased == {"n1": 2}


def test_who_is_planned_around_leases_keeps_nobody_before_it_from_starting() -> None:
    # Backfill has planned a job of low priority after the lease of n1.
    nodes = {name: NODES[name] for name in ("n1",)}
    behind = waiting(2, priority=1, start_s=NOW_S + 300, planned_nodes="n1")
    planned_hole = replace(
        hole("n1", NOW_S + 300), ends_by=HoleEnd.PLANNED_JOB, blocker="2"
    )
    ground = BackfillState((planned_hole,), nodes, frozenset({"n1"}))

    claims = find_claims(
        [waiting(1), behind], ground, is_ours=lambda _: False, now_s=NOW_S
    )
    assert claims.leased == {"n1": 1}


def test_a_job_is_booked_where_leases_end_in_time_anyway() -> None:
    leases = {
        "a": LeaseSpan(NOW_S - 600, NOW_S + 3_600),
        "b": LeaseSpan(NOW_S - 600, NOW_S + 100),
    }
    nodes = {name: replace(NODES["n0"], name=name) for name in "abc"}
    ground = BackfillState((), nodes, frozenset("ab"), spans=leases)
    free_s = {"a": NOW_S, "b": NOW_S, "c": NOW_S + 200}
    job = planned(3_600, nodes=2, requested_nodes="c")
    bookings = Bookings(NOW_S, ground, free_s, rank=idle_first(ground), closed_s={})

    assert bookings.book(ground.eligibility.request(job)) == ()
    assert bookings.overlapped == ("a",)  # backfill takes the first
