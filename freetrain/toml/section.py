"""Tables with a fixed set of keys, read into a record and written again."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.toml.kind import Kind
    from freetrain.toml.table import Table

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    Attributes:
        name: As people write it.
        kind: What it may say.
        field: The attribute of the record that it fills.
        default: What the record holds without it; None where its field says that.
    """

    name: str
    kind: Kind[Any]
    field: str
    default: object = None


@dataclass(frozen=True, slots=True)
class Section(Generic[Record]):
    """A table, and the record that it is read into.

    Attributes:
        name: As people write it in brackets; empty for the outermost table.
        record: The record, a dataclass; a field with neither a default nor one in
            its key must be given.
        keys: The keys, in the order in which they are written.
    """

    name: str
    record: Callable[..., Record]
    keys: tuple[Key, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of its keys."""
        return tuple(key.name for key in self.keys)

    def required(self) -> set[str]:
        """Return the fields of its record that have no default."""
        return {
            field.name
            for field in fields(self.record)  # type: ignore[arg-type]
            if field.default is MISSING
        }

    def values(self, table: Table) -> dict[str, Any]:
        """Return the fields that *table* gives, and the defaults of keys.

        Raises:
            BadConfigurationError: A value is not of its kind, or is missing.
        """
        given = {}
        required = self.required()
        for key in self.keys:
            if not table.has(key.name) and key.default is not None:
                given[key.field] = key.default
            elif table.has(key.name) or key.field in required:
                given[key.field] = table.take(key.name, key.kind)
        return given

    def read(self, table: Table) -> Record:
        """Return the record that *table* describes.

        Raises:
            BadConfigurationError: A key is unknown, missing, or not of its kind.
        """
        table.refuse_unknown(self.names())
        return self.record(**self.values(table))

    def write(self, record: Record) -> dict[str, object]:
        """Return what to write for *record*: all but what it leaves open."""
        found = ((key, getattr(record, key.field)) for key in self.keys)
        return {
            key.name: key.kind.write(value)
            for key, value in found
            if value is not None and value not in ((), "")
        }
