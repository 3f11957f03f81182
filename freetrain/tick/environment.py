"""All through which a tick touches the world: clocks, Slurm, state, hooks, files.

``TickEnvironment`` holds the parts that tests replace; ``real_environment`` makes that
of this process. ``opened`` takes the turn, so that no two ticks overlap, and yields the
``TickContext`` that the steps of a tick share. No other module of the tick starts
processes.
"""

from __future__ import annotations

import os
import pwd
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.observation import PATIENCE_VARIABLE as PATIENCE
from freetrain.elastic.files import replaced
from freetrain.errors import BadConfigurationError, CannotWriteError, TryLaterError
from freetrain.state.database import (
    DATABASE,
    FIND_AGAIN,
    StoreError,
    keep_copy_if_due,
    migrate,
    open_store,
    prepare_directory,
    read_store,
    transaction,
    turn_in,
    writing,
)
from freetrain.state.files import (
    GO_ON,
    USER,
    StateDir,
    UnreadableFileError,
    generations,
    newest_assigned,
)
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    put_trainers,
    remove_trainer,
    trainers,
)
from freetrain.state.turn import is_alive, this_process
from freetrain.text import one_line
from slurm.backend import SNAPSHOT_REQUESTS, connect
from slurm.runner import SubprocessRunner, scrubbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import NoReturn

    from freetrain.config.site import Site
    from freetrain.state.files import AssignmentFile, TrainerDir
    from freetrain.state.turn import StateTurn, TickProcess
    from slurm.backend import SlurmBackend
    from slurm.errors import UnreadableOutputError


