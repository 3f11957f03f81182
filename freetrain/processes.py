"""Processes of this machine, read from /proc: state, session, times, environment.

psutil was measured and is not used: it looks at all processes in 1.8 ms of CPU where
this takes 0.36 ms (83 processes), and agents do so once a second on nodes that train;
its import takes 6 ms of an agent's start of 110 ms; and it has no pidfd, without which
a signal may reach another process that got the number meanwhile.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a process, from proc_pid_stat(5).

    Attributes:
        state: One letter: R, S, T for stopped, Z for a zombie.
        parent: The process that started it, or inherited it.
        session: The process that leads its session.
        cpu_ticks: CPU time of itself and of children that it waited for, in clock
            ticks.
        started: When it began, in clock ticks since boot; with its number this tells
            it from all other processes.
    """

    state: str
    parent: int
    session: int
    cpu_ticks: int
    started: int

    @property
    def has_ended(self) -> bool:
        """Whether it only waits for its parent to take note of its end."""
        return self.state in {"Z", "X"}

    @property
    def is_stopped(self) -> bool:
        """Whether a signal stopped it, such as SIGSTOP."""
        return self.state == "T"


def process_ids(*, proc: Path = PROC) -> list[int]:
    """Return the numbers of all processes.

    Raises:
        OSError: They cannot be listed.
    """
    names = os.listdir(proc)  # noqa: PTH208 -- a Path for each is most of the cost
    return [int(name) for name in names if name.isdecimal()]


def status_of(pid: int, *, proc: Path = PROC) -> Status | None:
    """Return the status of *pid*; None where there is no such process."""
    try:
        content = _read(f"{proc}/{pid}/stat")
    except OSError:
        return None
    # The name, in brackets, may hold anything; the other fields come after it.
    fields = content.rpartition(b")")[2].split()
    if len(fields) <= _STARTED:
        return None
    return Status(
        state=fields[_STATE].decode("ascii", "replace"),
        parent=int(fields[_PARENT]),
        session=int(fields[_SESSION]),
        cpu_ticks=sum(map(int, fields[_CPU_TIMES])),
        started=int(fields[_STARTED]),
    )


# Fields of proc_pid_stat(5) after the name, from 0.
_STATE, _PARENT, _SESSION, _STARTED = 0, 1, 3, 19
_ENDED = (b"Z", b"X")
_CPU_TIMES = slice(11, 15)  # user and system, of itself and of children
_MEMORY_AND_ENVIRONMENT = 20, 47, 48  # vsize, env_start, env_end


_MOST_LOOKS = 100
_EXEC_PAUSE_S = 0.001


def environments(
    containing: bytes, *, uid: int | None = None, proc: Path = PROC
) -> Iterator[tuple[int, bytes]]:
    r"""Yield the processes of a user whose environment contains some bytes, with it.

    It misses none that was there all the time, and of a family at least one: a listed
    process that ended before its environment was read may have left a child that came
    after the listing, so they are listed again, at least once and until there was no
    such process. One in the middle of execve(2) shows no environment, and is looked at
    again until it does. A hundred looks are the most. One takes 20 ms of CPU where a
    node has 2,000 processes, each that follows 0.8 ms (``tests/bench/processes.py``).

    Processes that may not be read are passed over. A process that emptied its
    environment is not found.

    Args:
        containing: The bytes; an environment is ``NAME=text\0`` again and again.
        uid: Whose processes to look at; None for those of this process's user.
        proc: Where the kernel shows processes.

    Raises:
        OSError: The processes cannot be listed; or, after all others were yielded,
            there may be more: one is still in the middle of execve(2), or new ones went
            on to end before they were looked at. Callers that must find all look again.
    """
    uid = os.geteuid() if uid is None else uid
    listed: set[int] = set()
    starting: set[int] = set()
    for look in range(_MOST_LOOKS):
        if starting:
            time.sleep(_EXEC_PAUSE_S)
        due = (set(process_ids(proc=proc)) - listed) | starting
        listed |= due
        starting, ended = set(), set()
        for pid in sorted(due, reverse=True):  # the last ones may end at once
            try:
                environ = _environment_of(pid, uid, proc)
            except ProcessLookupError:
                ended.add(pid)
                continue
            if environ is None:
                starting.add(pid)
            elif containing in environ:
                yield pid, environ
        if look and not starting and not ended:
            return
    why = (
        f"processes {sorted(starting)} are still being started"
        if starting
        else "new processes went on to end before they were looked at"
    )
    raise BlockingIOError(errno.EAGAIN, why)


