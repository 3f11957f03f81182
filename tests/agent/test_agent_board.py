"""The shared files as agents read and write them, and the heartbeats of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from freetrain.agent.board import Board, Listing
from freetrain.agent.observation import HeartbeatWatch, Patience
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import render_job
from freetrain.elastic.contract import Ending as OutcomeEnding
from freetrain.elastic.contract import Outcome, write_outcome
from freetrain.state.files import (
    AgentState,
    Assigned,
    AssignedLease,
    Ended,
    GenerationEnding,
    Heartbeat,
    StateDir,
    UnreadableFileError,
)
from tests.agent.model_cluster import TRAINER, a_job
from tests.state.endings import an_ending

if TYPE_CHECKING:
    from pathlib import Path


KEY = LeaseKey("7b0a3c1e-aaaa", 2)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def board(tmp_path: Path) -> Board:
    folder = StateDir(tmp_path).trainer("t")
    folder.create()
    folder.job.write_text(render_job(a_job("t")), encoding="utf-8")
    clock = Clock()
    return Board(StateDir(tmp_path), Listing(clock), elapsed_s=clock)


def assigned(generation: int) -> Assigned:
    member = AssignedLease(key=KEY, job_id=1, display_id="1", node="n1")
    return Assigned(
        trainer="t",
        generation=generation,
        members=(member,),
        created_s=1.0,
        author="broker",
        reason="",
    )


def ending(generation: int, **values: object) -> GenerationEnding:
    plain = {"exit_code": 1, "started_s": None, "author": ""}
    return an_ending(generation, Ended.KILLED, **(plain | values))


def test_the_first_writer_of_a_generation_wins(board: Board) -> None:
    assert board.propose(assigned(1))
    assert not board.propose(assigned(1))
    assert board.propose(assigned(2))

    assert board.generations("t") == (1, 2)
    assert board.assigned("t", 2).keys == {KEY}


def test_an_ending_is_written_once_and_lets_a_waiting_world_go_on(
    board: Board, tmp_path: Path
) -> None:
    assert board.write_ending("t", ending(3))
    assert not board.write_ending("t", ending(3, exit_code=0))

    assert board.endings("t") == {3}
    assert board.ending("t", 3).exit_code == 1
    assert StateDir(tmp_path).trainer("t").run.over(3).exists()


def test_notices_of_leases_are_read_by_their_names(
    board: Board, tmp_path: Path
) -> None:
    board.write_notice("t", 4, KEY)
    (StateDir(tmp_path).trainer("t").notices / "..nonsense").touch()

    assert board.notices("t") == {(4, KEY)}


def test_the_outcome_of_a_world_goes_into_its_ending(
    board: Board, tmp_path: Path
) -> None:
    run = StateDir(tmp_path).trainer("t").run
    outcome = Outcome(
        ending=OutcomeEnding.RESCALED,
        generation=1,
        step=9,
        committed_step=8,
        message="why",
        t=1.0,
    )
    write_outcome(run, outcome)

    found = board.with_outcome("t", ending(1))

    assert board.outcome("t", 1) == "rescaled"
    assert (found.ended, found.step, found.committed_step) == (Ended.RESCALED, 9, 8)
    assert found.message == "why"


@pytest.mark.parametrize("text", ["{", '{"outcome": "well"}'])
def test_an_outcome_that_makes_no_sense_is_none(
    board: Board, tmp_path: Path, text: str
) -> None:
    """A trainer must not stand still for ever because of a damaged file."""
    run = StateDir(tmp_path).trainer("t").run
    run.create()
    run.outcome(1).write_text(text)

    assert board.outcome("t", 1) == ""
    assert board.with_outcome("t", ending(1)) == ending(1)


def test_an_outcome_that_cannot_be_read_now_is_not_taken_for_none(
    board: Board, tmp_path: Path
) -> None:
    run = StateDir(tmp_path).trainer("t").run
    run.outcome(1).mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        board.with_outcome("t", ending(1))


def test_without_an_outcome_the_checkpoints_show_which_step_is_safe(
    board: Board, tmp_path: Path
) -> None:
    run = StateDir(tmp_path).trainer("t").run
    run.create()
    names = ("0000000001-000000000000012", "0000000002-000000000000040", "x")
    for name in names:
        (run.checkpoints / f"{name}.npz").touch()

    assert board.with_outcome("t", ending(2)).committed_step == 40


def test_new_files_are_seen_in_the_next_look(board: Board, tmp_path: Path) -> None:
    run = StateDir(tmp_path).trainer("t").run
    run.create()
    for generation in range(1, 200):
        assert not board.is_ready("t", generation)
        run.ready(generation).touch()
        assert board.is_ready("t", generation)


def test_another_trainer_of_the_same_name_is_not_taken_for_the_first(
    board: Board, tmp_path: Path
) -> None:
    board.propose(assigned(1))
    assert board.generations("t") == (1,)
    assert board.assigned("t", 1).reason == ""
    folder = StateDir(tmp_path).trainer("t")
    folder.path.rename(tmp_path / "past")
    folder.create()
    folder.job.write_text(render_job(a_job("t")), encoding="utf-8")
    text = (tmp_path / "past" / "assignments" / "0000000001.json").read_text()
    changed = json.loads(text) | {"reason": "another"}
    folder.assignment(1).write_text(json.dumps(changed), encoding="utf-8")

    assert board.generations("t") == (1,)
    assert board.assigned("t", 1).reason == "another"


def test_a_damaged_assignment_is_refused_by_name(board: Board, tmp_path: Path) -> None:
    StateDir(tmp_path).trainer("t").assignment(1).write_text("{", encoding="utf-8")

    with pytest.raises(UnreadableFileError, match=r"0000000001\.json"):
        board.assigned("t", 1)


def test_a_trainer_without_limits_is_done_when_its_program_says_so(
    board: Board,
) -> None:
    assert not board.is_done("t", running_s=1e9)


def test_a_program_shows_that_it_began_by_its_claim_or_by_waiting(
    board: Board, tmp_path: Path
) -> None:
    run = StateDir(tmp_path).trainer(TRAINER).run
    assert not board.has_begun(TRAINER, 1)
    run.create()
    assert not board.has_begun(TRAINER, 1)
    run.claim(1).touch()
    run.ready(2).touch()
    assert [board.has_begun(TRAINER, number) for number in (1, 2, 3)] == [1, 1, 0]


def test_a_program_that_can_leave_no_sign_is_not_blamed(
    board: Board, tmp_path: Path
) -> None:
    StateDir(tmp_path).trainer(TRAINER).run.path.symlink_to("/proc")
    assert board.has_begun(TRAINER, 1)


PATIENCE = Patience(silent_s=10.0, ready_patience_s=20.0)


def beat(number: int, *, state: AgentState = AgentState.IDLE) -> Heartbeat:
    return Heartbeat(beat=number, t=0.0, node="n", host="h", pid=1, state=state)


def looked(*times_s: float, number: int | None = 1) -> HeartbeatWatch:
    watch = HeartbeatWatch(now_s=0.0)
    for now_s in times_s:
        watch.look(None if number is None else beat(number), now_s=now_s)
    return watch


def test_a_heartbeat_that_changes_is_alive() -> None:
    watch = HeartbeatWatch(now_s=0.0)
    for number in range(30):
        watch.look(beat(number), now_s=float(number))

    assert watch.peer.has_beaten
    assert watch.peer.silent_s == 0.0


def test_a_file_of_a_dead_agent_is_no_sign_of_life() -> None:
    assert not looked(1.0, 2.0).peer.has_beaten


def test_a_heartbeat_that_does_not_change_for_long_is_lost() -> None:
    assert not looked(*range(1, 11)).peer.is_lost(PATIENCE)
    assert looked(*range(1, 12)).peer.is_lost(PATIENCE)


def test_a_heartbeat_that_never_came_gets_more_time() -> None:
    assert not looked(*range(1, 20), number=None).peer.is_lost(PATIENCE)
    assert looked(*range(1, 21), number=None).peer.is_lost(PATIENCE)


def test_an_agent_that_was_frozen_itself_takes_no_other_for_dead() -> None:
    assert not looked(1.0, 2.0, 500.0).peer.is_lost(PATIENCE)


def test_time_without_a_look_does_not_count() -> None:
    watch = looked(1.0)
    for now_s in range(2, 100):
        watch.skip(now_s=float(now_s))

    assert watch.peer.silent_s == 0.0


def test_a_lease_that_wrote_that_it_ends_has_left_and_is_not_lost() -> None:
    watch = HeartbeatWatch(now_s=0.0)
    for now_s in range(50):
        watch.look(beat(1, state=AgentState.ENDED), now_s=float(now_s))

    assert watch.peer.has_left
    assert not watch.peer.is_lost(PATIENCE)
