"""What an ending says of a world that left no word of its own."""

from __future__ import annotations

import pytest

from freetrain.agent.endings import WriteEnding, complete_ending, draft_ending
from freetrain.state.files import Ended, Ending


def test_an_exit_code_is_told_where_the_world_left_no_word() -> None:
    said = _ended(WriteEnding("digits", 1, exit_code=3), elastic=True)
    assert (said.ended, said.message) == (Ended.KILLED, "exit code 3")


def test_a_program_that_is_not_elastic_fails_by_its_exit_code() -> None:
    said = _ended(WriteEnding("digits", 1, exit_code=1), elastic=False)
    assert (said.ended, said.message) == (Ended.FAILED, "exit code 1")


def test_a_launcher_that_a_signal_ended_is_told_so() -> None:
    said = _ended(WriteEnding("digits", 1, exit_code=-9), elastic=True)
    assert said.message == "its launcher was ended by signal 9"


def test_who_forgot_that_a_program_is_not_elastic_is_told() -> None:
    said = _ended(WriteEnding("digits", 1, exit_code=0), elastic=True)
    assert "elastic = false" in said.message


def test_a_world_that_ended_well_needs_no_words() -> None:
    said = _ended(WriteEnding("digits", 1, exit_code=0), elastic=False)
    assert (said.ended, said.message) == (Ended.FINISHED, "")


@pytest.mark.parametrize(
    "action",
    [
        WriteEnding("digits", 1, exit_code=1, was_asked=True),
        WriteEnding("digits", 1, exit_code=1, was_killed=True),
        WriteEnding("digits", 1, exit_code=1, lost_lease=True),
    ],
)
def test_an_exit_code_that_we_caused_is_not_told(action: WriteEnding) -> None:
    assert _ended(action, elastic=True).message == ""


def test_what_is_known_already_stands() -> None:
    action = WriteEnding("digits", 1, exit_code=1, why="its head was lost")
    assert _ended(action, elastic=True).message == "its head was lost"


def _ended(action: WriteEnding, *, elastic: bool) -> Ending:
    draft = draft_ending(action, author="a-lease-0", unix_s=100.0)
    return complete_ending(draft, action, elastic=elastic)
