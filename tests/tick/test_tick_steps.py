"""What single ticks do, and how they report it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.config.site import LeaseMode, LeaseSettings
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm.cluster import FakeJobState
from freetrain.state.files import AgentState, lease_name
from freetrain.state.tables import TrainerState, pace
from freetrain.tick.leases import MODE
from freetrain.tick.status_report import TrainerLine, read_status_report, summary_line
from milp.answer import PlanStatus
from tests.client.client_states import a_page
from tests.tick.tick_worlds import TickWorld, lease_of, running, theirs, tick_world

if TYPE_CHECKING:
    from pathlib import Path


def written(world: TickWorld) -> dict[Path, int]:
    """Return when each file changed; SQLite's side files say nothing of the state."""
    return {
        path: path.stat().st_mtime_ns
        for path in world.folder.path.rglob("*")
        if not path.name.endswith(("-shm", "-wal")) and path.is_file()
    }


def test_a_trainer_gets_leases_and_then_a_generation_of_those_that_answer(
    world: TickWorld,
) -> None:
    world.submit("a", most=3)

    world.tick()
    world.tick()
    unheard = world.generation()
    world.beat()
    world.tick()

    newest = world.newest()
    assert unheard == 0
    assert newest.keys == set(world.running())
    assert (len(newest.members), newest.author) == (3, "broker")
    assert {m.job_id for m in newest.members} == {j.job_id for j in world.live()}
    assert len(world.slurm.calls("sbatch")) == 1


def test_a_lease_asks_for_what_is_decided_and_always_for_the_lowest_priority(
    world: TickWorld,
) -> None:
    world.submit()

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

    status = world.status()

    assert status.requests == 8
    assert not any(status.done.values())
    assert sorted(world.folder.trainers.rglob("*")) == files


def test_the_report_and_the_log_and_the_metrics_tell_what_was_done(
    world: TickWorld,
) -> None:
    running(world)

    status = world.status()

    assert read_status_report(world.folder.page) == status
    (line,) = status.trainers
    assert (line.reason, line.nodes) == ("it has what the plan gives it", 2)
    assert sorted(line.node_names) == ["n1", "n2"]
    used = {hole.node: hole.trainer for hole in status.holes}
    assert (used["n1"], used["n3"]) == ("a", "")
    assert [lease.trainer for lease in status.leases] == ["a", "a"]
    assert len(world.folder.log.read_text().splitlines()) == 3
    numbers = world.folder.metrics.read_text()
    assert 'freetrain_leases{state="running"} 2\n' in numbers
    assert "freetrain_ticks_total 3\n" in numbers
    assert "freetrain_training_nodes 2\n" in numbers
    assert (status.planner_gap, status.is_by_lives, status.forecaster) == (
        0.0,
        False,
        "",
    )
    assert "freetrain_planner_gap_ratio 0\n" in numbers


def test_the_report_is_json_that_every_reader_takes(world: TickWorld) -> None:
    world.submit("a", most=1)
    world.tick()

    text = world.folder.page.read_text(encoding="utf-8")

    assert "Infinity" not in text
    assert json.loads(text)["version"] == 1
    # The lease was asked for after the snapshot.
    assert lease_name(world.running()[0]) not in text


def test_a_dry_run_shows_the_commands_and_writes_nothing_at_all(
    world: TickWorld,
) -> None:
    world.submit()
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
        with keeping.opened(world.slurm.folder) as cluster:
            for job in cluster.jobs:
                if job.is_running:
                    job.state, job.end_s = FakeJobState.COMPLETED, world.now_s

    status = world.status()

    with world.reading() as store:
        assert pace(store, since_s=0.0).failed_starts >= 3
    assert status.brake == "leases failed to start repeatedly"
    assert world.live() == []


def test_background_trainers_get_what_the_others_leave(world: TickWorld) -> None:
    world.submit("late", 'order = "background"\nweight = 1000.0', most=8)
    world.submit("first", most=6)

    planned = {line.name: line.planned_nodes for line in world.status().trainers}

    assert planned == {"first": 6, "late": 2}


def test_equal_shares_where_the_site_wants_them(world: TickWorld) -> None:
    world.change("planner", policy="equal")
    world.submit("a", "weight = 1000.0", most=8)
    world.submit("b", most=8)

    assert [line.planned_nodes for line in world.status().trainers] == [4, 4]


def test_without_preemption_leases_make_room_for_any_job(world: TickWorld) -> None:
    world.change("lease", mode=LeaseMode.YIELD)
    first = running(world, most=8)
    world.slurm.standin.add([theirs(world)])

    world.tick()

    newest = world.newest()
    assert len(newest.members) == 7
    (given,) = first.keys - newest.keys
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

    status = world.status()

    assert world.newest("a") == first
    assert "nonsense" in " ".join(status.problems)
    signals = {lease_of(job): job.signals for job in world.live()}
    assert [signals[key] for key in first.keys] == [[], []]


def test_a_trainer_is_told_why_the_holes_that_are_there_cannot_be_used(
    quick_folder: Path,
) -> None:
    hours = 1e5
    world = tick_world(
        quick_folder, lease=LeaseSettings(shortest_s=hours, longest_s=hours)
    )
    world.submit()

    (line,) = world.status().trainers

    assert line.reason == (
        "no hole that meets its requirement can be used: too short for a lease"
    )


# A tick in one line.

DONE = {"leases asked for": 0, "leases ended": 0, "generations": 0}
BRAKE = "as many leases as the site allows"


def line_of(*states: TrainerState) -> str:
    """Return the line of a tick that may ask for no lease."""
    trainers = tuple(TrainerLine(name="a", state=str(state)) for state in states)
    return summary_line(a_page(trainers=trainers, brake=BRAKE, done=DONE))


def test_the_line_tells_what_keeps_leases_from_trainers_that_want_nodes() -> None:
    assert f"asking for no more: {BRAKE}" in line_of(TrainerState.WANTED)


@pytest.mark.parametrize(
    "states", [(), (TrainerState.FINISHED, TrainerState.FAILED)], ids=str
)
def test_where_no_trainer_wants_nodes_the_line_tells_of_no_brake(
    states: tuple[TrainerState, ...],
) -> None:
    assert "0 of 0 trainers run" in line_of(*states)
    assert "asking for no more" not in line_of(*states)


def test_the_line_tells_of_a_plan_that_is_not_proven_where_one_is_wanted() -> None:
    some = a_page(planner=str(PlanStatus.INCUMBENT), planner_gap=0.0082, done=DONE)
    wants = TrainerLine(name="a", state=str(TrainerState.WANTED))
    wanted = replace(some, trainers=(wants,))

    assert "; plan at most 0.82 % below the best; " in summary_line(wanted)
    assert "plan" not in summary_line(some)
    assert "plan" not in summary_line(replace(wanted, planner=str(PlanStatus.PROVEN)))
