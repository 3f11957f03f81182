"""A state directory of an earlier version, with running trainers, goes on."""

import json
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from freetrain.config.document import BaseFolders
from freetrain.config.job import render_job
from freetrain.config.site import parse_site
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm.cluster import FakeJob, FakeJobState
from freetrain.state.files import EndingKind, create_ending
from freetrain.state.tables import TrainerState, history_of
from tests.cli.commands import run
from tests.state.endings import an_ending
from tests.tick.tick_worlds import TickWorld, lease_of, tell, tick_world

OLD = Path(__file__).parents[1] / "data" / "state-ec25d12"
LOOKED_S = 1_900_000_236.0  # ten seconds after its last tick
TRAINERS = ("steady", "done", "paused", "grower", "waiting")
EMPTY = (
    *("assignments", "endings", "notices", "logs", "worlds", "run/checkpoints"),
    *("run/control", "run/generations", "run/outcomes"),
)


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    """The world as the last tick of the earlier version left it."""
    world = tick_world(quick_folder)
    state = quick_folder / "state"
    state.mkdir(mode=0o700)
    for path in (OLD / "files").rglob("*"):
        to = state / path.relative_to(OLD / "files")
        if path.is_dir():
            to.mkdir(exist_ok=True, mode=0o700)
        elif path.suffix == ".npz":
            shutil.copy(path, to)
        else:
            to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            to.write_text(there(path, state))
    for name in TRAINERS:
        for folder in EMPTY:
            (state / "trainers" / name / folder).mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(state / "state.sqlite")) as connection:
        connection.executescript(there(OLD / "state.sql", state))
    shutil.copy(OLD / "freetrain.toml", quick_folder)
    jobs = [a_job(record) for record in json.loads(there(OLD / "jobs.json", state))]
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.jobs += jobs
        cluster.next_id = max(job.job_id for job in jobs) + 1
    places = BaseFolders(quick_folder)
    content = (OLD / "freetrain.toml").read_bytes()
    site = parse_site(content, path="freetrain.toml", places=places)
    # Its trainers would try sizes now, which is not what this is about.
    planner = structs.replace(site.planner, profile=False)
    site = structs.replace(site, planner=planner)
    return replace(world, site=site, now_s=LOOKED_S)


def there(path: Path, state: Path) -> str:
    """Return the text of *path* as if it were of *state*: its place, its inodes."""
    text = path.read_text(encoding="utf-8").replace("@STATE@", str(state))
    return re.sub(r"@INODE:(\w+)@", lambda found: inode(state, found[1]), text)


def inode(state: Path, trainer: str) -> str:
    told = state / "trainers" / trainer / "run" / "progress.jsonl"
    return str(told.stat().st_ino)


def a_job(record: Mapping[str, Any]) -> FakeJob:
    return FakeJob(**{**record, "state": FakeJobState(record["state"])})


def members(world: TickWorld, name: str) -> tuple[int, set[str]]:
    """Return the newest generation of a trainer and its nodes."""
    return world.generation(name), world.nodes(name)


def leases(world: TickWorld) -> set[int]:
    return {job.job_id for job in world.live() if lease_of(job).uuid}


def assignments(world: TickWorld) -> dict[str, bytes]:
    paths = world.folder.trainers.glob("*/assignments/*.json")
    return {str(path): path.read_bytes() for path in paths}


def steps(world: TickWorld, name: str) -> int:
    home = world.folder.path.parent
    ran = run("status", name, "--json", cwd=home, now_s=lambda: world.now_s)
    found: int = json.loads(ran.stdout)["trainers"][0]["step"]
    return found


def points(world: TickWorld, name: str) -> list[list[float]]:
    """Return what is remembered of the losses of a trainer."""
    with world.reading() as state:
        row = history_of(state, name, submitted_s=world.row(name).submitted_s)
    assert row is not None
    found: list[list[float]] = row.history["points"]["kept"]
    return found


