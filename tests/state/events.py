"""What the store keeps of what happened; caps count it, no command shows it."""

import sqlite3
from dataclasses import fields

from freetrain.state.tables import Event, EventKind

_COLUMNS = ", ".join(field.name for field in fields(Event))


def events_of(connection: sqlite3.Connection, subject: str) -> tuple[Event, ...]:
    """Return what happened to *subject*, the oldest first."""
    asked = f"SELECT {_COLUMNS} FROM events WHERE subject = ? ORDER BY number"  # noqa: S608
    rows = connection.execute(asked, (subject,))
    return tuple(Event(at, EventKind(kind), *rest) for at, kind, *rest in rows)
