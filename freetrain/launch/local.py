"""A launcher's process and the session that it leads on this node."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING

from freetrain.elastic.joining import SPARE
from freetrain.launch.build import plan_world
from freetrain.launch.request import (
    LEASE_MARK,
    WORLD_MARK,
    CannotLaunchError,
    HeadNode,
    WorldPlan,
    WorldRequest,
    find_tool,
    free_port,
    launcher_environment,
)
from freetrain.state.files import lease_name, read_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from random import Random

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned, StateDir, TrainerDir


# ----------------------------------------------------------------------
# A launcher's process and the session that it leads on this node.

_PRIVATE = 0o700
_LOG_MODE = 0o600
_ROUNDS = 10


class Session:
    """A running launcher; a ``freetrain.launch.world.World``."""

    def __init__(
        self, process: subprocess.Popen[bytes], plan: WorldPlan, *, mark: str
    ) -> None:
        """Take over what was started.

        Args:
            process: The launcher, the leader of a session.
            plan: What it was started by.
            mark: The text in the environment of every process of its.
        """
        self._process = process
        self._plan = plan
        self._mark = mark.encode()
        self._signalled = False

    @property
    def pid(self) -> int:
        """The launcher's process number, which is the session's."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the launcher's exit status, None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Ask the program to commit and end: control file and signal.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        if self._plan.stop_signal is not None and not self._signalled:
            self._signalled = True
            self._signal(self._plan.stop_signal)
        if self._plan.stop_file is not None:
            folder = self._plan.stop_file.parent
            folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
            self._plan.stop_file.touch()

    def _signal(self, number: signal.Signals) -> None:
        if self._plan.has_group and self.poll() is None:
            os.killpg(self.pid, number)
        else:
            self._process.send_signal(number)

    def lingers(self) -> bool:
        """Tell whether a process of the session is left, but for the launcher."""
        return any(pid != self.pid and self._is_of_ours(pid) for pid in self._members())

    def kill(self) -> None:
        """Kill every process of the session, in whichever group, now."""
        for _ in range(_ROUNDS):
            found = [pid for pid in self._members() if self._is_of_ours(pid)]
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                return

    def _members(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _session_of(entry) == self.pid:
                yield int(entry.name)

    def _is_of_ours(self, pid: int) -> bool:
        # While the launcher is not reaped its number is nobody else's. Later it may
        # be; then only what carries our mark is ours.
        if self._process.returncode is None:
            return True
        with suppress(OSError):
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False


def start(plan: WorldPlan, *, mark: str) -> Session:
    """Write the files of *plan* and start it in a session of its own.

    Raises:
        CannotLaunchError: The launcher or its directory is not there, or may not be
            used.
        OSError: A file could not be written.
    """
    for file in plan.files:
        file.path.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        _write(file.path, file.content, mode=file.mode)
    plan.log.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = os.open(plan.log, flags, _LOG_MODE)
    try:
        return Session(_spawn(plan, log), plan, mark=mark)
    finally:
        os.close(log)


def _spawn(plan: WorldPlan, log: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 -- a list, never a shell
            plan.argv,
            cwd=plan.directory,
            env=dict(plan.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CannotLaunchError(
            f"{plan.argv[0]} cannot be started in {plan.directory}: {error}. Nothing "
            f"was started. Check [launch] and directory of the job file; compute "
            f"nodes must see both."
        ) from error


def _write(path: Path, content: str, *, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)


def _session_of(entry: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        # The name, in brackets, may hold anything; state, parent, group and session
        # come after it.
        after_name = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        return -1 if after_name[0] in {b"Z", b"X"} else int(after_name[3])
    return -1


# ----------------------------------------------------------------------
# How the process is started of which the next ranks of a node are forked.

# Of no generation itself; those of its ranks are written over it, and need the room.
_NO_GENERATION = "0000000000"


def plan_spare(request: WorldRequest, lease: LeaseKey, *, log: Path) -> WorldPlan:
    """Return how a spare is started: the program itself, which waits where it joins.

    Args:
        request: A world of the trainer.
        lease: That of the node.
        log: What it prints before it joins is appended to.
    """
    own = {
        LEASE_MARK: lease_name(lease),
        WORLD_MARK: f"{request.assigned.trainer}/{_NO_GENERATION}",
        SPARE: "1",
    }
    return WorldPlan(
        argv=request.job.command,
        environment=launcher_environment(request) | own,
        directory=request.job.directory,
        log=log,
        stop_signal=SIGTERM,
        has_group=True,
    )


# ----------------------------------------------------------------------
# Starts worlds from this node, for real; a ``freetrain.launch.world.Launcher``.

# How srun, which runs on the lease's own node, was reached from there: an address
# that every node of the cluster can use, whatever resolves names.
_ADDRESS = "SLURM_LAUNCH_NODE_IPADDR"


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts worlds whose head is this node.

    Attributes:
        state: The state directory.
        head: This node.
        rng: What ports are drawn with.
    """

    state: StateDir
    head: HeadNode
    rng: Random

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None = None,
        is_forked: bool = False,
    ) -> Session:
        """Start the world of *assigned*; returns as soon as its launcher runs.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            UnreadableFileError: The submitter's variables cannot be read.
            OSError: A file of it could not be written.
        """
        request = self._request(job, assigned)
        port = free_port(self.rng)
        request = replace(request, after=after, is_forked=is_forked, port=port)
        tool = find_tool(job, launcher_environment(request), head=self.head)
        mark = request.marks(request.members[0])[WORLD_MARK]
        return start(plan_world(request, tool), mark=f"{WORLD_MARK}={mark}")

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> Session:
        """Start a spare on this node, that of *lease*.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            UnreadableFileError: The submitter's variables cannot be read.
            OSError: A file of it could not be written.
        """
        plan = plan_spare(
            self._request(job, assigned), lease, log=self.state.lease(lease).spare_log
        )
        return start(plan, mark=f"{WORLD_MARK}={plan.environment[WORLD_MARK]}")

    def _request(self, job: TrainerJob, assigned: Assigned) -> WorldRequest:
        folder = self.state.trainer(assigned.trainer)
        return WorldRequest(
            job=job,
            assigned=assigned,
            folder=folder,
            environment=_submitters(folder, self.head.environment),
            head=self.head,
        )


def this_node(
    environment: Mapping[str, str], *, launch_agent: Path | None = None
) -> HeadNode:
    """Return what this node has, for an agent with the variables *environment*."""
    return HeadNode(
        environment=dict(environment),
        srun=shutil.which("srun", path=environment.get("PATH")) or "",
        python=sys.executable,
        address=environment.get(_ADDRESS) or socket.gethostname(),
        launch_agent=launch_agent,
    )


def _submitters(folder: TrainerDir, otherwise: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return read_environment(folder)
    except FileNotFoundError:
        return otherwise
