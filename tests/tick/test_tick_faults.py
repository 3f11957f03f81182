"""What a tick does when Slurm, the disk or another tick is in its way."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.cli.context import exit_code
from freetrain.config.site import Caps
from freetrain.errors import CannotWriteError
from freetrain.state.database import (
    LOCK,
    StoreBusyError,
    StoreUnwritableError,
    TickProcess,
    local_lock,
    open_store,
    take_leader_lock,
)
from freetrain.state.tables import Counter, counters
from freetrain.tick.environment import MOST_EVIDENCE, append_line, keep_evidence
from slurm.errors import SlurmError, SlurmUnavailableError, UnreadableOutputError
from tests.fakes.slurm.state import Act
from tests.tick.tick_worlds import UID, TickWorld, theirs, tick_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SMALL_BYTES = 4_096
_NOBODY = 65_534


def in_child(prepare: Callable[[], None], world: TickWorld) -> int:
    """Tick in a child after *prepare*; return the exit code it ends with."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            prepare()
            world.tick()
            code = 0
        except (CannotWriteError, OSError, SlurmError) as error:
            code = exit_code(error)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(
    ("program", "act", "code"),
    [
        ("squeue", Act.EMPTY, 76),
        ("squeue", Act.HALF, 76),
        ("squeue", Act.GARBAGE, 76),
        ("scontrol", Act.LOSE, 76),
        ("sdiag", Act.UNREACHABLE, 75),
        ("scontrol", Act.REFUSE, 69),
    ],
)
def test_where_the_look_fails_nothing_is_changed_and_the_next_tick_goes_on(
    quick_folder: Path, program: str, act: Act, code: int
) -> None:
    world = tick_world(quick_folder, is_at_hand=False)
    world.submit("a", most=2)
    world.slurm.script(program, act)

    with pytest.raises(SlurmError) as caught:
        world.tick()

    assert exit_code(caught.value) == code
    assert world.slurm.calls("sbatch") == []
    is_unreadable = isinstance(caught.value, UnreadableOutputError)
    assert world.folder.evidence.exists() == is_unreadable
    assert "failed: " in world.folder.log.read_text()
    assert world.status().done["leases asked for"] == 2
    with world.reading() as store:
        assert counters(store)[Counter.FAILED_TICKS] == 1.0


def test_a_first_tick_in_mid_backfill_takes_no_holes(quick_folder: Path) -> None:
    world = tick_world(quick_folder, is_at_hand=False)
    world.submit("a", most=2)
    world.slurm.script("sdiag", Act.MID_BACKFILL)
    world.slurm.script("squeue", Act.MID_BACKFILL)

    torn = world.status()
    whole = world.status()

    assert (torn.is_torn, torn.is_plan_known) == (True, False)
    assert torn.brake == "Slurm's plan could not be read whole"
    assert torn.done["leases asked for"] == 0
    assert whole.done["leases asked for"] == 2


def test_a_submission_without_answer_is_not_repeated(world: TickWorld) -> None:
    world.submit("a", most=2)
    world.slurm.script("sbatch", Act.HANG_AFTER)
    with pytest.raises(SlurmUnavailableError):
        world.tick()
    status = world.status()
    assert len(world.slurm.calls("sbatch")) == 1
    assert [lease.state for lease in status.leases] == ["running", "running"]


def test_refusals_are_reported_and_make_ticks_pause(quick_folder: Path) -> None:
    world = tick_world(quick_folder, is_at_hand=False)
    world.submit("a", most=2)
    world.slurm.script("sbatch", Act.REFUSE, Act.REFUSE, Act.REFUSE)
    statuses = [world.status() for _ in range(4)]
    assert all("denied" in " ".join(status.problems) for status in statuses[:3])
    assert statuses[3].brake == "leases failed to start repeatedly"
    assert len(world.slurm.calls("sbatch")) == 3


def test_no_more_commands_are_run_than_the_site_allows(quick_folder: Path) -> None:
    world = tick_world(quick_folder, caps=Caps(rpcs_per_tick=1, requests_per_tick=2))
    world.submit("a", most=8)
    status = world.status()
    assert len(world.slurm.calls("sbatch")) == 1
    assert status.done["leases asked for"] == 2


def test_after_a_full_disk_the_next_tick_goes_on(world: TickWorld) -> None:
    world.submit("a", most=2)
    code = in_child(
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALL_BYTES, _SMALL_BYTES)),
        world,
    )
    assert code == CannotWriteError.exit_code
    assert world.slurm.calls("sbatch") == []
    assert world.status().done["leases asked for"] == 2


