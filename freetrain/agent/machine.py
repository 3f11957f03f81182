"""The real edge: this node's clock, processes and signals, and Slurm."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from freetrain.agent.seen import Mark, read_mark
from freetrain.elastic.rank import listens
from freetrain.launch.request import LEASE_MARK
from freetrain.state.files import lease_name
from freetrain.text import one_line
from slurm.errors import SlurmError
from slurm.records import JobKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.launch.local import LocalLauncher
    from freetrain.state.files import Assigned, Member
    from slurm.backend import SlurmBackend


# ----------------------------------------------------------------------
# A step of the lease's job that hears of preemption for the agent.

_AGAIN_S_ear = 5.0
_CLOSE_S = 1.0
_TOLD = frozenset({signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGTERM})
_LONG_S = 10**9


class Ear:
    """Listens; a step that ends for another reason is started again."""

    def __init__(
        self,
        job_id: int,
        environment: Mapping[str, str],
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the lease's job, a scrubbed environment, and a clock."""
        self._argv = ear_argv(job_id)
        self._environment = dict(environment)
        self._elapsed_s = elapsed_s
        self._step: subprocess.Popen[bytes] | None = None
        self._due_s = elapsed_s()
        self._has_heard = False

    @property
    def is_listening(self) -> bool:
        """Whether the step is there, as far as was seen."""
        return self._step is not None

    def has_heard(self) -> bool:
        """Tell whether Slurm has announced the end of the job; listens from now on."""
        if self._step is not None and self._step.poll() is not None:
            self._has_heard |= self._step.returncode in _TOLD
            self._step = None
        is_due = self._elapsed_s() >= self._due_s
        if self._step is None and is_due and not self._has_heard:
            self._due_s = self._elapsed_s() + _AGAIN_S_ear
            with suppress(OSError):
                self._step = self._start()
        return self._has_heard

    def close(self) -> None:
        """Stop listening, kindly: a step whose client was killed takes long to end."""
        if self._step is not None:
            self._step.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._step.wait(_CLOSE_S)
            self._step.kill()
            self._step.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 -- a list, never a shell
            self._argv,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def ear_argv(job_id: int) -> list[str]:
    """Return the command that listens in the job of raw number *job_id*."""
    return [
        "srun",
        f"--jobid={job_id}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--mem=0",
        "--mpi=none",
        "--input=none",
        "--export=ALL",
        "sleep",
        str(_LONG_S),
    ]


# ----------------------------------------------------------------------
# What an agent does outside of the shared files, as one object.


class World(Protocol):
    """The processes of one generation, as the head of it sees them.

    None of the methods blocks, and each may be called at any time, also after the
    world ended.
    """

    def poll(self) -> int | None:
        """Return the launcher's exit status, negative for a signal; None if it runs."""
        ...

    def ask_to_stop(self) -> None:
        """Ask the program to commit and end.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        ...

    def lingers(self) -> bool:
        """Tell whether a process of the launcher's session is left on this node."""
        ...

    def kill(self) -> None:
        """Kill every process of the launcher's session on this node, now."""
        ...


class Edge(Protocol):
    """Clocks, processes and Slurm."""

    def elapsed_s(self) -> float:
        """Return the time on a clock that never goes back."""
        ...

    def unix_s(self) -> float:
        """Return the time of day, Unix."""
        ...

    def is_told_to_leave(self) -> bool:
        """Tell whether Slurm has announced the end of the lease."""
        ...

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> World:
        """Start a world.

        Raises:
            FreeTrainError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        ...

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> World:
        """Start a spare in *lease*, this one, for the trainer of *assigned*.

        Raises:
            FreeTrainError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        ...

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        """Tell whether the spare in *lease*, this one, waits for ranks to make."""
        ...

    def processes(self) -> tuple[Marked, ...]:
        """Return the marked processes of this node, but for the agent's own.

        Raises:
            OSError: They cannot be looked at.
        """
        ...

    def send(self, signal: Signal) -> None:
        """Send a signal to a process; one that is gone gets none."""
        ...

    def end_lease(self, member: Member) -> None:
        """Begin to end the job of a silent lease; does not wait for it."""
        ...

    def stop_listening(self) -> None:
        """End what listens for Slurm's announcement, which is a step of the job."""
        ...

    def end_own_job(self) -> None:
        """End this lease's own job; returns where that failed."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait, or less: until Slurm announces the end of the lease."""
        ...

    def say(self, text: str) -> None:
        """Write a line to the agent's log; never fails."""
        ...


