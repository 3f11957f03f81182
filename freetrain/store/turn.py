"""Whose turn it is to tick: one row, which keeps login nodes apart.

A turn ends by itself, so a dead host blocks nobody for long. Each has a higher
number than all before (a fence): whoever lost a turn while asleep is stopped at the
next write, which carries the number.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.store.database import transaction
from freetrain.store.errors import StoreBusyError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Ticker:
    """A process that ticks.

    Attributes:
        host: Name of its host.
        pid: Its process number.
        boot_id: Which boot of the host it lives in.
    """

    host: str
    pid: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn.

    Attributes:
        ticker: Whose it is.
        expires_s: Until when, Unix time.
        fence: Its number; later turns have higher ones.
    """

    ticker: Ticker
    expires_s: float
    fence: int


def take_turn(
    connection: sqlite3.Connection,
    ticker: Ticker,
    *,
    now_s: float,
    for_s: float,
    is_alive: Callable[[int], bool],
) -> Turn:
    """Return a new turn for *ticker*, if nobody else's lasts.

    Args:
        connection: The state.
        ticker: Who asks.
        now_s: Unix time.
        for_s: How long a tick may take at most, seconds.
        is_alive: Tells whether a process of this host lives.

    Raises:
        StoreBusyError: It is somebody else's turn.
    """
    with transaction(connection):
        last = _read(connection)
        if last is not None and _lasts(last, ticker, now_s, is_alive):
            raise StoreBusyError(
                f"process {last.ticker.pid} on {last.ticker.host} is ticking. "
                f"Nothing was done; the next tick will go on, in "
                f"{last.expires_s - now_s:.0f} s at the latest."
            )
        turn = Turn(ticker, now_s + for_s, 1 if last is None else last.fence + 1)
        connection.execute(
            "INSERT OR REPLACE INTO turn VALUES (1, ?, ?, ?, ?, ?)",
            (ticker.host, ticker.pid, ticker.boot_id, turn.expires_s, turn.fence),
        )
    return turn


@contextmanager
def writing(connection: sqlite3.Connection, turn: Turn) -> Iterator[None]:
    """Make everything inside happen at once, if it still is our turn.

    Raises:
        StoreBusyError: Somebody has taken over; stop at once.
        StoreError: It could not be written.
    """
    with transaction(connection):
        last = _read(connection)
        if last is None or last.fence != turn.fence:
            raise StoreBusyError(
                "another tick took over, because this one took too long. Nothing "
                "was written since; the other one goes on."
            )
        yield


def end_turn(connection: sqlite3.Connection, turn: Turn) -> None:
    """Let the next tick begin; the number stays, so that it only ever grows.

    Raises:
        StoreBusyError: Somebody has taken over already.
    """
    with writing(connection, turn):
        connection.execute("UPDATE turn SET expires_s = 0")


def _read(connection: sqlite3.Connection) -> Turn | None:
    row = connection.execute(
        "SELECT host, pid, boot_id, expires_s, fence FROM turn"
    ).fetchone()
    return None if row is None else Turn(Ticker(*row[:3]), row[3], row[4])


def _lasts(
    last: Turn, ticker: Ticker, now_s: float, is_alive: Callable[[int], bool]
) -> bool:
    if now_s >= last.expires_s:
        return False
    if last.ticker.host != ticker.host:
        return True
    is_same_boot = last.ticker.boot_id == ticker.boot_id
    return is_same_boot and last.ticker.pid != ticker.pid and is_alive(last.ticker.pid)
