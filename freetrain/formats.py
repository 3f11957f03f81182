"""The formats in which programs report progress: from bytes to records.

``parser_for`` chooses what turns one line into a record: a parser for lines of
``freetrain.elastic``, or for the JSON lines, CSV tables, patterns and libraries' files
of job.toml's ``[progress]``. Each parser is one class. All of them hand the fields that
they find to one function, which checks the numbers. ``splitter_for`` chooses what makes
lines of a file's bytes; the "lines" of TensorBoard's files are its events.
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from freetrain.config.job import (
    COUNTED,
    LIBRARIES,
    MOST_COLUMN_CHARACTERS,
    ProgressFormat,
)
from freetrain.patterns import LimitedPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.config.job import ProgressSettings


MOST_METRICS = 200
"""Names of metrics that are taken from one file."""

_DELIMITERS = (",", ";", "\t")
# What libraries write into a cell that has no value.
_NO_VALUE = ("", "NA")
_LONGEST_OBJECT = 1 << 16


class UnreadableLineError(ValueError):
    """A line that claims to be progress, and cannot be."""


# ----------------------------------------------------------------------
# Records: what one line, or one event of a file, says


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
        t_unit: What the line counts time in: ``s``, ``ms``, ``µs`` or ``ns``. *t* is
            in seconds.
        unreadable: Metrics that the line has, but no number for.
    """

    t: float | None = None
    step: int | None = None
    samples: float | None = None
    epoch: float | None = None
    generation: int | None = None
    world_size: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    t_unit: str = "s"
    unreadable: tuple[str, ...] = ()


FIELDS = ("t", "step", "samples", "epoch", "generation", "world_size")
"""A record's fields, apart from its metrics."""

_NOT_METRICS = frozenset((*FIELDS, "event", "nonfinite", "rewound_from_step"))


# ----------------------------------------------------------------------
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
    return _PARSERS[progress.form](progress.fields)


def guess_format(head: bytes) -> ProgressFormat | None:
    """Return the format of a file that begins with *head*; None where none fits.

    A table or JSON lines need a column or key of ``COUNTED``.
    """
    if EventFrames().feed(head):
        return ProgressFormat.TENSORBOARD
    if head.lstrip().startswith(b"{") and b'"log_history"' in head:
        return ProgressFormat.HUGGINGFACE
    for line in Lines().feed(head)[:1]:
        with suppress(UnreadableLineError):
            if any(name in _json_object(line) for name in COUNTED):
                return ProgressFormat.JSON_LINES
        table = CsvLines(())
        with suppress(UnreadableLineError):
            if not table.parse(line):
                return _kind_of_table(table)
    return None


def _kind_of_table(table: CsvLines) -> ProgressFormat:
    counted = {name for name in COUNTED if name in table.columns}
    if counted == {"epoch"}:
        return ProgressFormat.KERAS
    is_lightning = counted == {"epoch", "step"}
    return ProgressFormat.LIGHTNING if is_lightning else ProgressFormat.CSV


REPEATING = {ProgressFormat.HUGGINGFACE, ProgressFormat.LIGHTNING}
"""Formats whose files are written again with all that they had before."""


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
        return _records(_named(_json_object(without_colours(line)), self._fields))


