"""Processes: started, looked at, signalled, and found by a mark in their environment.

A mark finds what a process group does not: children that made a session of their
own. It stands in for the control groups that Slurm itself would use.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.standin.records import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MARK = "FREETRAIN_STANDIN_JOB"
_PROC = Path("/proc")
_DEAD = frozenset("ZX")
_AFTER_NAME_STATE, _AFTER_NAME_STARTED = 0, 19


def process_of(pid: int) -> Process | None:
    """Return the process that has the number *pid* now; None where none has."""
    fields = _stat(pid)
    return None if fields is None else Process(pid, int(fields[_AFTER_NAME_STARTED]))


def is_alive(process: Process) -> bool:
    """Tell whether *process* still runs; one that only waits to be reaped does not."""
    fields = _stat(process.pid)
    if fields is None or fields[_AFTER_NAME_STATE] in _DEAD:
        return False
    return int(fields[_AFTER_NAME_STARTED]) == process.started


def detach(argv: Sequence[str], environ: Mapping[str, str]) -> Process:
    """Start *argv* in a session of its own, without our input and outputs.

    Raises:
        OSError: It cannot be started.
    """
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(environ),
        file_actions=quiet,
        setsid=True,
        setsigdef=[signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        setsigmask=[],
    )
    return process_of(pid) or Process(pid, 0)


def signal_group(process: Process, number: int) -> None:
    """Send a signal to the group that *process* leads, if it is still that one.

    The leader may be gone and its children not: its number is then still taken, as
    that of the group.
    """
    now = process_of(process.pid)
    if now is None or now == process:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def signal_marked(mark: str, number: int) -> int:
    """Send a signal to every process that bears *mark*; return how many there were."""
    found = list(_marked(mark))
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def _marked(mark: str) -> Iterator[int]:
    wanted = f"\0{MARK}={mark}\0".encode()
    for name in os.listdir(_PROC):  # noqa: PTH208 - a path for each is most of the cost
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            environ = b"\0" + Path("/proc", name, "environ").read_bytes()
            if wanted in environ:
                yield int(name)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, which may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
