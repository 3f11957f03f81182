"""What happened, for the caps over time and for whoever opens the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.broker.pace import Pace
from freetrain.store.database import translated
from freetrain.store.rows import columns

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


class EventKind(StrEnum):
    """What happened; those of churn and of starts are counted by the caps."""

    ASKED = "asked for leases"
    GAVE_UP = "gave up leases by choice"
    YIELDED = "gave up leases to others"
    STARTED = "a lease started"
    FAILED_START = "a lease failed to start"
    ENDED = "a lease ended"
    ASSIGNED = "a trainer got a new generation"
    TRAINER_ENDED = "a trainer ended"
    DELIVERED = "a trainer's model was handed over"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        at_s: When, Unix time.
        kind: What.
        subject: The trainer, lease or hole it happened to.
        leases: How many leases it was about.
        detail: More, for people. May hold hostile text.
    """

    at_s: float
    kind: EventKind
    subject: str
    leases: int = 0
    detail: str = ""


_COLUMNS = columns(Event)


def add_events(connection: sqlite3.Connection, events: Iterable[Event]) -> None:
    """Add events, inside the caller's transaction."""
    connection.executemany(
        f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        [[getattr(event, name) for name in _COLUMNS] for event in events],
    )


def drop_events(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget what is older than *before_s*, inside the caller's transaction."""
    connection.execute("DELETE FROM events WHERE at_s < ?", (before_s,))


def pace(connection: sqlite3.Connection, *, since_s: float) -> Pace:
    """Return what happened lately, as the caps count it.

    Args:
        connection: The state.
        since_s: Churn counts from then on, Unix time; failed starts since the last
            start that worked.

    Raises:
        StoreError: It could not be read.
    """
    churn = (since_s, EventKind.ASKED, EventKind.GAVE_UP)
    failed = (EventKind.FAILED_START, EventKind.STARTED)
    with translated():
        churned = connection.execute(
            "SELECT total(leases) FROM events WHERE at_s >= ? AND kind IN (?, ?)", churn
        ).fetchone()[0]
        count, last_s = connection.execute(
            "SELECT count(*), max(at_s) FROM events WHERE kind = ? AND number > "
            "coalesce((SELECT max(number) FROM events WHERE kind = ?), 0)",
            failed,
        ).fetchone()
    return Pace(int(churned), count, last_s or 0.0)
