"""How endings are written, and whether their trainer is launched again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from freetrain.agent.executor import complete_ending, draft_ending
from freetrain.agent.observation import MAY_RUN, judge
from freetrain.agent.rules import WriteEnding
from freetrain.config.job import CheckpointSettings, RestartSettings
from freetrain.state.files import GAVE_UP, Ended, GenerationEnding
from tests.agent.model_cluster import a_job
from tests.state.endings import an_ending

JOB = structs.replace(a_job(), restart=RestartSettings(attempts=3, wait_s=10.0))
CRASH = an_ending(1, Ended.KILLED, exit_code=1, author="")
ERROR = replace(CRASH, ended=Ended.FAILED, message="KeyError: 'x'")
RESCALE = replace(CRASH, ended=Ended.RESCALED, was_asked=True)


def test_a_trainer_without_failures_goes_on_at_once() -> None:
    assert judge([], JOB) == MAY_RUN
    assert judge([RESCALE, RESCALE], JOB) == MAY_RUN


def test_each_failure_in_a_row_doubles_the_wait() -> None:
    assert judge([CRASH], JOB).wait_s == 10.0
    assert judge([CRASH, ERROR], JOB).wait_s == 20.0
    assert judge([CRASH, RESCALE], JOB).wait_s == 0.0


def test_the_last_of_its_attempts_ends_it_and_says_why() -> None:
    verdict = judge([CRASH, RESCALE, CRASH, ERROR], JOB)

    assert verdict.is_final
    assert verdict.reason.startswith(GAVE_UP)
    assert "KeyError" in verdict.reason


def test_no_attempts_means_that_the_first_failure_is_the_last() -> None:
    job = structs.replace(JOB, restart=RestartSettings(attempts=0))

    assert judge([CRASH], job).is_final


def test_a_commit_between_failures_forgives_the_earlier_ones() -> None:
    later = replace(CRASH, committed_step=5)

    assert judge([CRASH, CRASH, later], JOB).wait_s == 10.0
    assert judge([CRASH, later, later, later], JOB).is_final


@pytest.mark.parametrize(
    "ending",
    [
        replace(CRASH, lost_lease=True),
        replace(ERROR, lost_lease=True),
        replace(CRASH, was_asked=True),
        replace(CRASH, ended=Ended.NOT_LAUNCHED),
    ],
)
def test_what_is_not_the_programs_fault_is_not_counted(
    ending: GenerationEnding,
) -> None:
    assert judge([ending] * 9, JOB) == MAY_RUN


def test_a_program_that_stops_unasked_is_not_started_for_ever() -> None:
    unasked = replace(RESCALE, was_asked=False)

    assert judge([unasked] * 3, JOB).is_final


@pytest.mark.parametrize("ended", [Ended.FINISHED, Ended.DO_NOT_RESTART])
def test_what_is_over_stays_over(ended: Ended) -> None:
    assert judge([replace(RESCALE, ended=ended), RESCALE], JOB).is_final


def test_a_program_that_tells_of_no_commit_had_made_some_when_it_ran_for_long() -> None:
    job = structs.replace(
        JOB, elastic=False, checkpoint=CheckpointSettings(every_s=60.0)
    )
    long_run = replace(ERROR, ended_s=121.0)

    assert judge([long_run] * 9, job).wait_s == 10.0
    assert judge([replace(long_run, ended_s=119.0)] * 3, job).is_final


@pytest.mark.parametrize(
    ("exit_code", "elastic", "ended", "message"),
    [
        (3, True, Ended.KILLED, "exit code 3"),
        (1, False, Ended.FAILED, "exit code 1"),
        (-9, True, Ended.KILLED, "its launcher was ended by signal 9"),
        (0, False, Ended.FINISHED, ""),
        (0, True, Ended.KILLED, "exit code 0, and no outcome; a program without"),
    ],
)
def test_a_world_that_left_no_outcome_ends_as_its_exit_code_says(
    exit_code: int, ended: Ended, message: str, *, elastic: bool
) -> None:
    ending = _ended(WriteEnding("digits", 1, exit_code=exit_code), elastic=elastic)

    assert ending.ended is ended
    assert ending.message.startswith(message)
    assert bool(ending.message) == bool(message)
    assert ("elastic = false" in ending.message) == (elastic and exit_code == 0)


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


def _ended(action: WriteEnding, *, elastic: bool) -> GenerationEnding:
    draft = draft_ending(action, author="a-lease-0", unix_s=100.0)
    return complete_ending(draft, action, elastic=elastic)
