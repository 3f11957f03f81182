"""Models are handed over once, whole, and when they are good enough."""

import hashlib
import math
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from freetrain.elastic.checkpoint import read_checkpoint
from freetrain.elastic.files import RunDir
from freetrain.state.tables import (
    Delivery,
    DeliveryStage,
    EventKind,
    TrainerState,
    deliveries,
)
from freetrain.tick.act import HOOK_CUT_OFF
from freetrain.tick.environment import HookCall, call_hook
from tests.tick.test_tick_faults import copied, killed_at
from tests.tick.tick_worlds import TickWorld, commit, tell, tick_world


def place(world: TickWorld) -> Path:
    """Where the checkpoint is to be published."""
    return world.folder.path.parent / "models" / "good.npz"


def wanting(
    world: TickWorld,
    *losses: float,
    publish: bool = True,
    commits: tuple[int, ...] = (1,),
    more: str = "",
) -> RunDir:
    """Submit a trainer with a target, which has reported and committed."""
    published = f'publish = "{place(world)}"\n' if publish else ""
    target = f'[target]\ndeliver = 0.5\nhook = ["tell", "$x"]\n{published}{more}\n'
    run_dir = world.submit("a", target)
    tell(run_dir, *losses)
    for step in commits if publish else ():
        commit(run_dir, step)
    return run_dir


def delivery(world: TickWorld) -> Delivery | None:
    with world.reading() as state:
        return next(iter(deliveries(state).values()), None)


def stage(world: TickWorld) -> tuple[DeliveryStage, str]:
    """The stage of the delivery, and its problem."""
    found = delivery(world)
    assert found is not None
    return found.stage, found.problem


@pytest.mark.parametrize(
    ("losses", "dry_run"),
    [
        ((0.9, 0.6, math.nan, -math.inf), False),
        ((0.9, 0.8, -1e200), False),
        ((0.4,), True),
    ],
    ids=["not reached", "an overflow", "a dry run"],
)
def test_nothing_is_delivered_before_its_target(
    world: TickWorld, losses: tuple[float, ...], *, dry_run: bool
) -> None:
    wanting(world, *losses, commits=(len(losses),), more="final = 0.1")
    world.tick(dry_run=dry_run)
    assert delivery(world) is None
    assert world.row().state is TrainerState.WANTED
    assert not place(world).exists()
    assert world.hook_calls == []


def test_the_model_is_published_and_the_hook_called_once(world: TickWorld) -> None:
    run_dir = wanting(world, 0.9, 0.4, 0.7)
    whole = commit(run_dir, 3)

    for _ in range(3):
        world.tick()

    found = delivery(world)
    assert found is not None
    assert (found.stage, found.problem) == (DeliveryStage.DELIVERED, "")
    assert (found.step, found.value, found.checkpoint) == (2, 0.4, whole.name)
    assert place(world).read_bytes() == whole.read_bytes()
    assert [path.name for path in place(world).parent.iterdir()] == ["good.npz"]
    variables = {
        "FREETRAIN_TRAINER": "a",
        "FREETRAIN_METRIC": "loss",
        "FREETRAIN_VALUE": "0.4",
        "FREETRAIN_PUBLISHED": str(place(world)),
    }
    assert world.hook_calls == [["tell", "$x", variables]]
    assert world.row().state is TrainerState.WANTED, "it trains on"
    kinds = [event.kind for event in world.events("a")]
    assert kinds.count(EventKind.DELIVERED) == 1
    with place(world).open("r+b") as file:
        file.write(b"changed")  # it is a copy
    assert read_checkpoint(whole.read_bytes()).position.step == 3


def whole_elsewhere(run_dir: RunDir) -> Path:
    """A good checkpoint outside of the folder of checkpoints."""
    return commit(run_dir, 8).rename(run_dir.path / "elsewhere")


def test_a_checkpoint_before_the_target_or_not_whole_is_not_delivered(
    world: TickWorld,
) -> None:
    run_dir = wanting(world, 0.9, 0.4)
    world.tick()
    first, problem = stage(world)
    torn, corrupt, other = (commit(run_dir, step) for step in (6, 5, 4))
    torn.write_bytes(torn.read_bytes()[:-70])
    corrupt.write_bytes(b"x" + corrupt.read_bytes()[1:])
    digest = hashlib.sha256(b"x" * 100 + b"0" * 64).hexdigest()
    other.write_bytes(b"x" * 100 + digest.encode())
    os.mkfifo(run_dir.checkpoint(1, 7))
    run_dir.checkpoint(1, 8).symlink_to(whole_elsewhere(run_dir))
    world.tick()
    still_waits = not place(world).exists()
    whole = commit(run_dir, 3)

    world.tick()

    assert first is DeliveryStage.REACHED
    assert "no checkpoint has the step yet" in problem
    assert still_waits
    assert place(world).read_bytes() == whole.read_bytes()
    assert len(world.hook_calls) == 1


