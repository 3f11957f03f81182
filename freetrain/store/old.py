"""Submissions, leases and trainers that are long over: found, and forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey, LeaseState
from freetrain.store.database import translated
from freetrain.store.pasts import LATEST, MOST_OTHERS
from freetrain.store.trainers import TrainerState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class OldLease:
    """A lease of which nobody will hear again.

    Attributes:
        key: Its identity.
        job_id: Raw number of its job; None where it never had one of its own.
    """

    key: LeaseKey
    job_id: int | None


def old_leases(
    connection: sqlite3.Connection, *, before_s: float, most: int
) -> tuple[OldLease, ...]:
    """Return leases that are gone and whose deadline is past, the oldest first.

    Args:
        connection: The state.
        before_s: When their deadlines must have been, Unix time.
        most: No more than these.

    Raises:
        StoreError: They could not be read.
    """
    order = (
        "SELECT uuid, task, job_id FROM leases WHERE state = ? AND deadline_s < ? "
        "ORDER BY deadline_s LIMIT ?"
    )
    with translated():
        rows = connection.execute(order, (LeaseState.GONE, before_s, most)).fetchall()
    return tuple(OldLease(LeaseKey(uuid, task), job_id) for uuid, task, job_id in rows)


def has_old_intents(connection: sqlite3.Connection, *, before_s: float) -> bool:
    """Tell whether there are submissions to forget.

    Raises:
        StoreError: They could not be read.
    """
    with translated():
        order = f"SELECT 1 FROM intents WHERE {_IS_OVER} LIMIT 1"  # noqa: S608 - ours
        return connection.execute(order, (before_s,)).fetchone() is not None


def forget_leases(connection: sqlite3.Connection, keys: Iterable[LeaseKey]) -> None:
    """Forget leases, inside the caller's transaction."""
    order = "DELETE FROM leases WHERE uuid = ? AND task = ?"
    connection.executemany(order, [(key.uuid, key.task) for key in keys])


def forget_intents(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget submissions whose deadline was earlier and that have no lease any more.

    Inside the caller's transaction.
    """
    connection.execute(f"DELETE FROM intents WHERE {_IS_OVER}", (before_s,))  # noqa: S608 - ours


def has_old_pasts(connection: sqlite3.Connection, *, before_s: float) -> bool:
    """Tell whether there is anything for ``forget_pasts``.

    Raises:
        StoreError: It could not be read.
    """
    with translated():
        return any(
            connection.execute(
                f"SELECT 1 FROM {table} WHERE {which} LIMIT 1",  # noqa: S608 - ours
                values,
            ).fetchone()
            for table, which, values in _old_pasts(before_s)
        )


def forget_pasts(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget what trainers told that ended before *before_s*, and what was made of it.

    What the latest of all showed of their speed says what to expect of new ones; these
    keep their pasts, however old. Inside the caller's transaction.
    """
    for table, which, values in _old_pasts(before_s):
        connection.execute(f"DELETE FROM {table} WHERE {which}", values)  # noqa: S608 - ours


def _old_pasts(before_s: float) -> tuple[tuple[str, str, tuple[object, ...]], ...]:
    """Return table, condition and values of rows that nobody uses any more."""
    live = (TrainerState.WANTED, TrainerState.PAUSED, before_s)
    return (
        ("outlooks", _OF_NOBODY, live),
        ("pasts", f"{_OF_NOBODY} AND trainer NOT IN ({LATEST})", (*live, MOST_OTHERS)),
    )


_IS_OVER = "deadline_s < ? AND uuid NOT IN (SELECT uuid FROM leases)"
_LIVE = "SELECT name FROM trainers WHERE state IN (?, ?) OR changed_s >= ?"
_OF_NOBODY = f"trainer NOT IN ({_LIVE})"
