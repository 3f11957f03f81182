"""Progress of training programs, read from the files and output that they write.

``ProgressReader`` follows a trainer's files from their beginning as they grow, reads
nothing twice, and leaves a ``Bookmark`` from which another process reads on.
``latest_progress`` reads only the ends of the files. ``freetrain.formats`` makes
records of their lines.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freetrain.config.job import COUNTED, ProgressFormat
from freetrain.formats import (
    FIELDS,
    MOST_METRICS,
    REPEATING,
    CsvLines,
    HistoryLines,
    PatternLines,
    UnreadableLineError,
    limited,
    parser_for,
    splitter_for,
)
from freetrain.opening import open_plain
from freetrain.patterns import SlowPatternError, advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.config.job import TrainerJob, WorkSettings
    from freetrain.formats import Parser, ProgressRecord


# ----------------------------------------------------------------------
# The progress that records add up to


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
# The files in which a trainer reports its progress

MOST_BYTES = 1 << 20
"""Of one reading, so that callers that read once a second stay quick: 0.2 s of work for
lines of JSON, 0.5 s for TensorBoard's events, 0.7 s for a table's shortest rows."""

_PIECE_BYTES = 1 << 18
_MARKED_BYTES = 512

MOST_BACKLOG_BYTES = 4 * MOST_BYTES
"""Of a file that grows faster than it is read, as one of 17 kB/s does where ticks read
``MOST_BYTES`` a minute. Of a longer backlog one reading takes stretches at even
distances, the last at its end."""

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


def files_of(job: TrainerJob, run_dir: Path) -> Path | None:
    """Return where *job* reports its progress, with ``*`` for the newest of several."""
    if job.elastic:
        return run_dir / _PROGRESS
    return job.progress.files if job.progress else None


def progress_file(job: TrainerJob, run_dir: Path) -> Path | None:
    """Return the one file in which *job* reports its progress, or will report it.

    Returns:
        None where it is what the program prints, or nothing at all.
    """
    files = files_of(job, run_dir)
    return files if files is None or job.elastic else newest_file(files)


def report_folder(job: TrainerJob, run_dir: Path) -> Path | None:
    """Return a folder in which *job* writes its ``progress_file``, or will make one."""
    file = progress_file(job, run_dir)
    if file is None or job.elastic or not _WILD.search(str(file)):
        return file and file.parent
    return next((place for place in file.parents if place.is_dir()), file.parent)


_WILD = re.compile(r"[*?]")
_MOST_LISTED = 10_000
"""Names that one search for files looks at."""


def newest_file(files: Path) -> Path:
    """Return the plain file last changed of those that *files* stands for.

    Without ``*`` and ``?``, with a file of just that name, and where there is none,
    *files* is returned. Links are not followed where a name has ``*`` or ``?``.
    """
    if not _WILD.search(str(files)) or os.path.lexists(files):
        return files
    first = next(n for n, part in enumerate(files.parts) if _WILD.search(part))
    places = [str(Path(*files.parts[:first]))]
    listed = iter(range(_MOST_LISTED))
    for part in files.parts[first:]:
        places = [found for place in places for found in _in(place, part, listed)]
    found = [
        (changed_ns, place) for place in places if (changed_ns := _changed_ns(place))
    ]
    return Path(max(found)[1]) if found else files


def _in(folder: str, part: str, listed: Iterator[int]) -> list[str]:
    """Return what *folder* has under the name *part*, as far as *listed* goes."""
    if not _WILD.search(part):
        return [f"{folder}/{part}"] if next(listed, None) is not None else []
    name = re.compile(fnmatch.translate(part.replace("[", "[[]")))
    with suppress(OSError), os.scandir(folder) as entries:
        return [
            entry.path
            for entry, _ in zip(entries, listed, strict=False)
            if name.match(entry.name) and not entry.is_symlink()
        ]
    return []


def _changed_ns(file: str) -> int:
    """Return when *file* was changed; 0 where it is no plain file."""
    try:
        status = os.lstat(file)
    except OSError:
        return 0
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0


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
        size: At the last read, None before it.
        head: Length and checksum of its first bytes at the last read, by which a file
            that was written again in place is known; empty for unknown.
    """

    path: Path
    inode: int | None = None
    offset: int = 0
    size: int | None = None
    head: str = ""

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
                head = os.pread(descriptor, _MARKED_BYTES, 0)
                is_new = (
                    status.st_ino != self.inode
                    or status.st_size < self.offset
                    or not _begins_as(head, self.head)
                )
                self.head = f"{len(head)}:{zlib.crc32(head)}"
                if is_new:
                    self.inode, self.offset = status.st_ino, 0
                self.size = status.st_size
                piece = os.pread(descriptor, most_bytes, self.offset)
        except OSError:
            return b"", False
        self.offset += len(piece)
        return piece, is_new

    def leave_out(self, but_bytes: int) -> bool:
        """Let the first read begin so many bytes before the file's end.

        Returns:
            Whether anything is left out.
        """
        try:
            with _plain_file(self.path) as descriptor:
                status = os.fstat(descriptor)
        except OSError:
            return False
        self.inode = status.st_ino
        self.offset = max(0, status.st_size - but_bytes)
        return self.offset > 0

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the last read left for the next."""
        return max(0, (self.size or 0) - self.offset)


def _begins_as(content: bytes, head: str) -> bool:
    length, _, checksum = head.partition(":")
    return not head or zlib.crc32(content[: int(length)]) == int(checksum)


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
# Where reading stopped, for a reader in another process


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Where reading a file stopped: before its first incomplete line.

    Attributes:
        name: The file's, without its folder unless that may be one of several.
        inode: Its number; another number is another file.
        offset: Bytes that were read and parsed.
        is_skipping: Whether the next bytes are the rest of a line that is too long.
        header: The line that explains those to come; empty for none.
        head: As ``GrowingFile`` has it.
        step: Of a format whose files repeat what they had (``REPEATING``), the first
            step that is new.
    """

    name: str
    inode: int
    offset: int
    is_skipping: bool = False
    header: str = ""
    head: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where reading a trainer's progress stopped. ``asdict`` makes it JSON.

    Attributes:
        generation: The last generation whose files were looked at; 0 for none.
        bad_lines: Lines so far that could not be parsed.
        bad_metrics: By metric, how many lines had no number for it.
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
    bad_metrics: Mapping[str, int] = field(default_factory=dict)


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

