"""The lock that keeps two ticks on one host apart."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.store.directory import create_private
from freetrain.store.errors import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TAKEN = {errno.EWOULDBLOCK, errno.EACCES}


class Locking(StrEnum):
    """Whether the file system could lock."""

    LOCKED = "locked"
    UNSUPPORTED = "unsupported"


@contextmanager
def local_lock(path: Path) -> Iterator[Locking]:
    """Hold the lock file *path*; the kernel lets go of it when we die.

    Some network file systems refuse to lock; the turn in the database is what then
    keeps ticks apart, as it does between hosts.

    Yields:
        Whether there is a lock.

    Raises:
        StoreBusyError: Another process holds it.
        StoreUnwritableError: The file cannot be created.
    """
    create_private(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield _lock(descriptor, path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> Locking:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            raise StoreBusyError(
                f"another tick is at work (it holds {path}). Nothing was done; the "
                f"next tick will go on."
            ) from error
        return Locking.UNSUPPORTED
    return Locking.LOCKED
