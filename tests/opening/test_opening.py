"""Files and folders that other users may have put in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from freetrain.elastic.files import RunDir, replaced
from freetrain.opening import (
    NotPlainError,
    PlantedLinkError,
    UnsafeFolderError,
    check_own,
    lead_of,
    open_plain,
    read_json,
    read_plain,
    why_changeable,
    why_unsafe,
)

if TYPE_CHECKING:
    from pathlib import Path

OTHER = 4_711
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")


def link_to(target: Path, path: Path) -> None:
    path.symlink_to(target)


def make_pipe(target: Path, path: Path) -> None:
    del target
    os.mkfifo(path)


def make_folder(target: Path, path: Path) -> None:
    del target
    path.mkdir()


@pytest.mark.parametrize("plant", [link_to, make_pipe, make_folder])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND])
def test_only_a_plain_file_is_opened_and_nothing_waits(
    tmp_path: Path, plant: type, flags: int
) -> None:
    own = tmp_path / ".bashrc"
    own.write_text("alias ll='ls -l'\n")
    planted = tmp_path / "0000000001.log"
    plant(own, planted)

    with pytest.raises(OSError, match=r"plain file|directory"):
        open_plain(planted, flags)

    assert own.read_text() == "alias ll='ls -l'\n"


def linked(tmp_path: Path, name: str, *, mode: int, owner: int) -> Path:
    """Return a file of the user's below a folder of this mode, over a link there."""
    real, shared = tmp_path / "real" / "run", tmp_path / "shared"
    real.mkdir(parents=True)
    shared.mkdir()
    (real / "log.csv").write_text("step,loss\n")
    link = shared / name
    link.symlink_to(real if name == "run" else real / "log.csv")
    os.chown(link, owner, -1, follow_symlinks=False)
    shared.chmod(mode)
    return shared / "run" / "log.csv" if name == "run" else link


WHOSE_LINKS = pytest.mark.parametrize(
    ("mode", "owner", "is_followed"),
    [
        (0o755, 0, True),  # the user's own link to scratch
        (0o1777, 0, True),  # in /tmp
        (0o775, OTHER, True),  # in a project's folder, whose members are trusted
        (0o1777, OTHER, False),
        (0o777, 0, False),  # anybody could have put the user's own link there
        (0o777, OTHER, False),
    ],
)


@needs_root
@WHOSE_LINKS
@pytest.mark.parametrize("name", ["log.csv", "run"])
def test_links_are_followed_that_no_other_user_could_have_made(
    tmp_path: Path, name: str, mode: int, owner: int, *, is_followed: bool
) -> None:
    path = linked(tmp_path, name, mode=mode, owner=owner)

    if is_followed:
        os.close(open_plain(path, follows=True))
        assert lead_of(path) == path.resolve()
    else:
        with pytest.raises(PlantedLinkError, match=f"{path.parent.name}.* is a link"):
            open_plain(path, follows=True)


@needs_root
@WHOSE_LINKS
def test_a_folder_behind_a_link_of_another_user_is_refused(
    tmp_path: Path, mode: int, owner: int, *, is_followed: bool
) -> None:
    folder = linked(tmp_path, "run", mode=mode, owner=owner).parent

    assert (why_unsafe(folder, uid=0) == "") is is_followed


def test_a_way_leads_where_the_kernel_leads(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").symlink_to("a/b")
    (tmp_path / "a" / "b" / "up").symlink_to("../../a/./b")
    (tmp_path / "a" / "d").symlink_to(tmp_path / "c" / "missing")
    (tmp_path / "loop").symlink_to("loop")

    for way in ("c/up/../b/x", "a/d/y", "c/../b", "nothing/../a", "a"):
        assert lead_of(tmp_path / way) == (tmp_path / way).resolve()
    with pytest.raises(OSError, match="Too many levels"):
        lead_of(tmp_path / "loop" / "x")


def test_what_lies_at_a_temporary_name_is_not_written_to(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("kept")
    temporary = tmp_path / ".x.new"
    temporary.symlink_to(own)

    with replaced(tmp_path / "x", temporary=temporary) as file:
        file.write(b"new")

    assert own.read_text() == "kept"
    assert (tmp_path / "x").read_text() == "new"
    assert not (tmp_path / "x").is_symlink()


def test_a_folder_that_anybody_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o1777)  # anybody could put files there, though remove none

    assert "run `chmod o-w` on it" in why_unsafe(folder, uid=os.geteuid())
    with pytest.raises(UnsafeFolderError):
        check_own(folder)
    with pytest.raises(UnsafeFolderError):
        RunDir(folder).create()
    folder.chmod(0o775)  # a group shares its folders
    RunDir(folder).create()


@pytest.mark.parametrize(("mode", "is_safe"), [(0o777, False), (0o1777, True)])
def test_a_folder_above_may_be_open_to_all_where_it_is_sticky(
    tmp_path: Path, mode: int, *, is_safe: bool
) -> None:
    above = tmp_path / "scratch"
    (above / "run").mkdir(parents=True)
    above.chmod(mode)

    assert (why_unsafe(above / "run", uid=os.geteuid()) == "") is is_safe
    assert (why_unsafe(above / "not there yet", uid=os.geteuid()) == "") is is_safe
    assert (why_changeable(above / "run" / "x", uid=os.geteuid()) == "") is is_safe


@needs_root
def test_a_folder_of_another_user_is_refused_and_one_below_it_is_not(
    tmp_path: Path,
) -> None:
    theirs = tmp_path / "project"
    mine = theirs / "me"
    mine.mkdir(parents=True)
    os.chown(theirs, OTHER, -1)

    assert why_unsafe(theirs, uid=0).startswith(f"it belongs to user {OTHER}")
    assert why_unsafe(mine, uid=0) == ""
    assert f"belongs to user {OTHER}" in why_changeable(mine / "x", uid=0)


def test_a_subfolder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    (tmp_path / "elsewhere").mkdir()
    run.control.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotPlainError):
        run.create()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"t": NaN}',
        b"[-Infinity]",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 5_000,
        b"\xff\xfe",
        b" " * 2_000,
    ],
)
def test_what_is_no_json_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)

    with pytest.raises(ValueError):  # noqa: PT011 -- json's own words
        read_json(path, most_bytes=600_000 if len(content) > 2_000 else 1_000)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 10)

    assert read_plain(path, 10) == b"x" * 10
    with pytest.raises(ValueError, match="more than 9 bytes"):
        read_plain(path, 9)


def test_a_training_program_needs_nothing_else_for_it() -> None:
    program = "import sys, freetrain.opening; print(*sorted(sys.modules))"
    done = subprocess.run(  # noqa: S603 -- our own Python
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    )

    ours = {name for name in done.stdout.split() if name.startswith("freetrain")}
    assert ours <= {
        "freetrain",
        "freetrain.opening",
        "freetrain.own_packages",
    }
