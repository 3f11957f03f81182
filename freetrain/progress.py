"""Reading what training programs tell of their progress.

``reader.Reader`` follows a program as it runs; ``tail.latest_progress`` looks once,
at the end of what it wrote. Both read ``progress.jsonl`` of programs that use
``freetrain.elastic``, and what job.toml's ``[progress]`` names for others.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from freetrain.config.job import ProgressFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.config.job import ProgressSettings, TrainerJob, WorkSettings


# ----------------------------------------------------------------------
# Where reading stopped, for whoever reads on in another process.


@dataclass(frozen=True, slots=True)
class Mark:
    """Where reading a file stopped: before its first line that was not whole.

    Attributes:
        name: The file's, without its folder.
        inode: Its number; another number is another file.
        offset: Bytes that were read and understood.
        is_skipping: Whether what comes is the rest of a line that is too long.
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
        generation: The last one whose files were looked at; 0 for none.
        bad_lines: Lines so far that could not be understood.
        has_caught_up: Whether all that was there had been read once.
        marks: Of the files that may still grow.
    """

    generation: int = 0
    bad_lines: int = 0
    has_caught_up: bool = False
    marks: tuple[Mark, ...] = ()


BEGINNING = Bookmark()


def bookmark_from(fields: Mapping[str, Any]) -> Bookmark:
    """Return what ``asdict`` made *fields* of.

    Raises:
        TypeError: They are of something else.
        KeyError: Likewise.
    """
    marks = tuple(Mark(**one) for one in fields["marks"])
    return Bookmark(**{**fields, "marks": marks})


# ----------------------------------------------------------------------
# The bytes that a file grew by, however its owner treats it.


@dataclass(frozen=True, slots=True)
class Grown:
    """What was read.

    Attributes:
        piece: The new bytes; empty for none.
        is_new_file: Whether the file is another one than before, or was cut, so
            that *piece* begins at its start.
    """

    piece: bytes
    is_new_file: bool = False


@dataclass(slots=True)
class GrowingFile:
    """Reads on where it stopped. Nothing is held open between two reads.

    Anything that is no plain file has no bytes: opening a pipe could wait for ever.

    Attributes:
        path: Where it is.
        inode: Its number in its file system, None before the first read. Devices
            have other numbers on other hosts, so they do not count.
        offset: Where the next read begins.
    """

    path: Path
    inode: int | None = None
    offset: int = 0

    def grow(self, most_bytes: int) -> Grown:
        """Return what is there beyond the last read, *most_bytes* at the most.

        A file that is missing or cannot be read has nothing new.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return Grown(b"")
        try:
            return self._read(descriptor, most_bytes)
        except OSError:
            return Grown(b"")
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, most_bytes: int) -> Grown:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return Grown(b"")
        is_new = found.st_ino != self.inode or found.st_size < self.offset
        if is_new:
            self.inode, self.offset = found.st_ino, 0
        piece = os.pread(descriptor, most_bytes, self.offset)
        self.offset += len(piece)
        return Grown(piece, is_new)


def read_tail(path: Path, most_bytes: int) -> bytes:
    """Return the last *most_bytes* of a plain file, and b"" where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        start = max(0, found.st_size - most_bytes)
        return os.pread(descriptor, most_bytes, start)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# ----------------------------------------------------------------------
# Cut what a file grows by into lines; pure, and the same for every chunking.

LONGEST_LINE_BYTES = 1 << 18
# A progress bar ends its lines with a carriage return.
_END = re.compile(rb"[\r\n]")
# A crash on a network file system leaves NULs where data never arrived.
_AROUND_lines = b"\0 \t\v\f"
# What spreadsheets put before the first column's name.
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(slots=True)
class Lines:
    """Joins pieces of a file and yields its whole lines.

    Attributes:
        too_long: Lines left out because they exceed ``LONGEST_LINE_BYTES``.
        is_skipping: Whether the present line is such a one.
    """

    too_long: int = 0
    is_skipping: bool = False
    _rest: bytes = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes at the end of what was fed that wait for the rest of their line."""
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
        text = line.strip(_AROUND_lines).decode("utf-8", errors="replace")
        return text.removeprefix(_BYTE_ORDER_MARK)


