"""Reading a log line by line, and putting up with a few bad ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from logs.errors import UnreadableLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Record = TypeVar("Record")


class BadLineError(Exception):
    """A line that cannot be read; within this package only.

    Attributes:
        field: The field's name, or None where the whole line is meant.
        why: What was found and what was expected.
    """

    def __init__(self, field: str | None, why: str) -> None:
        self.field = field
        self.why = why
        super().__init__(why)


@dataclass(slots=True)
class Tolerance:
    """How many bad lines of one log may be skipped, and how many were.

    Attributes:
        source: The file, as the user named it.
        allowed: Bad lines that may be skipped.
        skipped: Bad lines that were.
    """

    source: str
    allowed: int
    skipped: int = 0

    def spend(self, line_number: int, bad: BadLineError) -> None:
        """Skip one bad line.

        Raises:
            UnreadableLogError: As many as are allowed were skipped already.
        """
        if self.skipped >= self.allowed:
            why = bad.why
            if self.allowed:
                why += f" ({self.allowed} bad lines, all that may be, were skipped)"
            raise UnreadableLogError(
                self.source, line_number, bad.field, why, can_skip=True
            )
        self.skipped += 1

    def nothing_left(self, why: str) -> UnreadableLogError:
        """Return the error of a log that holds nothing, but for bad lines or none."""
        if self.skipped:
            why += f" (bad lines skipped: {self.skipped})"
        return UnreadableLogError(self.source, None, None, why)


def parse_lines(
    lines: Iterable[tuple[int, str]],
    parse: Callable[[int, str], Record | None],
    tolerance: Tolerance,
) -> list[Record]:
    """Return what *parse* makes of each line; None means nothing to keep.

    Raises:
        UnreadableLogError: More bad lines than tolerated.
    """
    records: list[Record] = []
    for number, line in lines:
        try:
            record = parse(number, line)
        except BadLineError as bad:
            tolerance.spend(number, bad)
        else:
            if record is not None:
                records.append(record)
    return records
