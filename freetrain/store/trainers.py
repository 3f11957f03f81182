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
    """

    name: str
    job: str
    run_dir: str
    state: TrainerState
    submitted_s: float
    changed_s: float


_COLUMNS = columns(TrainerRow)


def put_trainers(connection: sqlite3.Connection, rows: Iterable[TrainerRow]) -> None:
    """Insert or change trainers, inside the caller's transaction."""
    values = [[getattr(row, name) for name in _COLUMNS] for row in rows]
    put(connection, "trainers", _COLUMNS, key=("name",), rows=values)


def trainers(connection: sqlite3.Connection) -> tuple[TrainerRow, ...]:
    """Return all trainers, in order of submission.

    Raises:
        StoreError: They could not be read.
    """
    rows = (TrainerRow(*row) for row in select(connection, "trainers", _COLUMNS))
    return tuple(replace(row, state=TrainerState(row.state)) for row in rows)
