"""The agent's environment beside the shared files: clocks, Slurm, log and processes.

``Environment`` has the clocks, Slurm's signal that the lease ends, the ending of jobs,
the starting of worlds and the agent's log. ``NodeProcesses`` finds the processes of the
lease, ends those of worlds that are over, and finds those that were stopped.

Every process of a world carries two variables, its marks, by which agents find it, also
a daemon that left the session of its launcher. A process that emptied its environment
is not found.
"""

from __future__ import annotations

import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from freetrain.agent.observation import LISTENER_MARK
from freetrain.broker.lease import LeaseKey, job_name
from freetrain.elastic.contract import SPARE
from freetrain.elastic.rank import is_spare_listening
from freetrain.errors import FreeTrainError
from freetrain.launch.base import LEASE_MARK, WORLD_MARK
from freetrain.processes import (
    PROC,
    context_switches,
    environments,
    free_memory_bytes,
    oom_kills,
    pidfd_problem,
    resident_bytes,
    send_signal,
    status_of,
)
from freetrain.state.files import lease_name
from freetrain.text import one_line
from slurm.errors import SlurmError, SlurmMissingError, SlurmUnavailableError
from slurm.records import JobKey, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.agent.board import Board, TrainerFolder
    from freetrain.agent.observation import Patience
    from freetrain.config.job import TrainerJob
    from freetrain.launch.local import LocalLauncher
    from freetrain.state.files import AssignedLease, AssignmentFile
    from slurm.backend import SlurmBackend


_MIB = 2**20
_LEASE_MIB = "SLURM_MEM_PER_NODE"
_ASK_AGAIN_S = 0.25  # Slurm hears of a killed lease some tenths of a second later
_ASK_MOST_S = 1.0
_ASK_ANEW_S = 10.0
_LISTENER_LOOKS = 10


