"""The files in which ticks tell what they did; none of them grows without bound."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.elastic.files import replaced
from freetrain.errors import CannotWriteError
from freetrain.state.database import transaction, writing
from freetrain.text import one_line

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from freetrain.config.site import Site
    from freetrain.state.database import Ticker, Turn
    from freetrain.state.files import StateDir
    from slurm.backend import SlurmBackend
    from slurm.errors import UnreadableOutputError


# ----------------------------------------------------------------------
# The files in which ticks tell what they did; none of them grows without bound.

MOST_LOG_BYTES = 1 << 20
MOST_EVIDENCE = 10
MOST_EVIDENCE_BYTES = 1 << 20


def append_line(path: Path, line: str) -> None:
    """Append *line* to the log at *path*; a full one is put aside first.

    Raises:
        OSError: It could not be written.
    """
    if path.exists() and path.stat().st_size >= MOST_LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{one_line(line)}\n")


def write_whole(path: Path, text: str) -> None:
    """Replace the file at *path* by *text*, so that no reader sees a part.

    Raises:
        OSError: It could not be written; the old one stays.
    """
    with replaced(path, temporary=path.with_name(f".{path.name}.new")) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def keep_evidence(folder: Path, error: UnreadableOutputError, *, now_s: float) -> Path:
    """Keep what Slurm answered and we could not read; only the last few of them.

    Raises:
        OSError: It could not be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    command = "".join(c if c.isalnum() else "-" for c in error.command)[:50]
    path = folder / f"{now_s:015.3f}-{command}.txt"
    told = error.line.encode("utf-8", "surrogateescape")[:MOST_EVIDENCE_BYTES]
    head = f"{error.command}, line {error.line_number}: {error.why}\n"
    path.write_bytes(head.encode("utf-8", "backslashreplace") + told)
    for old in sorted(folder.iterdir())[:-MOST_EVIDENCE]:
        old.unlink(missing_ok=True)
    return path


@contextmanager
def clearly(place: Path) -> Iterator[None]:
    """Turn the system's errors about files of *place* into ours.

    Raises:
        CannotWriteError: Something there could not be read or written.
    """
    try:
        yield
    except OSError as error:
        named = error.filename or place
        raise CannotWriteError(
            f"{named}: {error.strerror or error}. The tick stopped there, and "
            f"training goes on; make room, or make the state directory writable. The "
            f"next tick goes on where this one stopped."
        ) from error


# ----------------------------------------------------------------------
# Calling a user's program, once, and never for longer than its limit.

_MOST_SAID = 200


def call_hook(call: HookCall) -> str:
    """Run *call* to its end; return what went wrong, empty for nothing.

    It is a session of its own, so that all that it started is killed with it. What
    it prints goes nowhere: ticks print one line.
    """
    try:
        hook = subprocess.Popen(  # noqa: S603 - what the user wrote, without a shell
            call.argv,
            cwd=call.folder,
            env=dict(call.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"the hook {call.argv[0]} could not be started: {error}"[:_MOST_SAID]
    try:
        status = hook.wait(call.limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(hook.pid, signal.SIGKILL)
        hook.wait()
        return f"the hook took longer than {call.limit_s:g} s and was killed"
    return f"the hook ended with exit code {status}" if status else ""


# ----------------------------------------------------------------------
# All that a tick takes from outside, as one object.


def nothing_happens(point: str) -> None:
    """Do nothing: what ``Outside.reached`` is where nobody tests."""
    del point


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A program to be called once.

    Attributes:
        argv: It and its arguments; no shell sees them.
        folder: Where it starts.
        environment: Its variables, all of them.
        limit_s: After so long it is killed.
    """

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    limit_s: float


def cannot_call(call: HookCall) -> str:
    """Refuse: what ``Outside.call`` is where nothing may be started."""
    return f"{call.argv[0]} was not called, as nothing may be started here"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outside:
    """What a tick takes its time, its numbers and its Slurm from.

    Attributes:
        now_s: Unix time of this host: what turns last by. All else goes by
            slurmctld's clock.
        clock: Seconds from any moment on; only differences mean something.
        ticker: Who ticks.
        is_alive: Tells whether a process of this host lives.
        new_uuid: Makes up a name that no other submission has.
        connect: Makes a back end that answers at most so many requests.
        uid: Our user number.
        path: The PATH with which Slurm's programs are found, for leases.
        home: The user's home, for leases; empty for none.
        python: Absolute path of the Python that leases run.
        agent_patience: How patient agents are (``agent.patience``), empty for usual.
        peak_rss_bytes: The most memory that this process has held.
        call: Calls a hook; returns what went wrong, empty for nothing.
        reached: Called with a name before and after each effect; tests kill there.
    """

    now_s: Callable[[], float]
    clock: Callable[[], float]
    ticker: Ticker
    is_alive: Callable[[int], bool]
    new_uuid: Callable[[], str]
    connect: Callable[[int], SlurmBackend]
    uid: int
    path: str
    home: str
    python: str
    peak_rss_bytes: Callable[[], int]
    agent_patience: str = ""
    call: Callable[[HookCall], str] = cannot_call
    reached: Callable[[str], None] = nothing_happens


# ----------------------------------------------------------------------
# One tick's state, its Slurm, and the only way to write what it learns.


@contextmanager
def effect(outside: Outside, what: str) -> Iterator[None]:
    """Surround something that the world can see, so that tests can stop there."""
    outside.reached(f"before {what}")
    yield
    outside.reached(f"after {what}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Run:
    """What the steps of one tick share.

    Attributes:
        site: The site's settings.
        outside: Clocks and numbers.
        folder: The state directory.
        state: The store; in a dry run a copy in memory.
        backend: Slurm.
        turn: Our turn; None in a dry run, which writes nothing that lasts.
    """

    site: Site
    outside: Outside
    folder: StateDir
    state: sqlite3.Connection
    backend: SlurmBackend
    turn: Turn | None

    @property
    def is_dry(self) -> bool:
        """Whether nothing may be carried out."""
        return self.turn is None

    def effect(self, what: str) -> AbstractContextManager[None]:
        """Surround something that the world can see, so that tests can stop there."""
        return effect(self.outside, what)

    @contextmanager
    def writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """Make everything inside happen at once, if it still is our turn.

        Raises:
            StoreBusyError: Somebody has taken over; stop at once.
            StoreError: It could not be written.
        """
        kept = (
            transaction(self.state)
            if self.turn is None
            else writing(self.state, self.turn)
        )
        with self.effect(f"writing {what}"), kept:
            yield self.state
