"""A launcher's process and the session that it leads on this node."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.launch.errors import CannotLaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.launch.plan import WorldPlan

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
