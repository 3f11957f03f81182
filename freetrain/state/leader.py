"""Locks that let one tick work at a time, on one host and across login nodes.

``local_lock`` is the kernel's lock on a file: it is free again the moment a tick dies,
but some network file systems do not lock, and none is trusted to lock between hosts.
The leader lock is a row of the database with an expiry and a fencing counter: whoever
writes with ``writing`` proves, in the same transaction, that it still holds the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.state.database import StoreBusyError, create_private, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCK = "tick.lock"


# ----------------------------------------------------------------------
# The local lock

_TAKEN = {errno.EWOULDBLOCK, errno.EACCES}


class Locking(StrEnum):
    """Whether the file system could lock."""

    LOCKED = "locked"
    UNSUPPORTED = "unsupported"


@contextmanager
def local_lock(path: Path) -> Iterator[Locking]:
    """Hold the lock file *path*; the kernel releases it when we die.

    Yields:
        Whether there is a lock; where not, the leader lock keeps ticks apart.

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


# ----------------------------------------------------------------------
# The leader lock


@dataclass(frozen=True, slots=True)
class TickProcess:
    """A process that ticks: its host, its number there, and that host's boot."""

    host: str
    pid: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class LeaderLock:
    """The lock as one tick holds it.

    Attributes:
        holder: The tick's process.
        expires_s: Until when, Unix time.
        fence: Its number; later locks have higher ones.
    """

    holder: TickProcess
    expires_s: float
    fence: int


def take_leader_lock(
    connection: sqlite3.Connection,
    process: TickProcess,
    *,
    now_s: float,
    for_s: float,
    is_alive: Callable[[int], bool],
) -> LeaderLock:
    """Return the lock, now held by *process*, unless another tick holds it.

    Args:
        connection: The state.
        process: The tick that asks.
        now_s: Unix time.
        for_s: How long a tick may take at most, seconds.
        is_alive: Tells whether a process of this host lives.

    Raises:
        StoreBusyError: Another process holds it.
    """
    with transaction(connection):
        last = _read(connection)
        if last is not None and _is_held(last, process, now_s, is_alive):
            raise StoreBusyError(
                f"process {last.holder.pid} on {last.holder.host} is ticking. "
                f"Nothing was done; the next tick will go on, in "
                f"{last.expires_s - now_s:.0f} s at the latest."
            )
        lock = LeaderLock(process, now_s + for_s, 1 if last is None else last.fence + 1)
        connection.execute(
            "INSERT OR REPLACE INTO turn VALUES (1, ?, ?, ?, ?, ?)",
            (process.host, process.pid, process.boot_id, lock.expires_s, lock.fence),
        )
    return lock


@contextmanager
def writing(connection: sqlite3.Connection, lock: LeaderLock) -> Iterator[None]:
    """Make everything inside happen at once, if *lock* still is the newest.

    Raises:
        StoreBusyError: Another tick has taken over; stop at once.
        StoreError: It could not be written.
    """
    with transaction(connection):
        last = _read(connection)
        if last is None or last.fence != lock.fence:
            raise StoreBusyError(
                "another tick took over, because this one took too long. Nothing "
                "was written since; the other one goes on."
            )
        yield


def release_leader_lock(connection: sqlite3.Connection, lock: LeaderLock) -> None:
    """Let the next tick begin; the fence stays, so that it only ever grows.

    Raises:
        StoreBusyError: Another tick has taken over already.
    """
    with writing(connection, lock):
        connection.execute("UPDATE turn SET expires_s = 0")


def _read(connection: sqlite3.Connection) -> LeaderLock | None:
    row = connection.execute(
        "SELECT host, pid, boot_id, expires_s, fence FROM turn"
    ).fetchone()
    return None if row is None else LeaderLock(TickProcess(*row[:3]), row[3], row[4])


def _is_held(
    last: LeaderLock,
    process: TickProcess,
    now_s: float,
    is_alive: Callable[[int], bool],
) -> bool:
    """Tell whether *last* keeps *process* out: not expired, and its holder may live."""
    holder = last.holder
    if now_s >= last.expires_s:
        return False
    if holder.host != process.host:
        return True
    is_same_boot = holder.boot_id == process.boot_id
    return is_same_boot and holder.pid != process.pid and is_alive(holder.pid)
