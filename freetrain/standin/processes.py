"""Processes: started, looked at, signalled, and found.

What process groups miss, children that made a session of their own, is found by a
mark in the environment, and by descent: the supervisor of a job inherits its orphans.
Together they stand in for the control groups that Slurm itself would use.
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
_STATE, _PARENT, _STARTED = 0, 1, 19  # fields of /proc/PID/stat after the name
_SET_CHILD_SUBREAPER = 36


def process_of(pid: int) -> Process | None:
    """Return the process that has the number *pid* now; None where none has."""
    fields = _stat(pid)
    return None if fields is None else Process(pid, int(fields[_STARTED]))


def is_alive(process: Process) -> bool:
    """Tell whether *process* still runs; one that only waits to be reaped does not."""
    fields = _stat(process.pid)
    if fields is None or fields[_STATE] in _DEAD:
        return False
    return int(fields[_STARTED]) == process.started


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


def inherit_orphans() -> None:
    """Make this process the parent of every orphan among its descendants.

    Raises:
        OSError: The kernel refused.
    """
    import ctypes  # noqa: PLC0415 - for supervisors only; programs start without

    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def signal_descendants(number: int) -> int:
    """Send a signal to all that descend from us; return how many there were."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and fields[_STATE] not in _DEAD:
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    found = children.get(os.getpid(), [])
    for pid in found:  # grows as it goes
        found += children.get(pid, [])
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def reap() -> dict[int, int]:
    """Take note of children that have ended; return their wait statuses."""
    ended = {}
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def _pids() -> list[int]:
    names = os.listdir(_PROC)  # noqa: PTH208 - a path for each is most of the cost
    return [int(name) for name in names if name.isdecimal()]


def _marked(mark: str) -> Iterator[int]:
    wanted = f"\0{MARK}={mark}\0".encode()
    for pid in _pids():
        with suppress(OSError):
            environ = b"\0" + (_PROC / str(pid) / "environ").read_bytes()
            if wanted in environ and pid != os.getpid():
                yield pid


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, which may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
