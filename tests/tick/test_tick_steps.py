"""What single ticks do, against the fake Slurm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.site import LeaseSettings, Mode, PlannerSettings
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm.cluster import JobState
from freetrain.state.database import read_store
from freetrain.state.files import AgentState, lease_name
from freetrain.state.tables import pace
from freetrain.tick.lease_job import MODE
from freetrain.tick.status_report import read_status_report
from tests.tick.tick_worlds import UID, TickWorld, lease_of, running, theirs, tick_world

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return tick_world(quick_folder)


def written(world: TickWorld) -> dict[Path, int]:
    """Return when each file changed; SQLite's side files say nothing of the state."""
    return {
        path: path.stat().st_mtime_ns
        for path in world.folder.path.rglob("*")
        if not path.name.endswith(("-shm", "-wal")) and path.is_file()
    }


def over(world: TickWorld, state: JobState) -> None:
    """Let all our jobs end."""
    with keeping.opened(world.slurm.folder) as cluster:
        for job in cluster.jobs:
            if job.is_running:
                job.state, job.end_s = state, world.now_s


def test_a_trainer_gets_leases_and_then_a_generation_of_those_that_answer(
    world: TickWorld,
) -> None:
    world.submit("a", most=3)

    world.tick()
    world.tick()
    unheard = world.newest("a")
    world.beat()
    world.tick()

    newest = world.newest("a")
    assert unheard is None
    assert newest is not None
    assert newest.keys == set(world.running())
    assert (len(newest.members), newest.author) == (3, "broker")
    assert {m.job_id for m in newest.members} == {j.job_id for j in world.live()}
    assert len(world.slurm.calls("sbatch")) == 1


def test_a_lease_asks_for_what_is_decided_and_always_for_the_lowest_priority(
    world: TickWorld,
) -> None:
    world.submit("a", most=2)

    (request,) = world.tick().requests

    (argv,) = world.slurm.calls("sbatch")
    assert argv[-4] == str(world.folder.lease_script)
    uuid, minutes, grace_s = argv[-3:]
    assert f"--job-name=freetrain-{uuid}" in argv
    assert f"--comment=freetrain {uuid}" in argv
    assert f"--time={minutes}" in argv
    assert {"--nice=10000", "--export=NONE", "--array=0-1", "--exclusive"} <= set(argv)
    assert any(word.startswith("--deadline=") for word in argv)
    assert f"--output={world.folder.outputs}/lease-%j.out" in argv
    assert int(grace_s) == 10 + 5, "GraceTime and KillWait"
    assert request.tasks == 2
    assert world.folder.lease_script.stat().st_mode & 0o777 == MODE


def test_a_tick_with_nothing_to_do_needs_eight_commands_and_changes_nothing(
    world: TickWorld,
) -> None:
    running(world)
    files = sorted(world.folder.trainers.rglob("*"))

    page = world.tick().status

    assert page.requests == 8
    assert not any(page.done.values())
    assert sorted(world.folder.trainers.rglob("*")) == files


def test_the_page_and_the_log_and_the_metrics_tell_what_was_done(
    world: TickWorld,
) -> None:
    running(world)

    page = world.tick().status

    assert read_status_report(world.folder.page) == page
    (line,) = page.trainers
    assert (line.reason, line.nodes) == ("it has what the plan gives it", 2)
    assert sorted(line.node_names) == ["n1", "n2"]
    used = {hole.node: hole.trainer for hole in page.holes}
    assert (used["n1"], used["n3"]) == ("a", "")
    assert [lease.trainer for lease in page.leases] == ["a", "a"]
    assert len(world.folder.log.read_text().splitlines()) == 3
    numbers = world.folder.metrics.read_text()
    assert 'freetrain_leases{state="running"} 2\n' in numbers
    assert "freetrain_ticks_total 3\n" in numbers
    assert "freetrain_training_nodes 2\n" in numbers
    assert (page.planner_gap, page.is_by_lives, page.forecaster) == (0.0, False, "")
    assert "freetrain_planner_gap_ratio 0\n" in numbers


