"""Copies of the database: two, taken in turns, and put back where it is damaged.

A copy is made with SQLite's own backup, checked, and only then takes the place of an
older one. Where the database is damaged or gone, the newest good copy takes its place,
and the damaged one is kept beside it under a dated name. What happened since the copy
is found again by the files of trainers and by the names of leases.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from freetrain.elastic.files import sync_folder
from freetrain.text import utc

if TYPE_CHECKING:
    from pathlib import Path

COPY_EVERY_S = 600.0

_SIDE_FILES = ("-wal", "-shm", "-journal")
DAMAGED = ".damaged-"
"""Part of the names under which damaged databases are kept."""


def copies_of(database: Path) -> tuple[Path, Path]:
    """Return where the copies of *database* are, the newer first."""
    name = database.name
    return database.with_name(f"{name}.copy"), database.with_name(f"{name}.copy-before")


def is_gone(database: Path) -> bool:
    """Tell whether there is no file *database*: neither found by name nor listed.

    A file server may once not find what is there, and a copy put back for that would
    take the place of a good database.

    Raises:
        OSError: It cannot be looked for.
    """
    if database.exists():
        return False
    return all(path.name != database.name for path in database.parent.iterdir())


def head_problem(database: Path) -> str:
    """Return what is wrong with the file's head that SQLite itself does not mind.

    It only reads a database whose file format is newer than it knows, for writing. Not
    to be called while this process has the file open: closing it ends its locks.
    """
    try:
        with database.open("rb") as file:
            formats = file.read(_FORMATS.stop)[_FORMATS]
    except OSError:  # missing, or SQLite will say why
        return ""
    unknown = [number for number in formats if number not in {1, 2}]
    return f"it says to be of file format {unknown[0]}" if unknown else ""


_FORMATS = slice(18, 20)
"""Bytes with the format for writing and for reading (sqlite.org/fileformat.html)."""


def damage(connection: sqlite3.Connection) -> str:
    """Return what is wrong with the database; an empty text for nothing.

    Pages, records and the types of all values are looked at.
    """
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _OTHER_REASONS:
            raise
        return str(error)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of SQLite's message
        return str(error)
    return "" if found == ("ok",) else str(found[0] if found else "no answer")


_OTHER_REASONS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def is_copy_due(database: Path, *, now: Path) -> bool:
    """Tell whether the newest copy of *database* is old enough for another.

    Args:
        database: The database.
        now: A file written just now: clocks of two hosts are never compared.

    Raises:
        OSError: A file cannot be looked at.
    """
    newest, _ = copies_of(database)
    try:
        age_s = now.stat().st_mtime - newest.stat().st_mtime
    except FileNotFoundError:
        return True
    return not 0.0 <= age_s < COPY_EVERY_S


def keep_copy(connection: sqlite3.Connection, database: Path) -> None:
    """Copy the open *database*; the copy replaces the older one once it is whole.

    Raises:
        sqlite3.Error: It could not be read or written, or is damaged.
        OSError: Likewise.
    """
    newer, older = copies_of(database)
    fresh = database.with_name(f"{database.name}.copy-new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
            connection.backup(copy)
            # One file that can be moved, without a journal beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
            if problem := damage(copy):
                raise sqlite3.DatabaseError(f"the copy is damaged: {problem}")
        _sync(fresh)
        if newer.exists():
            newer.replace(older)
        fresh.replace(newer)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    sync_folder(database.parent)


def put_back(database: Path, *, why: str, now_s: float) -> str:
    """Put the newest good copy in the place of *database*, which is kept aside.

    Only the process that has the turn may do so.

    Args:
        database: The database, damaged or gone.
        why: What is wrong with it.
        now_s: Unix time.

    Returns:
        What was done, for people; empty where there is no good copy, and nothing was
        changed then.

    Raises:
        OSError: A file could not be moved or written.
    """
    good = next((copy for copy in copies_of(database) if _is_good(copy)), None)
    if good is None:
        return ""
    fresh = database.with_name(f"{database.name}.put-back")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_bytes(good.read_bytes())
    _sync(fresh)
    kept = _put_aside(database, now_s)
    fresh.replace(database)
    sync_folder(database.parent)
    where = f"; the damaged one is {kept.name}" if kept else ""
    return (
        f"restored {database.name} from the copy of {utc(good.stat().st_mtime)}, "
        f"as {why}{where}"
    )


def damaged_of(database: Path) -> tuple[Path, ...]:
    """Return the damaged databases that were kept aside, the oldest first.

    Raises:
        OSError: The folder cannot be listed.
    """
    prefix = database.name + DAMAGED
    found = (path for path in database.parent.iterdir() if path.name.startswith(prefix))
    return tuple(sorted(p for p in found if not p.name.endswith(_SIDE_FILES)))


def _is_good(copy: Path) -> bool:
    if not copy.is_file() or head_problem(copy):
        return False
    place = f"file:{quote(str(copy))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(place, uri=True)) as connection:
            if damage(connection):
                return False
            return bool(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return False


def _put_aside(database: Path, now_s: float) -> Path | None:
    """Move the database and its journals away; None where there is no database.

    The journals first: one left behind would be played back into the copy.
    """
    stamp = utc(now_s).replace(":", "")
    kept = database.with_name(f"{database.name}{DAMAGED}{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = database.with_name(f"{database.name}{DAMAGED}{stamp}-{number}")
    for side in _SIDE_FILES:
        with suppress(FileNotFoundError):
            database.with_name(database.name + side).replace(f"{kept}{side}")
    try:
        database.replace(kept)
    except FileNotFoundError:
        return None
    return kept


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
