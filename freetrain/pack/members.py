"""The members of a pack that run: started, counted, asked to stop, and ended."""

from __future__ import annotations

import signal
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from resource import RUSAGE_CHILDREN, getrusage
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.elastic.contract import Ending, read_outcome
from freetrain.elastic.files import RunDir
from freetrain.launch.base import (
    DEVICE_VARIABLES,
    LEASE_MARK,
    WORLD_MARK,
    contract_variables,
    is_passed_on,
    job_variables,
)
from freetrain.pack.processes import (
    MARK,
    is_there,
    members_of,
    signal_all,
    used_s,
)
from freetrain.pack.record import MemberEnd, member_folder
from freetrain.progress import Reader, read_tail
from freetrain.state.files import generation_name
from freetrain.text import one_line
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.elastic.contract import Outcome
    from freetrain.elastic.files import Clock
    from freetrain.pack.cpu_controllers import CpuController
    from freetrain.pack.processes import Packer

_MOST_VALUES = 20_000
"""Values of the metric that are kept between two sharings; the oldest go first."""

_LONGEST_REASON = 200
"""Characters that are kept of why a member failed."""

_TAIL_BYTES = 4_096

_OVER = {Ending.FINISHED: MemberEnd.FINISHED, Ending.DO_NOT_RESTART: MemberEnd.GAVE_UP}
"""Outcomes of elastic programs that count more than their exit status."""


