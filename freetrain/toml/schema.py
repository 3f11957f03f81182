"""A whole file with a fixed set of keys and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from freetrain.toml.writing import toml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.toml.section import Section
    from freetrain.toml.table import Table

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Schema(Generic[Record]):
    """The keys and tables of a file, and the record that it is read into.

    Attributes:
        top: The keys outside of any table.
        tables: The tables; each fills the attribute of its own name.
    """

    top: Section[Record]
    tables: tuple[Section[Any], ...]

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        """All of them, in the order in which they are written."""
        return (self.top, *self.tables)

    def read(self, document: Table) -> Record:
        """Return the record that *document* describes.

        A table that is not there is read as an empty one where the record cannot
        be without it, else left to the record's default.

        Raises:
            BadConfigurationError: A key is unknown, missing, or not of its kind.
        """
        names = tuple(section.name for section in self.tables)
        document.refuse_unknown((*self.top.names(), *names))
        found = self.top.values(document)
        for section in self.tables:
            if document.has(section.name) or section.name in self.top.required():
                found[section.name] = section.read(document.inner(section.name))
        return self.top.record(**found)

    def render(self, record: Record) -> str:
        """Return the canonical file: all values said, but those left open."""
        document: Mapping[str, object] = self.top.write(record) | {
            section.name: section.write(getattr(record, section.name))
            for section in self.tables
            if getattr(record, section.name) is not None
        }
        return toml_text({name: one for name, one in document.items() if one != {}})
