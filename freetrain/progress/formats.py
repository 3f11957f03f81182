"""From one line of a program's output to a record of its progress; pure.

``parser_for`` chooses the parser: a file of ``freetrain.elastic``, JSON lines, a CSV
table, or lines in which a pattern is found. Each parser is one class. All of them hand
the fields that they find to one function, which checks the numbers.
"""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from freetrain.config.job import ProgressFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.config.job import ProgressSettings, WorkSettings

LONGEST_PATTERN_LINE = 1_000
"""Characters of a line that a pattern sees: backtracking grows with them."""

_MOST_METRICS = 200
_DELIMITERS = (",", ";", "\t")


class UnreadableLineError(ValueError):
    """A line that claims to be progress, and cannot be."""


# Records, and what they add up to


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """One line of progress. A field that the line leaves out is None.

    Attributes:
        t: Unix time by the program's clock, if the line gives it.
        step: Steps done since the training began.
        samples: Samples done since the training began.
        epoch: Epoch of the step. ``freetrain.elastic`` counts from 0; the number that
            other programs print is kept as it is.
        generation: The generation that wrote the line.
        world_size: Ranks of that generation.
        metrics: The loss and other measured values; may be nan or infinite.
    """

    t: float | None = None
    step: int | None = None
    samples: float | None = None
    epoch: float | None = None
    generation: int | None = None
    world_size: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


FIELDS = ("t", "step", "samples", "epoch", "generation", "world_size")
"""A record's fields, apart from its metrics."""