def test_a_trainer_that_stopped_is_delivered_in_the_end(world: TickWorld) -> None:
    wanting(world, 0.9, 0.4)
    world.tick()
    world.set_state("a", TrainerState.CANCELLED)
    world.tick()
    is_early = place(world).exists()
    world.now_s += 1_000.0

    world.tick()

    assert not is_early
    assert read_checkpoint(place(world).read_bytes()).position.step == 1


def test_a_place_that_cannot_be_written_is_tried_again(world: TickWorld) -> None:
    wanting(world, 0.4)
    place(world).mkdir(parents=True)

    world.tick()
    first, problem = stage(world)
    place(world).rmdir()
    world.tick()

    assert first is DeliveryStage.REACHED
    assert problem.startswith(f"cannot publish {place(world)}: ")
    assert place(world).is_file()


@pytest.mark.parametrize("problem", ["", "the hook ended with exit code 3"])
def test_a_hook_is_called_once_for_each_submission(
    world: TickWorld, problem: str
) -> None:
    world.hook_problem = problem
    wanting(world, 0.4, publish=False)
    world.tick()
    world.tick()
    first, calls = stage(world), world.hook_calls
    world.put(replace(world.row(), submitted_s=2.0))

    world.tick()

    assert first == (DeliveryStage.DELIVERED, problem)
    assert [call["FREETRAIN_PUBLISHED"] for *_, call in calls] == [""]
    assert len(world.hook_calls) == 2


def test_a_tick_calls_one_hook_at_most(world: TickWorld) -> None:
    for name in ("a", "b"):
        tell(world.submit(name, '[target]\ndeliver = 0.5\nhook = "tell"\n'), 0.4)
    world.tick()
    first = len(world.hook_calls)
    world.tick()
    names = [call["FREETRAIN_TRAINER"] for *_, call in world.hook_calls]
    assert (first, sorted(names)) == (1, ["a", "b"])


def test_a_trainer_at_its_final_target_is_finished(world: TickWorld) -> None:
    run_dir = wanting(world, publish=False, commits=(), more="final = 0.1")
    world.tick()
    world.beat()
    world.tick()
    nodes = len(world.nodes())
    tell(run_dir, 0.9, 0.05)

    world.beat()
    world.tick()

    stopped = world.newest()
    assert (nodes, len(stopped.members)) == (2, 0)
    assert stopped.reason == "it is finished"
    assert world.row().state is TrainerState.FINISHED
    assert world.row().message == "its final target is reached: loss 0.05"
    assert len(world.hook_calls) == 1


@pytest.mark.long
def test_a_killed_tick_delivers_all_and_calls_no_hook_twice(quick_folder: Path) -> None:
    (quick_folder / "before").mkdir()
    before = tick_world(quick_folder / "before")
    whole = commit(wanting(before, 0.9, 0.4, commits=()), 2)
    steps, uncalled = 0, 0

    while killed_at(world := copied(before, quick_folder / f"{steps}"), steps):
        world.tick()
        world.tick()

        found = delivery(world)
        assert found is not None
        assert found.stage is DeliveryStage.DELIVERED
        assert place(before).read_bytes() == whole.read_bytes()
        assert [path.name for path in place(before).parent.iterdir()] == ["good.npz"]
        if found.problem == HOOK_CUT_OFF:
            uncalled += 1
            assert len(world.hook_calls) <= 1
        else:
            assert (found.problem, len(world.hook_calls)) == ("", 1)
        shutil.rmtree(place(before).parent)
        shutil.rmtree(quick_folder / f"{steps}")
        steps += 1

    assert steps >= 16, "hardly any step was tried"
    assert uncalled == 4, "after the intent, around the call, before what became of it"


# Hooks.


def hook(folder: Path, *argv: str, limit_s: float = 30.0) -> str:
    variables = {"PATH": "/usr/bin:/bin"}
    call = HookCall(argv=argv, folder=folder, variables=variables, limit_s=limit_s)
    return call_hook(call)


def test_a_hook_runs_in_its_folder_and_failures_are_reported(tmp_path: Path) -> None:
    assert hook(tmp_path, "/bin/sh", "-c", "echo said; pwd > here") == ""
    assert (tmp_path / "here").read_text().strip() == str(tmp_path)
    assert (
        hook(tmp_path, "/bin/sh", "-c", "exit 3") == "the hook ended with exit code 3"
    )
    missing = hook(tmp_path, "no-such-program")
    assert missing.startswith("the hook no-such-program could not be")


def test_a_slow_hook_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    script = "sleep 1000 & echo $! > child; wait"
    said = hook(tmp_path, "/bin/sh", "-c", script, limit_s=0.5)
    assert said == "the hook took longer than 0.5 s and was killed"
    assert is_gone(int((tmp_path / "child").read_text()))


def is_gone(pid: int) -> bool:
    """Tell whether a process ends within a while; nobody may have reaped it yet."""
    for _ in range(200):
        try:
            os.kill(pid, signal.SIG_DFL)
        except ProcessLookupError:
            return True
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                return True
        time.sleep(0.05)
    return False