class CsvLines:
    """Rows of a table whose columns the user named, or whose columns a library names.

    The delimiter is that of comma, semicolon and tab with which a line has all of the
    columns' names; of a library's columns one that counts will do. A program may write
    its header again at each start.

    Attributes:
        header: The last line of column names; empty before the first.
    """

    def __init__(
        self,
        fields: tuple[tuple[str, str], ...],
        library: ProgressFormat | None = None,
    ) -> None:
        """Take pairs of field and column; none is for all columns."""
        self._fields = fields
        self._counted = COUNTED if library is None else LIBRARIES[library].counted
        self._needs_all = library is None and bool(fields)
        # The row of Keras with epoch 0 is written when that epoch is over.
        self._epochs_more = int(library is ProgressFormat.KERAS)
        self._columns: dict[str, int] = {}
        self._delimiter = ","
        self.header = ""

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the record in *line*, unless it is a header."""
        line = without_colours(line)
        if self._is_header(line):
            return ()
        if not self._columns:
            raise UnreadableLineError("a row before the line of column names")
        row = _row(line, self._delimiter)
        cells = {n: row[i] for n, i in self._columns.items() if i < len(row)}
        epoch = number(cells.get("epoch", ""))
        if self._epochs_more and epoch is not None:
            cells["epoch"] = str(epoch + self._epochs_more)
        return _records({n: c for n, c in cells.items() if c not in _NO_VALUE})

    @property
    def columns(self) -> frozenset[str]:
        """The fields that have a column."""
        return frozenset(self._columns)

    def _is_header(self, line: str) -> bool:
        # Most lines are none: only of few the cells are looked at.
        if not self._may_name(line):
            return False
        for delimiter in _DELIMITERS:
            names = [name.strip("# \t") for name in _row(line, delimiter)]
            if self._needs_all:
                is_header = all(column in names for _, column in self._fields)
            else:
                is_header = any(name in names for name in self._counted)
            if is_header:
                self._delimiter, self.header = delimiter, line
                self._columns = self._columns_of(names)
                return True
        return False

    def _may_name(self, line: str) -> bool:
        if '"' in line:
            return True
        if self._needs_all:
            return all(column in line for _, column in self._fields)
        return any(name in line for name in self._counted)

    def _columns_of(self, names: list[str]) -> dict[str, int]:
        """Return the index of each field's column."""
        if not self._fields:
            return {n: i for i, n in enumerate(names[:MOST_METRICS]) if _is_name(n)}
        counted = () if self._needs_all else self._counted
        wanted = {**{name: name for name in counted}, **dict(self._fields)}
        return {f: names.index(c) for f, c in wanted.items() if c in names}


class HistoryLines:
    """Lines of ``trainer_state.json``, as Hugging Face's Trainer writes it.

    Its ``log_history`` is a list of objects with nothing but numbers, each key on a
    line of its own, which begin and end on lines of their own, too.

    Attributes:
        header: What the lines so far had of an object that has not ended.
    """

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        self._fields = _with_counted(fields, ProgressFormat.HUGGINGFACE)
        self.header = ""

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the record of the object that ends with *line*, if it has a step."""
        text = line.strip()
        if text.endswith("{") or (text.startswith("{") and not self.header):
            self.header = "{" if text.endswith("{") else text
            return ()
        if not self.header:
            return ()
        self.header += text
        if not text.startswith("}"):
            if len(self.header) > _LONGEST_OBJECT:
                self.header = ""
            return ()
        entry, self.header = self.header.rstrip(","), ""
        values = _json_object(entry)
        if "step" not in values:
            return ()
        return _records(_named(values, self._fields))


class PatternLines:
    """Lines in which a regular expression of the user's is found.

    Output of several ranks that ran into one line gives a record for each match. Only
    the beginning of a line is searched (``patterns.LONGEST_LINE``).

    Attributes:
        pattern: The expression; its ``limited`` bounds the time of many lines.
    """

    header = ""

    def __init__(self, pattern: str) -> None:
        """Compile *pattern*.

        Raises:
            SlowPatternError: That takes too long.
        """
        self.pattern = LimitedPattern(pattern)
        self._sees_colours = _NAMES_ESCAPES.search(pattern) is not None

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return a record for each match in *line*, which is matched uncoloured.

        A pattern that names escape sequences itself is matched with the line as it is.
        """
        groups = self.pattern.groups(
            line if self._sees_colours else without_colours(line)
        )
        return tuple(record for found in groups for record in _records(found))


@contextmanager
def limited(parser: Parser) -> Iterator[None]:
    """Limit the time that *parser* takes in the block, where a user made it slow.

    Raises:
        SlowPatternError: It took longer.
    """
    if isinstance(parser, PatternLines):
        with parser.pattern.limited():
            yield
    else:
        yield


def _json_object(line: str) -> dict[str, object]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableLineError(f"no JSON: {error}") from error
    if not isinstance(values, dict):
        raise UnreadableLineError("no JSON object")
    return values


def _with_counted(
    fields: tuple[tuple[str, str], ...], library: ProgressFormat
) -> tuple[tuple[str, str], ...]:
    """Return *fields* and those that *library* counts; none, for all, stays none."""
    counted = {name: name for name in LIBRARIES[library].counted}
    return tuple({**counted, **dict(fields)}.items()) if fields else ()


