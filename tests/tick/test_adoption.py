"""Leases that the state lost are adopted, and leases of other states left alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.broker.belief import adopted_intents, is_adoptable
from freetrain.broker.lease import LeaseKey
from freetrain.broker.limits import Limits
from freetrain.config.site import LeaseMode
from freetrain.demo.fake_slurm.cluster import FakeJobState
from freetrain.state.copies import copies_of
from freetrain.state.database import DATABASE
from freetrain.state.files import AgentState
from freetrain.tick.tick import tick
from slurm.records import JobRecord, JobState
from tests.tick.tick_worlds import TickWorld, lease_of, running

_UUID = "0b5e1a2c-0000-4000-8000-000000000001"


def lose(world: TickWorld) -> None:
    """Let the database be gone, and all copies of it."""
    database = world.folder.path / DATABASE
    for path in (*copies_of(database), *database.parent.glob(f"{DATABASE}*")):
        path.unlink(missing_ok=True)


def known(world: TickWorld) -> set[LeaseKey]:
    """The leases that the last tick knew."""
    status = world.tick(dry_run=True).status
    by_job = {str(job.display_id): lease_of(job) for job in world.live()}
    return {by_job[lease.job] for lease in status.leases if lease.job in by_job}


def test_after_a_lost_database_leases_go_on_with_their_trainer(
    world: TickWorld,
) -> None:
    before = running(world, most=3)
    lose(world)
    world.submit("a", most=3)

    world.beat(state=AgentState.TRAINING, trainer="a")
    status = world.status()
    world.beat(state=AgentState.TRAINING, trainer="a")
    world.tick()

    assert len(status.leases) == 3
    assert world.newest().keys == before.keys
    assert set(world.running()) == before.keys
    assert len(world.slurm.calls("sbatch")) == 1


def test_after_a_lost_database_leases_without_a_trainer_are_given_up(
    world: TickWorld,
) -> None:
    running(world, most=3)
    lose(world)
    world.folder.trainer("a").job.unlink(missing_ok=True)
    world.beat()
    world.tick()
    world.beat()
    status = world.status()
    assert [job.signals for job in world.live()] == 3 * [["TERM"]]
    assert len(status.leases) == 3


def test_waiting_leases_are_adopted_each_by_itself(world: TickWorld) -> None:
    running(world, most=1)
    (lease,) = world.live()
    waiting = replace(
        lease,
        name=f"freetrain-{_UUID}",
        comment=lease.comment.replace(lease_of(lease).uuid, _UUID),
        state=FakeJobState.PENDING,
        nodes=[],
        start_s=None,
        end_s=None,
        due_s=world.now_s + 9_000.0,
    )
    world.slurm.standin.add([replace(waiting, array_id=900, task=k) for k in (1, 3)])

    status = world.status()

    assert len(status.leases) == 3
    assert [job for job in world.live() if _UUID in job.name] == []  # nobody wants them
    for _ in range(3):
        world.now_s += 100.0
        world.beat()
        assert len(world.status().leases) == 1


def test_an_adopted_array_has_no_leases_but_those_that_slurm_shows(
    world: TickWorld,
) -> None:
    running(world, most=4)
    world.change_jobs(first=2, state=FakeJobState.COMPLETED, end_s=world.now_s - 9e3)
    lose(world)
    world.submit("a", most=2)
    for _ in range(4):
        world.beat()
        assert {lease.job for lease in world.status().leases} <= {
            job.display_id for job in world.slurm.jobs()
        }
        world.now_s += 40.0


@pytest.mark.parametrize("mode", [LeaseMode.YIELD, LeaseMode.PREEMPT])
def test_leases_of_another_state_directory_are_left_alone(
    world: TickWorld, tmp_path: Path, mode: LeaseMode
) -> None:
    world.change("lease", mode=mode)
    running(world, most=3)
    site = structs.replace(world.site, state_directory=tmp_path / "another")
    for _ in range(3):
        status = tick(site, world.environment).status
        assert status.leases == ()
    assert [job.signals for job in world.live()] == 3 * [[]]


def test_leases_of_the_version_before_that_are_unknown_are_left_alone(
    world: TickWorld,
) -> None:
    running(world, most=3)
    with_tags = {job.comment for job in world.live()}
    assert all(" state=" in comment for comment in with_tags)
    (uuid,) = {lease_of(job).uuid for job in world.live()}
    world.change_jobs(comment=f"freetrain {uuid}")
    lose(world)
    assert world.status().leases == ()
    assert len(world.live()) == 3


def a_job(**changes: object) -> JobRecord:
    plain = JobRecord(
        job_id=7,
        display_id="7",
        states=frozenset({JobState.RUNNING}),
        uid=1,
        name=f"freetrain-{_UUID}",
        comment=f"freetrain {_UUID} state=0123abcd",
        limit_s=120.0,
        end_s=1_120.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "known", "expected"),
    [
        ({}, (), True),
        ({}, (_UUID,), False),
        ({"uid": 2}, (), False),
        ({"name": "freetrain-run"}, (), False),
        ({"comment": ""}, (), False),
        ({"comment": f"freetrain {_UUID}"}, (), False),
        ({"comment": f"freetrain {_UUID} state=99999999"}, (), False),
        ({"comment": "freetrain x state=0123abcd"}, (), False),
    ],
)
def test_only_our_own_leases_of_this_state_are_adopted(
    changes: dict[str, object], known: tuple[str, ...], *, expected: bool
) -> None:
    job = a_job(**changes)
    assert is_adoptable(job, known, uid=1, state="0123abcd") == expected


def test_an_adopted_submission_has_what_slurm_shows_of_it() -> None:
    tasks = [a_job(array_job_id=9, array_task_id=k, job_id=9 + k) for k in (2, 5)]
    (intent,) = adopted_intents(
        tasks, shape_of=lambda _: "main", now_s=1_000.0, limits=Limits()
    )
    assert (intent.uuid, intent.shape, intent.tasks) == (_UUID, "main", 6)
    assert (intent.limit_min, intent.deadline_s, intent.job_id) == (2, 1_120.0, None)