PYSLURM = "FREETRAIN_PYSLURM"
"""The variable that, set to ``off``, leaves an installed pyslurm alone."""

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
        now_s: Returns this host's Unix time. All but the ages of files goes by
            slurmctld's clock.
        clock: Returns seconds that only go up, from any start.
        process: Identifies this process among those that may tick.
        is_alive: Tells whether a process of this host lives.
        new_uuid: Returns a name that no other submission has.
        connect: Makes a back end that answers at most so many requests.
        uid: Our user number.
        user: Our user name; empty where there is none.
        path: The PATH with which leases find Slurm's programs.
        home: The user's home, for leases; may be empty.
        libraries: LD_LIBRARY_PATH, by which some Pythons find their own; may be empty.
        python: Absolute path of the Python that leases run.
        agent_patience: Time-outs of agents (``FREETRAIN_AGENT_PATIENCE``), empty for
            the usual ones.
        peak_rss_bytes: Returns the most memory that this process has held.
        call: Calls a hook; returns what went wrong, or an empty text.
        reached: Called with a name before and after each effect; tests kill there.
        sleep: Waits so many seconds.
        deadline: Surrounds a whole tick, and ends one that takes too long; called
            with the seconds that its solver may take.
    """

    now_s: Callable[[], float]
    clock: Callable[[], float]
    process: TickProcess
    is_alive: Callable[[int], bool]
    new_uuid: Callable[[], str]
    connect: Callable[[int], SlurmBackend]
    uid: int
    user: str
    path: str
    home: str
    python: str
    peak_rss_bytes: Callable[[], int]
    libraries: str = ""
    agent_patience: str = ""
    call: Callable[[HookCall], str] = _refuse_hook
    reached: Callable[[str], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    deadline: Callable[[float], AbstractContextManager[None]] = lambda _: nullcontext()

    @contextmanager
    def effect(self, name: str) -> Iterator[None]:
        """Surround an effect that others can see, so that tests can kill there."""
        self.reached(f"before {name}")
        yield
        self.reached(f"after {name}")


def real_environment(environ: Mapping[str, str]) -> TickEnvironment:
    """Return the environment of this process, with the Slurm that *environ* names."""
    return TickEnvironment(
        now_s=time.time,  # noqa: TID251 - this is the edge
        clock=time.monotonic,
        process=this_process(),
        is_alive=is_alive,
        new_uuid=lambda: str(uuid.uuid4()),
        connect=slurm_connector(environ),
        uid=os.getuid(),
        user=_user_name(),
        path=environ.get("PATH", os.defpath),
        home=environ.get("HOME", ""),
        libraries=environ.get("LD_LIBRARY_PATH", ""),
        python=sys.executable,
        agent_patience=environ.get(PATIENCE, ""),
        peak_rss_bytes=lambda: (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
        ),
        call=call_hook,
    )


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def slurm_connector(environ: Mapping[str, str]) -> Callable[[int], SlurmBackend]:
    """Return a function that connects to the Slurm that *environ* names."""

    def connected(most_requests: int) -> SlurmBackend:
        return connect(
            SubprocessRunner(scrubbed(environ)),
            max_requests=most_requests,
            allow_pyslurm=environ.get(PYSLURM) != "off",
        )

    return connected


# The context of one tick, and its locks.

MOST_ENDS_SET = 8
"""So many times at which leases are to end are set at once, the first ones, each by a
command for the leases that end then. The next look sets others, or gives up their
leases once a job could start on them."""

ROOM_REQUESTS = 7 + 2 * MOST_ENDS_SET
"""Commands by which room is made for others: waiting leases are looked up and
cancelled, a notice is sent, with an end; other ends are set, and once more where the
plan finds others; later it is asked which leases stayed, and those are cancelled. One
is to spare."""

_READING_REQUESTS = SNAPSHOT_REQUESTS + 10
"""The most Slurm commands of a tick that has nothing to do: the snapshot, two more as
jobs wait, the configuration, our jobs; where jobs are hidden, whether from us; where it
looks ahead, once an hour the topology; where there are limits, every ten minutes three
for these; and the comment for others."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TickContext:
    """The site, environment, state and Slurm that the steps of one tick share.

    Attributes:
        site: The site's settings.
        environment: Clocks, random names, hooks.
        folder: The state directory.
        state: The store; in a dry run a copy in memory.
        backend: Slurm.
        turn: None in a dry run, which writes nothing that lasts.
    """

    site: Site
    environment: TickEnvironment
    folder: StateDir
    state: sqlite3.Connection
    backend: SlurmBackend
    turn: StateTurn | None

    @property
    def is_dry(self) -> bool:
        """Whether no action may be carried out."""
        return self.turn is None

    def effect(self, name: str) -> AbstractContextManager[None]:
        """Surround an effect that others can see, so that tests can kill there."""
        return self.environment.effect(name)

    @contextmanager
    def writing(self, name: str) -> Iterator[sqlite3.Connection]:
        """Do everything inside in one transaction, if we still have the turn.

        Raises:
            StoreBusyError: Another tick took a later turn; stop at once.
            StoreError: It could not be written.
        """
        guarded = (
            transaction(self.state)
            if self.turn is None
            else writing(self.state, self.turn)
        )
        with self.effect(f"writing {name}"), guarded:
            yield self.state


def connected(site: Site, environment: TickEnvironment) -> SlurmBackend:
    """Return Slurm, for as many requests as one tick may make.

    Raises:
        SlurmError: Slurm does not say which release it is.
    """
    most = _READING_REQUESTS + ROOM_REQUESTS + site.caps.rpcs_per_tick
    return environment.connect(most)


@contextmanager
def opened(
    site: Site, environment: TickEnvironment, backend: SlurmBackend, *, dry_run: bool
) -> Iterator[TickContext]:
    """Take the turn, and open the state; a dry run opens a copy in memory.

    Raises:
        CannotWriteError: The state directory could not be read or written.
        StoreBusyError: Another tick is at work; nothing was done.
        StoreError: The state cannot be used.
    """
    folder = StateDir(site.state_directory)
    with _explaining_os_errors(folder.path):
        state_and_turn = (
            _copied(folder, environment.uid)
            if dry_run
            else _in_turn(folder, environment)
        )
        with state_and_turn as (state, turn):
            yield TickContext(
                site=site,
                environment=environment,
                folder=folder,
                state=state,
                backend=backend,
                turn=turn,
            )