def _named(
    values: Mapping[str, object], fields: tuple[tuple[str, str], ...]
) -> dict[str, object]:
    """Return the values of *fields*; of no fields all numbers under their own names."""
    if fields:
        return {name: _value_at(values, key) for name, key in fields}
    return {k: v for k, v in values.items() if _is_name(k) and number(v) is not None}


def _is_name(text: str) -> bool:
    """Tell whether *text*, found in a file, is taken for the name of a metric."""
    return 0 < len(text) <= MOST_COLUMN_CHARACTERS and text.isprintable()


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


# ----------------------------------------------------------------------
# From fields to a record


def _records(values: Mapping[str, object]) -> tuple[ProgressRecord, ...]:
    """Return the record of the fields that have a value; none where none has."""
    present = {name: value for name, value in values.items() if value is not None}
    return (_record(present),) if present else ()


def _record(values: Mapping[str, object]) -> ProgressRecord:
    metrics: dict[str, float] = {}
    unreadable: list[str] = []
    for name, value in values.items():
        if name in FIELDS or value is None or len(metrics) >= MOST_METRICS:
            continue
        measured = number(value)
        if measured is not None:
            metrics[name] = measured
        else:
            unreadable.append(name)
    t_s, t_unit = _optional_time(values.get("t"))
    record = ProgressRecord(
        t=t_s,
        t_unit=t_unit,
        step=_optional_count(values.get("step")),
        samples=_optional_amount(values.get("samples")),
        epoch=_optional_amount(values.get("epoch")),
        generation=_optional_count(values.get("generation")),
        world_size=_optional_count(values.get("world_size")),
        metrics=metrics,
    )
    if record == ProgressRecord():
        raise UnreadableLineError("none of its fields is a number")
    if unreadable:
        return replace(record, unreadable=tuple(unreadable[:MOST_METRICS]))
    return record


# ----------------------------------------------------------------------
# Numbers as programs print them

# Not 0,250, which is a quarter where a comma marks decimals.
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?", re.ASCII)
# What \S+ in a pattern takes along: "Loss 0.52, accuracy (93%)".
_AROUND = " \t\"'()[]{},;:%"
_LONGEST = 64
# A terminal's colours and movements: ESC, "[", parameters, and a letter; then sets of
# characters, which tput resets with the colours; then titles and links.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
)
_NAMES_ESCAPES = re.compile(r"\x1b|\\(x1b|033|u001b)", re.IGNORECASE)
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


def without_colours(text: str) -> str:
    """Return *text* without the escape sequences that colour it on a terminal."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def _number_in(text: str) -> float | None:
    text = without_colours(text).strip(_AROUND)
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


_FIRST_MS = 1e11
"""As seconds a time of the year 5138, as milliseconds one of 1973."""

_LAST_NS = 1e20


def _optional_time(value: object) -> tuple[float | None, str]:
    """Return Unix time in seconds, and the unit that the program wrote it in."""
    if value is None:
        return None, "s"
    time_s = number(value)
    if time_s is None or not 0 <= time_s < _LAST_NS:
        raise UnreadableLineError(f"{str(value)[:_LONGEST]!r} is no time")
    thousands = 0
    while time_s >= _FIRST_MS:
        time_s, thousands = time_s / 1_000, thousands + 1
    return time_s, ("s", "ms", "µs", "ns")[thousands]


def _optional_amount(value: object) -> float | None:
    return None if value is None else _amount(value)


def _optional_count(value: object) -> int | None:
    return None if value is None else _count(value)


# ----------------------------------------------------------------------
# Bytes to lines

LONGEST_LINE_BYTES = 1 << 18


class Splitter(Protocol):
    """Joins pieces of a file and yields its whole lines, the same for all pieces.

    Attributes:
        too_long: Lines left out: too long, or damaged.
        is_skipping: Whether the present line is left out.
        pending_bytes: Bytes at the end of the input that wait for more.
    """

    too_long: int
    is_skipping: bool

    @property
    def pending_bytes(self) -> int:  # noqa: D102 - among the attributes
        ...

    def feed(self, piece: bytes) -> tuple[str, ...]:
        """Return the lines that *piece* completes, without blank ones."""
        ...

    def skip(self) -> None:
        """Leave out the present line, up to its end."""
        ...


def splitter_for(parser: Parser) -> Splitter:
    """Return what makes the lines that *parser* reads."""
    return EventFrames() if isinstance(parser, EventScalars) else Lines()


# A progress bar ends its lines with a carriage return.
_END = re.compile(rb"[\r\n]")
# A crash on a network file system leaves NULs where data never arrived.
_PADDING = b"\0 \t\v\f"
# What spreadsheets put before the first column's name.
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(slots=True)
class Lines:
    """Joins pieces of a file and yields its whole lines, the same for all pieces.

    Attributes:
        too_long: Lines left out because they exceed ``LONGEST_LINE_BYTES``.
        is_skipping: Whether the present line is such a line.
    """

    too_long: int = 0
    is_skipping: bool = False
    _rest: bytes = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes at the end of the input that wait for the rest of their line."""
        return len(self._rest)

    def feed(self, piece: bytes) -> tuple[str, ...]:
        """Return the lines that *piece* completes, without blank ones.

        Args:
            piece: The bytes after those of the last call.
        """
        *whole, self._rest = _END.split(self._rest + piece)
        lines = [line for line in map(self._checked, whole) if line]
        if len(self._rest) > LONGEST_LINE_BYTES:
            self.too_long += not self.is_skipping
            self.skip()
        return tuple(lines)

    def skip(self) -> None:
        """Leave out the present line, up to its end."""
        self._rest, self.is_skipping = b"", True

    def _checked(self, line: bytes) -> str:
        if self.is_skipping:
            self.is_skipping = False
            return ""
        if len(line) > LONGEST_LINE_BYTES:
            self.too_long += 1
            return ""
        text = line.strip(_PADDING).decode("utf-8", errors="replace")
        return text.removeprefix(_BYTE_ORDER_MARK)


