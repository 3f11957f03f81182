"""Trainers that users submitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.store.rows import columns, put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


class TrainerState(StrEnum):
    """What is to become of a trainer, or became of it."""

    WANTED = "wanted"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrainerRow:
    """A submitted trainer.

    Attributes:
        name: Unique in the state directory.
        job: Its job.toml as submitted.
        run_dir: Absolute path of its run directory.
        state: What is to become of it.
        submitted_s: When it was submitted, Unix time.
        changed_s: When its state last changed, Unix time.
        message: Why it is in this state, for people. Hostile text.
        told_generation: Up to which generation events tell of its rescales.
    """

    name: str
    job: str
    run_dir: str
    state: TrainerState
    submitted_s: float
    changed_s: float
    message: str = ""
    told_generation: int = 0


_COLUMNS = columns(TrainerRow)


def put_trainers(connection: sqlite3.Connection, rows: Iterable[TrainerRow]) -> None:
    """Insert or change trainers, inside the caller's transaction."""
    values = [[getattr(row, name) for name in _COLUMNS] for row in rows]
    put(connection, "trainers", _COLUMNS, key=("name",), rows=values)


def end_trainer(
    connection: sqlite3.Connection,
    name: str,
    state: TrainerState,
    *,
    message: str,
    now_s: float,
) -> bool:
    """Write down how a trainer that was wanted ended, in the caller's transaction.

    Returns:
        Whether it was wanted still; its user may have been first.
    """
    done = connection.execute(
        "UPDATE trainers SET state = ?, message = ?, changed_s = ? "
        "WHERE name = ? AND state = ?",
        (state, message, now_s, name, TrainerState.WANTED),
    )
    return done.rowcount == 1


def remove_trainer(connection: sqlite3.Connection, name: str) -> None:
    """Forget a trainer; one of its name that comes then is the youngest of all."""
    connection.execute("DELETE FROM trainers WHERE name = ?", (name,))


def put_told_generation(
    connection: sqlite3.Connection, name: str, generation: int
) -> None:
    """Write down up to where events tell of rescales, likewise."""
    connection.execute(
        "UPDATE trainers SET told_generation = ? WHERE name = ?", (generation, name)
    )


def trainers(connection: sqlite3.Connection) -> tuple[TrainerRow, ...]:
    """Return all trainers, in order of submission.

    Raises:
        StoreError: They could not be read.
    """
    rows = (TrainerRow(*row) for row in select(connection, "trainers", _COLUMNS))
    return tuple(replace(row, state=TrainerState(row.state)) for row in rows)