@contextmanager
def _in_turn(
    folder: StateDir, environment: TickEnvironment
) -> Iterator[tuple[sqlite3.Connection, StateTurn]]:
    """Open the state while no other process ticks, on this host or another."""
    prepare_directory(folder.path, uid=environment.uid)
    with (
        turn_in(
            folder.path, environment.process, is_alive=environment.is_alive
        ) as turn,
        open_store(folder.path, uid=environment.uid, turn=turn) as state,
    ):
        yield state, turn
        with suppress(StoreError):  # the tick's work is done; the next tries again
            keep_copy_if_due(state, folder.path, turn)


@contextmanager
def _copied(folder: StateDir, uid: int) -> Iterator[tuple[sqlite3.Connection, None]]:
    """Open a copy of the state in memory; an empty one where there is no state."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        if (folder.path / DATABASE).exists():
            with read_store(folder.path, uid=uid) as state:
                state.backup(copy)
        migrate(copy)
        yield copy, None


@contextmanager
def _explaining_os_errors(place: Path) -> Iterator[None]:
    """Turn OSErrors about files of *place* into a CannotWriteError."""
    try:
        yield
    except OSError as error:
        named = error.filename or place
        raise CannotWriteError(
            f"{named}: {error.strerror or error}. The tick stopped there, and "
            f"training goes on; make room, or make the state directory writable. The "
            f"next tick goes on where this one stopped."
        ) from error


# What users asked for since the copy was made that took the place of the database, or
# before a database was begun anew: their trainers' files say it. Leases are found by
# their names (``broker.belief``).


def find_again(context: TickContext) -> str:
    """Take up the trainers that files know; return which, for people.

    Raises:
        StoreError: The state could not be written; the next tick tries again.
        OSError: The folder of trainers could not be read.
    """
    marker = context.folder.path / FIND_AGAIN
    if context.is_dry or not marker.exists():
        return ""
    with context.writing("trainers found again") as state:
        known = {row.name: row for row in trainers(state)}
        found = sorted(_found(context, known), key=lambda row: row.submitted_s)
        for row in found:
            if row.name in known and row.submitted_s != known[row.name].submitted_s:
                remove_trainer(state, row.name)  # it comes last, as it was submitted
        put_trainers(state, found)
    marker.unlink(missing_ok=True)
    if not found:
        return ""
    return f"found again by their files: {', '.join(row.name for row in found)}"


def _found(
    context: TickContext, known: Mapping[str, TrainerRow]
) -> Iterator[TrainerRow]:
    """Yield the rows of trainers whose files say more than the database."""
    try:
        names = sorted(entry.name for entry in context.folder.trainers.iterdir())
    except FileNotFoundError:
        return
    for name in names:
        folder = context.folder.trainer(name)
        # One trainer's files are no reason to give up the others.
        with suppress(OSError, UnreadableFileError, BadConfigurationError, ValueError):
            row, newest = known.get(name), newest_assigned(folder)
            text = folder.job.read_text(encoding="utf-8")
            if row is None or row.job != text:
                row = _row_of(folder, text)
                yield replace(row, state=_asked_for(row, newest) or row.state)
            elif (state := _asked_for(row, newest)) not in {None, row.state}:
                assert newest is not None and state is not None  # noqa: S101, PT018
                yield replace(row, state=state, changed_s=newest.created_s, message="")


def _row_of(folder: TrainerDir, text: str) -> TrainerRow:
    """Return the row of a trainer of which only its files are left.

    Raises:
        BadConfigurationError: Its job file cannot be read.
        OSError: Likewise.
    """
    # Imported here: most ticks find nothing again, and must stay cheap.
    from freetrain.config.document import BaseFolders  # noqa: PLC0415
    from freetrain.config.job import parse_job  # noqa: PLC0415
    from freetrain.launch.base import run_dir_of  # noqa: PLC0415

    name = folder.path.name
    job = parse_job(text.encode(), path=name, places=BaseFolders(Path("/")))
    if job.name != name:
        raise ValueError(f"{folder.job} is of {job.name}")
    submitted_s = folder.job.stat().st_mtime
    return TrainerRow(
        name=name,
        job=text,
        run_dir=str(run_dir_of(job, folder).path),
        state=TrainerState.WANTED,
        submitted_s=submitted_s,
        changed_s=submitted_s,
        reported_generation=max(generations(folder.assignments), default=0),
    )


def _asked_for(row: TrainerRow, newest: AssignmentFile | None) -> TrainerState | None:
    """Return the state that its user asked for since *row*, by the newest generation.

    Pausing, cancelling and resuming leave an empty generation of the user's, but for a
    trainer that never ran.
    """
    if newest is None or newest.members or newest.author != USER:
        return None
    if newest.created_s <= row.changed_s and row.state is not TrainerState.WANTED:
        return None
    if newest.reason == GO_ON:
        return TrainerState.WANTED
    for state in (TrainerState.PAUSED, TrainerState.CANCELLED):
        if newest.reason.startswith(str(state)):
            return state
    return None


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


def rotate_full(path: Path) -> None:
    """Rename the log at *path*, to which our output is appended, once it is full.

    Each tick opens it anew. A log that cannot be renamed is
    left as it is: no tick fails for it.
    """
    with suppress(OSError):
        if path.stat().st_size > MOST_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))


def write_whole(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Replace the file at *path* by *text*, so that no reader sees a part.

    Its *mode* is less what the umask takes away.

    Raises:
        OSError: It could not be written; the old one stays.
    """
    temporary = path.with_name(f".{path.name}.new")
    with replaced(path, temporary=temporary, mode=mode) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def may_exist(path: Path) -> bool:
    """Tell whether there is a file at *path*; True where that is unknown."""
    try:
        return path.exists()
    except OSError:
        return True


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


