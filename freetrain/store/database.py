"""The connection: a journal that works here, whole transactions, clear errors."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

from freetrain.store.directory import create_private
from freetrain.store.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreUnwritableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNWRITABLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class Journal(StrEnum):
    """How SQLite keeps transactions whole."""

    WAL = "wal"
    DELETE = "delete"


def connect(
    path: Path,
    *,
    wait_s: float = 5.0,
    allow_wal: bool = True,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
) -> sqlite3.Connection:
    """Open the database at *path*, created if missing, and prove it writable.

    Args:
        path: The file; its directory has been prepared.
        wait_s: How long to wait for another process's transaction.
        allow_wal: Whether the file system is local. On network ones WAL may seem
            to work and fail later, on another host.
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


def connect_reading(path: Path, *, wait_s: float = 5.0) -> sqlite3.Connection:
    """Open the database at *path*, which is there, for reading only.

    SQLite needs to write even to read, beside the database. Where the disk is full
    or read-only, nobody else writes either, and the database is read as it is: then
    people need most to see how things stand.

    Raises:
        StoreError: One of its kinds.
    """
    with translated(path):
        try:
            return _reading(path, "mode=ro", wait_s=wait_s)
        except sqlite3.OperationalError as error:
            if _kind(error) not in _UNWRITABLE:
                raise
            return _reading(path, "mode=ro&immutable=1", wait_s=wait_s)


def _reading(path: Path, how: str, *, wait_s: float) -> sqlite3.Connection:
    place = f"file:{quote(str(path))}?{how}"
    connection = sqlite3.connect(place, uri=True, timeout=wait_s, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, *, allow_wal: bool) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    if not (allow_wal and _works(connection, Journal.WAL)):
        connection.execute(f"PRAGMA journal_mode = {Journal.DELETE}")
        # A power cut must not take back what was submitted to Slurm since.
        connection.execute("PRAGMA synchronous = FULL")
        _probe(connection)
    else:
        connection.execute("PRAGMA synchronous = FULL")


def _works(connection: sqlite3.Connection, journal: Journal) -> bool:
    """Tell whether *journal* works here, by really writing with it.

    Other ways to fail (busy, full) do not speak against it and are raised.
    """
    try:
        row = connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()
        if row is None or str(row[0]).lower() != journal:
            return False
        _probe(connection)
    except sqlite3.OperationalError as error:
        # Where memory cannot be shared, the first write tells.
        if _kind(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}:
            return False
        if _kind(error) == sqlite3.SQLITE_PROTOCOL:
            return False
        raise
    return True


def _probe(connection: sqlite3.Connection) -> None:
    """Write something that is already so, in a transaction of its own."""
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


@contextmanager
def translated(path: Path | None = None) -> Iterator[None]:
    """Turn SQLite's errors into ours, by what to do next."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _translate(error, path) from error


def _kind(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; the extended ones add upper bits."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _translate(error: sqlite3.DatabaseError, path: Path | None) -> Exception:
    where = "the state" if path is None else f"the state {path}"
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
    if kind in _DAMAGED:
        return StoreDamagedError(
            f"{where} cannot be read: {error}. Nothing was changed; keep the file for "
            f"a bug report and move it away to begin anew."
        )
    return error
