"""The database of the state directory: opened safely, written whole by one tick.

``open_store`` checks that no other user can reach the directory, connects with a
journal that works on its file system, and brings the tables to the newest version;
``read_store`` only reads. ``transaction`` makes changes whole. ``STEPS`` defines the
tables; ``state.tables`` reads and writes their rows.

One tick works at a time: the one that has the turn (``state.turn``), a file that only
one process can create, on any host, whether or not the file system locks. Each
transaction by ``writing`` first proves that its tick still has it, by the folder and
by the number of the last turn that began, which the database holds.

A damaged or missing database is put back from its newest good copy (``state.copies``)
when it is opened to be written.

Errors tell the caller what to do next. Each is also the FreeTrainError that gives its
exit code.

StoreError
├── StoreBusyError      75  ask again: another tick or command is at work
├── StoreUnwritableError 73  make room, or make the place writable
├── StoreMissingError   66  there is no state yet
├── StoreUnsafeError    78  others can reach the place; choose another, or close it
└── StoreDamagedError   65  no copy of it is good: the file is kept
    └── StoreNewerError 65  a newer FreeTrain made it: use that
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from freetrain.elastic.files import Clock
from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    CannotWriteError,
    FreeTrainError,
    MissingInputError,
    TryLaterError,
)
from freetrain.state.copies import (
    DAMAGED,
    copies_of,
    damage,
    damaged_of,
    head_problem,
    is_copy_due,
    is_gone,
    keep_copy,
    put_back,
)
from freetrain.state.turn import (
    TURNS,
    StateTurn,
    TickProcess,
    is_alive,
    take_turn,
    this_process,
)
from freetrain.text import one_line, utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_CLOCK = Clock()

_WAIT_S = 5.0
"""How long to wait for another process's transaction, or turn."""

DATABASE = "state.sqlite"
LOG = "tick.log"
"""One line a tick, and one for each database that was put back."""

TRAINERS = "trainers"
"""The folder with one folder a trainer."""

FIND_AGAIN = "find-again"
"""There while the database may lack trainers that have files (``find_again`` of
``tick.environment``)."""


class StoreError(FreeTrainError):
    """The state could not be used; whatever was being changed is as before."""


class StoreBusyError(StoreError, TryLaterError):
    """Another process has the state, or has taken a later turn."""

    exit_code = TryLaterError.exit_code


class StoreMissingError(StoreError, MissingInputError):
    """There is no state to look at."""

    exit_code = MissingInputError.exit_code


class StoreUnwritableError(StoreError, CannotWriteError):
    """The disk is full, the place is read-only, or the device fails."""

    exit_code = CannotWriteError.exit_code


class StoreUnsafeError(StoreError, BadConfigurationError):
    """The place belongs to another user, or others can reach into it."""

    exit_code = BadConfigurationError.exit_code


class StoreDamagedError(StoreError, BadDataError):
    """The file is not a state that this version can read.

    Attributes:
        why: What is wrong with it.
    """

    exit_code = BadDataError.exit_code
    why = ""


class StoreNewerError(StoreDamagedError):
    """A newer FreeTrain made the state; it is as good as ever."""


# ----------------------------------------------------------------------
# Opening: the directory is checked, the database connected and migrated


@contextmanager
def open_store(
    path: Path,
    *,
    uid: int,
    allow_wal: bool | None = None,
    turn: StateTurn | None = None,
) -> Iterator[sqlite3.Connection]:
    """Open the state in directory *path*, made or brought up to date as needed.

    A damaged or missing database is put back from its newest good copy. Where locks do
    not reach other hosts, the turn is taken first, as a tick takes it.

    Args:
        path: The state directory.
        uid: Our own user number.
        allow_wal: Whether the directory is on a local file system; None to find
            out, and to assume a network one in doubt.
        turn: The turn, where this process has it.

    Raises:
        StoreError: One of its kinds; nothing was changed.
    """
    prepare_directory(path, uid=uid)
    mount = mount_of(path.resolve(), mounts=read_mounts())
    if allow_wal is None:
        allow_wal = is_local(mount)
    with ExitStack() as stack:
        if turn is None and keeps_locks_to_itself(mount):
            turn = stack.enter_context(turn_in(path, this_process(), wait_s=_WAIT_S))
        connection = _open_sound(path, turn, allow_wal=allow_wal)
        stack.callback(connection.close)
        if not version(connection) and (path / TRAINERS).exists():
            _mark_find_again(path)
        migrate(connection)
        if turn is not None:
            _begin_turn(connection, turn)
        opened = (path / DATABASE).stat().st_ino
        yield connection
        if _inode(path / DATABASE) != opened:
            raise StoreBusyError(
                f"the database in {path} was put back from a copy meanwhile. What was "
                f"to be changed is not in it; do it again."
            )


