"""Sums over all ticks, for the metrics file."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.store.rows import select

if TYPE_CHECKING:
    import sqlite3


class Counter(StrEnum):
    """What is summed up."""

    TICKS = "ticks"
    FAILED_TICKS = "failed ticks"
    REQUESTS = "requests"
    LEASES_ASKED = "leases asked for"
    GENERATIONS = "generations"
    IDLE_NODE_S = "idle node seconds"
    LEASED_NODE_S = "leased node seconds"
    TRAINING_NODE_S = "training node seconds"
    KEPT_PLANS = "plans kept"
    LOOKED_S = "seconds until the last look"


def add_to_counters(connection: sqlite3.Connection, more: dict[Counter, float]) -> None:
    """Add to the sums, inside the caller's transaction."""
    connection.executemany(
        "INSERT INTO counters (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        list(more.items()),
    )


def counters(connection: sqlite3.Connection) -> dict[Counter, float]:
    """Return all sums; those that nobody added to are 0.

    Raises:
        StoreError: They could not be read.
    """
    found = dict(select(connection, "counters", ("name", "value")))
    return {one: float(found.get(one, 0.0)) for one in Counter}
