"""Leases that are pieces of nodes: which go for jobs that need a part, or all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.backfill import SoonerEnd
from freetrain.broker.belief import Belief
from freetrain.broker.job_limits import BlockedJobs
from freetrain.broker.lease import Lease, LeaseKey, LeaseState
from freetrain.config.site import LeaseMode
from freetrain.tick.room import (
    idle_nodes,
    make_room,
    preemptable,
    with_begun,
    with_blocked,
)
from slurm.holes import Snapshot
from slurm.records import (
    ClusterConfig,
    Gres,
    JobKey,
    JobRecord,
    JobState,
)
from tests.slurm.clusters import NOW_S
from tests.tick.shared_cluster import (
    BEN,
    CPUS,
    ENVIRONMENT,
    GPUS,
    MIB,
    SHARED,
    US,
    Found,
    found,
    piece,
    running,
    site_of,
    snapshot,
    waiting,
    whole,
)

if TYPE_CHECKING:
    from slurm.backend import SlurmBackend

FULL = [piece(number, "n1") for number in (11, 12, 13, 14)]
"""Four leases of one GPU each: the first ends first, and gives way first."""


def of_one_node(*jobs: JobRecord, **changes: bool | str | int) -> Found:
    return found("n1", *jobs, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "goes"),
    [
        (waiting(gpus=1), {11}),
        (waiting(gpus=2), {11, 12}),
        (waiting(gpus=0, cpu_count=3), {11, 12}),
        (waiting(gpus=0, least_memory_mib=2_001), {11, 12}),
        (waiting(gpus=0, least_memory_mib=0), {11, 12, 13, 14}),
        (waiting(gpus=5), set()),
        (whole(), {11, 12, 13, 14}),
        (whole(nodes=2), set()),
        (waiting(gres_per_node="gres:gpu:v100:1"), set()),
    ],
)
def test_as_many_leases_of_a_node_go_as_a_job_needs(
    job: JobRecord, goes: set[int]
) -> None:
    assert of_one_node(*FULL, job).goes == goes


@pytest.mark.parametrize(
    "job",
    [
        waiting(oversubscribe=""),
        waiting(gres_per_node="gres:gpu:1,gres:gp", cut=frozenset({"gres_per_node"})),
        waiting(gres_per_socket="gres:gpu:1"),
        waiting(gres_per_node="gres:gpu:x:y:1"),
    ],
    ids=["how it shares nodes", "cut", "for each socket", "in no known form"],
)
def test_where_a_request_is_unclear_all_leases_of_one_node_go(job: JobRecord) -> None:
    more = [piece(number, "n2") for number in (21, 22, 23, 24)]
    both = found("n1 n2", *FULL, *more, job)
    assert both.goes == {11, 12, 13, 14}


def test_a_lease_of_a_whole_node_goes_for_a_part_of_it_beside_leases_of_pieces() -> (
    None
):
    # Slurm shows neither memory nor GPUs of a job that takes a whole node.
    exclusive = piece(50, "n2", 0, cpu_count=CPUS, least_memory_mib=0)
    busy = running(5, "n1", GPUS)
    assert found("n1 n2", exclusive, busy, waiting(gpus=2)).goes == {50}
    beside = piece(11, "n3"), running(6, "n3", 3)
    assert found("n1 n2 n3", exclusive, busy, *beside, waiting(gpus=2)).goes == {50}


@pytest.mark.parametrize("kind", ["a100", "v100", ""])
def test_leases_of_any_gpu_go_on_a_node_of_several_kinds(kind: str) -> None:
    any_kind = [piece(n, "n1", gres_per_node="gres:gpu:1") for n in (11, 12, 13, 14)]
    asked = f"gres:gpu:{kind}:2" if kind else "gres:gpu:2"
    jobs = [*any_kind, waiting(gres_per_node=asked)]
    two = (Gres("gpu", "a100", 2), Gres("gpu", "v100", 2))
    assert found("n1", *jobs, gres=two).goes == {11, 12, 13, 14}


def test_each_of_several_jobs_gets_its_part_of_one_node() -> None:
    more = [piece(number, "n2") for number in (21, 22, 23, 24)]
    jobs = [waiting(1), waiting(2), waiting(3)]
    assert found("n1 n2", *FULL, *more, *jobs).goes == {11, 12, 13}
    tasks = waiting(1, array_tasks="0-2")
    assert found("n1 n2", *FULL, *more, tasks).goes == {11, 12, 13}


def test_where_it_is_unknown_who_is_exclusive_all_leases_of_a_node_go() -> None:
    beside = (*FULL, running(5, "n1", 0))
    assert of_one_node(*beside, waiting(oversubscribe="NO")).goes == set()
    unknown = of_one_node(*beside, waiting(oversubscribe=""))
    assert unknown.goes == {11, 12, 13, 14}


def test_leases_stay_where_a_job_fits_beside_them_and_no_new_one_may_come() -> None:
    room = of_one_node(*FULL[:3], waiting())
    assert room.goes == set()
    assert room.claims.idle == {"n1": 1}
    assert room.claims.spared == {"n1": {11, 12, 13}}
    assert not room.claims.bars_leases
    assert of_one_node(*FULL[:3], waiting(), waiting(2)).goes == {11}


def test_leases_go_beside_jobs_of_others() -> None:
    theirs = running(5, "n1", 2)
    room = of_one_node(theirs, *FULL[:2], waiting())
    assert (room.goes, set(room.claims.leased)) == ({11}, {"n1"})
    assert of_one_node(theirs, *FULL[:2], waiting(gpus=2)).goes == {11, 12}
    assert of_one_node(theirs, *FULL[:2], waiting(gpus=3)).goes == set()


def test_a_job_of_whole_nodes_cannot_start_beside_others() -> None:
    theirs = running(5, "n1", 2)
    assert of_one_node(theirs, *FULL[:2], whole()).goes == set()
    room = of_one_node(theirs, *FULL[:2], waiting(), oversubscribe="EXCLUSIVE")
    assert room.goes == set()


def test_a_job_of_several_nodes_takes_what_is_free_of_some_and_pieces_of_others() -> (
    None
):
    more = [running(5, "n2", 2), piece(21, "n2"), running(6, "n3", 4)]
    wide = waiting(1, node_count=2, cpu_count=2, task_count=2)
    room = found("n1 n2 n3", *FULL, *more, wide)
    assert room.goes == {11}
    assert (set(room.claims.leased), set(room.claims.idle)) == ({"n1"}, {"n2"})


def test_idle_nodes_come_before_leases() -> None:
    room = found("n1 n2", *FULL, waiting())
    assert (room.goes, room.claims.idle) == (set(), {"n2": 1})


def test_a_job_that_slurm_may_spread_gets_nodes_until_they_have_enough() -> None:
    more = [running(5, "n2", 2), piece(21, "n2"), piece(22, "n2")]
    beside = [running(6, "n1", 1), *FULL[:3]]
    job = waiting(gpus=0, cpu_count=10, task_count=10)
    room = found("n1 n2", *beside, *more, job)
    assert room.goes == {11, 12, 13, 21, 22}
    too_many = replace(job, cpu_count=11, task_count=11)
    assert found("n1 n2", *beside, *more, too_many).goes == set()


def test_the_gpus_of_a_job_in_all_are_spread_over_its_nodes() -> None:
    job = waiting(1, 0, gres_per_job="gres:gpu:3", cpu_count=3, task_count=3)
    assert of_one_node(*FULL, job).goes == {11, 12, 13}
    per_task = waiting(1, 0, gres_per_task="gres:gpu:1", cpu_count=3, task_count=3)
    assert of_one_node(*FULL, per_task).goes == {11, 12, 13}


def test_a_planned_start_that_a_job_would_run_into_keeps_it_from_a_part() -> None:
    reserved = replace(
        whole(9, priority=1),
        start_s=NOW_S + 300,
        planned_nodes="n1",
        reason="Dependency",
    )
    assert of_one_node(*FULL[:3], waiting(), reserved).claims.idle == {}
    short = waiting(limit_s=200.0)
    assert of_one_node(*FULL[:3], short, reserved).claims.idle == {"n1": 1}


def test_leases_of_a_node_end_before_a_job_that_must_wait_for_others_there() -> None:
    wide = whole(1, start_s=NOW_S + 4_000, planned_nodes="n1")
    room = of_one_node(running(5, "n1", 2), *FULL[:2], wide)
    assert room.goes == set()
    (end,) = room.claims.sooner_ends.values()
    assert NOW_S + 1_900 < end.end_s < NOW_S + 2_000
    assert room.claims.ends_sooner("n1", 11) == SoonerEnd(end.end_s, 1)


def test_leases_that_stay_beside_a_job_end_before_the_next_that_needs_the_node() -> (
    None
):
    wide = whole(2, priority=1, start_s=NOW_S + 4_000, planned_nodes="n1")
    room = of_one_node(running(5, "n1", 1), *FULL[:3], waiting(), wide)
    assert room.goes == {11}
    assert room.claims.ends_sooner("n1", 11) is None
    assert room.claims.ends_sooner("n1", 12) is not None


def test_a_node_is_leased_from_the_first_start_to_the_last_end() -> None:
    # Only the lease that ends last puts the job off.
    wide = whole(1, start_s=NOW_S + 4_000, planned_nodes="n1")
    ends_s = (NOW_S + 9_000, NOW_S + 1_000)
    leases = [replace(FULL[k], end_s=ends_s[k]) for k in (0, 1)]
    for held in (leases, leases[::-1]):
        room = of_one_node(running(5, "n1", 2), *held, wide)
        assert set(room.claims.sooner_ends) == {"n1"}


def test_brokers_of_several_users_find_the_same_and_leases_of_the_richest_go() -> None:
    jobs = [*FULL[:3], piece(21, "n1", owner=BEN), waiting(gpus=2)]
    rooms = [of_one_node(*jobs, owner=owner) for owner in (US, BEN)]
    assert rooms[0].claims == rooms[1].claims
    assert rooms[0].goes == {11, 12}


def test_what_a_lease_leaves_that_is_just_ending_is_free() -> None:
    states = frozenset({JobState.CANCELLED, JobState.COMPLETING})
    gone = replace(FULL[0], states=states, end_s=NOW_S - 2)
    room = of_one_node(gone, *FULL[1:], waiting())
    assert (room.goes, room.claims.idle) == (set(), {"n1": 1})


def test_leases_of_brokers_that_do_not_take_part_are_others_jobs() -> None:
    deaf = [piece(k, "n1", owner=BEN, comment="") for k in (21, 22)]
    assert of_one_node(*FULL[:2], *deaf, waiting(gpus=3)).goes == set()
    goes = of_one_node(*FULL[:2], *deaf, waiting(gpus=2)).goes
    assert goes - {21, 22} == {11, 12}  # each broker gives up its own


def test_careful_leases_of_a_node_stay_where_its_job_may_end_at_any_time() -> None:
    # A cycle after that end the leases are gone, and the job starts.
    jobs = [running(5, "n1", 2), *FULL[:2], whole()]
    assert of_one_node(*jobs, careful=True).goes == set()


@pytest.mark.parametrize(("has_piece", "kept"), [(False, {"n0", "n1"}), (True, set())])
def test_careful_leases_keep_nodes_free_where_another_job_would_go_ahead(
    kept: set[str], *, has_piece: bool
) -> None:
    # n2 comes free early: three nodes for the first, were none leased. Beside leases
    # the second is over before the first can begin, if no lease is on n2 itself.
    end_s = NOW_S + 1_620
    jobs = [
        *(piece(k, "n0", end_s=end_s) for k in (1_001, 1_002)),
        running(6, "n2", 2, end_s=NOW_S + 2_300),
        *([piece(1_003, "n2", end_s=end_s)] if has_piece else []),
        running(7, "n3", 4, end_s=NOW_S + 9_000),
        whole(1, 3, priority=3),
        whole(2, priority=2, limit_s=1_000.0, requested_nodes="n2"),
    ]
    claims = found("n0 n1 n2 n3", *jobs, careful=True).claims
    assert set(claims.kept_free.nodes) == kept


def test_careful_leases_stay_off_the_free_part_of_a_node_that_one_has_left() -> None:
    # When n2 comes free early, the first could start on all three, were none leased.
    jobs = [
        *(running(k, node, 2) for k, node in ((4, "n0"), (5, "n1"))),
        running(6, "n2", 4, end_s=NOW_S + 2_300),
        running(7, "n3", 3),
        piece(1_004, "n3"),
        waiting(1, 2, node_count=3, task_count=3, cpu_count=12, priority=3),
        whole(2, priority=2, limit_s=1_000.0, requested_nodes="n2"),
    ]
    jobs = [
        replace(j, end_s=NOW_S + 9_000) if j.job_id in {4, 5, 7} else j for j in jobs
    ]
    lease = piece(1_001, "n0", end_s=NOW_S + 1_620)
    before = found("n0 n1 n2 n3", *jobs, lease, careful=True)
    assert before.goes == {1_001}
    after = found("n0 n1 n2 n3", *jobs, careful=True)
    assert after.claims.kept_free.nodes == {"n0": 1, "n1": 1}


def planned(number: int, node: str, start_s: float) -> JobRecord:
    """A job that takes one whole node and no other, planned there."""
    job = whole(number, priority=900, start_s=start_s, planned_nodes=node)
    return replace(job, requested_nodes=node)


def test_what_is_free_goes_to_jobs_in_slurms_order() -> None:
    # The long job cannot have n0's free GPU. With the short one there it has n1's.
    jobs = [
        *(running(5, "n0", 2), piece(11, "n0"), running(6, "n1", 3)),
        *(piece(number, "n2") for number in (21, 22, 23, 24)),
        planned(9, "n0", NOW_S + 2_000),
        waiting(1, limit_s=300.0, priority=3),
        waiting(2, limit_s=7_200.0, priority=2),
    ]
    assert found("n0 n1 n2", *jobs).goes == set()


def test_careful_leases_do_not_go_in_vain() -> None:
    # If the job on n0 ended, the planned one could start there, but for the other.
    jobs = [
        *(running(5, "n0", 1), *(piece(number, "n0") for number in (11, 12, 13))),
        *(running(6, "n1", 3), piece(21, "n1")),
        planned(9, "n0", NOW_S + 2_000),
        waiting(1, limit_s=300.0),
    ]
    assert found("n0 n1", *jobs, careful=True).goes == {11}


def test_nodes_come_first_where_the_fewest_leases_go() -> None:
    more = [running(5, "n2", 1), piece(21, "n2", 3)]
    assert found("n1 n2", *FULL, *more, waiting(gpus=2)).goes == {21}
    assert found("n1 n2", *FULL, *more, waiting()).goes == {11}


def test_components_of_a_heterogeneous_job_start_together_or_take_no_part() -> None:
    first = waiting(1, 2, het_job_id=1)
    second = waiting(2, 3, het_job_id=1)
    assert of_one_node(*FULL, first, second).goes == set()
    assert of_one_node(*FULL, first, replace(second, het_job_id=0)).goes == {11, 12}
    small = waiting(2, 2, het_job_id=1)
    assert of_one_node(*FULL, first, small).goes == {11, 12, 13, 14}
    third = waiting(3, 3, priority=1)
    assert of_one_node(*FULL, first, second, third).goes == {11, 12, 13}


def test_a_required_node_and_features_are_heeded() -> None:
    more = [piece(number, "n2") for number in (21, 22, 23, 24)]
    jobs = (*FULL, *more)
    assert found("n1 n2", *jobs, waiting(requested_nodes="n2")).goes == {21}
    assert found("n1 n2", *jobs, waiting(excluded_nodes="n1")).goes == {21}
    both = waiting(node_count=2, cpu_count=2, task_count=2, requested_nodes="n[1-2]")
    assert found("n1 n2", *jobs, both).goes == {11, 21}
    assert found("n1 n2", *jobs, waiting(features="fast")).goes == set()


def test_a_job_waits_for_a_part_where_all_nodes_it_could_have_are_taken() -> None:
    held = running(5, "n1", 4, end_s=NOW_S + 500)
    assert found("n1 n2", held, *_on("n2", 4), waiting(excluded_nodes="n2")).goes == (
        set()
    )


def test_a_lease_stays_that_has_nothing_of_what_a_job_needs() -> None:
    idle_gpus = [piece(10, "n1", 0, cpu_count=1), *FULL[:3], running(5, "n1")]
    assert of_one_node(*idle_gpus, waiting(cpu_count=1)).goes == {11}


def test_where_it_is_unclear_what_a_lease_has_all_of_its_node_may_be_needed() -> None:
    leases = [replace(lease, gres_per_node="gres:gpu:x:y:1") for lease in FULL]
    room = of_one_node(*leases, running(5, "n1", 0), waiting(gpus=4))
    assert room.goes == {11, 12, 13, 14}


def test_a_whole_node_is_enough_for_an_unclear_request() -> None:
    job = waiting(cpu_count=10, oversubscribe="")
    assert of_one_node(*FULL, job).goes == {11, 12, 13, 14}


def test_no_part_is_left_of_a_node_that_a_job_takes_whole() -> None:
    jobs = (whole(1, priority=200), waiting(2))
    assert of_one_node(*FULL, *jobs).goes == {11, 12, 13, 14}


def test_jobs_of_an_exclusive_partition_take_whole_nodes() -> None:
    job = waiting(partitions=("exclusive",))
    assert of_one_node(*FULL, job).goes == {11, 12, 13, 14}
    assert of_one_node(*FULL[:2], running(5, "n1"), job).goes == set()


def test_a_node_is_booked_for_when_jobs_that_get_parts_of_it_are_over() -> None:
    jobs = (waiting(1, limit_s=5_000.0), whole(2, priority=1))
    room = of_one_node(*FULL, *jobs)
    assert room.goes == {11}
    assert room.claims.booked_s == {"n1": pytest.approx(NOW_S + 5_000, abs=60)}


def test_of_nodes_the_one_goes_whose_first_lease_gives_way_first() -> None:
    leases = [piece(k, "n1", 2) for k in (11, 28)] + [
        piece(k, "n2", 2) for k in (12, 13)
    ]
    assert found("n1 n2", *leases, whole()).goes == {11, 28}


def test_nodes_that_others_share_are_no_use_to_jobs_of_whole_nodes() -> None:
    assert found("n1 n2", *FULL, running(5, "n2", 2), whole(nodes=2)).goes == set()


def _on(node: str, count: int) -> list[JobRecord]:
    return [piece(20 + k, node) for k in range(count)]


@pytest.mark.parametrize("cap", [None, 6])
def test_where_a_partition_bounds_cpus_of_a_node_no_part_is_known_to_be_enough(
    cap: int | None,
) -> None:
    room = found("n1", *FULL, waiting(), most_cpus=cap)
    assert room.goes == ({11} if cap is None else {11, 12, 13, 14})


def test_jobs_of_a_higher_tier_that_slurm_could_start_by_preemption_are_seen() -> None:
    high = waiting(partitions=("high",))
    seen = found("n1", *FULL, high, waiting(2), mode=LeaseMode.PREEMPT).seen
    assert dict(preemptable(ENVIRONMENT, seen).leased) == {"n1": 1}
    beside = found("n1", *FULL[:3], high, mode=LeaseMode.PREEMPT).seen
    assert dict(preemptable(ENVIRONMENT, beside).leased) == {}


def test_only_leases_that_began_since_leave_a_node_beside_whose_leases_a_job_fits() -> (
    None
):
    claims = of_one_node(*FULL[:3], waiting()).claims
    young, old = _lease(99), _lease(11)
    belief = Belief(leases=(old,), intents=())
    assert with_begun(claims, belief) is claims
    begun = with_begun(claims, replace(belief, leases=(old, young)))
    assert [begun.takes("n1", number) for number in (11, 99, None)] == [
        *(False, True, True)
    ]


def _lease(number: int) -> Lease:
    return Lease(
        key=LeaseKey(f"{number:032x}", 0),
        job_id=number,
        display_id=str(number),
        shape="",
        limit_min=60,
        deadline_s=NOW_S + 9_000,
        state=LeaseState.RUNNING,
        node="n1",
    )


def test_of_leases_that_need_not_go_those_go_that_use_up_a_limit() -> None:
    room = of_one_node(*FULL, waiting())
    blocked = BlockedJobs({"13": 5}, {5: "AssocGrpNodeLimit"})
    claims = with_blocked(room.claims, blocked, room.seen.snapshot, US)
    takes = {number for number in (11, 12, 13, 14) if claims.takes("n1", number)}
    assert takes == {11, 13}
    beside = of_one_node(*FULL[:3], waiting())
    claims = with_blocked(beside.claims, blocked, beside.seen.snapshot, US)
    assert {n for n in (11, 12, 13) if claims.takes("n1", n)} == {13}


class Slurm:
    """Slurm as it was seen; what was sent to it, by the numbers of jobs."""

    def __init__(self, seen: Snapshot) -> None:
        self.seen = seen
        self.told: list[int] = []
        self.ends: list[int] = []

    def config(self) -> ClusterConfig:
        return SHARED

    def snapshot(self) -> Snapshot:
        return self.seen

    def signal(self, jobs: Sequence[JobKey], _name: str) -> None:
        self.told += [job.job_id for job in jobs]

    def end_by(self, jobs: Sequence[JobKey], _end_s: float) -> None:
        self.ends += [job.job_id for job in jobs]


def test_free_gpus_count_as_nodes_for_shares_where_leases_are_pieces() -> None:
    theirs = running(5, "n1", 1)
    none = found("n1 n2", theirs)
    assert idle_nodes(none.seen, none.claims) == 1
    assert idle_nodes(none.seen, none.claims, are_pieces=True) == 3 + GPUS
    bens = found("n1 n2", theirs, piece(11, "n1", 2, owner=BEN))
    assert idle_nodes(bens.seen, bens.claims) == 1 + GPUS
    room = found("n1 n2 n3", *FULL[:2], running(5, "n3"))
    assert idle_nodes(room.seen, room.claims) == 2 + GPUS + 3


def test_a_lease_that_ends_before_a_job_could_start_keeps_its_end() -> None:
    wide = whole(1, start_s=NOW_S + 4_000, planned_nodes="n1")
    ends = [piece(11, "n1", end_s=NOW_S + 9_000), piece(12, "n1", end_s=NOW_S + 1_000)]
    slurm = Slurm(snapshot("n1", [running(5, "n1", 2), *ends, wide]))
    make_room(
        site_of(),
        replace(ENVIRONMENT, uid=US),
        cast("SlurmBackend", slurm),
        is_dry=False,
        notified_before={},
    )
    assert slurm.ends == [11]


def test_the_notice_goes_to_leases_that_must_go_and_others_of_the_node_end_sooner() -> (
    None
):
    wide = whole(2, priority=1, start_s=NOW_S + 4_000, planned_nodes="n1")
    jobs = (running(5, "n1", 1), *FULL[:2], piece(21, "n1", owner=BEN), waiting(), wide)
    slurm = Slurm(snapshot("n1", jobs))
    room = make_room(
        site_of(),
        replace(ENVIRONMENT, uid=US),
        cast("SlurmBackend", slurm),
        is_dry=False,
        notified_before={},
    )
    assert room.is_made
    assert slurm.told == [11]
    assert slurm.ends == [11, 12]  # the first as it leaves now
    assert room.new_ends_s.keys() == {"12"}


def test_where_ends_cannot_be_moved_all_leases_of_a_node_go() -> None:
    wide = whole(2, priority=1, start_s=NOW_S + 4_000, planned_nodes="n1")
    claims = of_one_node(running(5, "n1", 1), *FULL[:3], waiting(), wide).claims
    without = claims.without_sooner_ends(["n1"])
    assert all(without.takes("n1", number) for number in (11, 12, 13))


# Against a brute force.


def fits(node: str, job: JobRecord, jobs: Sequence[JobRecord]) -> bool:
    """Tell whether *job* could start on *node* beside *jobs*."""
    here = [other for other in jobs if other.nodes == node]
    if job.oversubscribe == "NO":
        return not here
    return (
        gpus_of(job) <= GPUS - sum(map(gpus_of, here))
        and job.cpu_count <= CPUS - sum(other.cpu_count for other in here)
        and job.least_memory_mib <= MIB - sum(other.least_memory_mib for other in here)
    )


def gpus_of(job: JobRecord) -> int:
    return int(job.gres_per_node.rpartition(":")[-1] or 0)


def starts(job: JobRecord, jobs: Sequence[JobRecord]) -> list[str]:
    """Return nodes on which *job* could start now beside *jobs*; none for none."""
    able = [name for name in NAMES if fits(name, job, jobs)]
    return able[: job.node_count] if len(able) >= job.node_count else []


NAMES = ("n1", "n2", "n3")

sizes = st.integers(0, 4)


@st.composite
def shared_clusters(draw: st.DrawFn) -> tuple[list[JobRecord], list[JobRecord]]:
    """Draw jobs that run, leases among them, and jobs that wait."""
    held: list[JobRecord] = []
    for number in range(100, 100 + draw(st.integers(1, 9))):
        node, gpus = draw(st.sampled_from(NAMES)), draw(st.sampled_from([1, 1, 1, 2]))
        owner = draw(st.sampled_from([US, US, BEN]))
        is_ours = draw(st.booleans())
        job = (
            piece(number, node, gpus, owner=owner)
            if is_ours
            else running(number, node, gpus, end_s=None)
        )
        if fits(node, replace(job, oversubscribe="OK"), held):
            held.append(job)
    queue = [
        draw(
            st.builds(
                waiting,
                st.just(number),
                sizes,
                priority=st.integers(1, 3),
                limit_s=st.none(),
                cpu_count=st.integers(1, 8),
                least_memory_mib=st.sampled_from([100, 2_000, 4_000]),
                oversubscribe=st.sampled_from(["OK", "OK", "OK", "NO"]),
            )
        )
        for number in range(1, 1 + draw(st.integers(1, 4)))
    ]
    queue = [
        replace(
            job, least_cpus=job.cpu_count, node_count=draw(st.sampled_from([1, 1, 2]))
        )
        for job in queue
    ]
    queue = [
        replace(
            job, cpu_count=job.least_cpus * job.node_count, task_count=job.node_count
        )
        for job in queue
    ]
    return held, sorted(queue, key=lambda job: (-(job.priority or 0), job.job_id))


def one_node(job: JobRecord) -> JobRecord:
    """Return what *job* takes of each node."""
    return replace(job, cpu_count=job.least_cpus)


@settings(max_examples=200)
@given(clusters=shared_clusters(), careful=st.booleans())
def test_no_job_waits_for_leases(
    clusters: tuple[list[JobRecord], list[JobRecord]],
    *,
    careful: bool,
) -> None:
    held, queue = clusters
    queue = list(queue)
    for _ in range(2 + len(queue)):
        seen = found(" ".join(NAMES), *held, *queue, careful=careful)
        goes = seen.goes
        others = [job for job in held if job.uid == 7]
        stay = [job for job in held if job.job_id not in goes]
        first = queue[0] if queue else None
        if first is not None and starts(one_node(first), others):
            assert starts(one_node(first), stay), (first, goes)
        nodes_given = {job.nodes for job in held if job.job_id in goes}
        assert len(nodes_given) <= sum(job.node_count for job in queue)
        held = stay
        for job in list(queue):
            nodes = starts(one_node(job), held)
            if nodes:
                queue.remove(job)
                took = replace(
                    one_node(job),
                    states=frozenset({JobState.RUNNING}),
                    cpu_count=CPUS if job.oversubscribe == "NO" else job.least_cpus,
                    gres_per_node=f"gres:gpu:{GPUS}"
                    if job.oversubscribe == "NO"
                    else job.gres_per_node,
                    node_count=1,
                    end_s=None,
                )
                held += [
                    replace(took, nodes=node, job_id=1_000 + 10 * job.job_id + k)
                    for k, node in enumerate(nodes)
                ]
    others = [job for job in held if job.uid == 7]
    for job in queue:
        assert not starts(one_node(job), others), job


@settings(max_examples=200)
@given(clusters=shared_clusters())
def test_for_one_job_no_lease_goes_that_need_not(
    clusters: tuple[list[JobRecord], list[JobRecord]],
) -> None:
    held, (job, *_) = clusters
    job = replace(job, node_count=1, cpu_count=job.least_cpus, task_count=1)
    job = replace(job, least_memory_mib=100)  # else it may be for each CPU
    goes = found(" ".join(NAMES), *held, job).goes
    for lease in goes:
        stay = [one for one in held if one.job_id not in goes - {lease}]
        assert not starts(job, stay)