def _inode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_ino
    return 0


def _open_sound(
    path: Path, turn: StateTurn | None, *, allow_wal: bool
) -> sqlite3.Connection:
    """Connect to the database in *path*; where it is damaged, to its copy put back.

    Raises:
        StoreDamagedError: There is no good copy, or too many were put back.
        StoreError: It could not be done now.
    """
    try:
        return _connect_sound(path / DATABASE, allow_wal=allow_wal)
    except StoreDamagedError as error:
        if turn is None:
            # Another process may put it back while this one waits for its turn.
            with turn_in(path, this_process(), wait_s=_WAIT_S) as taken:
                return _open_sound(path, taken, allow_wal=allow_wal)
        _put_back(path, error, turn)
    return _connect_sound(path / DATABASE, allow_wal=allow_wal)


def _connect_sound(database: Path, *, allow_wal: bool) -> sqlite3.Connection:
    """Connect to *database*, made if there never was one.

    Raises:
        StoreDamagedError: It is damaged, or gone while it has copies.
        StoreError: It could not be opened now.
    """
    has_copy = any(copy.exists() for copy in copies_of(database))
    if has_copy and is_gone(database):
        raise damaged(f"the state {database}", "it is gone")
    if problem := head_problem(database):
        raise damaged(f"the state {database}", problem)
    connection = connect(database, allow_wal=allow_wal)
    try:
        check_sound(connection, database, may_be_new=not has_copy)
    except BaseException:
        connection.close()
        raise
    return connection


def check_sound(
    connection: sqlite3.Connection, database: Path, *, may_be_new: bool = True
) -> None:
    """Raise a StoreDamagedError where *database* is damaged."""
    with translated(database):
        problem = damage(connection)
        if not problem and not may_be_new and not version(connection):
            problem = "it has no tables"
        problem = problem or _version_problem(connection)
        if problem:
            raise damaged(f"the state {database}", one_line(problem)[:_LONGEST_PROBLEM])


_LONGEST_PROBLEM = 200

_MOST_DAMAGED = 5
"""With so many damaged databases kept aside, something damages them: no copy is put
back any more, so that the evidence and the copies stay."""


def _put_back(path: Path, error: StoreDamagedError, turn: StateTurn) -> None:
    """Put the database back from a copy, in this process's *turn*.

    Raises:
        StoreDamagedError: There is no good copy, or too many were put back already.
        StoreUnwritableError: It could not be done now.
    """
    database = path / DATABASE
    try:
        if len(damaged_of(database)) >= _MOST_DAMAGED:
            then = (
                f"No copy was put back, as {_MOST_DAMAGED} damaged ones are kept "
                f"already: something damages them. Training goes on. Look at the "
                f"disk, move {database.name}{DAMAGED}* away, and run `freetrain tick`."
            )
            raise damaged(f"the state {database}", error.why, then=then) from error
        done = put_back(database, why=error.why, now_s=turn.taken_s)
        if not done:
            raise error
        _mark_find_again(path)
        with (path / LOG).open("a", encoding="utf-8") as log:
            log.write(f"{utc(turn.taken_s)} {one_line(done)}\n")
    except OSError as failure:
        raise _unusable(path, failure) from failure


def _mark_find_again(path: Path) -> None:
    try:
        (path / FIND_AGAIN).touch(mode=0o600)
    except OSError as error:
        raise _unusable(path, error) from error


def keep_copy_if_due(
    connection: sqlite3.Connection, path: Path, turn: StateTurn
) -> None:
    """Copy the database of directory *path* where its newest copy is old.

    Raises:
        StoreError: It could not be copied; the older copies are as they were.
    """
    database = path / DATABASE
    with translated(database):
        try:
            if is_copy_due(database, now=turn.path):
                keep_copy(connection, database)
        except OSError as error:
            raise _unusable(path, error) from error