# ----------------------------------------------------------------------
# Numbers as programs print them; pure.

_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?", re.ASCII)
# What \S+ in a pattern takes along: "Loss 0.52, accuracy (93%)".
_AROUND_numbers = " \t\"'()[]{},;:%"
_LONGEST = 64
# Above this a float does not tell one step from the next.
_LARGEST_COUNT = 2.0**53


class AbsurdError(ValueError):
    """A number that no training can have told."""


def number(told: object) -> float | None:
    """Return *told* as a number, nan and infinities included; None for no number."""
    if isinstance(told, bool):
        return None
    if isinstance(told, int | float):
        try:
            return float(told)
        except OverflowError:
            return math.inf if told > 0 else -math.inf
    return _number_in(told) if isinstance(told, str) else None


def _number_in(text: str) -> float | None:
    text = text.strip(_AROUND_numbers)
    if len(text) > _LONGEST or "_" in text or not text.isascii():
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def amount(told: object) -> float:
    """Return *told* as an amount of work: finite, at least 0.

    Raises:
        AbsurdError: It is not.
    """
    value = number(told)
    if value is None or not 0 <= value <= _LARGEST_COUNT:
        raise AbsurdError(f"{str(told)[:_LONGEST]!r} is no amount of work")
    return value


def count(told: object) -> int:
    """Return *told* as a whole number, at least 0; ``1e3`` is one.

    Raises:
        AbsurdError: It is not.
    """
    value = amount(told)
    if value != int(value):
        raise AbsurdError(f"{str(told)[:_LONGEST]!r} is no whole number")
    return int(value)


def moment(told: object) -> float:
    """Return *told* as a Unix time.

    Raises:
        AbsurdError: It is not.
    """
    return amount(told)


# ----------------------------------------------------------------------
# What a program told: one record a line, and where that leaves it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of progress. What the line did not tell is None.

    Attributes:
        t: When, Unix time; by the program's clock where it told it.
        step: Steps done since the training began.
        samples: Samples done since the training began.
        epoch: Epoch of the step. ``freetrain.elastic`` counts from 0; what others
            print is kept as it is.
        generation: Whose line it is.
        world_size: Ranks of that generation.
        metrics: The loss and what else was measured; may be nan or infinite.
    """

    t: float | None = None
    step: int | None = None
    samples: float | None = None
    epoch: float | None = None
    generation: int | None = None
    world_size: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a trainer is, from all that was read. What was never told is None.

    Attributes:
        t: When the last record was made, Unix time.
        step: Steps done.
        samples: Samples done.
        epoch: Epoch of the last step.
        generation: Whose record was the last.
        world_size: Its ranks.
        metrics: The last value of each metric.
        samples_per_s: Samples a second over the present generation.
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
        """The last loss, where a metric of that name was told."""
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
# From a line to records; pure but for the header that a table of CSV begins with.

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


# ----------------------------------------------------------------------
# One file's records, read on as it grows.

_PIECE_BYTES = 1 << 18


class Feed:
    """One file's new records.

    Attributes:
        bad_lines: Lines so far that could not be understood.
    """

    def __init__(
        self,
        job: TrainerJob,
        path: Path,
        generation: int | None,
        mark: Mark | None = None,
    ) -> None:
        """Begin where *mark* says; at the beginning without it."""
        self.bad_lines = 0
        self._job = job
        self._generation = generation
        self._file = GrowingFile(path)
        self._begin()
        if mark is not None:
            self._file = GrowingFile(path, mark.inode, mark.offset)
            self._lines.is_skipping = mark.is_skipping
            if mark.header:
                self._parser.parse(mark.header)

    def _begin(self) -> None:
        self._lines = Lines()
        self._parser = parser_for(self._job.progress)

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.path.name

    @property
    def mark(self) -> Mark | None:
        """Where it stopped; None where there was no file."""
        if self._file.inode is None:
            return None
        return Mark(
            name=self._file.path.name,
            inode=self._file.inode,
            offset=self._file.offset - self._lines.pending_bytes,
            is_skipping=self._lines.is_skipping,
            header=self._parser.header,
        )

    def read_on(self, left: int, records: list[Record]) -> int:
        """Read to the end or the bound *left*; return what is left of the bound."""
        while left:
            asked = min(left, _PIECE_BYTES)
            got = self._read(asked, records)
            left -= got
            if got < asked:
                break
        return left

    def _read(self, most_bytes: int, records: list[Record]) -> int:
        grown = self._file.grow(most_bytes)
        if grown.is_new_file:
            self._begin()
        too_long = self._lines.too_long
        records.extend(self._parse(self._lines.feed(grown.piece)))
        self.bad_lines += self._lines.too_long - too_long
        return len(grown.piece)

    def _parse(self, lines: Iterable[str]) -> Iterator[Record]:
        for line in lines:
            try:
                found = self._parser.parse(line)
            except AbsurdError:
                self.bad_lines += 1
                continue
            for record in found:
                known = record.generation is not None or self._generation is None
                yield record if known else replace(record, generation=self._generation)


# ----------------------------------------------------------------------
# Which files tell a trainer's progress.

# What a world prints: the generation in ten digits, then whatever tells files of one
# generation apart.
_LOG = re.compile(r"([0-9]{10})(?:[.-].*)?", re.ASCII | re.DOTALL)
_PROGRESS = "progress.jsonl"


def told_in(job: TrainerJob, run_dir: Path) -> Path | None:
    """Return the one file that *job* tells its progress in.

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
# From records, where a trainer is now and how quick its generation has been.


