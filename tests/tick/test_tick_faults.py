"""Ticks when Slurm, the disk or another tick is in the way, or when they are killed."""

import os
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from freetrain.broker.lease import LeaseKey
from freetrain.cli.context import exit_code
from freetrain.config.site import Caps, PlannerSettings
from freetrain.demo.fake_slurm.cluster import FakeJobState
from freetrain.errors import CannotWriteError, FreeTrainError
from freetrain.state.database import StoreBusyError, turn_in
from freetrain.state.files import EndingKind, StateDir, create_ending
from freetrain.state.tables import TickCounter, TrainerState, counters, leases
from freetrain.state.turn import TURNS, newest_turn, turn_file
from freetrain.tick.environment import MOST_EVIDENCE, append_line, keep_evidence
from freetrain.tick.status_report import StatusReport
from freetrain.tick.tick import tick
from slurm.errors import SlurmError, SlurmUnavailableError, UnreadableOutputError
from tests.fakes.slurm.installing import FakeSlurm
from tests.fakes.slurm.state import Act
from tests.state.endings import an_ending
from tests.tick.tick_worlds import (
    ELSEWHERE,
    UID,
    TickWorld,
    lease_of,
    theirs,
    tick_world,
)

_SMALL_BYTES = 4_096

_NOBODY = 65_534


def in_child(
    prepare: Callable[[], None],
    world: TickWorld,
    **environment: Any,  # noqa: ANN401
) -> int:
    """Tick in a child after *prepare*; return the exit code it ends with."""
    changed = replace(world.environment, **environment)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            prepare()
            tick(world.site, changed)
            code = 0
        except (FreeTrainError, OSError, SlurmError) as error:
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
        assert counters(store)[TickCounter.FAILED_TICKS] == 1.0


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
    world = tick_world(quick_folder, caps=Caps(rpcs_per_tick=1, leases_per_tick=2))
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

    def become() -> None:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)

    assert in_child(become, world, uid=_NOBODY) == 73


def test_two_ticks_do_not_overlap(world: TickWorld) -> None:
    world.submit("a", most=2)

    with (
        turn_in(world.folder.path, ELSEWHERE),
        pytest.raises(StoreBusyError, match="process 1 on elsewhere") as caught,
    ):
        world.tick()

    assert exit_code(caught.value) == 75
    assert world.slurm.calls("sbatch") == []
    assert world.status().done["leases asked for"] == 2


def test_a_tick_that_lost_its_turn_changes_nothing_more(world: TickWorld) -> None:
    world.submit("a", most=2)

    def overtaken(point: str) -> None:
        if point == "before writing intent":
            folder = world.folder.path / TURNS
            turn_file(folder, newest_turn(folder) + 1).touch()

    world.reached = overtaken
    with pytest.raises(StoreBusyError, match="took its turn"):
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


# SIGKILL at every step of a tick: the next ticks put it right.

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
    ending = an_ending(newest.generation, EndingKind.FINISHED, **done)
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
    planner = PlannerSettings(policy="lookahead", profile=False)
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


@pytest.mark.long
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


@pytest.mark.parametrize("gap_s", [1_200.0, 30 * 3_600.0])
def test_after_a_long_gap_ended_leases_do_not_count_as_running(
    world: TickWorld, gap_s: float
) -> None:
    world.submit("a", most=3)
    world.tick()
    world.beat()
    world.tick()
    ended_s = world.now_s + 60.0
    world.change_jobs(state=FakeJobState.CANCELLED, end_s=ended_s)
    world.now_s += gap_s

    status = world.status()

    assert [lease.state for lease in status.leases if lease.state == "running"] == []
    assert status.done["leases asked for"] == 3
    world.go_on(2, every_s=5.0)
    assert world.newest().keys == set(world.running())


def test_a_lease_that_one_look_misses_stays_where_ticks_are_regular(
    world: TickWorld,
) -> None:
    world.submit("a", most=3)
    world.tick()
    world.beat()
    world.tick()
    world.change_jobs(state=FakeJobState.CANCELLED, end_s=world.now_s - 9_000.0)
    world.now_s += 60.0
    status = world.status()
    assert [lease.state for lease in status.leases] == 3 * ["running"]
