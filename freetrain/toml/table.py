"""One table of a TOML file, read key by key; each mistake named in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from freetrain.errors import BadConfigurationError
from freetrain.toml.kind import MismatchError
from freetrain.toml.wording import closest, one_line, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from freetrain.toml.kind import Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of key = value pairs and where it stands, for messages.

    Attributes:
        path: The file, as the user named it.
        where: The table within the file, such as ``trainer 'bert' (number 2)``;
            empty where the file is one table.
        values: The pairs, as tomllib read them.
        consequence: What was not done when the file is refused, one sentence.
    """

    path: str
    where: str
    values: Mapping[str, object]
    consequence: str

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error for *problem*: what was found and what is expected."""
        stop = "" if problem.endswith(("?", ".")) else "."
        where = f"{self.where}: " if self.where else ""
        raise BadConfigurationError(
            one_line(f"{self.path}: {where}{problem}{stop} {self.consequence}")
        )

    def refuse_value(self, key: str, expected: str) -> NoReturn:
        """Raise the error for a value that is not what *key* expects."""
        self.refuse(f"{key} = {shown(self.values[key])}, expected {expected}")

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse the first key that is not *known*, with the nearest one that is."""
        for key in self.values:
            if key not in known:
                hint = closest(key, known) or f" Known keys: {', '.join(known)}"
                self.refuse(f"unknown key {shown(key)}.{hint}")

    def has(self, key: str) -> bool:
        """Tell whether the table says anything about *key*."""
        return key in self.values

    def require(self, key: str) -> None:
        """Refuse a table without *key*."""
        if key not in self.values:
            self.refuse(f"{key} is missing")

    def take(self, key: str, kind: Kind[T]) -> T:
        """Return what *key* says, as *kind* reads it; refuse a table without it."""
        self.require(key)
        try:
            return kind.read(self.values[key])
        except MismatchError as error:
            self.refuse_value(key, str(error) or kind.expected)

    def take_or(self, key: str, kind: Kind[T], *, default: T) -> T:
        """Return what *key* says, as *kind* reads it, or *default*."""
        return self.take(key, kind) if key in self.values else default

    def inner(self, name: str) -> Table:
        """Return the table *name* of this one; empty where it is not there."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            self.refuse_value(name, f"a table, begun by a line [{name}]")
        return Table(self.path, f"[{name}]", values, self.consequence)