@pytest.mark.parametrize("command", ["status", "explain"])
def test_commands_show_it_as_the_earlier_version_did(
    world: TickWorld, command: str
) -> None:
    home = world.folder.path.parent
    ran = run(command, "--json", cwd=home, now_s=lambda: LOOKED_S)
    assert ran.code == 0, ran.stderr
    shown = json.loads(ran.stdout)
    earlier = json.loads(there(OLD / f"{command}.json", world.folder.path))
    assert_has(shown, earlier)


def assert_has(shown: object, earlier: object) -> None:
    """Check that *shown* has all of *earlier*; keys may be added, and none changed.

    A forecast is made anew by each version: it has the same keys, and other numbers.
    """
    if isinstance(shown, dict) and isinstance(earlier, dict):
        assert shown.keys() >= earlier.keys()
        for key, value in earlier.items():
            if key in {"family", "expected"}:
                assert type(shown[key]) is type(value)
                assert key == "family" or list(shown[key] or ()) == list(value or ())
            else:
                assert_has(shown[key], value)
    elif isinstance(shown, list) and isinstance(earlier, list):
        for now, before in zip(shown, earlier, strict=True):
            assert_has(now, before)
    else:
        assert shown == earlier


def test_its_leases_are_adopted_and_its_trainers_stay(world: TickWorld) -> None:
    before, old_leases = assignments(world), leases(world)
    world.beat()

    status = world.status()

    assert status.problems == ()
    assert leases(world) == old_leases
    assert world.slurm.calls("scancel") == []
    assert world.slurm.calls("sbatch") == []
    assert assignments(world).items() >= before.items()
    assert members(world, "steady") == (1, {"n1", "n2"})
    assert members(world, "grower") == (1, {"n3", "n5", "n6"})


def test_its_waiting_trainer_gets_the_leases_asked_for(world: TickWorld) -> None:
    world.beat()
    world.tick()
    assert members(world, "waiting") == (1, {"n7", "n8"})


def test_its_agents_can_read_new_generations(world: TickWorld) -> None:
    world.beat()
    world.tick()
    place = world.folder.trainer("waiting")
    now = json.loads(place.assignment(1).read_text())
    old = json.loads(world.folder.trainer("grower").assignment(1).read_text())
    assert now.keys() == old.keys()
    assert now["members"][0].keys() == old["members"][0].keys()


def test_its_histories_and_forecasts_are_not_lost(world: TickWorld) -> None:
    old = points(world, "steady")
    tell(world.folder.trainer("steady").run, 0.4, 0.3, since=40)
    world.tick()
    assert steps(world, "steady") == 42
    now = points(world, "steady")
    assert (len(old), len(now)) == (40, 42)
    assert now[:40] == old
    assert world.forecast()["watched_s"] > 219.0  # as it was


def test_its_trainers_that_ended_stay_so_and_others_go_on(world: TickWorld) -> None:
    world.set_state("paused", TrainerState.WANTED)
    ending = an_ending(1, EndingKind.FINISHED, exit_code=0, message="all samples done")
    create_ending(world.folder.trainer("grower"), ending)
    for _ in range(3):
        world.beat()
        world.tick()

    assert world.row("done").state is TrainerState.FINISHED
    assert members(world, "done") == (2, set())
    assert world.row("grower").state is TrainerState.FINISHED
    assert members(world, "grower") == (2, set())
    generation, nodes = members(world, "paused")
    assert generation == 3
    assert len(nodes) == 1
    assert members(world, "steady") == (1, {"n1", "n2"})


def test_a_trainer_of_it_grows_by_a_generation_of_its_own(world: TickWorld) -> None:
    job = world.job("steady")
    grown = structs.replace(job, nodes=structs.replace(job.nodes, max_nodes=3))
    world.put(replace(world.row("steady"), job=render_job(grown)))
    ending = an_ending(1, EndingKind.FINISHED, exit_code=0, message="all samples done")
    create_ending(world.folder.trainer("grower"), ending)
    for _ in range(3):
        world.beat()
        world.tick()

    generation, nodes = members(world, "steady")
    assert generation == 2
    assert nodes > {"n1", "n2"}
