"""From a line to records; pure but for the header that a table of CSV begins with.

A parser returns no record for a line that is none of its business, and raises for
one that claims to be progress and cannot be.
"""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Protocol

from freetrain.jobfile.job import ProgressFormat
from freetrain.progress.numbers import AbsurdError, amount, count, moment, number
from freetrain.progress.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.jobfile.job import Progress

LONGEST_PATTERN_LINE = 1_000
"""Characters of a line that a pattern sees: backtracking grows with them."""

_OWN = ("t", "step", "samples", "epoch", "generation", "world_size")
_NOT_METRICS = frozenset((*_OWN, "event", "nonfinite", "rewound_from_step"))
_MOST_METRICS = 200
_DELIMITERS = (",", ";", "\t")


class Parser(Protocol):
    """Turns lines of one file into records, in order.

    Attributes:
        header: The line that explains those after it; empty for none.
    """

    header: str

    def parse(self, line: str) -> tuple[Record, ...]:
        """Return the records in *line*, which is not blank.

        Raises:
            AbsurdError: It claims to be progress, and cannot be.
        """
        ...


def parser_for(progress: Progress | None) -> Parser:
    """Return the parser of *progress*; None is ``freetrain.elastic``'s lines."""
    if progress is None:
        return ElasticLines()
    if progress.form is ProgressFormat.PATTERN:
        return PatternLines(progress.pattern)
    if progress.form is ProgressFormat.CSV:
        return CsvLines(progress.fields)
    return JsonLines(progress.fields)


class ElasticLines:
    """Lines of ``progress.jsonl``."""

    header = ""

    def parse(self, line: str) -> tuple[Record, ...]:
        """Return the one record in *line*."""
        told = _json_object(line)
        # A line without a step is no progress line of anybody's.
        count(told.get("step"))
        odd = told.get("nonfinite")
        metrics = {k: v for k, v in told.items() if k not in _NOT_METRICS}
        if isinstance(odd, dict):
            metrics |= {name: odd[name] for name in odd if name in metrics}
        return (_record({**{k: told.get(k) for k in _OWN}, **metrics}),)


class JsonLines:
    """Lines of a JSON object each, whose keys the user named."""

    header = ""

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        self._fields = fields

    def parse(self, line: str) -> tuple[Record, ...]:
        """Return the record in *line*, if it has one of the keys."""
        told = _json_object(line)
        return _told({field: _under(told, key) for field, key in self._fields})


class CsvLines:
    """Rows of a table whose columns the user named.

    The delimiter is whichever of comma, semicolon and tab makes the header fit. A
    program that writes its header again at each start is understood.

    Attributes:
        header: The last line of column names; empty before the first.
    """

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        self._fields = fields
        self._columns: dict[str, int] = {}
        self._delimiter = ","
        self.header = ""

    def parse(self, line: str) -> tuple[Record, ...]:
        """Return the record in *line*, unless it is a header."""
        if self._is_header(line):
            return ()
        if not self._columns:
            raise AbsurdError("a row before the line of column names")
        row = _row(line, self._delimiter)
        told = {
            field: row[index] if index < len(row) else None
            for field, index in self._columns.items()
        }
        return _told({field: text or None for field, text in told.items()})

    def _is_header(self, line: str) -> bool:
        for delimiter in _DELIMITERS:
            names = [name.strip("# \t") for name in _row(line, delimiter)]
            if all(column in names for _, column in self._fields):
                self._delimiter, self.header = delimiter, line
                self._columns = {f: names.index(column) for f, column in self._fields}
                return True
        return False


class PatternLines:
    """Lines that a regular expression of the user's is found in.

    Output of ranks that ran into one line gives a record for each match. Only the
    first ``LONGEST_PATTERN_LINE`` characters are looked at. That bounds a pattern
    whose time grows with the cube of the length to a second or so a line; one whose
    time grows exponentially, such as ``(a+)+b``, is endless at 40 characters, and
    nothing here stops it.
    """

    header = ""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def parse(self, line: str) -> tuple[Record, ...]:
        """Return a record for each match in *line*."""
        found = self._pattern.finditer(line[:LONGEST_PATTERN_LINE])
        return tuple(one for match in found for one in _told(match.groupdict()))


def _told(fields: Mapping[str, object]) -> tuple[Record, ...]:
    """A record of what is there; none where nothing is."""
    there = {name: value for name, value in fields.items() if value is not None}
    return (_record(there),) if there else ()


def _record(told: Mapping[str, object]) -> Record:
    def read(name: str) -> object:
        return told.get(name)

    metrics: dict[str, float] = {}
    for name, value in told.items():
        measured = number(value) if name not in _OWN else None
        if measured is not None and len(metrics) < _MOST_METRICS:
            metrics[name] = measured
    record = Record(
        t=None if read("t") is None else moment(read("t")),
        step=None if read("step") is None else count(read("step")),
        samples=None if read("samples") is None else amount(read("samples")),
        epoch=None if read("epoch") is None else amount(read("epoch")),
        generation=None if read("generation") is None else count(read("generation")),
        world_size=None if read("world_size") is None else count(read("world_size")),
        metrics=metrics,
    )
    if record == Record():
        raise AbsurdError("none of its fields is a number")
    return record


def _json_object(line: str) -> dict[str, object]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AbsurdError(f"no JSON: {error}") from error
    if not isinstance(told, dict):
        raise AbsurdError("no JSON object")
    return told


def _under(told: Mapping[str, object], key: str) -> object:
    """The value of *key*, or of a path of keys joined by dots."""
    if key in told or "." not in key:
        return told.get(key)
    first, _, rest = key.partition(".")
    inner = told.get(first)
    return _under(inner, rest) if isinstance(inner, dict) else None


def _row(line: str, delimiter: str) -> list[str]:
    try:
        return [text.strip() for text in next(csv.reader([line], delimiter=delimiter))]
    except (csv.Error, StopIteration) as error:
        raise AbsurdError(f"no row: {error}") from error
