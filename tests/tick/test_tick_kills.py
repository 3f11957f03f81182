"""SIGKILL at every step of a tick: whatever was done, the next ticks put it right."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.site import PlannerSettings
from freetrain.state.files import Ended, StateDir, create_ending
from freetrain.state.tables import TrainerState, leases
from slurm.errors import SlurmUnavailableError
from tests.fakes.slurm.installing import FakeSlurm
from tests.fakes.slurm.state import Act
from tests.state.endings import an_ending
from tests.tick.tick_worlds import TickWorld, lease_of, theirs, tick_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey
    from freetrain.tick.status_report import StatusReport

pytestmark = pytest.mark.long

_MOST_STEPS = 100
_FEW_S = 30.0
_ENOUGH = 5  # longer than a submission without answer is waited for


def asking(world: TickWorld) -> None:
    """Two trainers want leases."""
    world.submit("a", most=2)
    world.submit("b", most=3)


def assigning(world: TickWorld) -> None:
    """Leases run, and their agents are up."""
    asking(world)
    world.tick()
    world.beat()


def changing_hands(world: TickWorld) -> None:
    """One trainer is paused and another one has come; all eight nodes are leased."""
    world.submit("a", most=8)
    rest(world)
    world.set_state("a", TrainerState.PAUSED)
    world.submit("b", most=3)


def finishing(world: TickWorld) -> None:
    """One has finished, so that leases are too many and must be told to leave."""
    asking(world)
    rest(world)
    newest = world.newest("b")
    done = {"step": 9, "committed_step": 9, "author": "x"}
    ending = an_ending(newest.generation, Ended.FINISHED, **done)
    create_ending(world.folder.trainer("b"), ending)


def staying(world: TickWorld) -> None:
    """Leases were told to leave and did not, so that they must be ended."""
    finishing(world)
    world.tick()
    world.tick()
    world.now_s += 100.0


def losing_the_answer(world: TickWorld) -> None:
    """The submission is taken, but no answer comes."""
    asking(world)
    world.slurm.script("sbatch", Act.HANG_AFTER)


def never_asked(world: TickWorld) -> None:
    """The submission is not taken, and no answer comes."""
    asking(world)
    world.slurm.script("sbatch", Act.HANG)


def looking_ahead(world: TickWorld) -> None:
    """Somebody takes nodes, and what is expected of nodes is learned at each look."""
    planner = PlannerSettings(policy="lookahead")
    world.site = structs.replace(world.site, planner=planner)
    world.tick()
    taken = {"due_s": world.now_s, "wanted": ["n1", "n2"], "run_s": 60.0}
    world.slurm.standin.add([theirs(world, **taken)])
    for _ in range(3):
        world.now_s += 40.0
        world.tick()
    asking(world)
    world.tick()
    world.beat()


SCENES = {
    scene.__name__: (scene, nodes)
    for scene, nodes in (
        (asking, {"a": 2, "b": 3}),
        (assigning, {"a": 2, "b": 3}),
        (changing_hands, {"a": 0, "b": 3}),
        (finishing, {"a": 2, "b": 0}),
        (staying, {"a": 2, "b": 0}),
        (losing_the_answer, {"a": 2, "b": 3}),
        (never_asked, {"a": 2, "b": 3}),
        (looking_ahead, {"a": 2, "b": 3}),
    )
}


def rest(world: TickWorld) -> None:
    """Tick on while time passes, until there has been nothing to do for a while."""
    quiet = 0
    for _ in range(40):
        world.beat()
        status = ticked(world)
        check(world)
        waits = any(lease.state != "running" for lease in status.leases)
        quiet = 0 if waits or any(status.done.values()) else quiet + 1
        if quiet == _ENOUGH:
            return
        world.now_s += _FEW_S
    pytest.fail("it never comes to rest")


def ticked(world: TickWorld) -> StatusReport:
    """Tick; once more where a command was scripted to give no answer."""
    try:
        status = world.status()
    except SlurmUnavailableError:
        status = world.status()
    assert not any("learned" in said for said in status.problems), status.problems
    return status


def check(world: TickWorld) -> None:
    """What must hold after each tick, however it went."""
    live = Counter(map(lease_of, world.live()))
    assert all(count == 1 for count in live.values()), f"a lease has two jobs: {live}"
    held = Counter(key for one in ("a", "b") for key in members(world, one))
    assert all(count == 1 for count in held.values()), f"in two worlds: {held}"


def members(world: TickWorld, name: str) -> tuple[LeaseKey, ...]:
    if not world.generation(name):
        return ()
    return tuple(member.key for member in world.newest(name).members)


def killed_at(world: TickWorld, step: int) -> bool:
    """Run a tick in a child that is killed at *step*; False where it has fewer."""
    child = os.fork()
    if child == 0:
        steps = iter(range(_MOST_STEPS))

        def reached(_: str) -> None:
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            replace(world, reached=reached).tick()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def copied(world: TickWorld, to: Path) -> TickWorld:
    top = world.slurm.folder.parent
    shutil.copytree(top, to)
    state = to / world.folder.path.name
    return replace(
        world,
        folder=StateDir(state),
        slurm=FakeSlurm(to / world.slurm.folder.name),
        site=structs.replace(world.site, state_directory=state),
    )


@pytest.mark.parametrize("scene", SCENES)
def test_a_tick_killed_at_any_step_is_put_right_by_the_next(
    quick_folder: Path, scene: str
) -> None:
    prepare: Callable[[TickWorld], None]
    prepare, expected = SCENES[scene]
    (quick_folder / "before").mkdir()
    before = tick_world(quick_folder / "before")
    prepare(before)
    steps = 0

    while killed_at(world := copied(before, quick_folder / f"{steps}"), steps):
        world.now_s += _FEW_S
        check(world)
        rest(world)

        assert {name: len(members(world, name)) for name in expected} == expected
        with world.reading() as state:
            believed = leases(state, ending_after_s=0.0)
        alive = {lease.key for lease in believed if lease.is_live}
        assert alive == {lease_of(job) for job in world.live()}, "a lease is lost"
        assert len(alive) == sum(expected.values())
        shutil.rmtree(quick_folder / f"{steps}")
        steps += 1

    assert steps >= 8, "hardly any step was tried"