@contextmanager
def turn_in(
    path: Path,
    process: TickProcess,
    *,
    is_alive: Callable[[int], bool] = is_alive,
    wait_s: float = 0.0,
) -> Iterator[StateTurn]:
    """Hold the turn in the state directory *path*.

    Raises:
        StoreBusyError: Another process has it, for longer than *wait_s*.
        StoreUnwritableError: The directory cannot be written.
    """
    until_s = _CLOCK.elapsed_s() + wait_s
    while True:
        try:
            taken = take_turn(path, process, is_alive=is_alive)
        except OSError as error:
            raise _unusable(path, error) from error
        if isinstance(taken, StateTurn):
            break
        if _CLOCK.elapsed_s() >= until_s:
            by = f"process {taken.pid} on {taken.host}" if taken.host else "a process"
            raise StoreBusyError(
                f"another tick is at work, or was cut off: {by} has the turn (in "
                f"{path / TURNS}). Nothing was done; try again in a minute."
            )
        _CLOCK.sleep(_LOOK_AGAIN_S)
    try:
        yield taken
    finally:
        taken.release()


_LOOK_AGAIN_S = 0.1


def has_state(path: Path) -> bool:
    """Tell whether directory *path* has a state; doctor and cron make one without."""
    database = path / DATABASE
    return any(place.exists() for place in (database, *copies_of(database)))


def check_exists(path: Path) -> None:
    """Raise a StoreMissingError where directory *path* has no state."""
    if not has_state(path):
        raise StoreMissingError(
            f"there is no state in {path} yet, and so no trainer. Nothing was done. "
            f"Submit a trainer first, or name the configuration that you use with "
            f"--config."
        )


@contextmanager
def read_store(path: Path, *, uid: int) -> Iterator[sqlite3.Connection]:
    """Open the state in directory *path* for reading; nothing is made or changed.

    A state that an older FreeTrain made is copied into memory and brought up to date
    there, so that a command need not wait for the next tick after an upgrade.

    Args:
        path: The state directory.
        uid: Our own user number.

    Raises:
        StoreMissingError: There is no state.
        StoreError: It is unsafe, damaged, a newer one's, or cannot be read.
    """
    check_exists(path)
    check_directory(path, uid=uid)
    database = path / DATABASE
    if is_gone(database):
        raise damaged(f"the state {database}", "it is gone")
    with closing(connect_reading(database)) as connection:
        check_sound(connection, database)
        check_version(connection)
        if version(connection) == len(STEPS):
            yield connection
            return
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            with translated(database):
                connection.backup(copy)
            migrate(copy)
            yield copy


# ----------------------------------------------------------------------
# The directory: ours, and closed to all others


def prepare_directory(path: Path, *, uid: int) -> None:
    """Create the state directory *path*, or check that it is safe to use.

    Args:
        path: The directory.
        uid: Our own user number.

    Raises:
        StoreUnsafeError: It, or a file in it, belongs to another user, is open to
            others, or is a link.
        StoreUnwritableError: It cannot be created or read.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise StoreUnsafeError(
            f"{path} is not a directory. Nothing was changed; name another place "
            f"for the state."
        ) from error
    except OSError as error:
        raise _unusable(path, error) from error
    check_directory(path, uid=uid)


def check_directory(path: Path, *, uid: int) -> None:
    """Check that *path*, which is there, and all in it is safe to use.

    Raises:
        StoreError: As ``prepare_directory``.
    """
    try:
        _check_directory(path, uid)
        for entry in path.iterdir():
            _check_owner(entry, uid)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> StoreUnwritableError:
    return StoreUnwritableError(
        f"cannot use the state directory {path}: {error.strerror}. Nothing was "
        f"changed; make it readable and writable for you, or name another."
    )


def _check_directory(path: Path, uid: int) -> None:
    _check_owner(path, uid)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise StoreUnsafeError(
            f"others can reach into the state directory {path} (mode {mode:04o}). "
            f"Nothing was read or changed; run `chmod 700` on it."
        )


def _check_owner(path: Path, uid: int) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:  # SQLite removes its side files when it closes
        return
    if found.st_uid != uid or stat.S_ISLNK(found.st_mode):
        what = "is a link" if stat.S_ISLNK(found.st_mode) else "is another user's"
        raise StoreUnsafeError(
            f"{path} {what}. Nothing was read or changed; remove it, or name another "
            f"state directory."
        )


def create_private(path: Path) -> None:
    """Create *path* empty and closed to others, if it is not there.

    Raises:
        StoreUnwritableError: It cannot be created.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError as error:
        raise StoreUnwritableError(
            f"cannot write {path}: {error.strerror}. Nothing was changed; make room, "
            f"or make the state directory writable."
        ) from error


