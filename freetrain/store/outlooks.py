"""What was fitted to trainers' losses, until they tell something new."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from freetrain.store.rows import put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class OutlookRow:
    """What is kept of a trainer's outlook.

    Attributes:
        trainer: Its name.
        told: What says which points it was fitted to (``quality.kept``).
        outlook: The outlook, as JSON has it.
    """

    trainer: str
    told: str
    outlook: Mapping[str, Any]


def put_outlooks(connection: sqlite3.Connection, rows: Iterable[OutlookRow]) -> None:
    """Keep outlooks instead of earlier ones, inside the caller's transaction."""
    names = ("trainer", "told", "outlook")
    values = [
        (row.trainer, row.told, json.dumps(dict(row.outlook), separators=(",", ":")))
        for row in rows
    ]
    put(connection, "outlooks", names, key=("trainer",), rows=values)


def outlook_kept(
    connection: sqlite3.Connection, trainer: str, *, told: str
) -> Mapping[str, Any] | None:
    """Return the outlook of *trainer* where it was fitted to what is *told* now.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(
        connection,
        "outlooks",
        ("outlook",),
        where="WHERE trainer = ? AND told = ?",
        values=(trainer, told),
    )
    kept: dict[str, Any] | None = json.loads(rows[0][0]) if rows else None
    return kept
