"""Progress of training programs, read from the files and output that they write.

``parser_for`` chooses what turns one line into a record: a parser for lines of
``freetrain.elastic``, or for the JSON lines, CSV tables and patterns of job.toml's
``[progress]``. Each parser is one class. All of them hand the fields that they find to
one function, which checks the numbers.

``ProgressReader`` follows a trainer's files from their beginning as they grow, reads
nothing twice, and leaves a ``Bookmark`` from which another process reads on.
``latest_progress`` reads only the ends of the files.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from freetrain.config.job import ProgressFormat
from freetrain.opening import open_plain
from freetrain.patterns import LimitedPattern, SlowPatternError, advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.config.job import ProgressSettings, TrainerJob, WorkSettings


_MOST_METRICS = 200
_DELIMITERS = (",", ";", "\t")


class UnreadableLineError(ValueError):
    """A line that claims to be progress, and cannot be."""


# ----------------------------------------------------------------------
# Records, and the progress that they add up to


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

    def parse(self, line: str) -> tuple[ProgressRecord, ...]:
        """Return a record for each match in *line*."""
        groups = self.pattern.groups(line)
        return tuple(record for found in groups for record in _records(found))


@contextmanager
def _limited(parser: Parser) -> Iterator[None]:
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


# ----------------------------------------------------------------------
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


# ----------------------------------------------------------------------
# The files in which a trainer reports its progress

MOST_BYTES = 1 << 20
"""Of one reading: about 0.13 s of work, so that callers that read once a second stay
quick."""

LONGEST_LINE_BYTES = 1 << 18

_PIECE_BYTES = 1 << 18

_PATTERN_PIECE_BYTES = 1 << 16
"""The same for patterns, whose time is limited for each piece: 65 of the longest lines
take 0.3 s with a pattern like ``.*step``, whose time grows with their square."""

_MOST_PATTERN_S = 0.5
"""CPU time after which one reading leaves the rest to the next."""

TAIL_BYTES = 1 << 18
_HEAD_BYTES = 1 << 16
# A program that fails at each start leaves files without any progress.
_MOST_FILES = 16

# Output of a world: the generation in ten digits, then anything that tells the files of
# one generation apart.
_LOG = re.compile(r"([0-9]{10})(?:[.-].*)?", re.ASCII | re.DOTALL)
_PROGRESS = "progress.jsonl"


def progress_file(job: TrainerJob, run_dir: Path) -> Path | None:
    """Return the one file in which *job* reports its progress.

    Returns:
        None where it is what the program prints, or nothing at all.
    """
    if job.elastic:
        return run_dir / _PROGRESS
    return job.progress.file if job.progress else None


def log_files(logs: Path, since_generation: int = 0) -> list[tuple[int, Path]]:
    """Return generation and path of what worlds printed, in the order of names.

    Args:
        logs: The folder; one that is missing or cannot be read has none.
        since_generation: Files of earlier generations are left out.
    """
    try:
        names = [(_LOG.fullmatch(path.name), path) for path in logs.iterdir()]
    except OSError:
        return []
    found = [(int(match[1]), path) for match, path in names if match]
    return sorted((g, path) for g, path in found if g >= since_generation)


# ----------------------------------------------------------------------
# The bytes that a file grew by


@dataclass(slots=True)
class GrowingFile:
    """Reads on where it stopped. Nothing is held open between two reads.

    Anything but a plain file has no bytes: opening a pipe could wait for ever.

    Attributes:
        path: Where it is.
        inode: Its number in its file system, None before the first read. Devices
            have other numbers on other hosts, so they do not count.
        offset: Where the next read begins.
    """

    path: Path
    inode: int | None = None
    offset: int = 0

    def grow(self, most_bytes: int) -> tuple[bytes, bool]:
        """Return the bytes beyond the last read, *most_bytes* at the most.

        A file that is missing or cannot be read has nothing new.

        Returns:
            The bytes, and whether they are the start of another file than before, or
            of one that was cut.
        """
        try:
            with _plain_file(self.path) as descriptor:
                status = os.fstat(descriptor)
                is_new = status.st_ino != self.inode or status.st_size < self.offset
                if is_new:
                    self.inode, self.offset = status.st_ino, 0
                piece = os.pread(descriptor, most_bytes, self.offset)
        except OSError:
            return b"", False
        self.offset += len(piece)
        return piece, is_new


def read_tail(path: Path, most_bytes: int) -> bytes:
    """Return the last *most_bytes* of a plain file, and b"" where there is none."""
    try:
        with _plain_file(path) as descriptor:
            start = max(0, os.fstat(descriptor).st_size - most_bytes)
            return os.pread(descriptor, most_bytes, start)
    except OSError:
        return b""


@contextmanager
def _plain_file(path: Path) -> Iterator[int]:
    """Open a plain file for reading; OSError for anything else.

    The way to it may lead over the user's own links: the user named the file, or the
    folder that it lies in.
    """
    descriptor = open_plain(path, follows=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# ----------------------------------------------------------------------
# Bytes to lines

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
            self._rest, self.is_skipping = b"", True
        return tuple(lines)

    def _checked(self, line: bytes) -> str:
        if self.is_skipping or len(line) > LONGEST_LINE_BYTES:
            self.is_skipping = False
            self.too_long += 1
            return ""
        text = line.strip(_PADDING).decode("utf-8", errors="replace")
        return text.removeprefix(_BYTE_ORDER_MARK)


# ----------------------------------------------------------------------
# Where reading stopped, for a reader in another process


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Where reading a file stopped: before its first incomplete line.

    Attributes:
        name: The file's, without its folder.
        inode: Its number; another number is another file.
        offset: Bytes that were read and parsed.
        is_skipping: Whether the next bytes are the rest of a line that is too long.
        header: The line that explains those to come; empty for none.
    """

    name: str
    inode: int
    offset: int
    is_skipping: bool = False
    header: str = ""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where reading a trainer's progress stopped. ``asdict`` makes it JSON.

    Attributes:
        generation: The last generation whose files were looked at; 0 for none.
        bad_lines: Lines so far that could not be parsed.
        has_caught_up: Whether a reading has reached the end of the files.
        marks: Positions in the files that may still grow.
        slow_pattern: The pattern that took too long, with which nothing more is read;
            empty for none.
        problem: The same for people.
    """

    generation: int = 0
    bad_lines: int = 0
    has_caught_up: bool = False
    marks: tuple[FilePosition, ...] = ()
    slow_pattern: str = ""
    problem: str = ""


BEGINNING = Bookmark()


def bookmark_from(fields: Mapping[str, Any]) -> Bookmark:
    """Return the bookmark of which ``asdict`` made *fields*.

    Raises:
        KeyError, TypeError: They are no bookmark's.
    """
    marks = tuple(FilePosition(**position) for position in fields["marks"])
    return Bookmark(**{**fields, "marks": marks})


# ----------------------------------------------------------------------
# One file's records, read on as it grows


class Feed:
    """One file's new records.

    Attributes:
        bad_lines: Lines so far that could not be parsed.
    """

    def __init__(
        self,
        job: TrainerJob,
        path: Path,
        generation: int | None,
        start: FilePosition | None = None,
    ) -> None:
        """Begin at *start*; at the beginning of the file without it.

        Raises:
            SlowPatternError: The job's pattern takes too long to compile.
        """
        self.bad_lines = 0
        self._job = job
        self._generation = generation
        self._file = GrowingFile(path)
        self._begin()
        if start is not None:
            self._file = GrowingFile(path, start.inode, start.offset)
            self._lines.is_skipping = start.is_skipping
            if start.header:
                self._parser.parse(start.header)

    def _begin(self) -> None:
        self._lines = Lines()
        self._parser = parser_for(self._job.progress)

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.path.name

    @property
    def position(self) -> FilePosition | None:
        """Where reading stopped; None where there was no file."""
        if self._file.inode is None:
            return None
        return FilePosition(
            name=self.name,
            inode=self._file.inode,
            offset=self._file.offset - self._lines.pending_bytes,
            is_skipping=self._lines.is_skipping,
            header=self._parser.header,
        )

    def read_on(self, left_bytes: int, records: list[ProgressRecord]) -> int:
        """Append new records, up to *left_bytes*; return the bytes that are left.

        None are left where the pattern took so long that the rest has to wait.

        Raises:
            SlowPatternError: The job's pattern took too long.
        """
        until_s = self.spent_s + _MOST_PATTERN_S
        is_pattern = isinstance(self._parser, PatternLines)
        piece_bytes = _PATTERN_PIECE_BYTES if is_pattern else _PIECE_BYTES
        while left_bytes:
            most_bytes = min(left_bytes, piece_bytes)
            read_bytes = self._read(most_bytes, records)
            left_bytes -= read_bytes
            if read_bytes < most_bytes:
                break
            if self.spent_s > until_s:
                return 0
        return left_bytes

    @property
    def spent_s(self) -> float:
        """CPU time that matching the job's pattern took so far."""
        parser = self._parser
        return parser.pattern.spent_s if isinstance(parser, PatternLines) else 0.0

    def _read(self, most_bytes: int, records: list[ProgressRecord]) -> int:
        piece, is_new_file = self._file.grow(most_bytes)
        if is_new_file:
            self._begin()
        too_long = self._lines.too_long
        with _limited(self._parser):
            records.extend(self._parse(self._lines.feed(piece)))
        self.bad_lines += self._lines.too_long - too_long
        return len(piece)

    def _parse(self, lines: Iterable[str]) -> Iterator[ProgressRecord]:
        for line in lines:
            try:
                found = self._parser.parse(line)
            except UnreadableLineError:
                self.bad_lines += 1
                continue
            for record in found:
                known = record.generation is not None or self._generation is None
                yield record if known else replace(record, generation=self._generation)