# ----------------------------------------------------------------------
# Whether the directory is on a file system of this machine alone

MOUNTS = Path("/proc/self/mountinfo")

_LOCAL = frozenset(
    {
        *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay"),
        *("ramfs", "reiserfs", "tmpfs", "xfs", "zfs"),
    }
)
"""Known to be local; all others might be shared, or lie about locks."""

_ESCAPE = re.compile(r"\\([0-7]{3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system.

    Attributes:
        kind: Such as ``nfs4``.
        options: Of the mount and of the file system, such as ``local_lock=none``.
    """

    kind: str
    options: frozenset[str]


def mount_of(folder: Path, *, mounts: str) -> Mount | None:
    """Return the file system that *folder* is on; None where it is unknown.

    Args:
        folder: An absolute path without links, which need not exist.
        mounts: The text of ``/proc/self/mountinfo``, or nothing.
    """
    found = dict(_mounted(mounts))  # of two mounts on one folder the later counts
    for place in (folder, *folder.parents):
        if str(place) in found:
            return found[str(place)]
    return None


def is_local(mount: Mount | None) -> bool:
    """Tell whether *mount* is certainly a local file system."""
    return mount is not None and mount.kind in _LOCAL


LOCAL_LOCKS = {
    "nolock": "locks are kept by each host for itself",
    "local_lock=all": "locks are kept by each host for itself",
    "local_lock=posix": "SQLite's locks are kept by each host for itself",
    "localflock": "locks are kept by each host for itself",
}
"""Mount options of NFS and Lustre under which locks do not reach other hosts."""


def keeps_locks_to_itself(mount: Mount | None) -> bool:
    """Tell whether locks on *mount* are known not to reach other hosts."""
    return mount is not None and bool(mount.options & LOCAL_LOCKS.keys())


def read_mounts(path: Path = MOUNTS) -> str:
    """Return the kernel's list of mounts; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _mounted(mounts: str) -> list[tuple[str, Mount]]:
    """Return mount points and file systems, as proc(5) describes the lines."""
    found = []
    for line in mounts.splitlines():
        before, mark, after = line.partition(" - ")
        words, system = before.split(" "), after.split(" ")
        if mark and len(words) > _POINT + 1:
            options = f"{words[_POINT + 1]},{system[-1]}".split(",")
            point = _ESCAPE.sub(_character, words[_POINT])
            found.append((point, Mount(system[0], frozenset(options))))
    return found


_POINT = 4
"""Place of the mount point in a line."""


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 8))


# ----------------------------------------------------------------------
# The connection: a journal that works here, whole transactions, clear errors