_NOT_METRICS = frozenset((*FIELDS, "event", "nonfinite", "rewound_from_step"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a trainer by all records so far; None for unknown fields.

    Attributes:
        t: Unix time of the last record.
        step: Steps done.
        samples: Samples done.
        epoch: Epoch of the last step.
        generation: The generation of the last record.
        world_size: Its ranks.
        metrics: The last value of each metric.
        samples_per_s: Mean over the present generation.
    """

    t: float | None
    step: int | None
    samples: float | None
    epoch: float | None
    generation: int | None
    world_size: int | None
    metrics: Mapping[str, float]
    samples_per_s: float | None

    @property
    def loss(self) -> float | None:
        """The last value of the metric ``loss``."""
        return self.metrics.get("loss")


def work_is_done(work: WorkSettings, progress: Progress | None) -> bool:
    """Tell whether *progress* has reached the samples or epochs of *work*.

    An epoch number of ``work.epochs`` or more counts as done: a program that counts
    epochs from 0 is then a step into the next one, one that prints the number at an
    epoch's end is exactly there. Time on nodes is not looked at.
    """
    if progress is None:
        return False
    if work.samples is not None and progress.samples is not None:
        return progress.samples >= work.samples
    if work.epochs is not None and progress.epoch is not None:
        return progress.epoch >= work.epochs
    return False


# The formats


class Parser(Protocol):
    """Turns lines of one file into records, in order.

    Attributes:
        header: The line that explains those after it; empty for none.
    """

    header: str

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the records in *line*, which is not blank.

        Raises:
            UnreadableLineError: It claims to be progress, and cannot be.
        """
        ...


def parser_for(progress: ProgressSettings | None) -> Parser:
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

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the one record in *line*, which has to have a step."""
        values = _json_object(line)
        _count(values.get("step"))
        not_finite = values.get("nonfinite")
        metrics = {k: v for k, v in values.items() if k not in _NOT_METRICS}
        if isinstance(not_finite, dict):
            metrics |= {k: not_finite[k] for k in not_finite if k in metrics}
        return (_record({**{k: values.get(k) for k in FIELDS}, **metrics}),)


class JsonLines:
    """Lines of a JSON object each, whose keys the user named."""

    header = ""

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        self._fields = fields

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the record in *line*, if it has any of the keys."""
        values = _json_object(line)
        return _records({name: _value_at(values, key) for name, key in self._fields})


class CsvLines:
    """Rows of a table whose columns the user named.

    The delimiter is that of comma, semicolon and tab with which a line has all of the
    columns' names. A program may write its header again at each start.

    Attributes:
        header: The last line of column names; empty before the first.
    """

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        self._fields = fields
        self._columns: dict[str, int] = {}
        self._delimiter = ","
        self.header = ""

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the record in *line*, unless it is a header."""
        if self._is_header(line):
            return ()
        if not self._columns:
            raise UnreadableLineError("a row before the line of column names")
        row = _row(line, self._delimiter)
        return _records(
            {
                name: (row[index] or None) if index < len(row) else None
                for name, index in self._columns.items()
            }
        )

    def _is_header(self, line: str) -> bool:
        for delimiter in _DELIMITERS:
            names = [name.strip("# \t") for name in _row(line, delimiter)]
            if all(column in names for _, column in self._fields):
                self._delimiter, self.header = delimiter, line
                self._columns = {f: names.index(column) for f, column in self._fields}
                return True
        return False


class PatternLines:
    """Lines in which a regular expression of the user's is found.

    Output of several ranks that ran into one line gives a record for each match. Only
    the first ``LONGEST_PATTERN_LINE`` characters are searched. That bounds a pattern
    whose time grows with the cube of the length to a second or so a line; one whose
    time grows exponentially, such as ``(a+)+b``, is endless at 40 characters, and
    nothing here stops it.
    """

    header = ""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return a record for each match in *line*."""
        matches = self._pattern.finditer(line[:LONGEST_PATTERN_LINE])
        return tuple(
            record for match in matches for record in _records(match.groupdict())
        )


def _json_object(line: str) -> dict[str, object]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableLineError(f"no JSON: {error}") from error
    if not isinstance(values, dict):
        raise UnreadableLineError("no JSON object")
    return values


def _value_at(values: Mapping[str, object], key: str) -> object:
    """Return the value of *key*, or of a path of keys joined by dots."""
    if key in values or "." not in key:
        return values.get(key)
    first, _, rest = key.partition(".")
    inner = values.get(first)
    return _value_at(inner, rest) if isinstance(inner, dict) else None


def _row(line: str, delimiter: str) -> list[str]:
    try:
        return [text.strip() for text in next(csv.reader([line], delimiter=delimiter))]
    except (csv.Error, StopIteration) as error:
        raise UnreadableLineError(f"no row: {error}") from error


# From fields to a record


def _records(values: Mapping[str, object]) -> tuple[ProgressRecord, ...]:
    """Return the record of the fields that have a value; none where none has."""
    present = {name: value for name, value in values.items() if value is not None}
    return (_record(present),) if present else ()


def _record(values: Mapping[str, object]) -> ProgressRecord:
    metrics: dict[str, float] = {}
    for name, value in values.items():
        measured = number(value) if name not in FIELDS else None
        if measured is not None and len(metrics) < _MOST_METRICS:
            metrics[name] = measured
    record = ProgressRecord(
        t=_optional_amount(values.get("t")),
        step=_optional_count(values.get("step")),
        samples=_optional_amount(values.get("samples")),
        epoch=_optional_amount(values.get("epoch")),
        generation=_optional_count(values.get("generation")),
        world_size=_optional_count(values.get("world_size")),
        metrics=metrics,
    )
    if record == ProgressRecord():
        raise UnreadableLineError("none of its fields is a number")
    return record


# Numbers as programs print them

_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?", re.ASCII)
# What \S+ in a pattern takes along: "Loss 0.52, accuracy (93%)".
_AROUND = " \t\"'()[]{},;:%"
_LONGEST = 64
# Above this a float does not tell one step from the next.
_LARGEST_COUNT = 2.0**53


def number(value: object) -> float | None:
    """Return *value* as a number, nan and infinities included; None for no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _number_in(value) if isinstance(value, str) else None


def _number_in(text: str) -> float | None:
    text = text.strip(_AROUND)
    if len(text) > _LONGEST or "_" in text or not text.isascii():
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def _amount(value: object) -> float:
    """Return *value* as a time or an amount of work: finite, at least 0."""
    found = number(value)
    if found is None or not 0 <= found <= _LARGEST_COUNT:
        raise UnreadableLineError(f"{str(value)[:_LONGEST]!r} is no amount of work")
    return found


def _count(value: object) -> int:
    """Return *value* as a whole number, at least 0; ``1e3`` is one."""
    found = _amount(value)
    if found != int(found):
        raise UnreadableLineError(f"{str(value)[:_LONGEST]!r} is no whole number")
    return int(found)


def _optional_amount(value: object) -> float | None:
    return None if value is None else _amount(value)


def _optional_count(value: object) -> int | None:
    return None if value is None else _count(value)
