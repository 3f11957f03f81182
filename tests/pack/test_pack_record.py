"""What a pack keeps in its run directory comes back as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.elastic.run_dir import RunDir
from freetrain.pack.record import member_folder, member_folders

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