# ----------------------------------------------------------------------
# The agent's log: a line each, never a flood, and never a reason to stop.

_AGAIN_S_journal = 60.0
_LONGEST = 1_000
_REMEMBERED = 1_000


class Journal:
    """Appends lines; the same one again only after a minute."""

    def __init__(
        self,
        path: Path,
        *,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the file and two clocks."""
        self._path = path
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        self._said_s: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        """Append *text*; where that fails, it goes to standard error."""
        now_s = self._elapsed_s()
        said_s = self._said_s.get(text)
        if said_s is not None and now_s - said_s < _AGAIN_S_journal:
            return
        if len(self._said_s) >= _REMEMBERED:
            self._said_s.clear()
        self._said_s[text] = now_s
        when = datetime.fromtimestamp(self._unix_s(), UTC)
        stamp = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"{stamp} {one_line(text)[:_LONGEST]}\n"
        try:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(line)
        except OSError:
            with suppress(OSError, ValueError):
                sys.stderr.write(line)


# ----------------------------------------------------------------------
# Processes of this node by their marks: found through /proc, and ended.

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


# ----------------------------------------------------------------------
# The real edge: this node's clock, processes and signals, and Slurm.


def unix_s() -> float:
    """Return the time of day, Unix."""
    return time.time()  # noqa: TID251 -- this is the clock that others take


class Machine:
    """This node; a ``freetrain.agent.edge.Edge``."""

    def __init__(
        self,
        launcher: LocalLauncher,
        slurm: SlurmBackend,
        *,
        own_job: JobKey | None,
        ear: Ear | None,
        journal: Callable[[str], None],
    ) -> None:
        """Take what starts worlds, Slurm, this lease's job, and the log.

        Args:
            launcher: Starts worlds.
            slurm: Ends jobs.
            own_job: This lease's job; None where there is none.
            ear: Hears of the lease's end for the agent; None where it does so itself.
            journal: Writes a line.
        """
        self._launcher = launcher
        self._slurm = slurm
        self._own_job = own_job
        self._ear = ear
        self._journal = journal
        self._is_told = False
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.settimeout(0.0)

    def hear(self) -> None:
        """Take TERM for Slurm's announcement from now on; for the main thread."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: object) -> None:
        del number, frame
        self._is_told = True

    def elapsed_s(self) -> float:
        """Return the time on a clock that never goes back."""
        return time.monotonic()

    def unix_s(self) -> float:
        """Return the time of day, Unix."""
        return unix_s()

    def is_told_to_leave(self) -> bool:
        """Tell whether Slurm has announced the end of the lease."""
        if self._ear is not None and not self._is_told:
            self._is_told = self._ear.has_heard()
        return self._is_told

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> World:
        """Start a world."""
        return self._launcher.launch(job, assigned, after=after, is_forked=is_forked)

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> World:
        """Start a spare in *lease*, which is this node's."""
        return self._launcher.start_spare(job, assigned, lease)

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        """Tell whether the spare in *lease*, which is this node's, can be asked."""
        return listens(lease_name(lease))

    def processes(self) -> tuple[Marked, ...]:
        """Return the marked processes of this node, but for the agent's own."""
        return marked_processes(uid=os.geteuid(), own_pid=os.getpid())

    def send(self, signal: Signal) -> None:
        """Send a signal to a process; one that is gone gets none."""
        send(signal.process, signal.number)

    def end_lease(self, member: Member) -> None:
        """Begin to end the job of a silent lease; does not wait for it."""
        key = JobKey(member.job_id, member.display_id)
        Thread(target=self._cancel, args=(key,), daemon=True).start()

    def _cancel(self, key: JobKey) -> None:
        try:
            self._slurm.signal([key], "KILL")
        except (SlurmError, ValueError) as error:
            self.say(f"job {key.display_id} could not be ended: {error}")

    def stop_listening(self) -> None:
        """End what listens for Slurm's announcement, which is a step of the job."""
        if self._ear is not None:
            self._ear.close()

    def end_own_job(self) -> None:
        """End this lease's own job; returns where that failed."""
        if self._own_job is not None:
            self._cancel(self._own_job)

    def wait(self, seconds: float) -> None:
        """Wait, or less: until Slurm announces the end of the lease."""
        if select.select([self._woken], [], [], seconds)[0]:
            self._woken.recv(4096)

    def say(self, text: str) -> None:
        """Write a line to the agent's log; never fails."""
        self._journal(text)