def _environment_of(pid: int, uid: int, proc: Path) -> bytes | None:
    """Return a process's environment; None where it will only have one.

    It is empty for a process of another user or of the kernel.

    Raises:
        ProcessLookupError: The process has ended, and was no other user's as far as is
            known.
    """
    try:
        if os.stat(f"{proc}/{pid}").st_uid != uid:  # noqa: PTH116 -- a Path costs as much again
            return b""
        environ = _read(f"{proc}/{pid}/environ")
        if environ:
            return environ
        fields = _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
        memory, begin, end = (int(fields[at]) for at in _MEMORY_AND_ENVIRONMENT)
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError from None
    except (OSError, ValueError, IndexError):
        return b""
    if fields[_STATE] in _ENDED:
        raise ProcessLookupError
    return None if memory > 0 and (end == 0 or begin < end) else b""


def context_switches(pid: int, *, proc: Path = PROC) -> int:
    """Return how often the first thread of *pid* was put on a CPU or off it.

    Raises:
        OSError: It is gone.
    """
    lines = _read(f"{proc}/{pid}/status").splitlines()
    return sum(int(line.split()[1]) for line in lines if b"ctxt_switches:" in line)


def send_signal(pid: int, number: signal.Signals, *, started: int) -> None:
    """Send a signal to the process *pid* that began at *started*, and to no other.

    Nothing happens where it is gone, also where its number was given to another. Where
    this system has no file descriptors of processes (``pidfd_problem``) another process
    can get the number between the look and the signal, within microseconds.
    """
    handle = None
    with suppress(OSError, AttributeError):
        handle = os.pidfd_open(pid)
    try:
        status = status_of(pid)
        if status is None or status.started != started or status.has_ended:
            return
        with suppress(OSError, AttributeError):
            if handle is not None:
                signal.pidfd_send_signal(handle, number)
                return
        with suppress(OSError):
            os.kill(pid, number)
    finally:
        if handle is not None:
            os.close(handle)


def pidfd_problem() -> str:
    """Return why signals go by number and start time here; empty where they do not.

    Kernels before 5.3, old builds of Python and some containers lack pidfd_open(2).
    """
    try:
        handle = os.pidfd_open(os.getpid())
    except (OSError, AttributeError) as error:
        return str(error)
    try:
        signal.pidfd_send_signal(handle, 0)
    except (OSError, AttributeError) as error:
        return str(error)
    finally:
        os.close(handle)
    return ""


def oom_kills(*, proc: Path = PROC) -> int:
    """Return how many processes of this machine were killed for want of memory.

    The kernel counts them since boot, those of control groups included; 0 where it
    does not (before 4.13).
    """
    with suppress(OSError, ValueError):
        for line in _read(f"{proc}/vmstat").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that processes have in RAM, by statm; 0 for those gone."""
    pages = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            pages += int(_read(f"{PROC}/{pid}/statm").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_memory_bytes(*, proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return how much more memory a process of this one's groups could have.

    That is what the kernel calls available, or less where a group has a limit. Files
    that a group has read and no longer uses count as free.

    Raises:
        OSError, ValueError: It is unknown.
    """
    lines = _read(f"{proc}/meminfo").decode("ascii", "replace").splitlines()
    words = next(line for line in lines if line.startswith("MemAvailable:")).split()
    free = int(words[1]) * 1024
    for line in _read(f"{proc}/self/cgroup").decode("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names, top = ("memory.max", "memory.current"), cgroups
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            top = cgroups / "memory"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                free = min(free, _left_bytes(folder, *names, otherwise=free))
    return free


def _left_bytes(folder: Path, limit: str, used: str, *, otherwise: int) -> int:
    """Return what a memory group has left; *otherwise* where it has no limit."""
    try:
        most = int((folder / limit).read_bytes())
        now = int((folder / used).read_bytes())
        entries = dict(
            line.split() for line in (folder / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):
        return otherwise
    return most - now + int(entries.get("inactive_file", 0))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 -- as above
        return file.readall()