_BUSY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}
_UNWRITABLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""All other errors of ours are of a file that is not what it was."""


class JournalMode(StrEnum):
    """How SQLite keeps transactions whole."""

    WAL = "wal"
    DELETE = "delete"


def connect(
    path: Path,
    *,
    wait_s: float = _WAIT_S,
    allow_wal: bool = True,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
) -> sqlite3.Connection:
    """Open the database at *path*, created if missing, and prove it writable.

    Args:
        path: The file; its directory has been prepared.
        wait_s: How long to wait for another process's transaction.
        allow_wal: Whether the file system is local. On a network file system WAL
            may seem to work and fail later, on another host.
        factory: The connection's class, for tests that inject faults.

    Raises:
        StoreError: One of its kinds.
    """
    create_private(path)
    with translated(path):
        connection = sqlite3.connect(
            path, timeout=wait_s, isolation_level=None, factory=factory
        )
    try:
        with translated(path):
            _set_up(connection, allow_wal=allow_wal)
    except StoreError:
        connection.close()
        raise
    return connection


def connect_reading(path: Path) -> sqlite3.Connection:
    """Open the database at *path*, which is there, for reading only.

    Even for reading SQLite writes files beside the database. Where the disk is full
    or read-only, no other process writes either, and the database is read as it is:
    then people need most to see how things stand.

    Raises:
        StoreError: One of its kinds.
    """
    with translated(path):
        try:
            return _reading(path, "mode=ro")
        except sqlite3.OperationalError as error:
            if _kind(error) not in _UNWRITABLE:
                raise
            return _reading(path, "mode=ro&immutable=1")


def _reading(path: Path, how: str) -> sqlite3.Connection:
    place = f"file:{quote(str(path))}?{how}"
    connection = sqlite3.connect(place, uri=True, timeout=_WAIT_S, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, *, allow_wal: bool) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    if not (allow_wal and _works(connection, JournalMode.WAL)):
        connection.execute(f"PRAGMA journal_mode = {JournalMode.DELETE}")
        # A power cut must not take back what was submitted to Slurm since.
        connection.execute("PRAGMA synchronous = FULL")
        _probe(connection)
    else:
        connection.execute("PRAGMA synchronous = FULL")


def _works(connection: sqlite3.Connection, journal: JournalMode) -> bool:
    """Tell whether *journal* works here, by writing with it.

    Failures that have other reasons (busy, full) are raised.
    """
    try:
        row = connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()
        if row is None or str(row[0]).lower() != journal:
            return False
        _probe(connection)
    except sqlite3.OperationalError as error:
        # Where memory cannot be shared, the first write shows it.
        if _kind(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}:
            return False
        if _kind(error) == sqlite3.SQLITE_PROTOCOL:
            return False
        raise
    return True


def _probe(connection: sqlite3.Connection) -> None:
    """Write the version that is there already, in a transaction of its own."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute(f"PRAGMA user_version = {int(found)}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo the open transaction, if SQLite has not done so by itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make everything inside happen at once, or not at all.

    Raises:
        StoreError: It did not happen.
    """
    with translated():
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise


def _begin_turn(connection: sqlite3.Connection, turn: StateTurn) -> None:
    """Write down that *turn* is at work: earlier ones write nothing from now on.

    Raises:
        StoreBusyError: A later one is, whose file is there: no folder made anew.
    """
    with transaction(connection):
        number = _last_turn(connection)
        is_newest = number <= turn.number or not turn.is_followed_by(number)
        _check_turn(turn, is_newest=is_newest)
        connection.execute("INSERT OR REPLACE INTO turn VALUES (1, ?)", (turn.number,))


@contextmanager
def writing(connection: sqlite3.Connection, turn: StateTurn) -> Iterator[None]:
    """Make everything inside happen at once, if no later turn than *turn* began.

    A later one is seen in the folder of turns, or in the database: a file system may
    show a process that was frozen a folder as it was a minute ago, but no database.

    Raises:
        StoreBusyError: Another process took a later turn; stop at once.
        StoreError: It could not be written.
        OSError: The folder of turns cannot be listed.
    """
    with transaction(connection):
        _check_turn(turn, is_newest=_last_turn(connection) == turn.number)
        yield


def _last_turn(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT number FROM turn").fetchone() or (0,)
    return int(number)


def _check_turn(turn: StateTurn, *, is_newest: bool) -> None:
    if not (is_newest and turn.is_held()):
        raise StoreBusyError(
            "another tick took its turn, because this one seemed dead. Nothing was "
            "written since; the other one goes on."
        )


@contextmanager
def translated(path: Path | None = None) -> Iterator[None]:
    """Turn SQLite's errors into ours, by what to do next."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeDecodeError as error:  # the message itself quotes what is damaged
        raise damaged(_place(path), error) from error


def _place(path: Path | None) -> str:
    return "the state" if path is None else f"the state {path}"


