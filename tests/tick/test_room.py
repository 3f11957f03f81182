"""Room is made first, with Slurm alone: whatever fails after it, others need not wait.

Each case has eight leases that train, and three jobs of another user that wait for
three of them.
"""

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.broker.reasons import EndReason
from freetrain.broker.yielding import NO_CLAIMS
from freetrain.cli.context import error_line, exit_code
from freetrain.config.site import LeaseMode
from freetrain.demo.fake_slurm.cluster import FakeJob, FakeJobState
from freetrain.errors import FreeTrainError
from freetrain.state.database import DATABASE, turn_in
from freetrain.state.files import AgentState, TickSign, read_tick_sign
from freetrain.state.tables import leases
from freetrain.tick.status_report import StatusReport
from freetrain.tick.tick import tick
from slurm.backend import CommandLine, SlurmBackend
from slurm.errors import SlurmError, SlurmRefusedError
from slurm.records import JobKey
from tests.fakes.slurm.installing import USER
from tests.fakes.slurm.state import Act
from tests.tick.tick_worlds import ELSEWHERE, TickWorld, lease_of, running, theirs

NOTICE = ["TERM"]


def crowd(world: TickWorld, *, others: int = 3) -> TickWorld:
    """Let eight leases train and *others* wait for them."""
    world.change("lease", mode=LeaseMode.YIELD)
    running(world, most=8)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.slurm.standin.add([theirs(world) for _ in range(others)])
    return world


@pytest.fixture
def crowded(world: TickWorld) -> TickWorld:
    return crowd(world)


def told(world: TickWorld) -> list[FakeJob]:
    """The leases that were sent the notice to leave."""
    return [job for job in world.slurm.jobs() if job.signals[:1] == NOTICE]


def corrupt(world: TickWorld) -> None:
    """Let the database be no database, and have no copy."""
    for side in ("", "-wal", "-shm", ".copy", ".copy-before"):
        (world.folder.path / f"{DATABASE}{side}").unlink(missing_ok=True)
    (world.folder.path / DATABASE).write_bytes(b"no database" * 1_000)


def removed_and_a_file(world: TickWorld) -> None:
    """Let the state directory be a file."""
    world.folder.path.rename(world.folder.path.with_name("moved"))
    world.folder.path.touch()


@pytest.mark.parametrize(("breaks", "code"), [(corrupt, 65), (removed_and_a_file, 78)])
def test_where_the_state_cannot_be_used_room_is_made(
    crowded: TickWorld, breaks: Callable[[TickWorld], None], code: int
) -> None:
    breaks(crowded)
    with pytest.raises(FreeTrainError) as caught:
        crowded.tick()
    assert exit_code(caught.value) == code
    assert len(told(crowded)) == 3
    assert "3 leases asked to leave" in error_line(caught.value)


def test_where_the_disk_is_full_room_is_made(crowded: TickWorld) -> None:
    def fills(point: str) -> None:
        if point == "before writing what was observed":
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FreeTrainError) as caught:
        replace(crowded, reached=fills).tick()
    assert exit_code(caught.value) == 73
    assert len(told(crowded)) == 3


def test_while_another_tick_is_at_work_room_is_made(crowded: TickWorld) -> None:
    with (
        turn_in(crowded.folder.path, ELSEWHERE),
        pytest.raises(FreeTrainError) as caught,
    ):
        crowded.tick()
    assert exit_code(caught.value) == 75
    assert len(told(crowded)) == 3


def test_where_a_tick_fails_by_a_defect_room_is_made(crowded: TickWorld) -> None:
    def fails(point: str) -> None:
        if point == "before writing what was observed":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        replace(crowded, reached=fails).tick()
    assert len(told(crowded)) == 3
    assert "3 leases asked to leave" in " ".join(caught.value.__notes__)


def test_leases_that_stay_are_cancelled_by_the_tick_that_has_no_state(
    crowded: TickWorld,
) -> None:
    corrupt(crowded)
    before_s = crowded.now_s
    with pytest.raises(FreeTrainError) as caught:
        crowded.tick()
    assert [job.is_running for job in told(crowded)] == 3 * [False]
    assert 15.0 <= crowded.now_s - before_s <= 60.0
    assert "3 leases stayed" in error_line(caught.value)


def test_leases_that_left_in_time_are_not_cancelled(crowded: TickWorld) -> None:
    corrupt(crowded)

    def leave(_: float) -> None:
        crowded.end_jobs()

    with pytest.raises(FreeTrainError) as caught:
        tick(crowded.site, replace(crowded.environment, sleep=leave))
    assert "stayed" not in error_line(caught.value)
    assert [job.signals for job in told(crowded)] == 3 * [NOTICE]