@dataclass(slots=True)
class Member:
    """A member that runs.

    Attributes:
        job: Its job file.
        run: Its run directory.
        log: The file of what it prints.
        generation: The number of its fragment.
        process: Its first process.
        reader: Reads its progress.
        values: Time of reading and value of the metric, the newest last.
        pids: Its processes when they were listed last.
        used_s: CPU time so far.
        is_asked: Whether it was asked to stop.
    """

    job: TrainerJob
    run: RunDir
    log: Path
    generation: int
    process: subprocess.Popen[bytes]
    reader: Reader
    values: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=_MOST_VALUES)
    )
    pids: tuple[int, ...] = ()
    used_s: float = 0.0
    is_asked: bool = False

    @property
    def name(self) -> str:
        """The name of its trainer."""
        return self.job.name

    @property
    def is_elastic(self) -> bool:
        """Whether its program knows what a stop request and an outcome are."""
        return self.job.elastic

    @property
    def done(self) -> tuple[int, float]:
        """Steps and samples done, as far as it reported."""
        progress = self.reader.latest()
        if progress is None:
            return 0, 0.0
        return progress.step or 0, progress.samples or 0.0

    def read_progress(self, metric: str, *, sign: float, now_s: float) -> None:
        """Read the progress that it reported since the last call.

        Args:
            metric: Which of its metrics counts.
            sign: What its values are multiplied with.
            now_s: The time they get.
        """
        for record in self.reader.read():
            value = record.metrics.get(metric)
            if value is not None:
                self.values.append((now_s, sign * value))

    def forget(self, until_s: float) -> None:
        """Forget the values that were read until then."""
        while self.values and self.values[0][0] <= until_s:
            self.values.popleft()

    def note_processes(self, pids: Iterable[int]) -> None:
        """Take note of its processes, and of the time that they used."""
        self.pids = tuple({*pids, self.process.pid})
        self.used_s = max(self.used_s, used_s(self.pids))

    def ask_to_stop(self) -> None:
        """Ask it to stop."""
        self.is_asked = True
        if not self.is_elastic:
            number = signal.Signals[f"SIG{self.job.stop.signal}"]
            signal_all(self.pids or (self.process.pid,), number)
            return
        # It looks there every 0.1 s; and a program that is not ready for a signal
        # yet would die of one.
        with suppress(OSError):
            self.run.control.mkdir(parents=True, exist_ok=True)
            self.run.stop_request(self.generation).touch()

    @property
    def committed_step(self) -> int:
        """Steps that its newest checkpoint has; 0 where none is known."""
        with suppress(OSError):
            if self.is_elastic and (found := self.run.committed()):
                return found[-1].step
        return 0

    def why_failed(self) -> str:
        """Return why it ended: in the words of its outcome where it has any."""
        outcome = self._outcome()
        if outcome is not None and outcome.message:
            return one_line(outcome.message)[:_LONGEST_REASON]
        status, line = self.process.returncode, _last_line(self.log)
        if status is not None and status < 0:
            how = f"signal {-status}, {signal.strsignal(-status) or 'unknown'}"
            return f"{how}; {line}" if line else how
        return line or f"exit status {status}"

    def ended(self) -> MemberEnd | None:
        """Return how it ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        outcome = self._outcome()
        if outcome is not None and outcome.ending in _OVER:
            return _OVER[outcome.ending]
        if self.is_asked and (status == 0 or not self.is_elastic):
            return MemberEnd.STOPPED
        is_done = status == 0 and not self.is_elastic
        return MemberEnd.FINISHED if is_done else MemberEnd.FAILED

    def _outcome(self) -> Outcome | None:
        with suppress(OSError):
            if self.is_elastic:
                return read_outcome(self.run, self.generation)
        return None


def _last_line(log: Path) -> str:
    """Return the last line with something in it; empty where there is none."""
    text = read_tail(log, _TAIL_BYTES).decode("utf-8", "replace")
    lines = [line for line in map(one_line, text.splitlines()) if line]
    return lines[-1][:_LONGEST_REASON] if lines else ""


KILLED_WITHIN_S = 5.0
"""Time after which a process that was killed is left to the kernel."""

_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class PackNode:
    """The node that members run on, and what one launch of a pack has there.

    Attributes:
        run: The pack's run directory.
        generation: The pack's generation.
        packer: This process.
        controller: What sets CPU shares.
        cpus: CPUs of all members together.
        environment: This process' variables.
        clock: The clocks to go by.
    """

    run: RunDir
    generation: int
    packer: Packer
    controller: CpuController
    cpus: int
    environment: Mapping[str, str]
    clock: Clock


class Workers:
    """The members that run.

    Attributes:
        members: By name, in the order in which they came.
    """

    def __init__(self, node: PackNode) -> None:
        self.members: dict[str, Member] = {}
        self._node = node

    def start(self, job: TrainerJob, *, after: int = 0) -> int:
        """Start a member in a session of its own, printing into its log.

        Args:
            job: The trainer.
            after: The number of its last fragment, 0 for none.

        Returns:
            The number of the fragment that began.

        Raises:
            OSError: It cannot be started.
        """
        node, folder = self._node, member_folder(self._node.run, job.name)
        path, logs = job.checkpoint.path, job.logs or folder / "logs"
        own_run = path if job.elastic and path is not None else folder / "run"
        run = RunDir(own_run)
        # Above the pack's own, so that the logs of a program that knows nothing of
        # generations are told apart by them; and one that failed before it claimed
        # its number has an outcome there.
        generation = max(node.generation, run.newest_generation() + 1, after + 1)
        log = logs / f"{generation_name(generation)}.log"
        prefix = node.controller.admit(job.name)
        environment = _member_environment(job, run, generation, node)
        try:
            run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            reader = Reader(job, run.path, logs)
            while reader.is_behind:  # what earlier fragments reported
                reader.read()
            with log.open("ab") as output:
                process = subprocess.Popen(  # noqa: S603 -- the user's own command, no shell
                    (*prefix, *job.command),
                    cwd=job.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError:
            node.controller.release(job.name)
            raise
        self.members[job.name] = Member(job, run, log, generation, process, reader)
        node.controller.follow(job.name, (process.pid,))
        return generation

    def list_processes(self) -> None:
        """List the processes of all members, and the time that they used."""
        for name, pids in self._pids().items():
            self.members[name].note_processes(pids)
            self._node.controller.follow(name, self.members[name].pids)

    def ended(self) -> list[tuple[Member, MemberEnd]]:
        """Take out the members that have ended, with all that they left running."""
        ends = [(member, member.ended()) for member in self.members.values()]
        over = [(member, end) for member, end in ends if end is not None]
        if over:
            self._kill([member for member, _ in over])
        return over

    def ended_used_s(self) -> float:
        """Return the CPU time of all members that ended, and of their children."""
        used = getrusage(RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def ask_to_stop(self) -> None:
        """Ask all to stop, and give each as much of the CPUs for it."""
        self.list_processes()
        if self.members:
            share = 1 / len(self.members)
            self._node.controller.set_shares(dict.fromkeys(self.members, share))
        for member in self.members.values():
            member.ask_to_stop()

    def kill_late(self, asked_s: float) -> None:
        """Kill those whose time to stop, since *asked_s*, is over."""
        now_s = self._node.clock.elapsed_s()
        late = [
            member
            for member in self.members.values()
            if now_s - asked_s > member.job.stop.kill_after_s
        ]
        for member in late:
            signal_all((member.process.pid,), SIGKILL)

    def close(self) -> None:
        """Kill all that are left, and leave nothing behind."""
        self._kill(list(self.members.values()))
        self._node.controller.close()

    def _pids(self) -> dict[str, tuple[int, ...]]:
        marked = members_of(self._node.packer)
        return {
            name: (*marked.get(name, ()), *self._node.controller.pids(name))
            for name in self.members
        }

    def _kill(self, members: list[Member]) -> None:
        """Kill all processes of *members*: again, as some may just be starting more."""
        until_s = self._node.clock.elapsed_s() + KILLED_WITHIN_S
        names = [member.name for member in members]
        while True:
            pids = self._pids()
            left = {pid for name in names for pid in pids[name] if is_there(pid)}
            left |= {m.process.pid for m in members if m.process.poll() is None}
            if not left or self._node.clock.elapsed_s() > until_s:
                break
            signal_all(left, SIGKILL)
            self._node.clock.sleep(_AGAIN_S)
        for name in names:
            del self.members[name]
            self._node.controller.release(name)


# The marks by which the agent finds what its lease left behind, members included, and
# what the pack has from its own lease: the devices, and the way to Slurm.
_INHERITED = {LEASE_MARK, WORLD_MARK, *DEVICE_VARIABLES, *KEPT}


def _member_environment(
    job: TrainerJob, run: RunDir, generation: int, node: PackNode
) -> dict[str, str]:
    """Return all variables of a member: those of a trainer that is launched alone."""
    variables = {
        name: text
        for name, text in node.environment.items()
        if name in _INHERITED or is_passed_on(name)
    }
    contract = contract_variables(job, run, generation, processes=1)
    mark = {MARK: f"{node.packer.label}/{job.name}"}
    return variables | job_variables(job) | contract | mark
