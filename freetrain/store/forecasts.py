"""What was learned of nodes, and what was expected of leases, from tick to tick."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from freetrain.forecast.departure import Departure
from freetrain.store.database import translated
from freetrain.store.rows import columns, put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What was expected of a lease's node when it was seen to run, and what came.

    Attributes:
        uuid: The lease's submission.
        task: Its task.
        node: Its node.
        at_s: When it was seen to run first, Unix time.
        horizon_s: How far ``leaves`` reaches, seconds.
        leaves: Probability that the node leaves within the horizon.
        even_s: It stays so long with a probability of a half or more.
        promised_s: When it was promised to somebody, Unix time; None for never.
        ended_s: When it was over, as far as looks tell, Unix time; None until then.
        came: How it ended; empty until then.
    """

    uuid: str
    task: int
    node: str
    at_s: float
    horizon_s: float
    leaves: float
    even_s: float
    promised_s: float | None = None
    ended_s: float | None = None
    came: str = ""


def forecast_state(connection: sqlite3.Connection) -> str | None:
    """Return what was kept last, as it was put; None for nothing.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(connection, "forecast", ("state",))
    return str(rows[0][0]) if rows else None


def node_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of nodes by number.

    Raises:
        StoreError: They could not be read.
    """
    return tuple(name for (name,) in select(connection, "forecast_nodes", ("name",)))


def departures(connection: sqlite3.Connection) -> tuple[Departure, ...]:
    """Return the departures that are kept, the oldest first.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "departures", ("gone", "idle"))
    return tuple(Departure(bytes(gone), bytes(idle)) for gone, idle in rows)


def put_forecast(connection: sqlite3.Connection, state: str) -> None:
    """Keep *state* instead of what was kept, inside the caller's transaction."""
    put(connection, "forecast", ("one", "state"), key=("one",), rows=[(1, state)])


def add_node_names(
    connection: sqlite3.Connection, names: Sequence[str], *, known: int
) -> None:
    """Add what comes after the first *known* of *names*, inside a transaction."""
    rows = list(enumerate(names))[known:]
    put(connection, "forecast_nodes", ("number", "name"), key=("number",), rows=rows)


def add_departures(
    connection: sqlite3.Connection, fresh: Iterable[Departure], *, keep: int
) -> None:
    """Add departures and drop all but the last *keep*, inside a transaction."""
    rows = [(one.left, one.idle) for one in fresh]
    if not rows:
        return
    add = "INSERT INTO departures (gone, idle) VALUES (?, ?)"
    connection.executemany(add, rows)
    drop = "DELETE FROM departures WHERE number <= (SELECT max(number) FROM departures)"
    connection.execute(f"{drop} - ?", (keep,))


def forget_forecasts(connection: sqlite3.Connection) -> None:
    """Drop all that was learned of nodes, inside the caller's transaction."""
    for table in ("forecast", "forecast_nodes", "departures"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - ours


_COLUMNS = columns(Foreseen)


def put_foreseen(connection: sqlite3.Connection, rows: Iterable[Foreseen]) -> None:
    """Insert or change what was expected of leases, inside a transaction."""
    values = [[getattr(row, field.name) for field in fields(row)] for row in rows]
    put(connection, "foreseen", _COLUMNS, key=("uuid", "task"), rows=values)


def foreseen_running(connection: sqlite3.Connection) -> tuple[Foreseen, ...]:
    """Return what was expected of leases that were not seen to be over.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(connection, "foreseen", _COLUMNS, where="WHERE ended_s IS NULL")
    return tuple(Foreseen(*row) for row in rows)


def foreseen_ended(
    connection: sqlite3.Connection, *, most: int
) -> tuple[Foreseen, ...]:
    """Return what was expected of the *most* leases that ended last, newest first.

    Raises:
        StoreError: It could not be read.
    """
    last = "SELECT rowid FROM foreseen WHERE ended_s IS NOT NULL"
    where = f"WHERE rowid IN ({last} ORDER BY ended_s DESC, rowid LIMIT ?)"
    rows = select(connection, "foreseen", _COLUMNS, where=where, values=(most,))
    found = [Foreseen(*row) for row in rows]
    return tuple(sorted(found, key=lambda one: -(one.ended_s or 0.0)))


def drop_foreseen(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget leases that were seen before *before_s*, inside a transaction."""
    with translated():
        connection.execute("DELETE FROM foreseen WHERE at_s < ?", (before_s,))
