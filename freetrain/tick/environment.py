"""All through which a tick touches the world: clocks, Slurm, files it writes, hooks.

``TickEnvironment`` holds the parts that tests replace; ``real_environment`` makes that
of this process. No other module of the tick starts processes.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.observation import PATIENCE_VARIABLE as PATIENCE
from freetrain.elastic.files import replaced
from freetrain.state.database import TickProcess
from freetrain.text import one_line
from slurm.backend import connect
from slurm.runner import SubprocessRunner, scrubbed, user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm.backend import SlurmBackend
    from slurm.errors import UnreadableOutputError

PYSLURM = "FREETRAIN_PYSLURM"
"""The variable that, set to ``off``, leaves an installed pyslurm alone."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``: getrusage(2) counts KiB, on macOS bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A user's program that is called once.

    Attributes:
        argv: The program and its arguments, started without a shell.
        folder: Its working directory.
        variables: All its environment variables.
        limit_s: It is killed after this time.
    """

    argv: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str]
    limit_s: float


def _refuse_hook(call: HookCall) -> str:
    return f"{call.argv[0]} was not called, as nothing may be started here"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TickEnvironment:
    """Where a tick takes its time, its random names and its Slurm from.

    Attributes:
        now_s: Returns this host's Unix time, by which turns expire. All else goes by
            slurmctld's clock.
        clock: Returns seconds that only go up, from any start.
        process: Identifies this process among those that may tick.
        is_alive: Tells whether a process of this host lives.
        new_uuid: Returns a name that no other submission has.
        connect: Makes a back end that answers at most so many requests.
        uid: Our user number.
        path: The PATH with which leases find Slurm's programs.
        home: The user's home, for leases; may be empty.
        python: Absolute path of the Python that leases run.
        agent_patience: Time-outs of agents (``FREETRAIN_AGENT_PATIENCE``), empty for
            the usual ones.
        peak_rss_bytes: Returns the most memory that this process has held.
        call: Calls a hook; returns what went wrong, or an empty text.
        reached: Called with a name before and after each effect; tests kill there.
    """

    now_s: Callable[[], float]
    clock: Callable[[], float]
    process: TickProcess
    is_alive: Callable[[int], bool]
    new_uuid: Callable[[], str]
    connect: Callable[[int], SlurmBackend]
    uid: int
    path: str
    home: str
    python: str
    peak_rss_bytes: Callable[[], int]
    agent_patience: str = ""
    call: Callable[[HookCall], str] = _refuse_hook
    reached: Callable[[str], None] = lambda _: None


def real_environment(environ: Mapping[str, str]) -> TickEnvironment:
    """Return the environment of this process, with the Slurm that *environ* names."""
    return TickEnvironment(
        now_s=time.time,  # noqa: TID251 - this is the edge
        clock=time.monotonic,
        process=TickProcess(os.uname().nodename, os.getpid(), _boot_id()),
        is_alive=_is_alive,
        new_uuid=lambda: str(uuid.uuid4()),
        connect=slurm_connector(environ),
        uid=os.getuid(),
        path=environ.get("PATH", os.defpath),
        home=environ.get("HOME", ""),
        python=sys.executable,
        agent_patience=environ.get(PATIENCE, ""),
        peak_rss_bytes=lambda: (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
        ),
        call=call_hook,
    )


def slurm_connector(environ: Mapping[str, str]) -> Callable[[int], SlurmBackend]:
    """Return a function that connects to the Slurm that *environ* names."""

    def connected(most_requests: int) -> SlurmBackend:
        return connect(
            SubprocessRunner(scrubbed(environ)),
            user=user_name(),
            max_requests=most_requests,
            allow_pyslurm=environ.get(PYSLURM) != "off",
        )

    return connected


def _is_alive(pid: int) -> bool:
    """Tell whether a process of this host lives; another user's process does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


# Hooks.

_MOST_CHARACTERS = 200


def call_hook(call: HookCall) -> str:
    """Run *call* to its end; return what went wrong, or an empty text.

    The hook runs in a session of its own, so that all that it started is killed with
    it. Its output is discarded: a tick prints one line.
    """
    try:
        hook = subprocess.Popen(  # noqa: S603 - what the user wrote, without a shell
            call.argv,
            cwd=call.folder,
            env=dict(call.variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        problem = f"the hook {call.argv[0]} could not be started: {error}"
        return problem[:_MOST_CHARACTERS]
    try:
        status = hook.wait(call.limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(hook.pid, signal.SIGKILL)
        hook.wait()
        return f"the hook took longer than {call.limit_s:g} s and was killed"
    return f"the hook ended with exit code {status}" if status else ""


# Files in which a tick reports. None of them grows without bound.

MOST_LOG_BYTES = 1 << 20
MOST_EVIDENCE = 10
MOST_EVIDENCE_BYTES = 1 << 20


class _Log(RotatingFileHandler):
    """A log that raises what goes wrong, such as a full disk, as files do."""

    def handleError(self, record: LogRecord) -> None:  # noqa: N802 - logging's name
        """Raise the error that is being handled."""
        del record
        raise  # noqa: PLE0704


def append_line(path: Path, line: str) -> None:
    """Append *line* to the log at *path*; a full log first becomes ``<name>.1``.

    Raises:
        OSError: It could not be written.
    """
    log = _Log(
        path,
        maxBytes=MOST_LOG_BYTES,
        backupCount=1,
        encoding="utf-8",
        errors="backslashreplace",
    )
    try:
        log.emit(makeLogRecord({"msg": one_line(line)}))
    finally:
        log.close()


def write_whole(path: Path, text: str) -> None:
    """Replace the file at *path* by *text*, so that no reader sees a part.

    Raises:
        OSError: It could not be written; the old one stays.
    """
    with replaced(path, temporary=path.with_name(f".{path.name}.new")) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def keep_evidence(folder: Path, error: UnreadableOutputError, *, now_s: float) -> Path:
    """Keep the answer of Slurm that could not be read; only the last few are kept.

    Raises:
        OSError: It could not be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    command = "".join(c if c.isalnum() else "-" for c in error.command)[:50]
    path = folder / f"{now_s:015.3f}-{command}.txt"
    line = error.line.encode("utf-8", "surrogateescape")[:MOST_EVIDENCE_BYTES]
    head = f"{error.command}, line {error.line_number}: {error.why}\n"
    path.write_bytes(head.encode("utf-8", "backslashreplace") + line)
    for old in sorted(folder.iterdir())[:-MOST_EVIDENCE]:
        old.unlink(missing_ok=True)
    return path
