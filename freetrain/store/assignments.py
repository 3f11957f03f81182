"""Generations; the files are the truth, and this is what ticks begin with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from freetrain.broker.lease import Assignment, LeaseKey
from freetrain.store.rows import columns, put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

_COLUMNS = columns(Assignment)
_NEWEST = """WHERE generation = (
    SELECT max(generation) FROM assignments AS other
    WHERE other.trainer = assignments.trainer
)"""


def put_assignments(
    connection: sqlite3.Connection, assignments: Iterable[Assignment]
) -> None:
    """Insert or change generations, inside the caller's transaction."""
    rows = [
        [one.trainer, one.generation, _text(one), one.created_s] for one in assignments
    ]
    put(connection, "assignments", _COLUMNS, key=("trainer", "generation"), rows=rows)


def newest_assignments(connection: sqlite3.Connection) -> tuple[Assignment, ...]:
    """Return the newest generation of each trainer.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "assignments", _COLUMNS, where=_NEWEST)
    return tuple(
        Assignment(
            trainer=trainer,
            generation=generation,
            leases=frozenset(LeaseKey(uuid, task) for uuid, task in json.loads(text)),
            created_s=created_s,
        )
        for trainer, generation, text, created_s in rows
    )


def _text(assignment: Assignment) -> str:
    return json.dumps([[key.uuid, key.task] for key in sorted(assignment.leases)])
