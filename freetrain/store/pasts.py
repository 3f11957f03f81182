"""What trainers told so far, kept short, and how far it was read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from freetrain.store.rows import put, select

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

_COLUMNS = ("trainer", "submitted_s", "bookmark", "past", "scaling")
MOST_OTHERS = 50
"""Trainers whose scaling tells what to expect of a new one: the latest."""


LATEST = "SELECT trainer FROM pasts ORDER BY submitted_s DESC LIMIT ?"
"""Names those."""


@dataclass(frozen=True, slots=True)
class PastRow:
    """What is kept of a trainer. Its parts are as JSON has them.

    Attributes:
        trainer: Its name.
        submitted_s: Which of its submissions it belongs to.
        bookmark: How far was read (``progress.bookmark``).
        past: What was told (``tick.past``).
        scaling: What it showed of its speed (``scaling.state``).
    """

    trainer: str
    submitted_s: float
    bookmark: Mapping[str, Any]
    past: Mapping[str, Any]
    scaling: Mapping[str, Any]


def put_pasts(connection: sqlite3.Connection, rows: Iterable[PastRow]) -> None:
    """Insert or change what is kept of trainers, inside the caller's transaction."""
    values = [
        [
            row.trainer,
            row.submitted_s,
            *map(_text, (row.bookmark, row.past, row.scaling)),
        ]
        for row in rows
    ]
    put(connection, "pasts", _COLUMNS, key=("trainer",), rows=values)


def past_of(
    connection: sqlite3.Connection, trainer: str, *, submitted_s: float
) -> PastRow | None:
    """Return what is kept of a submission of *trainer*; None for nothing.

    Raises:
        StoreError: It could not be read.
    """
    where = "WHERE trainer = ? AND submitted_s = ?"
    rows = select(
        connection, "pasts", _COLUMNS, where=where, values=(trainer, submitted_s)
    )
    return _row(rows[0]) if rows else None


def latest_scalings(connection: sqlite3.Connection) -> tuple[Mapping[str, Any], ...]:
    """Return what the trainers submitted last showed of their speed.

    Raises:
        StoreError: It could not be read.
    """
    where = f"WHERE trainer IN ({LATEST})"
    rows = select(connection, "pasts", ("scaling",), where=where, values=(MOST_OTHERS,))
    return tuple(json.loads(text) for (text,) in rows)


def _row(row: tuple[Any, ...]) -> PastRow:
    trainer, submitted_s, *texts = row
    return PastRow(trainer, submitted_s, *map(json.loads, texts))


def _text(part: Mapping[str, Any]) -> str:
    return json.dumps(part, separators=(",", ":"))