@dataclass(slots=True)
class Standing:
    """Takes records in the order they were written; remembers only what counts.

    Numbers that a line leaves out stay as they were, so that a line with only a
    validation metric does not hide the step. A restart that rewinds goes back: the
    last line counts, not the largest number.
    """

    _last: dict[str, float | None] = field(default_factory=dict)
    _metrics: dict[str, float] = field(default_factory=dict)
    _first_timed: tuple[float, float] | None = None
    _last_timed: tuple[float, float] | None = None

    def take(self, record: Record) -> None:
        """Add *record*, the newest."""
        self._measure(record)
        self._metrics.update(record.metrics)
        for name in ("t", "step", "samples", "epoch", "generation", "world_size"):
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
            samples_per_s=self._rate(),
        )

    def _whole(self, name: str) -> int | None:
        value = self._last.get(name)
        return None if value is None else int(value)

    def _measure(self, record: Record) -> None:
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

    def _rate(self) -> float | None:
        if self._first_timed is None or self._last_timed is None:
            return None
        seconds = self._last_timed[0] - self._first_timed[0]
        samples = self._last_timed[1] - self._first_timed[1]
        return samples / seconds if seconds > 0 else None


# ----------------------------------------------------------------------
# Follow what a trainer tells, as it grows.

# About 0.13 s of work, so that whoever asks once a second stays quick.
MOST_BYTES = 1 << 20