def test_where_slurm_falls_silent_afterwards_the_message_says_so(
    crowded: TickWorld,
) -> None:
    corrupt(crowded)

    def silence(_: float) -> None:
        crowded.slurm.script("squeue", Act.HANG)

    with pytest.raises(FreeTrainError) as caught:
        tick(crowded.site, replace(crowded.environment, sleep=silence))
    assert "unknown which of them left" in error_line(caught.value)


def test_waiting_leases_go_where_a_job_could_start(crowded: TickWorld) -> None:
    (lease, *_) = crowded.live()
    uuid = "0b5e1a2c-0000-4000-8000-000000000001"
    waiting = replace(
        lease, name=f"freetrain-{uuid}", state=FakeJobState.PENDING, nodes=[]
    )
    waiting.start_s = waiting.end_s = waiting.due_s = crowded.now_s + 9_000.0
    waiting.start_s = waiting.end_s = None
    crowded.slurm.standin.add([replace(waiting, array_id=900, task=k) for k in (0, 1)])
    corrupt(crowded)

    with pytest.raises(FreeTrainError) as caught:
        crowded.tick()

    assert "2 waiting cancelled" in error_line(caught.value)
    left = [job for job in crowded.live() if uuid in job.name]
    assert left == []


def test_leases_of_another_state_directory_make_room_as_well(
    crowded: TickWorld, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    tick(structs.replace(crowded.site, state_directory=elsewhere), crowded.environment)
    assert len(told(crowded)) == 3


def test_a_dry_run_sends_nothing_and_says_what_it_would(crowded: TickWorld) -> None:
    status = crowded.tick(dry_run=True).status
    assert status.done["leases ended"] == 3
    assert told(crowded) == []


def test_what_was_sent_is_recorded_and_not_sent_again(crowded: TickWorld) -> None:
    status = crowded.status()
    assert status.done["leases ended"] == 3
    assert len(crowded.slurm.calls("scancel")) == 1
    (uuid,) = {lease_of(job).uuid for job in told(crowded)}
    said = crowded.events(uuid)[-1]
    assert (said.detail, said.leases) == (str(EndReason.CLAIMED), 3)


def test_leases_that_stay_are_cancelled_by_a_later_tick(crowded: TickWorld) -> None:
    crowded.tick()
    crowded.now_s += 30.0
    crowded.tick()
    assert [job.is_running for job in told(crowded)] == 3 * [False]


def test_where_slurm_does_not_take_the_notice_the_tick_says_so(
    crowded: TickWorld,
) -> None:
    crowded.slurm.script("scancel", Act.HANG)
    with pytest.raises(SlurmError):
        crowded.tick()
    assert told(crowded) == []
    crowded.tick()
    assert len(told(crowded)) == 3


def test_leases_in_a_partition_that_is_no_more_named_make_room(
    crowded: TickWorld,
) -> None:
    crowded.change("lease", partition="gone")
    with pytest.raises(SlurmError):
        crowded.tick()
    assert len(told(crowded)) == 3


def test_an_idle_tick_asks_slurm_no_more_than_before(world: TickWorld) -> None:
    def calls() -> int:
        programs = ("squeue", "scontrol", "sdiag", "sinfo", "scancel", "sbatch")
        return sum(len(world.slurm.calls(program)) for program in programs)

    world.tick()
    before = calls()
    world.tick()
    assert calls() - before == 7


# The sign by which leases see that ticks are at work.


def sign_of(world: TickWorld) -> TickSign | None:
    return read_tick_sign(world.folder.tick_sign)


def test_each_tick_that_makes_room_changes_the_sign(crowded: TickWorld) -> None:
    crowded.tick()
    first = sign_of(crowded)
    crowded.tick()
    second = sign_of(crowded)
    assert first is not None
    assert second == TickSign(tick=first.tick + 1, silence_s=180.0)


def test_where_slurm_preempts_leases_the_sign_ends_none(world: TickWorld) -> None:
    world.change("lease", mode=LeaseMode.PREEMPT)
    world.tick()
    assert sign_of(world) == TickSign(tick=1, silence_s=None)
    world.change("lease", silence_s=90.0)
    world.tick()
    assert sign_of(world) == TickSign(tick=2, silence_s=90.0)


@pytest.mark.parametrize("act", [Act.HANG, Act.REFUSE])
def test_a_tick_that_could_not_make_room_leaves_no_sign(
    crowded: TickWorld, act: Act
) -> None:
    crowded.tick(dry_run=True)
    before = sign_of(crowded)
    crowded.slurm.script("scancel", act)
    with suppress(SlurmError):
        crowded.tick()
    assert sign_of(crowded) == before
    crowded.tick()
    assert sign_of(crowded) != before


@pytest.mark.parametrize("act", [Act.HANG, Act.REFUSE])
def test_a_tick_that_could_not_end_a_lease_that_stays_leaves_no_sign(
    crowded: TickWorld, act: Act
) -> None:
    crowded.tick()
    before = sign_of(crowded)
    crowded.now_s += 30.0
    crowded.slurm.script("scancel", Act.NORMAL, act)
    with suppress(SlurmError):
        crowded.tick()
    assert sign_of(crowded) == before


# A job that must wait for others: leases that would put it off end sooner.


@pytest.fixture
def put_off(world: TickWorld) -> TickWorld:
    """Seven leases train, and Slurm plans a job for all nodes once they have ended.

    But for them it would wait for 1,000 s, for a job that runs on the eighth.
    """
    world.change("lease", mode=LeaseMode.YIELD)
    world.slurm.standin.add([theirs(world, limit_s=1_000.0, run_s=1_000.0)])
    running(world, most=7)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    every = [f"n{k}" for k in range(1, 9)]
    wide = theirs(world, wanted=every, due_s=world.now_s + 9_000.0)
    world.slurm.standin.add([wide])
    return world


def left_s(world: TickWorld) -> set[float]:
    """Return for how long leases go on."""
    ours = (job for job in world.slurm.jobs() if job.user == USER and job.is_running)
    return {(job.start_s or 0.0) + job.limit_s - world.now_s for job in ours}


def test_leases_that_put_off_a_job_that_must_wait_train_on_and_end_before_it(
    put_off: TickWorld,
) -> None:
    status = put_off.tick().status
    assert told(put_off) == []
    (seconds,) = left_s(put_off)
    assert 960.0 < seconds < 1_000.0
    ends_s = {lease.end_s for lease in status.leases if lease.state == "running"}
    assert ends_s == {put_off.now_s + seconds}
    put_off.tick()
    calls = put_off.slurm.calls("scontrol")
    assert sum("EndTime" in call[-1] for call in calls) == 1


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_plan_lets_leases_end_sooner_that_the_first_look_passed_over(
    put_off: TickWorld, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    # It looks again where trainers want another partition, or a broker is deaf.
    put_off.submit("b", most=2, nodes='partition = "main"')
    monkeypatch.setattr("freetrain.tick.room.claims_of", lambda *_: NO_CLAIMS)
    if is_refused:
        lets_no_end_be_set(monkeypatch, SlurmRefusedError("the plugin says no"))
    status = put_off.tick().status
    assert status.done["leases shortened"] == (0 if is_refused else 7)
    assert len(told(put_off)) == (7 if is_refused else 0)
    assert says_why(status) == is_refused


def test_where_slurm_does_not_let_leases_end_sooner_they_are_given_up(
    put_off: TickWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    lets_no_end_be_set(monkeypatch, SlurmRefusedError("the plugin says no"))
    status = put_off.tick().status
    assert len(told(put_off)) == 7
    assert says_why(status)


def says_why(status: StatusReport) -> bool:
    return any("the plugin says no" in problem for problem in status.problems)


@pytest.mark.parametrize("is_refused", [False, True])
def test_slurm_knows_that_leases_end_soon_which_were_sent_the_notice(
    put_off: TickWorld, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    # Else a waiting job takes what the first of them leave, and the others go in vain.
    put_off.slurm.standin.add([theirs(put_off, wanted=["n1", "n2"])])
    if is_refused:
        monkeypatch.setattr(
            "freetrain.tick.room.set_sooner_ends", lambda *_, **__: None
        )
        lets_no_end_be_set(monkeypatch, SlurmRefusedError("the plugin says no"))
    status = put_off.tick().status
    assert len(told(put_off)) == 2
    assert says_why(status) == is_refused
    ends = [seconds <= 80.0 for seconds in left_s(put_off)]
    assert any(ends) != is_refused


def test_leases_that_a_job_could_start_on_go_though_slurm_then_is_silent(
    put_off: TickWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off.slurm.standin.add([theirs(put_off)])
    lets_no_end_be_set(monkeypatch, SlurmError("no answer"))
    with suppress(SlurmError):
        put_off.tick()
    assert len(told(put_off)) == 1


def test_a_notice_that_the_plan_sends_is_recorded_though_slurm_then_is_silent(
    put_off: TickWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the next tick sends it anew, and the lease's patience begins again.
    put_off.slurm.standin.add([theirs(put_off)])
    put_off.submit("b", most=2, nodes='partition = "main"')
    monkeypatch.setattr("freetrain.tick.room.claims_of", lambda *_: NO_CLAIMS)
    monkeypatch.setattr("freetrain.tick.act.set_sooner_ends", lambda *_, **__: None)
    lets_no_end_be_set(monkeypatch, SlurmError("no answer"))
    with suppress(SlurmError):
        put_off.tick()
    with put_off.reading() as state:
        sent = [
            lease
            for lease in leases(state, ending_after_s=0.0)
            if lease.notice_s is not None
        ]
    assert (len(told(put_off)), len(sent)) == (1, 1)


def lets_no_end_be_set(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_slurm: SlurmBackend, _jobs: Sequence[JobKey], _end_s: float) -> None:
        raise error

    monkeypatch.setattr(CommandLine, "end_by", refuse)