# The deadline of a tick: one that hangs must not keep the next ticks from their work.
# But for the room that is made for others, everything that a tick does is recorded
# before, so that it can be cut off anywhere.

TICK_LIMIT_S = 120.0
"""A tick lasts seconds; a hook may take a minute of it, and each of Slurm's commands up
to 30 s. Two of cron's ticks find it at work then, and the third goes on."""

CLEANING_UP_S = 45.0
"""For what a tick does after its deadline: two commands of Slurm show which leases
stayed, and cancel them. It may also hang where no signal is heard."""


class TickOverdueError(TryLaterError):
    """The tick hangs, or Slurm and the file system are slower than it can wait."""


@contextmanager
def deadline(
    more_s: float,
    *,
    limit_s: float = TICK_LIMIT_S,
    cleaning_up_s: float = CLEANING_UP_S,
) -> Iterator[None]:
    """End what is done inside after ``limit_s`` and *more_s*, both in seconds.

    An error is raised in the main thread, where this must be called. Where that hangs
    in a call that no signal interrupts, such as on a dead file server, the process ends
    after *cleaning_up_s* more with the same exit code.

    Raises:
        TickOverdueError: It took longer.
    """
    limit_s += more_s

    def raise_overdue(_: int, __: FrameType | None) -> NoReturn:
        raise TickOverdueError(
            f"the tick was not over after {limit_s:.0f} s, and was ended. What it did "
            f"not come to, the next tick does; if that hangs too, see whether Slurm "
            f"answers, and whether files of the state directory and of trainers can be "
            f"read."
        )

    end = threading.Timer(limit_s + cleaning_up_s, _end_process)
    end.daemon = True
    end.start()
    before = signal.signal(signal.SIGALRM, raise_overdue)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        end.cancel()


def _end_process() -> None:
    os.write(2, b"error: the tick hangs in a call; its process was ended.\n")
    os._exit(TryLaterError.exit_code)