class Reader:
    """Reads a trainer's progress, from its beginning on, without reading twice.

    A last line without its end waits for the rest. A file that shrank or was
    replaced is read from its start. Lines that cannot be understood are counted,
    and never fatal; files that are missing or cannot be read have nothing new.

    Attributes:
        is_behind: Whether the last call left off at its bound, with more to read.
        read_bytes: How many bytes the last call read.
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
            logs: The folder of what its worlds print.
            unix_s: For programs that tell no time: what a record read from now on
                gets as its time, once the first reading has caught up.
            since: Where the other reader stopped.
        """
        self.is_behind = True
        self.read_bytes = 0
        self._job = job
        self._logs = logs
        self._unix_s = unix_s
        self._has_caught_up = since.has_caught_up
        self._told_in = told_in(job, run_dir)
        self._feeds: dict[Path, Feed] = {}
        self._marks: dict[str, Mark | None] = {one.name: one for one in since.marks}
        self._generation = since.generation
        self._bad_lines = since.bad_lines
        self._standing = Standing()

    @property
    def bad_lines(self) -> int:
        """Lines so far that claimed to be progress and could not be understood."""
        return self._bad_lines + sum(feed.bad_lines for feed in self._feeds.values())

    @property
    def bookmark(self) -> Bookmark:
        """Where it stopped, for another reader."""
        found = {feed.name: feed.mark for feed in self._feeds.values()}
        marks = (mark for mark in (self._marks | found).values() if mark is not None)
        return Bookmark(
            self._generation, self.bad_lines, self._has_caught_up, tuple(marks)
        )

    def read(self, *, most_bytes: int = MOST_BYTES) -> tuple[Record, ...]:
        """Return the records since the last call, in the order they were written.

        Args:
            most_bytes: Bytes that one call reads at the most; the rest comes with
                the next calls (``is_behind``).
        """
        records: list[Record] = []
        left = most_bytes
        for feed in self._present_feeds():
            left = feed.read_on(left, records)
            if not left:
                break
        self.is_behind = not left
        self.read_bytes = most_bytes - left
        timed = [self._timed(record) for record in records]
        self._has_caught_up |= not self.is_behind
        for record in timed:
            self._standing.take(record)
        return tuple(timed)

    def latest(self) -> Progress | None:
        """Return where the trainer is, by all that was read; None before anything."""
        return self._standing.progress()

    def _timed(self, record: Record) -> Record:
        if record.t is not None or self._unix_s is None or not self._has_caught_up:
            return record
        return replace(record, t=self._unix_s())

    def _present_feeds(self) -> Iterator[Feed]:
        if self._told_in is not None:
            yield self._feed(self._told_in, None)
        elif self._job.progress is not None:
            for generation, path in log_files(self._logs, self._generation):
                self._move_on(generation)
                yield self._feed(path, generation)

    def _feed(self, path: Path, generation: int | None) -> Feed:
        if path not in self._feeds:
            mark = self._marks.get(path.name)
            self._feeds[path] = Feed(self._job, path, generation, mark)
        return self._feeds[path]

    def _move_on(self, generation: int) -> None:
        """Forget the files of earlier generations, which are read to their ends."""
        if generation > self._generation:
            self._generation = generation
            self._bad_lines = self.bad_lines
            self._feeds, self._marks = {}, {}


# ----------------------------------------------------------------------
# Where a trainer is, from the end of what it wrote: quick on files of any size.

TAIL_BYTES = 1 << 18
_HEAD_BYTES = 1 << 16
# A program that fails at each start leaves files without a word of progress.
_MOST_FILES = 16


def latest_progress(
    job: TrainerJob, run_dir: Path, logs: Path, *, tail_bytes: int = TAIL_BYTES
) -> Progress | None:
    """Return where *job* is, reading only the ends of its files.

    Args:
        job: The trainer.
        run_dir: Its run directory.
        logs: The folder of what its worlds print.
        tail_bytes: How much of a file's end is read.

    Returns:
        None where nothing is told there. ``samples_per_s`` is over what the end
        holds of the present generation, so it may differ from a ``Reader``'s.
    """
    path = told_in(job, run_dir)
    if path is not None:
        return _standing(_records(job, path, tail_bytes))
    if job.progress is None:
        return None
    for generation, log in reversed(log_files(logs)[-_MOST_FILES:]):
        found = _records(job, log, tail_bytes)
        if found:
            return _standing(replace(r, generation=generation) for r in found)
    return None


def _standing(records: Iterable[Record]) -> Progress | None:
    standing = Standing()
    for record in records:
        standing.take(record)
    return standing.progress()


def _records(job: TrainerJob, path: Path, tail_bytes: int) -> list[Record]:
    tail = read_tail(path, tail_bytes + 1)
    parser = parser_for(job.progress)
    if len(tail) > tail_bytes:
        _learn_columns(job, path, parser)
        tail = _from_a_line_on(tail)
    return [record for line in Lines().feed(tail) for record in _parsed(parser, line)]


def _from_a_line_on(tail: bytes) -> bytes:
    """Leave out what may be the rest of a line that began before *tail*."""
    ends = [end for end in (tail.find(b"\n"), tail.find(b"\r")) if end >= 0]
    return tail[min(ends) + 1 :] if ends else b""


def _learn_columns(job: TrainerJob, path: Path, parser: Parser) -> None:
    """Show the file's first lines to the parser of a table, for its header."""
    if job.progress and job.progress.form is ProgressFormat.CSV:
        for line in Lines().feed(GrowingFile(path).grow(_HEAD_BYTES).piece):
            _parsed(parser, line)


def _parsed(parser: Parser, line: str) -> tuple[Record, ...]:
    try:
        return parser.parse(line)
    except AbsurdError:
        return ()
