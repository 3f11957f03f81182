"""Tables with ``# key: value`` lines on top of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn, TypeVar

from freetrain.errors import BadDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table.

    Attributes:
        file: For messages.
        number: Of the line in the file, from 1.
        cells: By column.
    """

    file: str
    number: int
    cells: dict[str, str]

    def real(self, column: str) -> float:
        """Return any number, nan and inf included."""
        return self._number(column, float)

    def positive(self, column: str) -> float:
        """Return a number above 0 and below infinity."""
        number = self.real(column)
        if not 0 < number < float("inf"):
            self.refuse(column, "a number above 0")
        return number

    def whole(self, column: str, least: int = 1) -> int:
        """Return a whole number, *least* or more."""
        number = self._number(column, int)
        if number < least:
            self.refuse(column, f"a whole number from {least} on")
        return number

    def text(self, column: str) -> str:
        """Return a cell that is not empty."""
        if not self.cells.get(column):
            self.refuse(column, "something")
        return self.cells[column]

    def refuse(self, column: str, expected: str) -> NoReturn:
        """Raise BadDataError about a cell."""
        found = self.cells.get(column)
        told = "missing" if found is None else f"{found!r}"
        refuse(self.file, self.number, f"{column} is {told}, expected {expected}")

    def _number(self, column: str, kind: Callable[[str], Number]) -> Number:
        try:
            return kind(self.text(column))
        except ValueError:
            self.refuse(column, "a number")


@dataclass(frozen=True, slots=True)
class Sheet:
    """A whole file.

    Attributes:
        header: What is said above the table, by key.
        columns: Their names, in order.
        rows: One or more.
    """

    header: Line
    columns: tuple[str, ...]
    rows: tuple[Line, ...]

    def expect(self, columns: Sequence[str]) -> None:
        """Raise BadDataError unless these are the columns, in this order."""
        if self.columns != tuple(columns):
            refuse(
                self.header.file,
                self.header.number + 1,
                f"columns {','.join(self.columns)}, expected {','.join(columns)}",
            )


def read_sheet(text: str, *, file: str) -> Sheet:
    """Return the parts of *text*; *file* is for messages.

    Raises:
        BadDataError: A row has not as many cells as there are columns, or there is
            no row.
    """
    lines = text.removesuffix("\n").split("\n")
    above = list(takewhile(lambda line: line.startswith("#"), lines))
    pairs = (line.removeprefix("#").partition(":") for line in above)
    header = {key.strip(): value.strip() for key, _, value in pairs}
    table = [line.split(",") for line in lines[len(above) :]]
    if len(table) <= 1:
        refuse(file, len(lines), "the file ends, expected columns and rows")
    columns = tuple(table[0])
    rows = []
    for number, cells in enumerate(table[1:], start=len(above) + 2):
        if len(cells) != len(columns):
            refuse(file, number, f"{len(cells)} cells, expected {len(columns)}")
        rows.append(Line(file, number, dict(zip(columns, cells, strict=True))))
    return Sheet(Line(file, len(above), header), columns, tuple(rows))


def refuse(file: str, line: int, why: str) -> NoReturn:
    """Raise BadDataError about a line of a file."""
    raise BadDataError(
        f"{file}: line {line}: {why}. No recorded curve was loaded. Reinstall "
        f"FreeTrain, or record the curves again: make curves."
    )