# ----------------------------------------------------------------------
# TensorBoard's event files: frames around protocol buffers

_HEAD_BYTES = 12
_FOOT_BYTES = 4
# A length below 2**24 in eight bytes: where a frame may begin.
_LENGTH = re.compile(rb"(?=[\x00-\xff]{3}\0{5})")
_MOST_BEGINNINGS = 10_000


@dataclass(slots=True)
class EventFrames:
    """Joins pieces of an event file and yields its events, as ``Splitter`` says.

    A frame is the length of an event in eight bytes, a checksum of these, the event,
    and a checksum of the event. An event longer than ``LONGEST_LINE_BYTES``, as an
    image's, is left out; behind it, and behind damage, the next length that has its
    checksum begins a frame. A character of a "line" is a byte of the event.

    Attributes:
        too_long: Frames left out since they are damaged.
        is_skipping: Whether the beginning of a frame is looked for.
    """

    too_long: int = 0
    is_skipping: bool = False
    _rest: bytes = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes at the end of the input that wait for the rest of their frame."""
        return len(self._rest)

    def feed(self, piece: bytes) -> tuple[str, ...]:
        """Return the events that *piece* completes."""
        content = self._rest + piece
        events: list[str] = []
        at = 0
        while True:
            if self.is_skipping:
                at = self._next_frame(content, at)
            if len(content) - at < _HEAD_BYTES:
                break
            length = int.from_bytes(content[at : at + 8], "little")
            if not _has_checksum(content, at, 8):
                self.too_long += 1
                self.skip()
                at += 1
            elif length > LONGEST_LINE_BYTES:
                self.skip()
                at += _HEAD_BYTES
            elif at + _HEAD_BYTES + length + _FOOT_BYTES > len(content):
                break
            else:
                begin, at = at + _HEAD_BYTES, at + _HEAD_BYTES + length + _FOOT_BYTES
                if _has_checksum(content, begin, length):
                    events.append(content[begin : begin + length].decode("latin-1"))
                else:
                    self.too_long += 1
        self._rest = content[at:]
        return tuple(events)

    def skip(self) -> None:
        """Look for the beginning of the next frame."""
        self._rest, self.is_skipping = b"", True

    def _next_frame(self, content: bytes, at: int) -> int:
        """Return where the next frame begins, or what may be the part of its head."""
        for tried, found in enumerate(_LENGTH.finditer(content, at)):
            if found.start() + _HEAD_BYTES > len(content) or tried > _MOST_BEGINNINGS:
                break
            if _has_checksum(content, found.start(), 8):
                self.is_skipping = False
                return found.start()
        return max(at, len(content) - _HEAD_BYTES + 1)


def _has_checksum(content: bytes, begin: int, length: int) -> bool:
    """Tell whether the masked CRC-32C of *length* bytes stands behind them."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in content[begin : begin + length]:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    end = begin + length
    return content[end : end + 4] == masked.to_bytes(4, "little")


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)  # noqa: PLW2901
        table.append(crc)
    return tuple(table)