@pytest.mark.skipif(UID != 0, reason="only root can become somebody else")
def test_a_state_that_may_not_be_written_is_reported(world: TickWorld) -> None:
    world.submit("a", most=2)
    world.tick()
    top = world.folder.path
    for path in (top.parent, *top.parent.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY)
    for path in (top, *top.iterdir()):
        path.chmod(0o500 if path.is_dir() else 0o400)
    mine = world.environment

    def become() -> None:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)

    child = os.fork()
    if child == 0:
        become()
        code = 1
        try:
            from freetrain.tick.tick import tick  # noqa: PLC0415 - in the child only

            tick(world.site, replace(mine, uid=_NOBODY))
        except StoreUnwritableError as error:
            code = exit_code(error)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 73


def test_two_ticks_on_one_host_do_not_overlap(world: TickWorld) -> None:
    world.submit("a", most=2)

    with (
        local_lock(world.folder.path / LOCK),
        pytest.raises(StoreBusyError, match="another tick is at work") as caught,
    ):
        world.tick()

    assert exit_code(caught.value) == 75
    assert world.slurm.calls("squeue") == []
    assert world.status().done["leases asked for"] == 2


def test_a_tick_on_another_host_is_left_its_turn(world: TickWorld) -> None:
    world.submit("a", most=2)
    elsewhere = TickProcess("elsewhere", 1, "boot")
    with open_store(world.folder.path, uid=UID) as store:
        take_leader_lock(
            store,
            elsewhere,
            now_s=world.now_s,
            for_s=100.0,
            is_alive=lambda _: True,
        )

    with pytest.raises(StoreBusyError, match="elsewhere"):
        world.tick()
    world.now_s += 101.0

    assert world.status().done["leases asked for"] == 2


def test_a_tick_that_lost_its_lock_changes_nothing_more(world: TickWorld) -> None:
    world.submit("a", most=2)

    def overtaken(point: str) -> None:
        if point == "before writing intent":
            with open_store(world.folder.path, uid=UID) as store:
                take_leader_lock(
                    store,
                    TickProcess("elsewhere", 1, "boot"),
                    now_s=world.now_s + 10_000.0,
                    for_s=1.0,
                    is_alive=lambda _: True,
                )

    world.reached = overtaken
    with pytest.raises(StoreBusyError, match="took over"):
        world.tick()

    assert world.slurm.calls("sbatch") == []


@pytest.mark.parametrize("skew_s", [-1e6, 1e6])
def test_a_host_whose_clock_steps_ticks_on(world: TickWorld, skew_s: float) -> None:
    world.submit("a", most=2)
    world.tick()
    world.beat()
    world.skew_s = skew_s
    status = world.status()
    assert status.done["generations"] == 1
    assert not any(world.status().done.values())


def test_hostile_jobs_of_others_are_never_taken_for_ours(world: TickWorld) -> None:
    world.submit("a", most=2)
    world.tick()
    (ours, _) = world.live()
    hostile = [
        ours.name,
        "freetrain-$(touch /tmp/x); rm -rf /",
        "a|b\\n'\"`\x01",
        "x" * 5_000,
    ]
    world.slurm.standin.add(
        [
            theirs(
                world,
                name=name,
                comment=name,
                user="eve",
                partition="main",
                limit_s=600.0,
                run_s=600.0,
            )
            for name in hostile
        ]
    )
    world.beat(*world.running()[:2])

    status = world.status()

    assert status.problems == ()
    assert status.done["leases ended"] == 0
    newest = world.newest("a")
    assert len(newest.members) == 2
    assert world.slurm.calls("scancel") == []


def test_logs_and_evidence_do_not_grow_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "tick.log"
    for _ in range(5):
        append_line(log, f"{'x' * 700_000}\nsecond\x1b[2J")
    error = UnreadableOutputError("squeue -x", 3, "y" * 5_000_000, "torn")
    for number in range(2 * MOST_EVIDENCE):
        kept = keep_evidence(tmp_path / "evidence", error, now_s=float(number))

    sizes = [path.stat().st_size for path in tmp_path.glob("tick.log*")]
    assert len(sizes) == 2
    assert max(sizes) < 3 * 1_000_000
    assert "\x1b" not in log.read_text()
    assert len(list((tmp_path / "evidence").iterdir())) == MOST_EVIDENCE
    assert kept.stat().st_size < 1_100_000
