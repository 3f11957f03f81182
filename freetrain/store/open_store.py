"""Opening the state: one call that checks, connects and migrates."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from freetrain.store.database import connect, connect_reading
from freetrain.store.directory import DATABASE, check_directory, prepare_directory
from freetrain.store.errors import StoreMissingError
from freetrain.store.file_system import is_local, read_mounts
from freetrain.store.migrations import STEPS, check_version, migrate, version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def open_store(
    path: Path, *, uid: int, wait_s: float = 5.0, allow_wal: bool | None = None
) -> Iterator[sqlite3.Connection]:
    """Open the state in directory *path*, made or brought up to date as needed.

    Args:
        path: The state directory.
        uid: Our own user number.
        wait_s: How long to wait for another process's transaction.
        allow_wal: Whether the directory is on a local file system; None to find
            out, and to take it for a network one in doubt.

    Raises:
        StoreError: One of its kinds; nothing was changed.
    """
    prepare_directory(path, uid=uid)
    if allow_wal is None:
        allow_wal = is_local(path.resolve(), mounts=read_mounts())
    connection = connect(path / DATABASE, wait_s=wait_s, allow_wal=allow_wal)
    try:
        migrate(connection)
        yield connection
    finally:
        connection.close()


def has_state(path: Path) -> bool:
    """Tell whether directory *path* has a state; doctor and cron make it without."""
    return (path / DATABASE).exists()


def check_exists(path: Path) -> None:
    """Refuse a directory *path* without a state, in which there is no trainer.

    Raises:
        StoreMissingError: There is none.
    """
    if not has_state(path):
        raise StoreMissingError(
            f"there is no state in {path} yet, and so no trainer. Nothing was done. "
            f"Submit a trainer first, or name the configuration that you use with "
            f"--config."
        )


@contextmanager
def read_store(
    path: Path, *, uid: int, wait_s: float = 5.0
) -> Iterator[sqlite3.Connection]:
    """Open the state in directory *path* to look at it; nothing is made or changed.

    One that an older FreeTrain made is copied into memory and brought up to date
    there: who only looks need not wait for the next tick after an upgrade.

    Args:
        path: The state directory.
        uid: Our own user number.
        wait_s: How long to wait for another process's transaction.

    Raises:
        StoreMissingError: There is no state.
        StoreError: It is unsafe, damaged, a newer one's, or cannot be read.
    """
    check_exists(path)
    check_directory(path, uid=uid)
    with closing(connect_reading(path / DATABASE, wait_s=wait_s)) as connection:
        check_version(connection)
        if version(connection) == len(STEPS):
            yield connection
            return
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            connection.backup(copy)
            migrate(copy)
            yield copy
