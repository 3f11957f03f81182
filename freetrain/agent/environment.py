"""Everything that an agent does outside of the shared files: one object for it.

Clocks, the processes of this node, Slurm's notice of preemption, the ending of jobs and
the agent's log.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from freetrain.agent.marks import marked_processes
from freetrain.elastic.rank import is_spare_listening
from freetrain.processes import send_signal
from freetrain.state.files import lease_name
from freetrain.text import one_line
from slurm.errors import SlurmError
from slurm.records import JobKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from freetrain.agent.marks import MarkedProcess
    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.launch.local import LocalLauncher
    from freetrain.state.files import Assigned, Member
    from slurm.backend import SlurmBackend


class ProcessGroup(Protocol):
    """A launcher or spare that runs, with all that it started on this node.

    None of the methods blocks, and each may be called at any time, also after the end.
    ``freetrain.launch.local.Session`` is the real one.
    """

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        ...

    def ask_to_stop(self) -> None:
        """Ask the program to commit and end.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        ...

    def lingers(self) -> bool:
        """Tell whether a process of it is left but for the first."""
        ...

    def kill(self) -> None:
        """Kill all processes of it now."""
        ...


class Environment:
    """This node's clocks and processes, Slurm, and the log."""

    def __init__(
        self,
        launcher: LocalLauncher,
        slurm: SlurmBackend,
        *,
        own_job: JobKey | None,
        listener: PreemptionListener | None,
        journal: Callable[[str], None],
    ) -> None:
        """Take what an agent acts on.

        Args:
            launcher: Starts worlds.
            slurm: Ends jobs.
            own_job: This lease's job; None where there is none.
            listener: Hears of the lease's end for the agent; None where the agent is
                a job step, and gets the signal itself.
            journal: Writes a line to the agent's log.
        """
        self._launcher = launcher
        self._slurm = slurm
        self._own_job = own_job
        self._listener = listener
        self._journal = journal
        self._is_preempted = False
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.settimeout(0.0)

    def elapsed_s(self) -> float:
        """Return the time on a clock that never goes back."""
        return time.monotonic()

    def unix_s(self) -> float:
        """Return the time of day, Unix."""
        return unix_s()

    def wait(self, seconds: float) -> None:
        """Wait, or less: until Slurm announces the end of the lease."""
        if select.select([self._woken], [], [], seconds)[0]:
            self._woken.recv(4096)

    def log(self, text: str) -> None:
        """Write a line to the agent's log; never fails."""
        self._journal(text)

    # -- the end of this lease

    def handle_signals(self) -> None:
        """Take TERM for Slurm's announcement from now on; for the main thread."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note_preemption)

    def _note_preemption(self, number: int, frame: object) -> None:
        del number, frame
        self._is_preempted = True

    def is_preempted(self) -> bool:
        """Tell whether Slurm has announced the end of the lease."""
        if self._listener is not None and not self._is_preempted:
            self._is_preempted = self._listener.has_heard()
        return self._is_preempted

    def stop_listening(self) -> None:
        """End the step of the job that listens for Slurm's announcement."""
        if self._listener is not None:
            self._listener.close()

    def end_own_job(self) -> None:
        """End this lease's own job; returns where that failed."""
        if self._own_job is not None:
            self._cancel(self._own_job)

    def end_lease(self, member: Member) -> None:
        """Begin to end the job of a silent lease; does not wait for it."""
        key = JobKey(member.job_id, member.display_id)
        Thread(target=self._cancel, args=(key,), daemon=True).start()

    def _cancel(self, key: JobKey) -> None:
        try:
            self._slurm.signal([key], "KILL")
        except (SlurmError, ValueError) as error:
            self.log(f"job {key.display_id} could not be ended: {error}")

    # -- worlds and other processes

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> ProcessGroup:
        """Start a world, as ``LocalLauncher.launch`` does.

        Raises:
            FreeTrainError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        return self._launcher.launch(job, assigned, after=after, is_forked=is_forked)

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> ProcessGroup:
        """Start a spare in *lease*, this one, for the trainer of *assigned*.

        Raises:
            FreeTrainError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        return self._launcher.start_spare(job, assigned, lease)

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        """Tell whether the spare in *lease*, this one, waits for ranks to make."""
        return is_spare_listening(lease_name(lease))

    def processes(self) -> tuple[MarkedProcess, ...]:
        """Return the marked processes of this node, but for the agent's own.

        Raises:
            OSError: They cannot be listed.
        """
        return tuple(marked_processes(uid=os.geteuid(), own_pid=os.getpid()))

    def send(self, process: MarkedProcess, number: signal.Signals) -> None:
        """Send a signal to a process; nothing happens where it is gone."""
        send_signal(process.pid, number, started=process.started)


def unix_s() -> float:
    """Return the time of day, Unix."""
    return time.time()  # noqa: TID251 -- this is the clock that others take


# ----------------------------------------------------------------------
# Slurm's notice of preemption

_RESTART_S = 5.0
_CLOSE_S = 1.0
_TERMINATED = frozenset({signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGTERM})
_FOR_EVER_S = 10**9


class PreemptionListener:
    """A step of the lease's job that is told of preemption for the agent.

    At preemption Slurm sends TERM to every process of every step, and to none of the
    batch script. An agent that were a step would have mpirun in its step, which ends
    the world by TERM before it has committed. A step that ends for another reason is
    started again.
    """

    def __init__(
        self,
        job_id: int,
        environment: Mapping[str, str],
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the lease's job, a scrubbed environment, and a clock."""
        self._argv = listener_argv(job_id)
        self._environment = dict(environment)
        self._elapsed_s = elapsed_s
        self._step: subprocess.Popen[bytes] | None = None
        self._due_s = elapsed_s()
        self._has_heard = False

    @property
    def is_listening(self) -> bool:
        """Whether the step was there at the last look."""
        return self._step is not None

    def has_heard(self) -> bool:
        """Tell whether Slurm has announced the end of the job; listens from now on."""
        if self._step is not None and self._step.poll() is not None:
            self._has_heard |= self._step.returncode in _TERMINATED
            self._step = None
        is_due = self._elapsed_s() >= self._due_s
        if self._step is None and is_due and not self._has_heard:
            self._due_s = self._elapsed_s() + _RESTART_S
            with suppress(OSError):
                self._step = self._start()
        return self._has_heard

    def close(self) -> None:
        """Stop listening by TERM first: a step whose client is killed ends slowly."""
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


def listener_argv(job_id: int) -> list[str]:
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
        str(_FOR_EVER_S),
    ]


# ----------------------------------------------------------------------
# The agent's log

_REPEAT_S = 60.0
_LONGEST_LINE = 1_000
_MOST_REMEMBERED = 1_000


class Journal:
    """Appends lines, the same line again only after a minute; never fails."""

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
        self._written_s: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        """Append *text*; where that fails, it goes to standard error."""
        now_s = self._elapsed_s()
        written_s = self._written_s.get(text)
        if written_s is not None and now_s - written_s < _REPEAT_S:
            return
        if len(self._written_s) >= _MOST_REMEMBERED:
            self._written_s.clear()
        self._written_s[text] = now_s
        when = datetime.fromtimestamp(self._unix_s(), UTC)
        stamp = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"{stamp} {one_line(text)[:_LONGEST_LINE]}\n"
        try:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(line)
        except OSError:
            with suppress(OSError, ValueError):
                sys.stderr.write(line)
