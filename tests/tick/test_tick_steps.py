"""What single ticks do, and how they report it."""

import json
import re
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.config.site import LeaseMode, LeaseSettings, SiteRules
from freetrain.demo.fake_slurm.cluster import ClusterPart
from freetrain.errors import BadConfigurationError
from freetrain.state.files import AgentState, lease_name
from freetrain.state.tables import TrainerState, pace
from freetrain.tick.leases import MODE, tag_of
from freetrain.tick.status_report import TrainerLine, read_status_report, summary_line
from milp.answer import PlanStatus
from slurm.backend import SlurmBackend
from slurm.records import ClusterConfig
from tests.client.client_states import a_page
from tests.fakes.slurm.installing import FakeSlurm, install
from tests.tick.tick_worlds import (
    TickWorld,
    lease_of,
    running,
    tell,
    theirs,
    tick_world,
)


def written(world: TickWorld) -> dict[Path, int]:
    """Return when each file changed; SQLite's side files say nothing of the state."""
    return {
        path: path.stat().st_mtime_ns
        for path in world.folder.path.rglob("*")
        if not path.name.endswith(("-shm", "-wal")) and path.is_file()
    }


def test_a_trainer_gets_leases_and_then_a_generation(world: TickWorld) -> None:
    world.submit("a", most=3)

    world.tick()
    world.tick()
    unheard = world.generation()
    world.go_on(1)

    newest = world.newest()
    assert unheard == 0
    assert newest.keys == set(world.running())
    assert (len(newest.members), newest.author) == (3, "broker")
    assert newest.reason == "starts on 3 nodes"
    assert {m.job_id for m in newest.members} == {j.job_id for j in world.live()}
    assert len(world.slurm.calls("sbatch")) == 1


def test_a_lease_is_asked_for_at_the_lowest_priority(world: TickWorld) -> None:
    world.submit()

    (request,) = world.tick().requests

    (argv,) = world.slurm.calls("sbatch")
    assert argv[-4] == str(world.folder.lease_script)
    uuid, minutes, grace_s = argv[-3:]
    assert f"--job-name=freetrain-{uuid}" in argv
    tag = tag_of(world.folder)
    said = f"--comment=freetrain {uuid} state={tag} pool=1 want=2 beat="
    assert any(word.startswith(said) for word in argv)
    assert f"--time={minutes}" in argv
    assert {
        "--nice=10000",
        "--export-file=/dev/null",
        "--array=0-1",
        "--exclusive",
    } <= set(argv)
    assert any(word.startswith("--deadline=") for word in argv)
    assert f"--output={world.folder.outputs}/lease-%j.out" in argv
    assert int(grace_s) == 10 + 5, "GraceTime and KillWait"
    assert request.tasks == 2
    assert world.folder.lease_script.stat().st_mode & 0o777 == MODE


def test_a_lease_has_the_grace_time_of_the_partition_that_its_trainer_asks_for(
    world: TickWorld,
) -> None:
    world.slurm.part(ClusterPart("patient", tier=2, grace_s=60))
    world.submit(nodes='partition = "patient"')

    (request,) = world.tick().requests

    assert request.partition == "patient"
    assert int(request.arguments[-1]) == 60 + 5, "GraceTime and KillWait"


def test_leases_go_to_no_partition_that_the_rules_for_all_users_leave_out(
    world: TickWorld,
) -> None:
    world.submit()
    world.site = structs.replace(world.site, rules=SiteRules(partitions=("main",)))

    status = world.status()

    (problem,) = status.problems
    assert "leases may not go to partition freetrain" in problem
    assert "site.toml) allow main" in problem
    assert not world.slurm.calls("sbatch")


def test_an_idle_tick_needs_nine_commands_with_the_comment_for_others(
    world: TickWorld,
) -> None:
    running(world)
    files = sorted(world.folder.trainers.rglob("*"))
    status = world.status()
    assert status.requests == 9
    assert not any(status.done.values())
    assert sorted(world.folder.trainers.rglob("*")) == files


def test_report_log_and_metrics_say_what_was_done(world: TickWorld) -> None:
    running(world)

    status = world.status()

    assert read_status_report(world.folder.status_report) == status
    (line,) = status.trainers
    assert (line.reason, line.nodes) == ("it has what the plan gives it", 2)
    assert sorted(line.node_names) == ["n1", "n2"]
    used = {hole.node: hole.trainer for hole in status.holes}
    assert (used["n1"], used["n3"]) == ("a", "")
    assert [lease.trainer for lease in status.leases] == ["a", "a"]
    assert (status.planner_gap, status.is_by_lives) == (0.0, False)
    assert status.forecaster == ""
    assert len(world.folder.log.read_text().splitlines()) == 3
    numbers = world.folder.metrics.read_text()
    assert 'freetrain_leases{state="running"} 2\n' in numbers
    assert "freetrain_ticks_total 3\n" in numbers
    assert "freetrain_training_nodes 2\n" in numbers
    assert "freetrain_planner_gap_ratio 0\n" in numbers
    (idle_s,) = re.findall(
        r"^freetrain_idle_node_seconds_total (\S+)", numbers, re.MULTILINE
    )
    assert float(idle_s) == 8 * round(float(idle_s) / 8) > 64, "8 nodes, a few seconds"


def test_the_report_is_json_that_every_reader_takes(world: TickWorld) -> None:
    world.submit("a", most=1)
    world.tick()
    text = world.folder.status_report.read_text(encoding="utf-8")
    assert "Infinity" not in text
    assert json.loads(text)["version"] == 1
    # The lease was asked for after the snapshot.
    assert lease_name(world.running()[0]) not in text


