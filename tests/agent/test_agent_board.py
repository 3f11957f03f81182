"""The shared files as agents read and write them, and the heartbeats of others."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.agent.board import Board, Listing, UnknownNowError
from freetrain.agent.observation import HeartbeatWatch, Patience
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import CheckpointSettings, render_job
from freetrain.elastic.contract import Outcome, OutcomeKind, write_outcome
from freetrain.state.files import (
    AgentState,
    AssignmentFile,
    EndingKind,
    GenerationEnding,
    Heartbeat,
    StateDir,
    TickSign,
    TrainerDir,
    write_tick_sign,
)
from tests.agent.model_cluster import a_job
from tests.state.endings import a_lease, an_assignment, an_ending

if TYPE_CHECKING:
    from pathlib import Path


KEY = LeaseKey("7b0a3c1e-aaaa", 2)


@pytest.fixture
def folder(tmp_path: Path) -> TrainerDir:
    """The folder of the trainer t."""
    return submitted(tmp_path)


def submitted(path: Path) -> TrainerDir:
    folder = StateDir(path).trainer("t")
    folder.create()
    folder.job.write_text(render_job(a_job("t")), encoding="utf-8")
    return folder


@pytest.fixture
def board(folder: TrainerDir, tmp_path: Path) -> Board:
    assert folder.path.is_relative_to(tmp_path)
    listing = Listing(lambda: 0.0)
    return Board(StateDir(tmp_path), listing, elapsed_s=lambda: 0.0, log=print)


def assigned(generation: int) -> AssignmentFile:
    return an_assignment(generation, a_lease(KEY))


def ending(generation: int, *, exit_code: int = 1) -> GenerationEnding:
    plain = {"exit_code": exit_code, "started_s": None, "author": ""}
    return an_ending(generation, EndingKind.KILLED, **plain)


def test_the_first_writer_of_a_generation_wins(board: Board) -> None:
    assert board.propose(assigned(1))
    assert not board.propose(assigned(1))
    assert board.propose(assigned(2))

    assert board.generations("t") == (1, 2)
    assert board.assigned("t", 2).keys == {KEY}


def test_an_ending_is_written_once_and_lets_a_waiting_world_go_on(
    board: Board, folder: TrainerDir
) -> None:
    assert board.write_ending("t", ending(3))
    assert not board.write_ending("t", ending(3, exit_code=0))

    assert board.endings("t") == {3}
    assert board.ending("t", 3).exit_code == 1
    assert folder.run.over(3).exists()


def test_notices_of_leases_are_read_by_their_names(
    board: Board, folder: TrainerDir
) -> None:
    board.write_notice("t", 4, KEY)
    (folder.notices / "..nonsense").touch()

    assert board.notices("t") == {(4, KEY)}


def test_the_outcome_of_a_world_goes_into_its_ending(
    board: Board, folder: TrainerDir
) -> None:
    outcome = Outcome(
        kind=OutcomeKind.RESCALED,
        generation=1,
        step=9,
        committed_step=8,
        message="why",
        t=1.0,
    )
    write_outcome(folder.run, outcome)

    found = board.with_outcome("t", ending(1))

    assert board.outcome("t", 1) == "rescaled"
    assert (found.ended, found.step, found.committed_step) == (
        EndingKind.RESCALED,
        9,
        8,
    )
    assert found.message == "why"


@pytest.mark.parametrize("text", ["{", '{"outcome": "well"}'])
def test_an_outcome_that_makes_no_sense_is_none(
    board: Board, folder: TrainerDir, text: str
) -> None:
    """A trainer must not stand still for ever because of a damaged file."""
    folder.run.create()
    folder.run.outcome(1).write_text(text)

    assert board.outcome("t", 1) == ""
    assert board.with_outcome("t", ending(1)) == ending(1)


def test_an_outcome_that_cannot_be_read_now_is_not_taken_for_none(
    board: Board, folder: TrainerDir
) -> None:
    folder.run.outcome(1).mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        board.with_outcome("t", ending(1))


def test_without_an_outcome_the_checkpoints_show_which_step_is_safe(
    board: Board, folder: TrainerDir
) -> None:
    folder.run.create()
    for name in ("0000000001-000000000000012", "0000000002-000000000000040", "x"):
        (folder.run.checkpoints / f"{name}.npz").touch()

    assert board.with_outcome("t", ending(2)).committed_step == 40


def test_new_files_are_seen_in_the_next_look(board: Board, folder: TrainerDir) -> None:
    folder.run.create()
    for generation in range(1, 200):
        assert not board.is_ready("t", generation)
        folder.run.ready(generation).touch()
        assert board.is_ready("t", generation)


def test_another_trainer_of_the_same_name_is_not_taken_for_the_first(
    board: Board, folder: TrainerDir, tmp_path: Path
) -> None:
    board.propose(assigned(1))
    assert board.generations("t") == (1,)
    assert board.assigned("t", 1).reason == ""
    folder.path.rename(tmp_path / "past")
    text = (tmp_path / "past" / "assignments" / "0000000001.json").read_text()
    changed = json.loads(text) | {"reason": "another"}
    submitted(tmp_path).assignment(1).write_text(json.dumps(changed), encoding="utf-8")

    assert board.generations("t") == (1,)
    assert board.assigned("t", 1).reason == "another"


def test_a_damaged_assignment_is_refused_by_name(
    board: Board, folder: TrainerDir
) -> None:
    folder.assignment(1).write_text("{", encoding="utf-8")

    with pytest.raises(UnknownNowError, match=r"0000000001\.json"):
        board.assigned("t", 1)


def test_what_cannot_be_read_now_is_as_it_was_and_is_read_again(
    board: Board, folder: TrainerDir
) -> None:
    board.propose(assigned(1))
    assert board.generations("t") == (1,)
    folder.assignments.rename(folder.path / "away")
    (folder.path / "assignments").write_text("no folder", encoding="utf-8")
    assert board.generations("t") == (1,)

    folder.assignments.unlink()
    (folder.path / "away").rename(folder.assignments)
    board.propose(assigned(2))
    assert board.generations("t") == (1, 2)


def test_a_folder_that_was_there_counts_as_gone_only_after_a_while(
    folder: TrainerDir, tmp_path: Path
) -> None:
    now_s = 0.0
    listing = Listing(lambda: now_s)
    board = Board(StateDir(tmp_path), listing, elapsed_s=lambda: now_s, log=print)
    board.propose(assigned(1))
    assert board.generations("t") == (1,)
    folder.assignments.rename(folder.path / "away")

    assert board.generations("t") == (1,)
    now_s = 6.0
    assert board.generations("t") == ()


def test_the_age_of_the_sign_of_ticks_is_told_by_the_file_servers_clock_alone(
    board: Board, tmp_path: Path
) -> None:
    state = StateDir(tmp_path)
    assert board.tick_sign() is None
    assert board.tick_sign_age_s(KEY) == 0.0
    write_tick_sign(state.tick_sign, TickSign(tick=3, silence_s=180.0))
    state.lease(KEY).create()
    beat = Heartbeat(beat=1, t=0.0, node="n", host="h", pid=1)
    board.write_heartbeat(KEY, beat)
    os.utime(state.tick_sign, (1_000.0, 1_000.0))
    os.utime(state.lease(KEY).heartbeat, (1_250.0, 1_250.0))

    assert board.tick_sign() == TickSign(tick=3, silence_s=180.0)
    assert board.tick_sign_age_s(KEY) == 250.0
    assert board.tick_sign_age_s(LeaseKey("unknown", 0)) == 0.0


@pytest.mark.parametrize(
    "text", ["", "{", '{"tick": 1}', '{"tick": 1, "silence_s": -1}']
)
def test_a_sign_that_makes_no_sense_is_unknown(
    board: Board, tmp_path: Path, text: str
) -> None:
    StateDir(tmp_path).tick_sign.write_text(text, encoding="utf-8")

    with pytest.raises(UnknownNowError):
        board.tick_sign()


def report(folder: TrainerDir, **fields: object) -> None:
    with folder.run.progress.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"t": 1.0, "samples": 0, **fields}) + "\n")


def test_steps_are_counted_from_the_launch_on_and_the_first_line_is_none(
    folder: TrainerDir, tmp_path: Path
) -> None:
    now_s = 0.0
    board = Board(
        StateDir(tmp_path), Listing(lambda: now_s), elapsed_s=lambda: now_s, log=print
    )
    folder.run.create()
    report(folder, generation=1, step=7, loss=1.0)

    def counted() -> int:
        nonlocal now_s
        now_s += 1.0
        return board.steps_reported("t", 2)

    assert counted() == 0
    report(folder, generation=2, step=7, event="start")
    assert counted() == 0
    report(folder, generation=1, step=8, loss=1.0)
    assert counted() == 0
    for step in (8, 9):
        report(folder, generation=2, step=step)
    assert counted() == 2
    report(folder, generation=2, step=9, loss=0.5)
    assert counted() == 2


def test_steps_that_cannot_be_read_are_unknown(
    board: Board, folder: TrainerDir
) -> None:
    folder.run.path.symlink_to(folder.run.path)  # ELOOP

    with pytest.raises(UnknownNowError):
        board.steps_reported("t", 1)


def test_a_checkpoint_that_grows_is_seen_and_a_program_without_room_excused(
    board: Board, folder: TrainerDir
) -> None:
    assert board.checkpoint_stamp("t") == ()
    assert not board.can_report("t")
    folder.run.create()
    stamps = [board.checkpoint_stamp("t")]
    for size in (10, 20):
        (folder.run.checkpoints / ".new").write_bytes(b"x" * size)
        stamps.append(board.checkpoint_stamp("t"))

    assert len(set(stamps)) == 3
    assert board.checkpoint_stamp("t") == stamps[-1]
    assert board.can_report("t")
    assert not list(folder.run.path.glob(".freetrain-*"))


def test_looking_whether_a_program_can_report_writes_over_no_planted_link(
    board: Board, folder: TrainerDir, tmp_path: Path
) -> None:
    folder.run.create()
    own = tmp_path / ".bashrc"
    own.write_text("kept")
    probe = f".freetrain-{os.uname().nodename}-{os.getpid()}"
    (folder.run.path / probe).symlink_to(own)

    board.can_report("t")

    assert own.read_text() == "kept"


def test_a_pipe_in_place_of_an_outcome_is_not_waited_for(
    board: Board, folder: TrainerDir
) -> None:
    folder.run.create()
    os.mkfifo(folder.run.outcome(1))

    with pytest.raises(OSError, match="not a plain file"):
        board.with_outcome("t", ending(1))


def test_a_trainer_without_limits_is_done_when_its_program_says_so(
    board: Board,
) -> None:
    assert not board.is_done("t", running_s=1e9)


def test_a_program_shows_that_it_began_by_its_claim_or_by_waiting(
    board: Board, folder: TrainerDir
) -> None:
    assert not board.has_begun("t", 1)
    folder.run.create()
    assert not board.has_begun("t", 1)
    folder.run.claim(1).touch()
    folder.run.ready(2).touch()
    assert [board.has_begun("t", number) for number in (1, 2, 3)] == [1, 1, 0]


def test_a_program_that_can_leave_no_sign_is_not_blamed(
    board: Board, folder: TrainerDir
) -> None:
    folder.run.path.symlink_to("/proc")
    assert board.has_begun("t", 1)


PATIENCE = Patience(silent_s=10.0, ready_patience_s=20.0)


def looked(*beats: int | None, state: AgentState = AgentState.IDLE) -> HeartbeatWatch:
    """A watch that found these heartbeats, one a second from 1 s on."""
    watch = HeartbeatWatch(now_s=0.0)
    for now_s, number in enumerate(beats, start=1):
        beat = number and Heartbeat(
            beat=number, t=0.0, node="n", host="h", pid=1, state=state
        )
        watch.look(beat or None, now_s=float(now_s))
    return watch


def test_a_heartbeat_that_changes_is_alive_and_a_dead_agents_file_is_not() -> None:
    peer = looked(*range(1, 31)).peer

    assert (peer.has_beaten, peer.silent_s) == (True, 0.0)
    assert not looked(1, 1).peer.has_beaten


@pytest.mark.parametrize(
    ("beats", "state", "is_lost"),
    [
        pytest.param([1] * 10, AgentState.IDLE, False, id="still for 9 s"),
        pytest.param([1] * 11, AgentState.IDLE, True, id="still for 10 s"),
        pytest.param([None] * 19, AgentState.IDLE, False, id="never came in 19 s"),
        pytest.param([None] * 20, AgentState.IDLE, True, id="never came in 20 s"),
        pytest.param([1] * 50, AgentState.ENDED, False, id="it said that it ends"),
    ],
)
def test_a_lease_is_lost_when_it_has_been_silent_for_too_long(
    beats: list[int | None], state: AgentState, *, is_lost: bool
) -> None:
    peer = looked(*beats, state=state).peer

    assert peer.is_lost(PATIENCE) == is_lost
    assert peer.has_left == (state is AgentState.ENDED)


def test_time_of_the_agents_own_freeze_or_without_a_look_is_no_silence() -> None:
    frozen, blind = looked(1, 1), looked(1)

    frozen.look(frozen.peer.beat, now_s=500.0)
    for now_s in range(2, 100):
        blind.skip(now_s=float(now_s))

    assert not frozen.peer.is_lost(PATIENCE)
    assert frozen.peer.silent_s == 1.0 + 2.0  # of one step, two seconds count
    assert blind.peer.silent_s == 0.0


def saves_of_its_own(folder: TrainerDir, tmp_path: Path) -> Path:
    """Let the trainer's program save by itself, and return where."""
    saves = tmp_path / "saves"
    saves.mkdir()
    checkpoint = CheckpointSettings(path=saves)
    job = structs.replace(a_job("t"), elastic=False, checkpoint=checkpoint)
    folder.job.write_text(render_job(job), encoding="utf-8")
    return saves


@pytest.mark.parametrize(("files", "is_known"), [(3, True), (999, True), (1000, False)])
def test_the_last_save_is_the_newest_file_or_unknown_among_too_many(
    board: Board, folder: TrainerDir, tmp_path: Path, files: int, *, is_known: bool
) -> None:
    saves = saves_of_its_own(folder, tmp_path)
    (saves / "latest").symlink_to("gone.pt")
    for number in range(files):
        (saves / f"{number}.pt").touch()
        os.utime(saves / f"{number}.pt", (number, number))

    assert board.last_saved_s("t") == (files - 1 if is_known else None)


def test_a_link_to_nothing_hides_no_save(
    board: Board, folder: TrainerDir, tmp_path: Path
) -> None:
    saves = saves_of_its_own(folder, tmp_path)
    (saves / "a.pt").touch()
    before = board.checkpoint_stamp("t")
    os.utime(saves / "a.pt", (7, 7))
    (saves / "latest").symlink_to("gone.pt")

    assert board.last_saved_s("t") == 7
    assert board.checkpoint_stamp("t") not in {before, ()}
