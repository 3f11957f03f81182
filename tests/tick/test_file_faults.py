"""A tick whose file calls fail, one at a time: a fault is of one lease or trainer.

Three trainers run, one of them has just reported and another is over, a fourth waits;
a job of another user waits for two leased nodes; old files are to be removed. Each call
that a tick then makes on a file is let fail once.
"""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.config.site import LeaseMode
from freetrain.errors import FreeTrainError
from freetrain.state.files import AgentState, EndingKind, StateDir, create_ending
from freetrain.tick.tick import tick
from slurm.errors import SlurmError
from tests.fakes.file_faults import FileFaults, failing_files
from tests.fakes.slurm.installing import FakeSlurm
from tests.state.endings import an_ending
from tests.tick.test_room import sign_of, told
from tests.tick.tick_worlds import (
    TickWorld,
    commit,
    lease_of,
    tell,
    theirs,
    tick_world,
)

_TRAINERS = ("a", "b", "c")
_CODES = (errno.EIO, errno.ESTALE, errno.ENOENT, errno.EACCES, errno.ENOSPC)
_REPORTS = (
    "page.json",
    "status.html",
    "metrics.prom",
    "tick.log",
    "tick-sign",
    "lease.sh",
)


def prepared(folder: Path) -> TickWorld:
    """Make the world, up to the tick that is tried."""
    folder.mkdir()
    world = tick_world(folder)
    world.change("lease", mode=LeaseMode.YIELD, careful=False)
    run_dirs = {name: world.submit(name, most=2) for name in _TRAINERS}
    world.go_on(3, every_s=5.0)
    assert all(len(world.nodes(name)) == 2 for name in _TRAINERS)
    for name in _TRAINERS:
        keys = world.newest(name).keys
        world.beat(*keys, state=AgentState.TRAINING, trainer=name)
    world.tick()
    tell(run_dirs["a"], 3.0, 2.0, 1.0)
    commit(run_dirs["a"], 3)
    over = an_ending(world.generation("c"), EndingKind.FINISHED)
    create_ending(world.folder.trainer("c"), over)
    world.submit("d", most=1)
    world.slurm.standin.add([theirs(world), theirs(world), theirs(world)])
    for name in _TRAINERS:
        keys = world.newest(name).keys
        world.beat(*keys, state=AgentState.TRAINING, trainer=name)
    world.now_s += 5.0
    return world


def copied(world: TickWorld, to: Path) -> TickWorld:
    shutil.copytree(world.slurm.folder.parent, to)
    state = to / world.folder.path.name
    copy = replace(
        world,
        folder=StateDir(state),
        slurm=FakeSlurm(to / world.slurm.folder.name),
        site=structs.replace(world.site, state_directory=state),
    )
    for name in (*_TRAINERS, "d"):
        run_dir = str(copy.folder.trainer(name).run.path)
        copy.put(replace(copy.row(name), run_dir=run_dir))
    return copy


def ticked(world: TickWorld, number: int | None, code: int) -> FileFaults:
    """Tick while one call fails; only documented errors may come of it."""
    with failing_files(world.folder.path, number=number, code=code) as faults:
        error: Exception | None = None
        try:
            tick(world.site, world.environment)
        except (FreeTrainError, SlurmError) as raised:
            error = raised
    is_of_one = "/trainers/" in faults.failed or "/leases/" in faults.failed
    assert not is_of_one or error is None, f"{faults.calls[number or 0]}: {error}"
    return faults


def outcome_of(world: TickWorld) -> dict[str, object]:
    """How things are in the end: who has how many nodes, and who is over."""
    for _ in range(4):
        world.now_s += 40.0
        leaving = [job for job in told(world) if job.is_running]
        staying = [key for key in world.running() if key not in map(lease_of, leaving)]
        world.beat(*staying)
        world.tick()
    return {
        "nodes": {name: len(world.nodes(name)) for name in (*_TRAINERS, "d")},
        "c": world.row("c").state,
        "has sign": sign_of(world) is not None,
    }


def calls_of_a_tick(before: TickWorld, folder: Path) -> list[tuple[str, str]]:
    world = copied(before, folder)
    calls = ticked(world, None, 0).calls
    return [(name, path.replace(str(world.folder.path), "")) for name, path in calls]


def walk(folder: Path, code: int, *, first: int = 0, every: int = 2) -> int:
    """Let each second call or so fail in turn; return how many faults were tried."""
    before = prepared(folder / "before")
    calls = calls_of_a_tick(before, folder / "calls")
    expected = outcome_of(copied(before, folder / "expected"))
    tried = 0
    for number in range(first, len(calls), every):
        world = copied(before, folder / "now")
        said = f"{calls[number]}: {os.strerror(code)}"

        ticked(world, number, code)

        assert len(told(world)) >= 1, f"no room was made: {said}"
        assert outcome_of(world) == expected, said
        shutil.rmtree(folder / "now")
        tried += 1
    return tried


def test_single_faults_are_of_one_lease_or_trainer(quick_folder: Path) -> None:
    assert walk(quick_folder, errno.EIO, every=6) >= 10


@pytest.mark.long
@pytest.mark.parametrize("code", _CODES, ids=errno.errorcode.__getitem__)
def test_each_file_call_of_a_tick_may_fail(quick_folder: Path, code: int) -> None:
    """Each call fails in two or three of the five ways."""
    first = _CODES.index(code) % 2
    assert walk(quick_folder, code, first=first) >= 30


def test_the_walk_meets_all_kinds_of_files(quick_folder: Path) -> None:
    before = prepared(quick_folder / "before")
    paths = {path for _, path in calls_of_a_tick(before, quick_folder / "calls")}
    for part in ("heartbeat", "assignments", "endings", "progress", *_REPORTS):
        assert any(part in path for path in paths), (part, sorted(paths))