def test_a_dry_run_shows_the_commands_and_writes_nothing_at_all(
    world: TickWorld,
) -> None:
    world.submit("a")
    before = written(world)

    report = world.tick(dry_run=True)

    assert [request.tasks for request in report.requests] == [2]
    assert world.live() == []
    assert written(world) == before


def test_a_dry_run_needs_no_state(world: TickWorld) -> None:
    report = world.tick(dry_run=True)

    assert len(report.status.holes) == 8
    assert not world.folder.path.exists()


def test_leases_that_never_answer_count_as_failed_starts_and_make_it_pause(
    world: TickWorld,
) -> None:
    world.submit("a", most=4)
    for _ in range(4):
        world.tick()
        over(world, JobState.COMPLETED)

    page = world.tick().status

    with read_store(world.folder.path, uid=UID) as store:
        assert pace(store, since_s=0.0).failed_starts >= 3
    assert page.brake == "leases failed to start repeatedly"
    assert world.live() == []


def test_background_trainers_get_what_the_others_leave(world: TickWorld) -> None:
    world.submit("late", 'order = "background"\nweight = 1000.0', most=8)
    world.submit("first", most=6)

    page = world.tick().status

    assert {one.name: one.planned_nodes for one in page.trainers} == {
        "first": 6,
        "late": 2,
    }


def test_equal_shares_where_the_site_wants_them(quick_folder: Path) -> None:
    planner = PlannerSettings(policy="equal")
    world = tick_world(quick_folder, planner=planner)
    world.submit("a", "weight = 1000.0", most=8)
    world.submit("b", most=8)

    page = world.tick().status

    assert [one.planned_nodes for one in page.trainers] == [4, 4]


def test_without_preemption_leases_make_room_for_anybody(quick_folder: Path) -> None:
    world = tick_world(quick_folder)
    world.site = structs.replace(
        world.site, lease=structs.replace(world.site.lease, mode=Mode.YIELD)
    )
    first = running(world, most=8)
    world.slurm.standin.add([theirs(world)])

    world.tick()

    newest = world.newest("a")
    assert newest is not None
    assert len(newest.members) == 7
    (given,) = {m.key for m in first.members} - newest.keys
    signals = {lease_of(job): job.signals for job in world.live()}
    assert [key for key, got in signals.items() if got == ["TERM"]] == [given]
    world.now_s += 20.0
    world.beat()
    world.tick()
    assert given not in map(lease_of, world.live()), "it did not leave when told"


def test_a_trainer_that_cannot_be_read_is_left_as_it_is(world: TickWorld) -> None:
    first = running(world)
    world.beat(*first.keys, state=AgentState.TRAINING, trainer="a")
    world.put(replace(world.row("a"), job='name = "a"\nnonsense = 1'))
    world.submit("b", most=1)

    page = world.tick().status

    assert world.newest("a") == first
    assert "nonsense" in " ".join(page.problems)
    assert {lease_of(job) for job in world.live()} >= first.keys
    assert [job.signals for job in world.live() if lease_of(job) in first.keys] == [
        [],
        [],
    ]


def test_the_page_is_json_that_every_reader_takes(world: TickWorld) -> None:
    world.submit("a", most=1)
    world.tick()

    text = world.folder.page.read_text(encoding="utf-8")

    assert "Infinity" not in text
    assert json.loads(text)["version"] == 1
    assert lease_name(world.running()[0]) not in text  # it was asked for after the look


def test_a_trainer_is_told_why_the_holes_that_are_there_cannot_be_used(
    quick_folder: Path,
) -> None:
    hours = 1e5
    world = tick_world(
        quick_folder, lease=LeaseSettings(shortest_s=hours, longest_s=hours)
    )
    world.submit("a")

    (line,) = world.tick().status.trainers

    assert line.reason == (
        "no hole that meets its requirement can be used: too short for a lease"
    )