class EventScalars:
    """Events of TensorBoard's files: the scalars among their summaries.

    Field numbers are those of TensorFlow's event.proto, summary.proto, tensor.proto. A
    scalar is a ``simple_value``, or a tensor of one float or double.
    """

    header = ""

    def __init__(self, fields: tuple[tuple[str, str], ...]) -> None:
        self._fields = fields

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return the record of the event's scalars; none for an event without any."""
        try:
            time_s, step, scalars = _event(line.encode("latin-1"))
        except (IndexError, TypeError, struct.error) as error:
            raise UnreadableLineError(f"no event: {error}") from error
        found = _named(scalars, self._fields)
        if not found or all(value is None for value in found.values()):
            return ()
        kept = {k: v for k, v in found.items() if k not in _OF_ELASTIC}
        return _records({**kept, "t": time_s, "step": step})


_PARSERS: dict[ProgressFormat, Callable[[tuple[tuple[str, str], ...]], Parser]] = {
    ProgressFormat.CSV: CsvLines,
    ProgressFormat.JSON_LINES: JsonLines,
    ProgressFormat.TENSORBOARD: EventScalars,
    ProgressFormat.HUGGINGFACE: HistoryLines,
    ProgressFormat.LIGHTNING: partial(CsvLines, library=ProgressFormat.LIGHTNING),
    ProgressFormat.KERAS: partial(CsvLines, library=ProgressFormat.KERAS),
}

_OF_ELASTIC = ("generation", "world_size")
_FLOAT, _DOUBLE = 1, 2  # values of tensor.proto's DataType


def _event(event: bytes) -> tuple[float | None, int, dict[str, float]]:
    """Return Unix time, step, and scalars by tag."""
    time_s, step, scalars = None, 0, {}
    for found in _proto_fields(event):
        match found:
            case 1, bytes(value):
                (time_s,) = struct.unpack("<d", value)
            case 2, int(value):
                step = value
            case 5, bytes(summaries):
                for kind, summary in _proto_fields(summaries):
                    if kind == 1 and isinstance(summary, bytes):
                        scalars.update(_scalar(summary))
            case _:
                pass
    return time_s, step, scalars


def _scalar(value: bytes) -> dict[str, float]:
    tag, scalar = "", None
    for found in _proto_fields(value):
        match found:
            case 1, bytes(name):
                tag = name.decode("utf-8", errors="replace")
            case 2, bytes(content):
                (scalar,) = struct.unpack("<f", content)
            case 8, bytes(tensor):
                scalar = _one_number(tensor)
            case _:
                pass
    return {tag: scalar} if scalar is not None else {}


def _one_number(tensor: bytes) -> float | None:
    kind, packed = 0, b""
    for found in _proto_fields(tensor):
        match found:
            case 1, int(value):
                kind = value
            case ((4 | 5 | 6), bytes(content)):  # as bytes, floats, doubles
                packed += content
            case _:
                pass
    form = {(_FLOAT, 4): "<f", (_DOUBLE, 8): "<d"}.get((kind, len(packed)))
    return None if form is None else float(struct.unpack(form, packed)[0])


def _proto_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; values of fixed width as bytes.

    Raises:
        IndexError: The message ends within a field.
        TypeError: It has a field of an unknown kind.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                value, at = _varint(message, at)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(message, at)
            case 5:
                length = 4
            case kind:
                raise TypeError(f"kind {kind}")
        if at + length > len(message):
            raise IndexError("it ends too soon")
        yield key >> 3, message[at : at + length]
        at += length


_LONGEST_VARINT = 10
_MORE = 0x80


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at *at*, seven bits a byte, and where it ends."""
    found = 0
    for place in range(_LONGEST_VARINT):
        byte = message[at + place]
        if byte < _MORE:
            return found | byte << 7 * place, at + place + 1
        found |= (byte - _MORE) << 7 * place
    raise IndexError("a number of more than ten bytes")
