"""Ticks where limits of accounts and users bind: leases make room, and fit below."""

from dataclasses import replace

import pytest

from freetrain.broker.job_limits import LIMIT_REST_S, Accounts
from freetrain.broker.reasons import Brake, EndReason, Refusal
from freetrain.config.site import LeaseMode
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm.cluster import FakeJob
from freetrain.state.files import AgentState
from freetrain.tick.plan import LIMITS_KEPT_S, leases_to_ask_for
from slurm.records import Node, NodeState, Requirement
from tests.fakes.slurm.installing import USER
from tests.tick.tick_worlds import TickWorld, lease_of, running, theirs

NOTICE = ["TERM"]


@pytest.fixture(params=[LeaseMode.YIELD, LeaseMode.PREEMPT])
def limited(world: TickWorld, request: pytest.FixtureRequest) -> TickWorld:
    """Six leases that use up the account's six nodes, of eight; a job that waits."""
    world.change("lease", mode=request.param)
    world.slurm.standin.limit(nodes=6)
    running(world, most=6)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.slurm.standin.add([theirs(world)])
    return world


def told(world: TickWorld) -> list[FakeJob]:
    return [job for job in world.live() if job.signals[:1] == NOTICE]


def their_job(world: TickWorld) -> FakeJob:
    return next(job for job in world.slurm.jobs() if job.user == "bob")


def test_all_leases_leave_that_count_against_the_limit_that_holds_a_job(
    limited: TickWorld,
) -> None:
    limited.now_s += 1.0
    status = limited.status()

    assert their_job(limited).reason == "AssocGrpNodeLimit"
    assert len(told(limited)) == 6
    uuid = lease_of(told(limited)[0]).uuid
    assert limited.events(uuid)[-1].detail == str(EndReason.LIMITED)
    (said,) = (line for line in status.problems if "AssocGrpNodeLimit" in line)
    assert "6 of them are given up" in said


def test_none_is_asked_for_until_none_has_waited_so_for_a_while(
    limited: TickWorld,
) -> None:
    limited.now_s += 1.0
    limited.tick()
    limited.end_jobs()
    limited.now_s += 1.0
    assert limited.status().done["leases asked for"] == 0
    assert their_job(limited).is_running

    limited.now_s += LIMIT_REST_S / 2
    status = limited.status()
    assert (status.done["leases asked for"], status.brake) == (0, Brake.LIMIT_BLOCKS)
    limited.now_s += LIMIT_REST_S
    assert limited.status().done["leases asked for"] > 0


def test_from_the_first_request_on_no_more_is_asked_for_than_fits(
    world: TickWorld,
) -> None:
    world.slurm.standin.limit(submitted=6)
    world.submit("a", most=8)

    first = world.status()

    assert first.done["leases asked for"] == 6
    assert first.problems == ()
    assert first.held_back.endswith(
        ": MaxSubmitJobs=6 of user alice in account physics"
    )
    world.go_on(3, every_s=60.0)
    assert len(world.slurm.calls("sbatch")) == 1
    assert world.status().brake == Brake.SUBMIT_LIMIT


def test_leases_fit_beside_jobs_of_the_same_account(world: TickWorld) -> None:
    world.slurm.standin.limit(nodes=6, account="science")
    world.slurm.standin.add([theirs(world, account="chemistry") for _ in range(2)])
    world.tick()
    world.submit("a", most=8)

    status = world.status()

    assert status.done["leases asked for"] == 4
    limit = "GrpTRES=node=6 of account science, 2 of them for other jobs"
    assert status.limit == limit
    refused = {hole.refusal for hole in status.holes if hole.refusal}
    assert refused == {str(Refusal.SUBMIT_LIMIT)}


def test_where_limits_are_not_shown_an_array_that_one_refuses_is_halved(
    world: TickWorld,
) -> None:
    world.slurm.standin.limit(submitted=6, are_shown=False)
    world.submit("a", most=8)

    first = world.status()
    asked = []
    for _ in range(5):
        world.now_s += 60.0
        status = world.status()
        world.beat(*world.running())
        asked.append(status.done["leases asked for"])

    assert any("accounting/QOS policy" in line for line in first.problems)
    assert asked[0] == 4
    assert sum(asked) == 4
    assert status.brake == Brake.SUBMIT_LIMIT
    assert len(world.slurm.calls("sbatch")) == 2
    world.now_s += 3_600.0
    world.beat(*world.running())
    assert world.status().brake != Brake.SUBMIT_LIMIT


def test_a_lease_that_waits_for_a_limit_keeps_more_from_being_asked_for(
    world: TickWorld,
) -> None:
    world.slurm.standin.limit(nodes=3, are_shown=False)
    world.submit("a", most=6)
    assert world.status().done["leases asked for"] == 6
    world.go_on(1, every_s=1.0)
    world.submit("b", most=2)

    status = world.status()

    assert (status.done["leases asked for"], status.brake) == (0, Brake.SUBMIT_LIMIT)
    assert status.limit.endswith("waits for AssocGrpNodeLimit")


def held_job(world: TickWorld, account: str, nodes: int) -> TickWorld:
    """Six leases train; *account* has so many nodes, and one job more waits."""
    world.slurm.standin.limit(nodes=nodes, account=account)
    jobs = [theirs(world, account="chemistry") for _ in range(2)]
    world.slurm.standin.add(jobs[:1])
    running(world, most=5)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.slurm.standin.add(jobs[1:])
    world.now_s += 1.0
    return world


