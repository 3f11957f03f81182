"""What a pack keeps comes back; failures are counted, and pauses double."""

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
from freetrain.elastic.files import RunDir
from freetrain.pack.pack import (
    MemberRecord,
    PackRecord,
    count_failure,
    how_it_failed,
    member_folder,
    member_folders,
    read_record,
    write_record,
)


def test_members_are_the_folders_and_no_file_beside_them(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    member_folder(run, "b").mkdir(parents=True)
    member_folder(run, "a").mkdir()
    member_folder(run, "notes.txt").write_text("of mine")

    assert member_folders(run) == (member_folder(run, "a"), member_folder(run, "b"))


def test_a_file_where_members_would_be_is_no_member(tmp_path: Path) -> None:
    (tmp_path / "members").write_text("of mine")

    assert member_folders(RunDir(tmp_path)) == ()


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    failed = MemberRecord(
        arrived_s=1.0, end="failed", failures=2, again_s=9.0, message="no"
    )
    record = PackRecord(
        ran_s=5.0, members={"a": failed, "b": MemberRecord(arrived_s=2.0)}
    )
    write_record(RunDir(tmp_path), record)

    assert read_record(RunDir(tmp_path)) == record


def test_a_record_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    (tmp_path / "pack.json").write_text(
        '{"members": {"a": {"arrived_s": 1.0, "ended_s": 2.0, "end": "failed", '
        '"steps": 3, "samples": 4.0}}}'
    )

    (member,) = read_record(RunDir(tmp_path)).members.values()
    assert (member.end, member.steps, member.failures, member.again_s) == (
        "failed",
        3,
        0,
        None,
    )


def a_job(*, attempts: int = 3, elastic: bool = True) -> TrainerJob:
    return TrainerJob(
        name="a",
        directory=Path("/"),
        nodes=NodeSettings(max_nodes=1),
        elastic=elastic,
        checkpoint=CheckpointSettings(every_s=60.0),
        restart=RestartSettings(attempts=attempts, wait_s=10.0),
    )


def fail(
    member: MemberRecord, job: TrainerJob, *, at_s: float, committed: int = 0
) -> None:
    count_failure(member, job, committed_step=committed, now_s=at_s)


def test_pauses_double_until_attempts_are_used_up() -> None:
    member, pauses = MemberRecord(arrived_s=0.0), []
    for at_s in (5.0, 100.0, 200.0):
        fail(member, a_job(), at_s=at_s)
        pauses.append(None if member.again_s is None else member.again_s - at_s)

    assert pauses == [10.0, 20.0, None]
    assert member.failures == 3


def test_a_commit_in_between_makes_it_the_first_failure_again() -> None:
    member = MemberRecord(arrived_s=0.0)
    fail(member, a_job(), at_s=1.0, committed=7)
    fail(member, a_job(), at_s=20.0, committed=7)
    before = member.failures
    fail(member, a_job(), at_s=50.0, committed=8)

    assert (before, member.failures, member.again_s) == (2, 1, 60.0)


def test_a_program_without_known_commits_made_one_in_two_intervals() -> None:
    member, job = MemberRecord(arrived_s=0.0), a_job(elastic=False)
    fail(member, job, at_s=1.0)
    member.started_s = 11.0
    fail(member, job, at_s=130.0)
    in_a_row = member.failures
    member.started_s = 150.0
    fail(member, job, at_s=270.0)

    assert (in_a_row, member.failures) == (2, 1)


def test_a_member_without_attempts_left_has_one_in_each_later_generation() -> None:
    member = MemberRecord(arrived_s=0.0)
    for at_s in (1.0, 2.0, 3.0, 4.0):
        fail(member, a_job(), at_s=at_s)

    assert (member.failures, member.again_s) == (4, None)


@given(st.integers(0, 9), st.lists(st.integers(0, 3), max_size=12))
def test_no_member_is_started_more_often_without_a_commit_than_its_attempts(
    attempts: int, commits: list[int]
) -> None:
    member, job, in_a_row = MemberRecord(arrived_s=0.0), a_job(attempts=attempts), 0
    for at_s, committed in enumerate(commits):
        in_a_row = 1 if committed > member.committed_step else in_a_row + 1
        fail(member, job, at_s=float(at_s), committed=committed)

        assert (member.again_s is None) == (in_a_row >= max(1, attempts))


def test_a_failure_is_described_by_how_often_and_why() -> None:
    once = MemberRecord(arrived_s=0.0, failures=1)
    thrice = MemberRecord(arrived_s=0.0, failures=3, message="ValueError: no")
    killed = MemberRecord(arrived_s=0.0, message="signal 9, Killed")

    assert how_it_failed(once) == "failed once"
    assert how_it_failed(thrice) == "failed 3 times: ValueError: no"
    assert how_it_failed(killed) == "failed: signal 9, Killed"
