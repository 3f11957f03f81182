"""The shared files as agents read and write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from freetrain.agent.board import Board, Listing
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import render_job
from freetrain.elastic.outcome import Ending as Word
from freetrain.elastic.outcome import Outcome, write_outcome
from freetrain.state.files import (
    Assigned,
    Ended,
    Ending,
    Member,
    StateDir,
    UnreadableFileError,
)
from tests.agent.model_cluster import a_job
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
    member = Member(key=KEY, job_id=1, display_id="1", node="n1")
    return Assigned(
        trainer="t",
        generation=generation,
        members=(member,),
        created_s=1.0,
        author="broker",
        reason="",
    )


def ending(generation: int, **values: object) -> Ending:
    plain = {"exit_code": 1, "started_s": None, "author": ""}
    return an_ending(generation, Ended.KILLED, **(plain | values))


def test_who_makes_a_generation_first_has_made_it(board: Board) -> None:
    assert board.propose(assigned(1))
    assert not board.propose(assigned(1))
    assert board.propose(assigned(2))

    assert board.generations("t") == (1, 2)
    assert board.assigned("t", 2).keys == {KEY}


def test_an_ending_is_said_once_and_lets_a_waiting_world_go_on(
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


def test_a_worlds_own_word_goes_into_its_ending(board: Board, tmp_path: Path) -> None:
    run = StateDir(tmp_path).trainer("t").run
    outcome = Outcome(
        ending=Word.RESCALED,
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
def test_a_word_that_makes_no_sense_is_none(
    board: Board, tmp_path: Path, text: str
) -> None:
    """A trainer must not stand still for ever because of a damaged file."""
    run = StateDir(tmp_path).trainer("t").run
    run.create()
    run.outcome(1).write_text(text)

    assert board.outcome("t", 1) == ""
    assert board.with_outcome("t", ending(1)) == ending(1)


def test_a_word_that_cannot_be_read_now_is_not_taken_for_none(
    board: Board, tmp_path: Path
) -> None:
    run = StateDir(tmp_path).trainer("t").run
    run.outcome(1).mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        board.with_outcome("t", ending(1))


def test_what_is_safe_of_a_world_without_a_word_is_told_by_its_checkpoints(
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


def test_a_file_that_is_none_is_refused_by_name(board: Board, tmp_path: Path) -> None:
    StateDir(tmp_path).trainer("t").assignment(1).write_text("{", encoding="utf-8")

    with pytest.raises(UnreadableFileError, match=r"0000000001\.json"):
        board.assigned("t", 1)


def test_a_trainer_without_limits_is_done_when_its_program_says_so(
    board: Board,
) -> None:
    assert not board.is_done("t", running_s=1e9)