# ----------------------------------------------------------------------
# Records added up


class ProgressTracker:
    """Takes records in the order in which they were written; keeps the last values.

    Numbers that a line leaves out stay as they were, so that a line with only a
    validation metric does not hide the step. A restart that rewinds goes back: the
    last line counts, not the largest number.
    """

    def __init__(self) -> None:
        self._last: dict[str, float | None] = {}
        self._metrics: dict[str, float] = {}
        # Time and samples of the first and last record of the present generation.
        self._first_timed: tuple[float, float] | None = None
        self._last_timed: tuple[float, float] | None = None

    def add(self, record: ProgressRecord) -> None:
        """Add *record*, the newest."""
        self._measure(record)
        self._metrics.update(record.metrics)
        for name in FIELDS:
            value = getattr(record, name)
            if value is not None:
                self._last[name] = value

    def progress(self) -> Progress | None:
        """Return where the trainer is; None before the first record."""
        if not self._last and not self._metrics:
            return None
        return Progress(
            t=self._last.get("t"),
            step=self._whole("step"),
            samples=self._last.get("samples"),
            epoch=self._last.get("epoch"),
            generation=self._whole("generation"),
            world_size=self._whole("world_size"),
            metrics=dict(self._metrics),
            samples_per_s=self._samples_per_s(),
        )

    def _whole(self, name: str) -> int | None:
        value = self._last.get(name)
        return None if value is None else int(value)

    def _measure(self, record: ProgressRecord) -> None:
        last_generation = self._last.get("generation")
        if record.generation is not None and record.generation != last_generation:
            self._first_timed = self._last_timed = None
        if record.t is None or record.samples is None:
            return
        now = (record.t, record.samples)
        # Fewer samples than before: the program started over without saying so.
        if self._last_timed is None or record.samples < self._last_timed[1]:
            self._first_timed = now
        self._last_timed = now

    def _samples_per_s(self) -> float | None:
        if self._first_timed is None or self._last_timed is None:
            return None
        seconds = self._last_timed[0] - self._first_timed[0]
        samples = self._last_timed[1] - self._first_timed[1]
        return samples / seconds if seconds > 0 else None


