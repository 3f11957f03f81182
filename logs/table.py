"""CSV logs: comments, a line of column names, then one record a line."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logs.lines import MAX_NODES, BadLineError, snippet, write_number
from logs.trace import UnreadableLogError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import TextIO

    from logs.lines import Content


_UNIX_START = re.compile(r"\bt0_unix=(\d{1,12}(?:\.\d+)?)\b", re.ASCII)
_MACHINE = re.compile(r"\b(\d{1,7})\s+(?:[^\W\d]\w*\s+){0,3}nodes\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class TableHead:
    """What stands before a table's first record.

    Attributes:
        comments: Comment lines, in order, without ``#``.
        columns: Column names, in the file's order.
        line_number: Line of the column names.
    """

    comments: tuple[str, ...]
    columns: tuple[str, ...]
    line_number: int

    @property
    def unix_start_s(self) -> float | None:
        """Unix time of t = 0, where a comment says ``t0_unix=``."""
        found = _search(_UNIX_START, self.comments)
        return None if found is None else float(found)

    @property
    def machine_nodes(self) -> int | None:
        """The machine's size, where a comment says "4360 nodes", up to a million."""
        found = int(_search(_MACHINE, self.comments) or 0)
        return found if 0 < found <= MAX_NODES else None

    def stating(
        self, *, machine_nodes: int | None, unix_start_s: float | None
    ) -> TableHead:
        """Return this head with comments that state just these two."""
        comments, added = self.comments, []
        if machine_nodes != self.machine_nodes:
            comments = tuple(c for c in comments if not _MACHINE.search(c))
            added += [] if machine_nodes is None else [f"{machine_nodes} nodes"]
        if unix_start_s != self.unix_start_s:
            comments = tuple(c for c in comments if not _UNIX_START.search(c))
            if unix_start_s is not None:
                added.append(f"t0_unix={write_number(unix_start_s)}")
        first = (", ".join(added),) if added else ()
        return TableHead(first + comments, self.columns, self.line_number)


def _search(pattern: re.Pattern[str], comments: tuple[str, ...]) -> str | None:
    for comment in comments:
        found = pattern.search(comment)
        if found:
            return found.group(1)
    return None


def read_head(
    content: Content, *, needed: Collection[str], optional: Collection[str] = ()
) -> TableHead:
    """Return what stands before the records of the table in *content*.

    Raises:
        UnreadableLogError: A column is missing, unknown or named twice.
    """
    comments: list[str] = []
    for number, line in content.lines():
        if line.startswith("#"):
            comments.append(line[1:].removeprefix(" ").rstrip())
        elif line.strip():
            columns = tuple(name.strip() for name in line.split(","))
            why = _what_is_wrong(columns, needed, optional)
            if why:
                raise UnreadableLogError(content.source, number, None, why)
            return TableHead(tuple(comments), columns, number)
    raise UnreadableLogError(content.source, None, None, "there is no header line")


def _what_is_wrong(
    columns: tuple[str, ...], needed: Collection[str], optional: Collection[str]
) -> str | None:
    expected = ",".join((*needed, *optional))
    for name in needed:
        if name not in columns:
            return f"column {name!r} is missing; expected {expected}"
    for name in columns:
        if name not in needed and name not in optional:
            return f"found an unknown column {snippet(name)}; expected {expected}"
        if columns.count(name) > 1:
            return f"column {name!r} is there twice; expected each once"
    return None


def data_lines(content: Content, head: TableHead) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold records, with their numbers."""
    for number, line in content.lines():
        if number > head.line_number and line.strip() and not line.startswith("#"):
            yield number, line


def split_fields(line: str, columns: tuple[str, ...]) -> list[str]:
    """Return the fields of *line*, one a column, without blanks around them.

    Raises:
        BadLineError: There are more or fewer fields than columns.
    """
    fields = _unquote(line) if '"' in line else line.split(",")
    if len(fields) != len(columns):
        why = (
            f"found {len(fields)} fields in {snippet(line)}; "
            f"expected {len(columns)}: {','.join(columns)}"
        )
        raise BadLineError(None, why)
    return [field.strip() for field in fields]


def _unquote(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise BadLineError(None, f"found {snippet(line)}: {error}") from None


def write_head(
    stream: TextIO,
    head: TableHead,
    *,
    machine_nodes: int | None,
    unix_start_s: float | None,
) -> None:
    """Write comments, corrected where they say otherwise, and column names."""
    stated = head.stating(machine_nodes=machine_nodes, unix_start_s=unix_start_s)
    flat = (" ".join(comment.splitlines()) for comment in stated.comments)
    stream.writelines(f"# {comment}".rstrip() + "\n" for comment in flat)
    stream.write(",".join(head.columns) + "\n")


def quote_field(text: str) -> str:
    """Return *text* as a CSV field that `split_fields` reads back.

    A field's line breaks become blanks: a record is one line.
    """
    flat = " ".join(text.splitlines())
    if flat.startswith("#") or "," in flat or '"' in flat:
        return '"' + flat.replace('"', '""') + '"'
    return flat