def _kind(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; the extended ones add upper bits."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _translate(error: sqlite3.Error, path: Path | None) -> StoreError:
    where = _place(path)
    kind = _kind(error)
    if kind in _BUSY:
        return StoreBusyError(
            f"{where} is in use by another process ({error}). Nothing was changed; "
            f"try again."
        )
    if kind in _UNWRITABLE:
        return StoreUnwritableError(
            f"cannot write {where}: {error}. Nothing was changed, and training goes "
            f"on; make room or make the state directory writable."
        )
    return damaged(where, error)


_THEN = (
    "Nothing was changed, and training goes on. The next tick puts it back from its "
    "newest good copy; if it cannot, move the file away, keep it for a bug report, and "
    "run `freetrain tick`: trainers and leases are found again by their files and "
    "names."
)


def damaged(where: str, why: object, *, then: str = _THEN) -> StoreDamagedError:
    """Return the error that *where* is damaged, why, and what is done *then*."""
    error = StoreDamagedError(f"{where} cannot be read: {why}. {then}")
    error.why = str(why)
    return error


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Turn what goes wrong with values of *table* into a StoreDamagedError."""
    try:
        with translated():
            yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise damaged("the state", f"a row of {table}: {error!r:.200}") from error


# ----------------------------------------------------------------------
# The tables, version by version; each step in one transaction with its version

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE trainers (
            name TEXT PRIMARY KEY,
            job TEXT NOT NULL,
            run_dir TEXT NOT NULL,
            state TEXT NOT NULL,
            submitted_s REAL NOT NULL,
            changed_s REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE intents (
            uuid TEXT PRIMARY KEY,
            shape TEXT NOT NULL,
            limit_min INTEGER NOT NULL,
            deadline_s REAL NOT NULL,
            tasks INTEGER NOT NULL CHECK (tasks >= 1),
            created_s REAL NOT NULL,
            outcome TEXT NOT NULL,
            job_id INTEGER,
            missed INTEGER NOT NULL,
            detail TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE leases (
            uuid TEXT NOT NULL REFERENCES intents (uuid),
            task INTEGER NOT NULL,
            job_id INTEGER,
            display_id TEXT NOT NULL,
            shape TEXT NOT NULL,
            limit_min INTEGER NOT NULL,
            deadline_s REAL NOT NULL,
            state TEXT NOT NULL,
            node TEXT NOT NULL,
            start_s REAL,
            end_s REAL,
            ended TEXT,
            missed INTEGER NOT NULL,
            missed_s REAL,
            notice_s REAL,
            cancel_s REAL,
            PRIMARY KEY (uuid, task)
        ) STRICT""",
        """CREATE TABLE assignments (
            trainer TEXT NOT NULL,
            generation INTEGER NOT NULL CHECK (generation >= 1),
            leases TEXT NOT NULL,
            created_s REAL NOT NULL,
            PRIMARY KEY (trainer, generation)
        ) STRICT""",
        """CREATE TABLE turn (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            boot_id TEXT NOT NULL,
            expires_s REAL NOT NULL,
            fence INTEGER NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE plans (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            whole_s REAL,
            plans TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE events (
            number INTEGER PRIMARY KEY,
            at_s REAL NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            leases INTEGER NOT NULL,
            detail TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX events_by_subject ON events (subject, number)",
        "CREATE INDEX events_by_time ON events (at_s)",
    ),
    (
        # Files say which generations there are; a second opinion can only be wrong.
        "DROP TABLE assignments",
        "ALTER TABLE trainers ADD COLUMN message TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE trainers ADD COLUMN told_generation INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE beats (
            uuid TEXT NOT NULL,
            task INTEGER NOT NULL,
            beat INTEGER NOT NULL,
            since_s REAL NOT NULL,
            PRIMARY KEY (uuid, task)
        ) STRICT""",
        """CREATE TABLE counters (
            name TEXT PRIMARY KEY,
            value REAL NOT NULL
        ) STRICT""",
    ),
    (
        # Of the submission at submitted_s: a trainer's name may be used again.
        """CREATE TABLE pasts (
            trainer TEXT PRIMARY KEY,
            submitted_s REAL NOT NULL,
            bookmark TEXT NOT NULL,
            past TEXT NOT NULL,
            scaling TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE deliveries (
            trainer TEXT PRIMARY KEY,
            submitted_s REAL NOT NULL,
            stage TEXT NOT NULL,
            reached_s REAL NOT NULL,
            step INTEGER,
            value REAL NOT NULL,
            changed_s REAL NOT NULL,
            checkpoint TEXT NOT NULL,
            problem TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE memory (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            priority TEXT NOT NULL,
            memory TEXT NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE outlooks (
            trainer TEXT PRIMARY KEY,
            told TEXT NOT NULL,
            outlook TEXT NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE forecast (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            state TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE forecast_nodes (
            number INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE
        ) STRICT""",
        # A bit for each node by number; counts of all pairs would be 400 MB.
        """CREATE TABLE departures (
            number INTEGER PRIMARY KEY,
            gone BLOB NOT NULL,
            idle BLOB NOT NULL
        ) STRICT""",
        """CREATE TABLE foreseen (
            uuid TEXT NOT NULL,
            task INTEGER NOT NULL,
            node TEXT NOT NULL,
            at_s REAL NOT NULL,
            horizon_s REAL NOT NULL,
            leaves REAL NOT NULL,
            even_s REAL NOT NULL,
            promised_s REAL,
            ended_s REAL,
            came TEXT NOT NULL,
            PRIMARY KEY (uuid, task)
        ) STRICT""",
    ),
    (
        # Leases of other users that jobs wait for, and those users' brokers.
        """CREATE TABLE calls (
            job_id INTEGER PRIMARY KEY,
            called_s REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE owners (
            uid INTEGER PRIMARY KEY,
            sign_s REAL NOT NULL,
            gap_s REAL,
            deaf_s REAL
        ) STRICT""",
    ),
    (
        """CREATE TABLE limit_memory (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            held_s TEXT NOT NULL,
            most_leases INTEGER,
            learned_s REAL NOT NULL
        ) STRICT""",
    ),
    (
        # Jobs that Slurm should preempt leases for.
        """CREATE TABLE awaited_preemptions (
            job_id INTEGER PRIMARY KEY,
            since_s REAL NOT NULL,
            given_s REAL
        ) STRICT""",
    ),
    (
        # Limits of accounts, users and QOS, as Slurm's accounting showed them.
        """CREATE TABLE known_limits (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            read_s REAL NOT NULL,
            limits TEXT NOT NULL
        ) STRICT""",
    ),
    (
        # Users whose share is kept for a while though they have no leases.
        "ALTER TABLE owners ADD COLUMN want INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE owners ADD COLUMN kept_until_s REAL",
    ),
    (
        # The last turn that began (``state.turn``).
        "DROP TABLE turn",
        """CREATE TABLE turn (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            number INTEGER NOT NULL
        ) STRICT""",
    ),
)
"""Step i takes a state from version i to i + 1. Never change a step; add another.

Each changes a table or makes one, so that tables show of which version they are.
"""


