"""Ticks where limits of accounts and users bind: leases make room, and fit below."""

import pytest

from freetrain.broker.job_limits import LIMIT_REST_S
from freetrain.broker.limits import Brake, EndReason
from freetrain.config.site import LeaseMode
from freetrain.demo.fake_slurm.cluster import FakeJob
from freetrain.state.files import AgentState
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
    assert (status.done["leases asked for"], status.brake) == (0, Brake.LIMIT_HELD)
    limited.now_s += LIMIT_REST_S
    assert limited.status().done["leases asked for"] > 0


def test_an_array_that_a_limit_refuses_is_halved_and_that_is_kept(
    world: TickWorld,
) -> None:
    world.slurm.standin.limit(submitted=6)
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


def test_what_slurm_should_preempt_and_does_not_is_given_up(world: TickWorld) -> None:
    # The fake Slurm starts a job without a plan on idle nodes alone.
    running(world, most=8)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.slurm.standin.add([theirs(world, partition="main")])

    world.now_s += 1.0
    early = world.status()
    assert (early.mode, told(world)) == ("preempt", [])
    world.now_s += 1.0
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