def _progress_after(records: Iterable[ProgressRecord]) -> Progress | None:
    tracker = ProgressTracker()
    for record in records:
        tracker.add(record)
    return tracker.progress()


# ----------------------------------------------------------------------
# All files of a trainer


class ProgressReader:
    """Reads a trainer's progress, from its beginning on, without reading twice.

    A last line without its end waits for the rest. A file that shrank or was
    replaced is read from its start. Lines that cannot be parsed are counted, and
    never fatal; files that are missing or cannot be read have nothing new. Once the
    job's pattern took too long, nothing more is read. Use it on the main thread,
    where alone a pattern's time can be limited.

    Attributes:
        is_behind: Whether the last call left off at its bound, with more to read.
        read_bytes: Bytes that the last call read.
        pattern_s: CPU time that the last call took to match the job's pattern.
        problem: Why nothing more is read, for people; empty while all is well.
    """

    def __init__(
        self,
        job: TrainerJob,
        run_dir: Path,
        logs: Path,
        *,
        unix_s: Callable[[], float] | None = None,
        since: Bookmark = BEGINNING,
    ) -> None:
        """Begin at the beginning, or where another reader stopped.

        Args:
            job: The trainer.
            run_dir: Its run directory.
            logs: The folder of its worlds' output.
            unix_s: The clock for records without a time, used once the first reading
                has caught up.
            since: Where the other reader stopped.
        """
        self.is_behind = True
        self.read_bytes = 0
        self.pattern_s = 0.0
        self._pattern = "" if job.progress is None else job.progress.pattern
        self.problem = since.problem if self._pattern == since.slow_pattern else ""
        self._job = job
        self._logs = logs
        self._unix_s = unix_s
        self._has_caught_up = since.has_caught_up
        self._progress_file = progress_file(job, run_dir)
        self._feeds: dict[Path, Feed] = {}
        self._starts: dict[str, FilePosition | None] = {
            position.name: position for position in since.marks
        }
        self._generation = since.generation
        self._bad_lines = since.bad_lines
        self._tracker = ProgressTracker()

    @property
    def bad_lines(self) -> int:
        """Lines so far that claimed to be progress and could not be parsed."""
        return self._bad_lines + sum(feed.bad_lines for feed in self._feeds.values())

    @property
    def bookmark(self) -> Bookmark:
        """Where it stopped, for another reader."""
        now = {feed.name: feed.position for feed in self._feeds.values()}
        marks = tuple(p for p in (self._starts | now).values() if p is not None)
        return Bookmark(
            self._generation,
            self.bad_lines,
            self._has_caught_up,
            marks,
            slow_pattern=self._pattern if self.problem else "",
            problem=self.problem,
        )

    def read(self, *, most_bytes: int = MOST_BYTES) -> tuple[ProgressRecord, ...]:
        """Return the records since the last call, in the order they were written.

        Args:
            most_bytes: Bytes that one call reads at the most; the rest comes with
                the next calls (``is_behind``).
        """
        self.is_behind, self.read_bytes, self.pattern_s = False, 0, 0.0
        if self.problem:
            return ()
        records: list[ProgressRecord] = []
        left_bytes = most_bytes
        try:
            for feed in self._present_feeds():
                before_s = feed.spent_s
                try:
                    left_bytes = feed.read_on(left_bytes, records)
                finally:
                    self.pattern_s += feed.spent_s - before_s
                if not left_bytes:
                    break
        except SlowPatternError as error:
            self.problem = advice(error, self._pattern)
        self.is_behind = not left_bytes and not self.problem
        self.read_bytes = most_bytes - left_bytes
        timed = [self._timed(record) for record in records]
        self._has_caught_up |= not self.is_behind
        for record in timed:
            self._tracker.add(record)
        return tuple(timed)

    def latest(self) -> Progress | None:
        """Return where the trainer is, by all that was read; None before anything."""
        return self._tracker.progress()

    def _timed(self, record: ProgressRecord) -> ProgressRecord:
        if record.t is not None or self._unix_s is None or not self._has_caught_up:
            return record
        return replace(record, t=self._unix_s())

    def _present_feeds(self) -> Iterator[Feed]:
        if self._progress_file is not None:
            yield self._feed(self._progress_file, None)
        elif self._job.progress is not None:
            for generation, path in log_files(self._logs, self._generation):
                self._move_on(generation)
                yield self._feed(path, generation)

    def _feed(self, path: Path, generation: int | None) -> Feed:
        if path not in self._feeds:
            start = self._starts.get(path.name)
            self._feeds[path] = Feed(self._job, path, generation, start)
        return self._feeds[path]

    def _move_on(self, generation: int) -> None:
        """Forget the files of earlier generations, which are read to their ends."""
        if generation > self._generation:
            self._generation = generation
            self._bad_lines = self.bad_lines
            self._feeds, self._starts = {}, {}


