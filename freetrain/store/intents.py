"""Intents to submit; committed before sbatch is called."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import Intent, IntentOutcome, LeaseState
from freetrain.store.rows import columns, put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

_COLUMNS = columns(Intent)


def put_intents(connection: sqlite3.Connection, intents: Iterable[Intent]) -> None:
    """Insert or change intents, inside the caller's transaction."""
    rows = [[getattr(intent, name) for name in _COLUMNS] for intent in intents]
    put(connection, "intents", _COLUMNS, key=("uuid",), rows=rows)


def intents(
    connection: sqlite3.Connection, *, ending_after_s: float
) -> tuple[Intent, ...]:
    """Return the intents that may still have jobs, the oldest first.

    Args:
        connection: The state.
        ending_after_s: Only those whose deadline is later, or of which a lease is
            still there: all others' jobs Slurm has removed. Unix time.

    Raises:
        StoreError: They could not be read.
    """
    where = (
        "WHERE deadline_s > ? "
        "OR uuid IN (SELECT uuid FROM leases WHERE leases.state != ?)"
    )
    values = (ending_after_s, LeaseState.GONE)
    rows = select(connection, "intents", _COLUMNS, where=where, values=values)
    read = (Intent(**dict(zip(_COLUMNS, row, strict=True))) for row in rows)
    return tuple(replace(one, outcome=IntentOutcome(one.outcome)) for one in read)
