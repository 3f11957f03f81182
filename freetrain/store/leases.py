"""Leases: what is believed of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freetrain.broker.lease import Lease, LeaseEnd, LeaseKey, LeaseState
from freetrain.store.rows import columns, put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

_FIELDS = columns(Lease, without=("key",))
_COLUMNS = ("uuid", "task", *_FIELDS)


def put_leases(connection: sqlite3.Connection, leases: Iterable[Lease]) -> None:
    """Insert or change leases of stored intents, inside the caller's transaction."""
    rows = [
        [lease.key.uuid, lease.key.task, *(getattr(lease, name) for name in _FIELDS)]
        for lease in leases
    ]
    put(connection, "leases", _COLUMNS, key=("uuid", "task"), rows=rows)


def leases(
    connection: sqlite3.Connection, *, ending_after_s: float
) -> tuple[Lease, ...]:
    """Return live leases, and gone ones that may turn out alive, the oldest first.

    Args:
        connection: The state.
        ending_after_s: Gone ones only if their deadline is later. Unix time.

    Raises:
        StoreError: They could not be read.
    """
    where = "WHERE state != ? OR deadline_s > ?"
    values = (LeaseState.GONE, ending_after_s)
    rows = select(connection, "leases", _COLUMNS, where=where, values=values)
    return tuple(_lease(dict(zip(_COLUMNS, row, strict=True))) for row in rows)


def _lease(row: dict[str, Any]) -> Lease:
    key = LeaseKey(row.pop("uuid"), row.pop("task"))
    state, ended = LeaseState(row.pop("state")), row.pop("ended")
    end = None if ended is None else LeaseEnd(ended)
    return Lease(key=key, state=state, ended=end, **row)
