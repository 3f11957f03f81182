"""Opening the state: one call that checks, connects and migrates."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from freetrain.store.database import connect
from freetrain.store.directory import DATABASE, prepare_directory
from freetrain.store.migrations import migrate

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def open_store(
    path: Path, *, uid: int, wait_s: float = 5.0, allow_wal: bool = True
) -> Iterator[sqlite3.Connection]:
    """Open the state in directory *path*, made or brought up to date as needed.

    Args:
        path: The state directory.
        uid: Our own user number.
        wait_s: How long to wait for another process's transaction.
        allow_wal: Whether the directory is on a local file system.

    Raises:
        StoreError: One of its kinds; nothing was changed.
    """
    prepare_directory(path, uid=uid)
    connection = connect(path / DATABASE, wait_s=wait_s, allow_wal=allow_wal)
    try:
        migrate(connection)
        yield connection
    finally:
        connection.close()