class ProcessGroup(Protocol):
    """A launcher or spare that runs, with all that it started on this node.

    None of the methods blocks, and each may be called at any time, also after the end.
    ``freetrain.launch.local.Session`` is the real one.
    """

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        ...

    def ask_to_stop(self, why: str = "") -> None:
        """Ask the program to commit and end; *why* is for its log.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        ...

    def lingers(self) -> bool:
        """Tell whether a process of it is left but for the first."""
        ...

    def has_lost_client(self) -> bool:
        """Tell whether a client of a step on another node has ended lately."""
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
        listener: LeaseEndListener | None,
        journal: Callable[[str], None],
    ) -> None:
        """Take all that an agent acts on.

        Args:
            launcher: Starts worlds.
            slurm: Ends jobs.
            own_job: This lease's job; None where there is none.
            listener: Gets Slurm's signal for the agent; None outside of a job.
            journal: Writes a line to the agent's log.
        """
        self._launcher = launcher
        self._slurm = slurm
        self._own_job = own_job
        self._listener = listener
        self._journal = journal
        self._is_asked_to_leave = False
        self._slurm_answers: bool | None = None
        self._asked_of_leases_s = -math.inf
        self._ask_again_s = _ASK_AGAIN_S
        self._gone_leases: frozenset[LeaseKey] = frozenset()
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
        """Wait, at most until Slurm signals that the lease ends, or a child has ended.

        A child is a launcher, a spare, or the step by which the listener hears.
        """
        if select.select([self._woken], [], [], seconds)[0]:
            self._woken.recv(4096)

    def log(self, text: str) -> None:
        """Write a line to the agent's log; never fails."""
        self._journal(text)

    def handle_signals(self) -> None:
        """Take TERM for Slurm's signal from now on; for the main thread."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it only wakes
        signal.signal(signal.SIGTERM, self._note_lease_end)

    def _note_lease_end(self, number: int, frame: object) -> None:
        del number, frame
        self._is_asked_to_leave = True

    def is_asked_to_leave(self) -> bool:
        """Tell whether Slurm, a tick or a drill has asked this lease to leave."""
        if self._listener is not None and not self._is_asked_to_leave:
            self._is_asked_to_leave = self._listener.has_heard()
        return self._is_asked_to_leave

    def stop_listening(self) -> None:
        """End the step of the job that listens for Slurm's signal."""
        if self._listener is not None:
            self._listener.close()

    def end_listeners(self, lease: LeaseKey) -> None:
        """Kill all other processes of this node that wait for the end of *lease*."""
        mark = b"\0%s=%s\0" % (LISTENER_MARK.encode(), lease_name(lease).encode())
        for _ in range(_LISTENER_LOOKS):
            with suppress(OSError):
                for pid, environ in environments(mark[1:-1]):
                    status = status_of(pid)
                    is_meant = pid != os.getpid() and mark in b"\0%s\0" % environ
                    if status is not None and is_meant:
                        for number in (signal.SIGKILL, signal.SIGCONT):
                            send_signal(pid, number, started=status.started)
                return

    def end_own_job(self) -> None:
        """End this lease's own job; returns where that failed."""
        if self._own_job is not None:
            self._cancel(self._own_job)

    def cancel_silent_lease(self, member: AssignedLease) -> None:
        """Begin to cancel the job of another, silent lease; does not wait for it."""
        key = JobKey(member.job_id, member.display_id)
        Thread(target=self._cancel, args=(key,), daemon=True).start()

    def _cancel(self, key: JobKey) -> None:
        try:
            self._slurm.signal([key], "KILL")
        except (SlurmError, OSError, ValueError) as error:
            self.log(f"job {key.display_id} could not be ended: {error}")

    def ask_slurm(self) -> None:
        """Begin to ask slurmctld whether it answers; does not wait for it."""
        self._slurm_answers = None
        Thread(target=self._ask_slurm, daemon=True).start()

    def slurm_answers(self) -> bool | None:
        """Return whether slurmctld answered when last asked; None until it is known."""
        return self._slurm_answers

    def ask_of_leases(self, members: Collection[AssignedLease]) -> None:
        """Begin to ask Slurm which of *members* have ended; does not wait for it.

        It asks again after a quarter of a second, half a second, then once a second.
        """
        since_s = self.elapsed_s() - self._asked_of_leases_s
        if since_s >= _ASK_ANEW_S:
            self._ask_again_s = _ASK_AGAIN_S
        if members and since_s >= self._ask_again_s:
            self._asked_of_leases_s = self.elapsed_s()
            if since_s < _ASK_ANEW_S:
                self._ask_again_s = min(_ASK_MOST_S, 2.0 * self._ask_again_s)
            Thread(target=self._ask_of_leases, args=(members,), daemon=True).start()

    def gone_leases(self) -> frozenset[LeaseKey]:
        """Return the leases whose jobs have ended, as Slurm said when asked."""
        return self._gone_leases

    def _ask_of_leases(self, members: Collection[AssignedLease]) -> None:
        try:
            names = {job_name(member.key.uuid) for member in members}
            jobs = self._slurm.find_by_name(*sorted(names))
        except (SlurmError, OSError, ValueError) as error:
            self.log(f"Slurm does not say which leases have ended: {error}")
            return
        ended = {
            job.display_id
            for job in jobs
            if job.has_ended or JobState.COMPLETING in job.states
        }
        gone = {member.key for member in members if member.display_id in ended}
        for key in gone - self._gone_leases:
            self.log(f"the job of lease {lease_name(key)} has ended without notice")
        self._gone_leases |= gone

    def _ask_slurm(self) -> None:
        self._slurm_answers = does_answer(self._slurm, log=self.log)

    def launch(
        self,
        job: TrainerJob,
        assigned: AssignmentFile,
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
        self, job: TrainerJob, assigned: AssignmentFile, lease: LeaseKey
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

    def has_room_for_spare(self, pids: Collection[int]) -> bool:
        """Tell whether memory is free for twice what the processes *pids* have."""
        return has_twice_the_memory(pids, self._launcher.head.environment)

    def processes(self) -> Iterable[MarkedProcess]:
        """Return the marked processes of this node, but for the agent's own.

        Raises:
            OSError: They cannot be listed, or, after all others, there may be more.
        """
        return marked_processes(uid=os.geteuid(), own_pid=os.getpid())

    def is_there(self, process: MarkedProcess) -> bool:
        """Tell whether a process is still there."""
        status = status_of(process.pid)
        if status is None or status.has_ended:
            return False
        return status.started == process.started

    def send(self, process: MarkedProcess, number: signal.Signals) -> None:
        """Send a signal to a process; nothing happens where it is gone."""
        send_signal(process.pid, number, started=process.started)

    def oom_kills(self) -> int:
        """Return how many processes of this node were killed for want of memory."""
        return oom_kills()

    def log_limits(self) -> None:
        """Write to the log what this system lacks."""
        why = pidfd_problem()
        if why:
            self.log(f"processes are ended by number and start time: no pidfd ({why})")


def has_twice_the_memory(pids: Collection[int], variables: Mapping[str, str]) -> bool:
    """Tell whether memory is free for twice what the processes *pids* have.

    Of a shared node a lease has as much as Slurm gave it, enforced or not.

    Args:
        pids: Processes of this lease.
        variables: Those of the lease's batch script.
    """
    used = resident_bytes(pids)
    given = variables.get(_LEASE_MIB, "")
    mib = int(given) if given.isdecimal() else 0  # 0 or unset is all of the node
    left = mib * _MIB - used if mib else math.inf
    try:
        return 2 * used <= min(left, free_memory_bytes())
    except (OSError, ValueError, StopIteration):
        return False


def does_answer(slurm: SlurmBackend, *, log: Callable[[str], None]) -> bool:
    """Tell whether slurmctld answers a small question.

    Where it cannot be asked at all it is taken to answer: others come first.
    """
    try:
        slurm.config()
    except SlurmMissingError as error:
        log(f"slurmctld cannot be asked: {error}")
    except SlurmUnavailableError:
        return False
    except (SlurmError, OSError, ValueError) as error:
        log(f"slurmctld answers, and not as expected: {error}")
    return True


def unix_s() -> float:
    """Return the time of day, Unix."""
    return time.time()  # noqa: TID251 -- this is the clock that others take


_RESTART_S = 5.0
_CLOSE_S = 1.0
_TERMINATED = frozenset({signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGTERM})
_FOR_EVER_S = 10**9


class LeaseEndListener:
    """A step of the lease's job that gets Slurm's signal for the agent.

    When the lease is preempted, yields or ends sooner than it was asked for, Slurm
    sends TERM to every process of every step, and to none of the batch script. An agent
    that were a step would have mpirun in its step, which ends the world by TERM before
    it has committed. A step that ends for another reason, or is stopped and so deaf, is
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
        """Tell whether the job was signalled to end; listens from now on."""
        if self._step is not None and self._step.poll() is not None:
            self._has_heard |= self._step.returncode in _TERMINATED
            self._step = None
        is_due = self._elapsed_s() >= self._due_s
        if self._step is not None and is_due:
            self._due_s = self._elapsed_s() + _RESTART_S
            status = status_of(self._step.pid)
            if status is not None and status.is_stopped:
                self._step.kill()
                self._step.wait()
                self._step = None
        if self._step is None and is_due and not self._has_heard:
            self._due_s = self._elapsed_s() + _RESTART_S
            with suppress(OSError):
                self._step = self._start()
        return self._has_heard

    def close(self) -> None:
        """Stop listening by TERM first: a step whose client is killed ends slowly."""
        if self._step is not None:
            self._step.terminate()
            self._step.send_signal(signal.SIGCONT)
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


# Open MPI, MPICH's and Slurm's PMI, and our starters give one of these to ranks.
_RANKS = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK")
_LEASE = re.compile(r"(.{1,100})-([0-9]{1,10})", re.ASCII)
_WORLD = re.compile(r"([^/\0]{1,200})/([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Mark:
    """The marks of a process.

    Attributes:
        lease: The lease on whose node it was started.
        trainer: The trainer; empty for none.
        generation: The generation, 0 for none.
        is_rank: Whether it is a rank, or stands for one, and no daemon or client.
    """

    lease: LeaseKey
    trainer: str
    generation: int
    is_rank: bool = False

    @property
    def world(self) -> tuple[str, int]:
        """The trainer and the generation."""
        return (self.trainer, self.generation)


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process of a world.

    Attributes:
        pid: Its number.
        started: When it began, in clock ticks since boot.
        mark: Its marks.
        is_stopped: Whether it is stopped, as by SIGSTOP.
        switches: How often it was put on a CPU or off it, where it is stopped: members
            of a pack may take turns, and have more of them from look to look.
    """

    pid: int
    started: int
    mark: Mark
    is_stopped: bool = False
    switches: int = 0


def marked_processes(
    *, uid: int, own_pid: int, proc: Path = PROC
) -> Iterator[MarkedProcess]:
    """Yield the marked processes of user *uid* on this node, but for *own_pid*.

    Zombies and processes that vanish meanwhile are left out.

    Raises:
        OSError: The processes cannot be listed, or there may be more of them.
    """
    for pid, environ in environments(LEASE_MARK.encode(), uid=uid, proc=proc):
        mark = read_mark(environ)
        status = status_of(pid, proc=proc)
        if pid == own_pid or mark is None or status is None or status.has_ended:
            continue
        try:
            switches = context_switches(pid, proc=proc) if status.is_stopped else 0
        except OSError:
            continue
        yield MarkedProcess(
            pid,
            status.started,
            mark,
            is_stopped=status.is_stopped,
            switches=switches,
        )


def read_mark(environ: bytes) -> Mark | None:
    r"""Return the marks in *environ*, ``NAME=text\0`` again and again; None for none.

    All the rest of it may be hostile, and is not read.
    """
    lease = _LEASE.fullmatch(_value(environ, LEASE_MARK))
    if lease is None:
        return None
    world = _WORLD.fullmatch(_value(environ, WORLD_MARK))
    key = LeaseKey(lease[1], int(lease[2]))
    if world is None:
        return Mark(key, "", 0)
    generation = int(world[2])
    # A fork shows the variables of its spare, but for the generation, which it wrote.
    is_fork = generation > 0 and b"\0%s=" % SPARE.encode() in environ
    is_rank = is_fork or any(b"\0%s=" % name in environ for name in _RANKS)
    return Mark(key, world[1], generation, is_rank=is_rank)


def _value(environ: bytes, name: str) -> str:
    start = b"\0" + environ
    at = start.find(f"\0{name}=".encode())
    if at < 0:
        return ""
    begin = at + len(name) + 2
    end = start.find(b"\0", begin)
    value = start[begin : end if end >= 0 else len(start)]
    return value.decode("utf-8", "replace")


WorldKey = tuple[str, int]
"""A trainer and a generation."""


class NodeProcesses:
    """The processes of worlds on this node, for the agent to end.

    Attributes:
        processes: All marked ones, at the last look.
        swept: By trainer, up to which generation no process of this lease is left.
        stuck: Generations with processes that have been stopped for too long.
    """

    def __init__(
        self, me: LeaseKey, board: Board, environment: Environment, patience: Patience
    ) -> None:
        """Take this lease, the shared files, the environment, and times to go by."""
        self.processes: tuple[MarkedProcess, ...] = ()
        self.swept: dict[str, int] = {}
        self.stuck: frozenset[WorldKey] = frozenset()
        self._me = me
        self._board = board
        self._environment = environment
        self._sweeper = Sweeper(patience.sweep_grace_s)
        self._stopped = StoppedWatch(patience.stuck_s)
        self._has_seen_all = True

    @property
    def mine(self) -> tuple[MarkedProcess, ...]:
        """Processes of this lease, at the last look."""
        return tuple(p for p in self.processes if p.mark.lease == self._me)

    def scan(self, folders: Collection[TrainerFolder]) -> None:
        """Look at all processes.

        Those of the last look count as still there where not all were seen.

        Args:
            folders: The trainers that matter, as read before.
        """
        found: dict[tuple[int, int], MarkedProcess] = {}
        self._has_seen_all = True
        try:
            for process in self._environment.processes():
                found[process.pid, process.started] = process
        except OSError as error:
            self._has_seen_all = False
            self._environment.log(f"cannot look at all processes: {error}")
            found = {(p.pid, p.started): p for p in self.processes} | found
        self.processes = tuple(found.values())
        if self._has_seen_all:
            self.swept = {folder.name: self._swept(folder) for folder in folders}
        ours = [p for p in self.processes if self._is_ours(p)]
        live = [p for p in ours if p.mark.generation and not self._is_over(p)]
        now_s = self._environment.elapsed_s()
        stuck = self._stopped.stuck(tuple(live), now_s=now_s)
        self.stuck = frozenset(process.mark.world for process in stuck)

    def has_lost_ranks(self) -> bool:
        """Tell whether the ranks of a world went since the last look.

        It asks for the first rank of each world alone, as a world ends as a whole.
        """
        ranks = [process for process in self.mine if process.mark.is_rank]
        ranks.sort(key=lambda process: process.started, reverse=True)
        first = {process.mark.world: process for process in ranks}
        return not all(map(self._environment.is_there, first.values()))

    def sweep(self, also: Collection[WorldKey] = ()) -> None:
        """End the processes of generations that are over, and of those in *also*."""
        self._end(
            p
            for p in self.processes
            if self._is_ours(p) and (p.mark.world in also or self._is_over(p))
        )

    def kill(self, world: WorldKey) -> None:
        """Kill all processes of one generation, at once."""
        self._kill(lambda p: p.mark.world == world)

    def kill_ranks(self, world: WorldKey) -> None:
        """Kill the ranks of one generation, at once."""
        self._kill(lambda p: p.mark.world == world and p.mark.is_rank)

    def kill_all(self) -> None:
        """Kill all processes of this lease, at once."""
        self._kill(lambda _: True)

    def end_all(self) -> bool:
        """End all processes of this lease; return whether none is left."""
        self.scan(())
        ours = tuple(p for p in self.processes if self._is_ours(p))
        self._end(ours)
        return self._has_seen_all and not ours

    def _kill(self, is_meant: Callable[[MarkedProcess], bool]) -> None:
        self.scan(())
        found = (p for p in self.processes if self._is_ours(p) and is_meant(p))
        self._end(found, at_once=True)

    def _end(
        self,
        targets: Iterator[MarkedProcess] | tuple[MarkedProcess, ...],
        *,
        at_once: bool = False,
    ) -> None:
        now_s = self._environment.elapsed_s()
        due = self._sweeper.due(tuple(targets), now_s=now_s, at_once=at_once)
        for process, number in due:
            self._environment.send(process, number)

    def _is_ours(self, process: MarkedProcess) -> bool:
        """Tell whether it is this lease's to end.

        The head's node also has the clients of steps on the other nodes, which
        carry those nodes' marks.
        """
        mark = process.mark
        if mark.lease == self._me:
            return True
        try:
            if mark.generation not in self._board.generations(mark.trainer):
                return False
            assigned = self._board.assigned(mark.trainer, mark.generation)
        except (OSError, FreeTrainError):
            return False
        head = assigned.head
        return head is not None and head.key == self._me and mark.lease in assigned.keys

    def _is_over(self, process: MarkedProcess) -> bool:
        try:
            over = self._board.endings(process.mark.trainer)
        except (OSError, FreeTrainError):
            return False
        return process.mark.generation in over

    def _swept(self, folder: TrainerFolder) -> int:
        present = (
            p.mark.generation
            for p in self.mine
            if p.mark.trainer == folder.name and p.mark.generation  # a spare has none
        )
        live = min(folder.open, default=folder.newest)
        return min(live, *present, folder.newest) - 1


class Sweeper:
    """Ends processes: TERM when it first meets one, KILL when the grace is over."""

    def __init__(self, grace_s: float) -> None:
        """Take the time between the two signals."""
        self._grace_s = grace_s
        self._terminated_s: dict[tuple[int, int], float] = {}

    def due(
        self, targets: tuple[MarkedProcess, ...], *, now_s: float, at_once: bool = False
    ) -> tuple[tuple[MarkedProcess, signal.Signals], ...]:
        """Return the signals to send now.

        Args:
            targets: All that is to end and is still there.
            now_s: The time, on a clock that never goes back.
            at_once: Whether there is no time for TERM.
        """
        here = {(p.pid, p.started): p for p in targets}
        self._terminated_s = {k: s for k, s in self._terminated_s.items() if k in here}
        return tuple(
            (p, self._next(key, now_s, at_once=at_once or p.is_stopped))
            for key, p in here.items()
            if at_once or self._is_due(key, now_s)
        )

    def _is_due(self, key: tuple[int, int], now_s: float) -> bool:
        terminated_s = self._terminated_s.get(key)
        return terminated_s is None or now_s - terminated_s >= self._grace_s

    def _next(
        self, key: tuple[int, int], now_s: float, *, at_once: bool
    ) -> signal.Signals:
        has_had_term = key in self._terminated_s
        self._terminated_s.setdefault(key, now_s)
        return signal.SIGKILL if has_had_term or at_once else signal.SIGTERM


class StoppedWatch:
    """Finds processes that have been stopped for long."""

    def __init__(self, patience_s: float) -> None:
        """Take how long is long."""
        self._patience_s = patience_s
        self._since_s: dict[tuple[int, int, int], float] = {}

    def stuck(
        self, processes: tuple[MarkedProcess, ...], *, now_s: float
    ) -> tuple[MarkedProcess, ...]:
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