MOST_BAD_METRICS = 20
"""Names of a file's metrics that are counted."""


class Feed:
    """One file's new records.

    Attributes:
        bad_lines: Lines so far that could not be parsed.
        bad_metrics: By metric, how many lines had no number for it.
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
        self.bad_metrics: Counter[str] = Counter()
        self._job = job
        self._generation = generation
        self._form = None if job.progress is None else job.progress.form
        self._file = GrowingFile(path)
        # Records of earlier steps are left out, and the least step of the next file.
        self._first_step = self._next_step = 0
        self._begin()
        if start is not None:
            self._file = GrowingFile(path, start.inode, start.offset, head=start.head)
            self._first_step = self._next_step = start.step
            self._lines.is_skipping = start.is_skipping
            if start.header:
                self._parser.parse(start.header)
            elif start.offset:
                _read_columns(self._parser, path)

    def _begin(self) -> None:
        self._parser = parser_for(self._job.progress)
        self._lines = splitter_for(self._parser)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    @property
    def name(self) -> str:
        """The file's name in bookmarks."""
        return _name_of(self._file.path, self._job)

    @property
    def next_step(self) -> int:
        """The first step that is new in a file that repeats this one."""
        return self._next_step

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
            head=self._file.head,
            step=self._next_step,
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
        is_catching_up = False
        while left_bytes:
            most_bytes = min(left_bytes, piece_bytes)
            read_bytes = self._read(most_bytes, records)
            left_bytes -= read_bytes
            if read_bytes < most_bytes:
                break
            if self.spent_s > until_s:
                return 0
            if is_catching_up or self._file.backlog_bytes > MOST_BACKLOG_BYTES:
                is_catching_up, piece_bytes = True, _PATTERN_PIECE_BYTES
                self._skip_ahead(left_bytes, max(1, left_bytes // piece_bytes))
        return left_bytes

    @property
    def has_more(self) -> bool:
        """Whether the file may have more than was read."""
        return self._file.size is None or self._file.backlog_bytes > 0

    def _skip_ahead(self, left_bytes: int, pieces: int) -> None:
        """Move on so that *pieces*, of *left_bytes* in all, end where the file does."""
        gap_bytes = (self._file.backlog_bytes - left_bytes) // pieces
        if left_bytes and gap_bytes > 0:
            self._file.offset += gap_bytes
            self._lines.skip()
            if isinstance(self._parser, HistoryLines):
                self._parser.header = ""  # of an entry whose end was skipped

    @property
    def spent_s(self) -> float:
        """CPU time that matching the job's pattern took so far."""
        parser = self._parser
        return parser.pattern.spent_s if isinstance(parser, PatternLines) else 0.0

    def _read(self, most_bytes: int, records: list[ProgressRecord]) -> int:
        inode = self._file.inode
        piece, is_new_file = self._file.grow(most_bytes)
        if is_new_file:
            is_repeated = self._form in REPEATING and (
                self._form is ProgressFormat.HUGGINGFACE or inode == self._file.inode
            )
            self._first_step = self._next_step = self._next_step * is_repeated
            self._begin()
        too_long = self._lines.too_long
        with limited(self._parser):
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
                if self._form in REPEATING and not self._is_new(record):
                    continue
                if record.unreadable:
                    self._count(record.unreadable)
                known = record.generation is not None or self._generation is None
                yield record if known else replace(record, generation=self._generation)

    def _is_new(self, record: ProgressRecord) -> bool:
        """Tell whether a file that repeats what it had tells something new."""
        if record.step is None or record.step < self._first_step:
            return False
        # Lightning writes its file again with a row for a step whose row was read.
        step = record.step + (self._form is ProgressFormat.HUGGINGFACE)
        self._next_step = max(self._next_step, step)
        return True

    def _count(self, unreadable: Iterable[str]) -> None:
        for name in unreadable:
            if name in self.bad_metrics or len(self.bad_metrics) < MOST_BAD_METRICS:
                self.bad_metrics[name] += 1


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
        for name, value in record.metrics.items():
            if name in self._metrics or len(self._metrics) < MOST_METRICS:
                self._metrics[name] = value
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


def _name_of(file: Path, job: TrainerJob) -> str:
    """Return the name of *file* in bookmarks."""
    files = job.progress.files if job.progress else None
    return str(file) if files and _WILD.search(str(files)) else file.name


def _last_file(job: TrainerJob, since: Bookmark) -> Path | None:
    """Return the file that was read last; None where *job* names just one."""
    files = job.progress.files if job.progress else None
    if not files or not since.marks or not _WILD.search(str(files)):
        return None
    return Path(since.marks[-1].name)


def bookmark_at_end(job: TrainerJob, run_dir: Path, generation: int) -> Bookmark:
    """Return the bookmark behind all that the file of *job* has by now.

    Raises:
        OSError: The file cannot be looked at.
    """
    file = progress_file(job, run_dir)
    if file is None or not file.exists():
        return Bookmark(generation=generation)
    status = file.stat()
    end = FilePosition(_name_of(file, job), status.st_ino, status.st_size)
    return Bookmark(generation=generation, marks=(end,))


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
        self._files = files_of(job, run_dir)
        self._file = _last_file(job, since)
        self._feeds: dict[Path, Feed] = {}
        self._starts: dict[str, FilePosition | None] = {
            position.name: position for position in since.marks
        }
        self._generation = since.generation
        self._bad_lines = since.bad_lines
        self._bad_metrics = Counter(since.bad_metrics)
        self._tracker = ProgressTracker()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the last readings that have anything in them."""
        return tuple(f.path for f in self._feeds.values() if f.position is not None)

    @property
    def bad_lines(self) -> int:
        """Lines so far that claimed to be progress and could not be parsed."""
        return self._bad_lines + sum(feed.bad_lines for feed in self._feeds.values())

    @property
    def bad_metrics(self) -> dict[str, int]:
        """By metric, how many lines so far had no number for it."""
        found = self._bad_metrics.copy()
        for feed in self._feeds.values():
            found += feed.bad_metrics
        return dict(found.most_common(MOST_BAD_METRICS))

    @property
    def bookmark(self) -> Bookmark:
        """Where it stopped, for another reader."""
        now = {feed.name: feed.position for feed in self._feeds.values()}
        marks = tuple(p for p in (self._starts | now).values() if p is not None)
        if self._file is not None and _WILD.search(str(self._files)):
            name = _name_of(self._file, self._job)
            marks = tuple(sorted(marks, key=lambda mark: mark.name == name))
            marks = marks[-_MOST_FILES:]
        return Bookmark(
            self._generation,
            self.bad_lines,
            self._has_caught_up,
            marks,
            slow_pattern=self._pattern if self.problem else "",
            problem=self.problem,
            bad_metrics=self.bad_metrics,
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
                self.is_behind = not left_bytes and feed.has_more
                if self.is_behind:
                    break
        except SlowPatternError as error:
            self.problem = advice(error, self._pattern)
            self.is_behind = False
        self.read_bytes = most_bytes - left_bytes
        # What Hugging Face wrote together took place at many times before.
        form = None if self._job.progress is None else self._job.progress.form
        late = len(records) - 1 if form is ProgressFormat.HUGGINGFACE else 0
        timed = records[:late] + [self._timed(record) for record in records[late:]]
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
        if self._files is not None:
            if self._file is not None:
                yield self._feed(self._file, None)
            newest = self._files if self._job.elastic else newest_file(self._files)
            if newest != self._file:
                self._move_to(newest)
                yield self._feed(newest, None)
        elif self._job.progress is not None:
            for generation, path in log_files(self._logs, self._generation):
                self._move_on(generation)
                yield self._feed(path, generation)

    def _feed(self, path: Path, generation: int | None) -> Feed:
        if path not in self._feeds:
            start = self._starts.get(_name_of(path, self._job))
            self._feeds[path] = Feed(self._job, path, generation, start)
        return self._feeds[path]

    def _move_to(self, file: Path) -> None:
        """Read on in *file*, and forget the oldest of many that were read before."""
        name = _name_of(file, self._job)
        form = None if self._job.progress is None else self._job.progress.form
        if self._file in self._feeds and form is ProgressFormat.HUGGINGFACE:
            step = self._feeds[self._file].next_step
            self._starts.setdefault(name, FilePosition(name, 0, 0, step=step))
        if len(self._feeds) > _MOST_FILES:
            oldest = self._feeds.pop(next(iter(self._feeds)))
            self._bad_lines += oldest.bad_lines
            self._bad_metrics += oldest.bad_metrics
            self._starts.pop(oldest.name, None)
        self._file = file

    def _move_on(self, generation: int) -> None:
        """Forget the files of earlier generations, which are read to their ends."""
        if generation > self._generation:
            self._generation = generation
            self._bad_lines = self.bad_lines
            self._bad_metrics = Counter(self.bad_metrics)
            self._feeds, self._starts = {}, {}


# ----------------------------------------------------------------------
# What is understood of the files, for users who set up a job

MOST_SURVEYED_BYTES = 1 << 25
"""Read for one survey: about four seconds of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedValues:
    """The values of one field or metric."""

    points: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSurvey:
    """What is understood of the files in which a trainer reports its progress.

    Attributes:
        files: Those that were read.
        records: Records found.
        values: By field or metric; ``t`` is Unix time in seconds.
        t_unit: What the files count time in; empty where they have none.
        bad_lines: Lines that could not be understood.
        bad_metrics: By metric, how many lines had no number for it.
        problem: Why reading ended early, for people; empty where it did not.
    """

    files: tuple[Path, ...]
    records: int
    values: Mapping[str, SurveyedValues]
    t_unit: str
    bad_lines: int
    bad_metrics: Mapping[str, int]
    problem: str


def survey_of(job: TrainerJob, run_dir: Path, logs: Path) -> ProgressSurvey:
    """Return what is understood of all that *job* has reported; sampled where long."""
    reader = ProgressReader(job, run_dir, logs)
    left_bytes, records = MOST_SURVEYED_BYTES, 0
    values: dict[str, SurveyedValues] = {}
    t_unit = ""
    while reader.is_behind and left_bytes > 0:
        for record in reader.read(most_bytes=left_bytes):
            records += 1
            t_unit = t_unit if record.t is None else record.t_unit
            fields = {name: getattr(record, name) for name in ("t", *COUNTED)}
            for name, value in {**fields, **record.metrics}.items():
                known = values.get(name)
                if value is not None and (known or len(values) < MOST_METRICS):
                    values[name] = SurveyedValues(
                        points=1 if known is None else known.points + 1,
                        first=value if known is None else known.first,
                        last=value,
                    )
        left_bytes -= max(1, reader.read_bytes)
    return ProgressSurvey(
        files=reader.files,
        records=records,
        values=values,
        t_unit=t_unit,
        bad_lines=reader.bad_lines,
        bad_metrics=reader.bad_metrics,
        problem=reader.problem,
    )


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
    is_cut = len(tail) > tail_bytes
    if is_cut:
        _read_columns(parser, path)
    return _parsed(parser, tail, is_cut=is_cut)


def _read_columns(parser: Parser, path: Path) -> None:
    """Let *parser* see the names of columns at the beginning of the table in *path*."""
    if isinstance(parser, CsvLines):
        head, _ = GrowingFile(path).grow(_HEAD_BYTES)
        _parsed(parser, head)


def _parsed(
    parser: Parser, content: bytes, *, is_cut: bool = False
) -> list[ProgressRecord]:
    """Return the records in *content*, but for the line that began before it."""
    records: list[ProgressRecord] = []
    splitter = splitter_for(parser)
    if is_cut:
        splitter.skip()
    with limited(parser):
        for line in splitter.feed(content):
            with suppress(UnreadableLineError):
                records.extend(parser.parse(line))
    return records
