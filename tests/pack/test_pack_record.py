"""What a pack keeps in its run directory comes back as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.elastic.files import RunDir
from freetrain.pack.record import (
    MemberRecord,
    PackRecord,
    member_folder,
    member_folders,
    read_record,
    write_record,
)

if TYPE_CHECKING:
    from pathlib import Path


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


def test_what_an_earlier_release_kept_of_a_member_is_read(tmp_path: Path) -> None:
    (tmp_path / "pack.json").write_text(
        '{"members": {"a": {"arrived_s": 1.0, "ended_s": 2.0, "end": "failed", '
        '"steps": 3, "samples": 4.0}}}'
    )

    (line,) = read_record(RunDir(tmp_path)).members.values()
    assert (line.end, line.steps, line.failures, line.again_s) == ("failed", 3, 0, None)
