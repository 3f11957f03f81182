"""Typed records to rows and back, for tables whose columns are a record's fields."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from freetrain.store.database import translated

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from dataclasses import Field


class Record(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def columns(record: type[Record], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the fields of *record*, in order."""
    return tuple(f.name for f in fields(record) if f.name not in without)


def select(
    connection: sqlite3.Connection,
    table: str,
    names: Sequence[str],
    *,
    where: str = "",
    values: Sequence[object] = (),
) -> list[tuple[Any, ...]]:
    """Return rows of *table* in the order they came in; ``where`` is ours, never input.

    Raises:
        StoreError: They could not be read.
    """
    order = f"SELECT {', '.join(names)} FROM {table} {where} ORDER BY rowid"  # noqa: S608
    with translated():
        return connection.execute(order, tuple(values)).fetchall()


def put(
    connection: sqlite3.Connection,
    table: str,
    names: Sequence[str],
    *,
    key: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> None:
    """Insert *rows*, or change those there are with the same *key*."""
    marks = ", ".join("?" for _ in names)
    changes = ", ".join(f"{n} = excluded.{n}" for n in names if n not in key)
    connection.executemany(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) "  # noqa: S608
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}",
        rows,
    )
