"""Whether a daemon lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.processes import is_running
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

KERNEL_THREAD = 2
"""Lives, and has no command line, like a process in the middle of its exec."""


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended and that nobody has asked about."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    stat = Path(f"/proc/{pid}/stat")
    wait_for("a zombie", lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    yield pid
    os.waitpid(pid, 0)


def pid_file(folder: Path, pid: int) -> Path:
    path = folder / "daemon.pid"
    path.write_text(str(pid), encoding="ascii")
    return path


def test_one_that_has_ended_does_not_run(tmp_path: Path, zombie: int) -> None:
    assert not is_running(pid_file(tmp_path, zombie), folder=tmp_path)


def test_somebody_elses_process_is_not_the_daemon(tmp_path: Path) -> None:
    assert not is_running(pid_file(tmp_path, os.getpid()), folder=tmp_path / "x")


def test_one_in_the_middle_of_its_exec_runs(tmp_path: Path) -> None:
    command = Path(f"/proc/{KERNEL_THREAD}/cmdline")
    if not command.exists() or command.read_bytes():
        pytest.skip("no kernel thread is to be seen here")

    assert is_running(pid_file(tmp_path, KERNEL_THREAD), folder=tmp_path)