def version(connection: sqlite3.Connection) -> int:
    """Return the version of the state, 0 for a new file."""
    with translated():
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _version_problem(connection: sqlite3.Connection) -> str:
    """Return why the version cannot be that of the tables; empty where it can.

    One damaged bit of it would make the state a newer FreeTrain's, which is never put
    back, or an older one's, whose next step cannot be done.
    """
    found = version(connection)
    tables = "" if found == len(STEPS) else _tables_of(connection)
    if found == len(STEPS) or not (found or tables):
        return ""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        for made, step in enumerate(STEPS, start=1):
            for statement in step:
                fresh.execute(statement)
            if made != found and _tables_of(fresh) == tables:
                return f"it says version {found}, and its tables are of version {made}"
    return f"it says version {found}" if found < 0 else ""


def _tables_of(connection: sqlite3.Connection) -> str:
    """Return all that defines the tables; empty without any."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name")
    return "".join(f"{name}: {sql}\n" for name, sql in rows)


def migrate(
    connection: sqlite3.Connection,
    *,
    steps: Sequence[Sequence[str]] = STEPS,
) -> None:
    """Bring the state to the newest version; another process may be doing the same.

    The version is SQLite's ``user_version``: it is part of the transaction.

    Raises:
        StoreDamagedError: A newer version made it.
        StoreError: A step could not be done; the state is as the step before left it.
    """
    while (found := version(connection)) < len(steps):
        with transaction(connection):
            if version(connection) != found:
                continue
            for statement in steps[found]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {found + 1}")
    check_version(connection, known=len(steps))


def check_version(connection: sqlite3.Connection, *, known: int = len(STEPS)) -> None:
    """Raise a StoreDamagedError for a state that a newer FreeTrain made."""
    found = version(connection)
    if found > known:
        raise StoreNewerError(
            f"the state is of version {found}, and this FreeTrain knows only "
            f"{known}. Nothing was changed; use the newer FreeTrain."
        )
