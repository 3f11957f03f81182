"""A member that fails is started again so often, and after such pauses."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from freetrain.config.job import (
    CheckpointSettings,
    NodeSettings,
    RestartSettings,
    TrainerJob,
)
from freetrain.pack.record import MemberRecord, count_failure, how_it_failed


def a_job(*, attempts: int = 3, elastic: bool = True) -> TrainerJob:
    return TrainerJob(
        name="a",
        directory=Path("/"),
        nodes=NodeSettings(max_nodes=1),
        elastic=elastic,
        checkpoint=CheckpointSettings(every_s=60.0),
        restart=RestartSettings(attempts=attempts, wait_s=10.0),
    )


def a_line() -> MemberRecord:
    return MemberRecord(arrived_s=0.0)


def fail(
    line: MemberRecord, job: TrainerJob, *, at_s: float, committed: int = 0
) -> None:
    count_failure(line, job, committed_step=committed, now_s=at_s)


def test_pauses_double_until_attempts_are_used_up() -> None:
    line, pauses = a_line(), []
    for at_s in (5.0, 100.0, 200.0):
        fail(line, a_job(), at_s=at_s)
        pauses.append(None if line.again_s is None else line.again_s - at_s)

    assert pauses == [10.0, 20.0, None]
    assert line.failures == 3


def test_a_commit_in_between_makes_it_the_first_failure_again() -> None:
    line = a_line()
    fail(line, a_job(), at_s=1.0, committed=7)
    fail(line, a_job(), at_s=20.0, committed=7)
    before = line.failures
    fail(line, a_job(), at_s=50.0, committed=8)

    assert (before, line.failures, line.again_s) == (2, 1, 60.0)


def test_a_program_that_tells_of_no_commit_made_one_in_two_intervals() -> None:
    line, job = a_line(), a_job(elastic=False)
    fail(line, job, at_s=1.0)
    line.started_s = 11.0
    fail(line, job, at_s=130.0)
    in_a_row = line.failures
    line.started_s = 150.0
    fail(line, job, at_s=270.0)

    assert (in_a_row, line.failures) == (2, 1)


def test_whose_attempts_are_used_up_has_one_more_in_each_later_generation() -> None:
    line = a_line()
    for at_s in (1.0, 2.0, 3.0, 4.0):
        fail(line, a_job(), at_s=at_s)

    assert (line.failures, line.again_s) == (4, None)


@given(st.integers(0, 9), st.lists(st.integers(0, 3), max_size=12))
def test_nobody_is_started_more_often_without_a_commit_than_its_attempts(
    attempts: int, commits: list[int]
) -> None:
    line, job, in_a_row = a_line(), a_job(attempts=attempts), 0
    for at_s, committed in enumerate(commits):
        in_a_row = 1 if committed > line.committed_step else in_a_row + 1
        fail(line, job, at_s=float(at_s), committed=committed)

        assert (line.again_s is None) == (in_a_row >= max(1, attempts))


def test_how_often_and_why_is_told() -> None:
    once, thrice, killed = a_line(), a_line(), a_line()
    once.failures, thrice.failures, thrice.message = 1, 3, "ValueError: no"
    killed.message = "signal 9, Killed"

    assert how_it_failed(once) == "failed once"
    assert how_it_failed(thrice) == "failed 3 times: ValueError: no"
    assert how_it_failed(killed) == "failed: signal 9, Killed"
