"""Heartbeats as ticks saw them: since when each agent tells the same number.

A tick lives for seconds, so that it cannot watch; two ticks apart can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.store.rows import select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """What was last seen of an agent's heartbeat.

    Attributes:
        key: Its lease.
        beat: The number it told.
        since_s: When it was first seen telling it, Unix time.
    """

    key: LeaseKey
    beat: int
    since_s: float


def put_beats(connection: sqlite3.Connection, beats: Iterable[SeenBeat]) -> None:
    """Keep *beats* instead of all that were kept, in the caller's transaction."""
    connection.execute("DELETE FROM beats")
    rows = [(one.key.uuid, one.key.task, one.beat, one.since_s) for one in beats]
    connection.executemany("INSERT INTO beats VALUES (?, ?, ?, ?)", rows)


def seen_beats(connection: sqlite3.Connection) -> dict[LeaseKey, SeenBeat]:
    """Return what was kept last, by lease.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "beats", ("uuid", "task", "beat", "since_s"))
    seen = (SeenBeat(LeaseKey(uuid, task), *rest) for uuid, task, *rest in rows)
    return {one.key: one for one in seen}