def test_a_job_of_another_account_at_its_own_limit_is_no_reason_to_leave(
    world: TickWorld,
) -> None:
    held_job(world, "chemistry", 1)
    status = world.status()

    assert [job.reason for job in world.live() if job.is_pending] == [
        "AssocGrpNodeLimit"
    ]
    assert told(world) == []
    assert status.brake != Brake.LIMIT_BLOCKS


def test_leases_leave_for_a_job_below_the_same_limit_of_an_account_above(
    world: TickWorld,
) -> None:
    held_job(world, "science", 6)
    status = world.status()

    assert len(told(world)) == 5
    (said,) = (line for line in status.problems if "AssocGrpNodeLimit" in line)
    assert "AssocGrpNodeLimit: GrpTRES=node=6 of account science" in said


def test_a_tick_that_fails_gives_up_what_may_count(world: TickWorld) -> None:
    held_job(world, "science", 6)

    def fails(point: str) -> None:
        if point == "before writing what was observed":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replace(world, reached=fails).tick()
    assert len([job for job in world.slurm.jobs() if job.signals[:1] == NOTICE]) == 5


def test_nothing_is_asked_for_while_a_job_is_blocked_that_leases_would_block(
    world: TickWorld,
) -> None:
    world.slurm.standin.limit(nodes=2, account="science")
    world.slurm.standin.add([theirs(world, account="chemistry") for _ in range(3)])
    world.tick()
    world.submit("a", most=8)
    said: list[str] = []
    for _ in range(3):
        world.now_s += 10.0
        status = world.status()
        said += status.problems
        assert status.done["leases asked for"] == 0
        assert status.brake == Brake.LIMIT_BLOCKS
    assert any("none is asked for until" in line for line in said)


@pytest.mark.parametrize(
    ("qos", "expected"), [("", "normal"), ("low", "low")], ids=["not shown", "shown"]
)
def test_the_first_leases_are_of_the_qos_that_slurm_gives_jobs_that_name_none(
    world: TickWorld, qos: str, expected: str
) -> None:
    world.slurm.standin.limit(nodes=6)
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.default_qos = qos
        user, uid = cluster.user, cluster.uid
    known = world.connect(99).limits(user, cluster="standin")
    if not qos:
        own = [replace(each, default_qos="") for each in known.associations]
        known = replace(known, associations=tuple(own))
    accounts = Accounts(known, user=user, uid=uid)

    (lease,) = leases_to_ask_for(
        world.site, accounts, [Requirement(partition="freetrain")], ()
    )

    assert (lease.account, lease.qos) == ("physics", expected)


@pytest.mark.parametrize(
    ("asked", "cpus"),
    [
        (Requirement(partition="freetrain"), 32),
        (Requirement(partition="freetrain", cpus=4, exclusive=False), 4),
    ],
    ids=["whole", "piece"],
)
def test_a_piece_counts_against_limits_with_its_own_cpus(
    world: TickWorld, asked: Requirement, cpus: int
) -> None:
    node = Node("n1", frozenset({NodeState.IDLE}), cpus=32, partitions=("freetrain",))
    accounts = Accounts()

    (lease,) = leases_to_ask_for(world.site, accounts, [asked], [node])

    assert lease.cpu_count == cpus


def asked_for_limits(world: TickWorld) -> int:
    return sum("assoc_mgr" in call for call in world.slurm.calls("scontrol"))


def test_limits_are_read_once_in_ten_minutes_and_after_room_is_made(
    limited: TickWorld,
) -> None:
    assert asked_for_limits(limited) == 1
    limited.now_s += LIMITS_KEPT_S
    at_signal: list[int] = []

    def reached(point: str) -> None:
        if point.startswith("before ending"):
            at_signal.append(asked_for_limits(limited))

    own = theirs(limited, user=USER)
    limited.slurm.standin.add([own])
    replace(limited, reached=reached).tick()
    assert at_signal == [1]
    assert asked_for_limits(limited) == 2
    limited.go_on(3, every_s=60.0)
    assert asked_for_limits(limited) == 2


def test_no_limits_are_read_where_slurm_enforces_none(world: TickWorld) -> None:
    running(world)
    assert asked_for_limits(world) == 0


def test_what_slurm_should_preempt_and_does_not_is_given_up(world: TickWorld) -> None:
    # The fake Slurm starts a job without a plan on idle nodes alone.
    running(world, most=8)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.slurm.standin.add([theirs(world, partition="main")])

    world.now_s += 1.0
    early = world.status()
    assert (early.mode, told(world)) == ("preempt", [])
    world.tick()
    assert told(world) == []
    world.now_s += 30.0
    status = world.status()

    (lease,) = told(world)
    assert world.events(lease_of(lease).uuid)[-1].detail == str(EndReason.OVERDUE)
    assert any("has not preempted 1 lease for job" in line for line in status.problems)


def test_jobs_of_the_tier_of_leases_preempt_none(world: TickWorld) -> None:
    running(world, most=8)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.slurm.standin.add([theirs(world)])
    for _ in range(3):
        world.now_s += 30.0
        assert world.status().mode == "preempt"
    assert told(world) == []