# ----------------------------------------------------------------------
# The ends of the files only: quick on files of any size


def latest_progress(
    job: TrainerJob, run_dir: Path, logs: Path, *, tail_bytes: int = TAIL_BYTES
) -> Progress | None:
    """Return where *job* is, reading only the ends of its files.

    Args:
        job: The trainer.
        run_dir: Its run directory.
        logs: The folder of its worlds' output.
        tail_bytes: Bytes of a file's end that are read.

    Returns:
        None where no progress is reported there, or reading it with the job's pattern
        takes too long. ``samples_per_s`` is over the part of the present generation
        that the end holds, so it may differ from a ``ProgressReader``'s.
    """
    with suppress(SlowPatternError):
        return _latest_progress(job, run_dir, logs, tail_bytes)
    return None


def _latest_progress(
    job: TrainerJob, run_dir: Path, logs: Path, tail_bytes: int
) -> Progress | None:
    path = progress_file(job, run_dir)
    if path is not None:
        return _progress_after(_records_in_tail(job, path, tail_bytes))
    if job.progress is None:
        return None
    for generation, log in reversed(log_files(logs)[-_MOST_FILES:]):
        found = _records_in_tail(job, log, tail_bytes)
        if found:
            return _progress_after(replace(r, generation=generation) for r in found)
    return None


def _records_in_tail(
    job: TrainerJob, path: Path, tail_bytes: int
) -> list[ProgressRecord]:
    parser = parser_for(job.progress)
    if isinstance(parser, PatternLines):
        tail_bytes = min(tail_bytes, _PATTERN_PIECE_BYTES)
    tail = read_tail(path, tail_bytes + 1)
    if len(tail) > tail_bytes:
        if job.progress and job.progress.form is ProgressFormat.CSV:
            head, _ = GrowingFile(path).grow(_HEAD_BYTES)
            _parsed(parser, head)  # for the names of the columns
        tail = _from_a_line_on(tail)
    return _parsed(parser, tail)


def _from_a_line_on(tail: bytes) -> bytes:
    """Leave out the bytes that may be the rest of a line that began before *tail*."""
    ends = [end for end in (tail.find(b"\n"), tail.find(b"\r")) if end >= 0]
    return tail[min(ends) + 1 :] if ends else b""


def _parsed(parser: Parser, content: bytes) -> list[ProgressRecord]:
    records: list[ProgressRecord] = []
    with _limited(parser):
        for line in Lines().feed(content):
            with suppress(UnreadableLineError):
                records.extend(parser.parse(line))
    return records
