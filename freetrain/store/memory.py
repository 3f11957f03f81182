"""What the priority told itself to remember until the next tick."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from freetrain.store.rows import put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping


def put_memory(
    connection: sqlite3.Connection, priority: str, memory: Mapping[str, object]
) -> None:
    """Keep *memory* instead of what was kept, inside the caller's transaction."""
    names = ("one", "priority", "memory")
    row = (1, priority, json.dumps(dict(memory), separators=(",", ":")))
    put(connection, "memory", names, key=("one",), rows=[row])


def memory_of(connection: sqlite3.Connection, priority: str) -> Mapping[str, Any]:
    """Return what *priority* is to be told; nothing where another one was at work.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(
        connection,
        "memory",
        ("memory",),
        where="WHERE priority = ?",
        values=(priority,),
    )
    kept: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
    return kept