def test_a_dry_run_shows_requests_and_writes_nothing(world: TickWorld) -> None:
    empty = world.tick(dry_run=True)
    needs_no_state = not world.folder.path.exists()
    tell(world.submit(), 0.9, 0.8)
    before = written(world)
    report = world.tick(dry_run=True)
    assert (len(empty.status.holes), needs_no_state) == (8, True)
    assert [request.tasks for request in report.requests] == [2]
    assert (world.live(), written(world)) == ([], before)


def test_leases_that_never_answer_make_ticks_pause(world: TickWorld) -> None:
    world.submit("a", most=4)
    for _ in range(4):
        world.tick()
        world.end_jobs()

    status = world.status()

    with world.reading() as store:
        assert pace(store, since_s=0.0).failed_starts >= 3
    assert status.brake == "leases failed to start repeatedly"
    assert status.paused_until_s is not None
    assert status.paused_until_s > status.at_s
    assert world.live() == []


@pytest.mark.parametrize(
    ("policy", "late", "first", "planned"),
    [
        ("freetrain", 'order = "background"\nweight = 1000.0', 6, (2, 6)),
        ("equal", "weight = 1000.0", 8, (4, 4)),
    ],
    ids=["the background gets what the others leave", "equal shares"],
)
def test_nodes_are_shared_by_the_sites_policy(
    world: TickWorld, policy: str, late: str, first: int, planned: tuple[int, int]
) -> None:
    world.change("planner", policy=policy)
    world.submit("late", late, most=8)
    world.submit("first", most=first)
    assert tuple(t.planned_nodes for t in world.status().trainers) == planned


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
    world.go_on(1, every_s=20.0)
    assert given not in map(lease_of, world.live()), "it did not leave after the notice"


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


def test_a_trainer_without_usable_holes_says_why(quick_folder: Path) -> None:
    long = LeaseSettings(shortest_s=1e5, longest_s=1e5)
    world = tick_world(quick_folder, lease=long)
    world.submit()
    (line,) = world.status().trainers
    assert line.reason == (
        "no hole that meets its requirement can be used: too short for a lease"
    )


# A tick in one line.

DONE = {
    "leases asked for": 0,
    "leases ended": 0,
    "leases shortened": 0,
    "generations": 0,
}
WANTS = TrainerLine(name="a", state=str(TrainerState.WANTED))
OVER = tuple(
    TrainerLine(name="b", state=str(state))
    for state in (TrainerState.FINISHED, TrainerState.FAILED)
)


def line_of(*trainers: TrainerLine, **page: object) -> str:
    return summary_line(replace(a_page(trainers=trainers, done=DONE), **page))  # type: ignore[arg-type]


def test_the_line_has_the_brake_where_a_trainer_wants_nodes() -> None:
    brake = "as many leases as the site allows"
    assert f"asking for no more: {brake}" in line_of(WANTS, brake=brake)
    for trainers in ((), OVER):
        line = line_of(*trainers, brake=brake)
        assert "0 of 0 trainers run" in line
        assert "asking for no more" not in line


def test_the_line_has_the_gap_of_a_plan_that_is_not_proven_and_wanted() -> None:
    some = {"planner": str(PlanStatus.INCUMBENT), "planner_gap": 0.0082}
    assert "; plan at most 0.82 % below the best; " in line_of(WANTS, **some)
    assert "plan" not in line_of(**some)
    assert "plan" not in line_of(WANTS, **some | {"planner": str(PlanStatus.PROVEN)})


# Two clusters that see one home, and so one state directory.


class Elsewhere(TickWorld):
    """The same home on a cluster of another name."""

    __slots__ = ()

    def connect(self, most_requests: int) -> SlurmBackend:
        backend = super().connect(most_requests)
        config = backend.config

        def renamed() -> ClusterConfig:
            return replace(config(), cluster="elsewhere")

        backend.config = renamed  # type: ignore[method-assign]
        return backend


def elsewhere(world: TickWorld, slurm: FakeSlurm) -> Elsewhere:
    known = {one.name: getattr(world, one.name) for one in fields(world)}
    return Elsewhere(**{**known, "slurm": slurm, "now_s": world.now_s + 60.0})


@pytest.fixture
def other(quick_folder: Path) -> FakeSlurm:
    programs = quick_folder / "other-slurm"
    programs.mkdir()
    install(programs)
    return FakeSlurm(programs)


def test_two_clusters_on_one_home_leave_each_other_alone(
    world: TickWorld, other: FakeSlurm
) -> None:
    newest = running(world)
    there = elsewhere(world, other)

    for _ in range(3):
        with pytest.raises(BadConfigurationError, match="'standin', which has leases"):
            there.tick()
        there.now_s += 60.0
    world.now_s = there.now_s
    world.go_on(1)

    assert world.newest("a") == newest
    assert not other.calls("sbatch")


def test_a_renamed_cluster_without_jobs_waits_until_said(
    world: TickWorld, other: FakeSlurm
) -> None:
    running(world)
    world.submit("b")
    world.go_on(1, every_s=600.0)  # b's leases have a later deadline
    there = elsewhere(world, other)

    with pytest.raises(BadConfigurationError, match="was renamed, ticks go on") as told:
        there.tick()
    (until,) = re.findall(r"\d{4}-\d\d-\d\dT[\d:]+Z", str(told.value))
    there.now_s = datetime.fromisoformat(until).timestamp() - 60.0  # commands take time
    with pytest.raises(BadConfigurationError):
        there.tick()
    there.now_s += 60.0

    assert there.tick().status.cluster == "elsewhere"


def test_a_cluster_that_was_renamed_goes_on_with_its_leases(world: TickWorld) -> None:
    running(world)
    status = elsewhere(world, world.slurm).status()
    assert (status.cluster, len(status.leases)) == ("elsewhere", 2)
