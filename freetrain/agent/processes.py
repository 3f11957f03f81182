"""Processes of this node by their marks: found through /proc, and ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.marks import Mark, read_mark
from freetrain.launch.request import LEASE_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

_GONE = frozenset("ZX")
_STOPPED = "T"
_LEASE = LEASE_MARK.encode()
_STATE, _STARTED = 0, 19  # fields of stat(5) after the name, from 0


@dataclass(frozen=True, slots=True)
class Marked:
    """A process of a world.

    Attributes:
        pid: Its number.
        started: When it began, in clock ticks since boot: with the number, what
            tells it from all others.
        mark: Whose it is.
        is_stopped: Whether it is stopped, as by SIGSTOP.
        switches: How often it had got a CPU, where it is stopped: one that takes
            turns, as members of a pack may, gets more from look to look.
    """

    pid: int
    started: int
    mark: Mark
    is_stopped: bool = False
    switches: int = 0


def marked_processes(
    *, uid: int, own_pid: int, proc: Path = Path("/proc")
) -> tuple[Marked, ...]:
    """Return the marked processes of user *uid* on this node, but for *own_pid*.

    Processes that vanish meanwhile are left out, and so are zombies. One that
    emptied its environment is not found.

    Args:
        uid: The user.
        own_pid: Never returned, whatever it carries.
        proc: Where the kernel tells of processes.

    Raises:
        OSError: *proc* cannot be listed.
    """
    return tuple(_marked(proc, uid, own_pid))


def _marked(proc: Path, uid: int, own_pid: int) -> Iterator[Marked]:
    with os.scandir(proc) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if pid == own_pid:
            continue
        with suppress(OSError):  # it is gone, or not ours
            found = _look(f"{proc}/{pid}", pid, uid)
            if found is not None:
                yield found


def _look(folder: str, pid: int, uid: int) -> Marked | None:
    if os.stat(folder).st_uid != uid:  # noqa: PTH116 -- a Path costs as much again
        return None
    environ = _read(f"{folder}/environ")
    if _LEASE not in environ:
        return None
    mark = read_mark(environ)
    status = _status(folder)
    if mark is None or status is None:
        return None
    is_stopped = status[0] == _STOPPED
    switches = _switches(folder) if is_stopped else 0
    return Marked(pid, status[1], mark, is_stopped=is_stopped, switches=switches)


def _status(folder: str) -> tuple[str, int] | None:
    """Return state and start of a process that has not ended."""
    fields = _read(f"{folder}/stat").rpartition(b")")[2].split()
    if len(fields) <= _STARTED:
        return None
    state = fields[_STATE].decode("ascii", "replace")
    return None if state in _GONE else (state, int(fields[_STARTED]))


def _switches(folder: str) -> int:
    """Return how often a process, its first thread, was put on a CPU or off it."""
    lines = _read(f"{folder}/status").splitlines()
    return sum(int(one.split()[1]) for one in lines if b"ctxt_switches:" in one)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 -- as above
        return file.readall()


def send(process: Marked, number: signal.Signals) -> None:
    """Send a signal to *process*, and to no other that has got its number since."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        with suppress(OSError):
            status = _status(f"/proc/{process.pid}")
            if status is not None and status[1] == process.started:
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal to send.

    Attributes:
        process: To which.
        number: Which.
    """

    process: Marked
    number: signal.Signals


class Sweeper:
    """Ends processes: TERM when it first meets one, KILL when the grace is over."""

    def __init__(self, grace_s: float) -> None:
        """Take the time between the two signals."""
        self._grace_s = grace_s
        self._told_s: dict[tuple[int, int], float] = {}

    def due(
        self, targets: tuple[Marked, ...], *, now_s: float, at_once: bool = False
    ) -> tuple[Signal, ...]:
        """Return the signals to send now.

        Args:
            targets: All that is to end and is still there.
            now_s: The time, on a clock that never goes back.
            at_once: Whether there is no time for TERM.
        """
        here = {(one.pid, one.started): one for one in targets}
        self._told_s = {k: s for k, s in self._told_s.items() if k in here}
        return tuple(
            Signal(one, self._next(key, now_s, at_once=at_once or one.is_stopped))
            for key, one in here.items()
            if at_once or self._is_due(key, now_s)
        )

    def _is_due(self, key: tuple[int, int], now_s: float) -> bool:
        told_s = self._told_s.get(key)
        return told_s is None or now_s - told_s >= self._grace_s

    def _next(
        self, key: tuple[int, int], now_s: float, *, at_once: bool
    ) -> signal.Signals:
        is_told = key in self._told_s
        self._told_s.setdefault(key, now_s)
        return signal.SIGKILL if is_told or at_once else signal.SIGTERM


class StoppedWatch:
    """Tells processes that have been stopped for long."""

    def __init__(self, patience_s: float) -> None:
        """Take how long is long."""
        self._patience_s = patience_s
        self._since_s: dict[tuple[int, int, int], float] = {}

    def stuck(
        self, processes: tuple[Marked, ...], *, now_s: float
    ) -> tuple[Marked, ...]:
        """Return those of *processes* that have been stopped for long.

        They were so in every look, and got no CPU between two of them.
        """
        stopped = {(p.pid, p.started, p.switches): p for p in processes if p.is_stopped}
        self._since_s = {key: self._since_s.get(key, now_s) for key in stopped}
        return tuple(
            process
            for key, process in stopped.items()
            if now_s - self._since_s[key] >= self._patience_s
        )
