"""What every log format is, and what all of them are read with.

A format is one subclass of :class:`LogFormat`; ``logs.read`` has the list. Its ``read``
gets the :class:`Content` of a file, parses it line by line (:func:`parse_lines` skips
as many bad lines as the user allowed), refuses everything but plain numbers
(:func:`read_number` and its like), and keeps the same rules for jobs as all others
(:func:`actual_run`, :class:`JobIds`, :func:`machine_units`).
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from logs.trace import (
    NO_VALUE,
    IdleTrace,
    JobTrace,
    UnreadableLogError,
    UnusableLogError,
    named_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import Self, TextIO

    from logs.trace import Job


T = TypeVar("T", JobTrace, IdleTrace)


class LogFormat(ABC, Generic[T]):
    """One format of scheduler logs.

    Attributes:
        name: As reports and ``--to`` have it.
        expected: How messages describe it, with its first line.
        holds: The kind of trace that it holds.
    """

    name: ClassVar[str]
    expected: ClassVar[str]
    holds: type[T]

    @abstractmethod
    def begins_with(self, line: str) -> bool:
        """Tell whether *line*, the first that is not blank or ``# …``, is of it."""

    @abstractmethod
    def read(self, content: Content, *, skip_bad: int = 0) -> T:
        """Return the log in *content*.

        Args:
            content: The file.
            skip_bad: Bad lines that may be skipped; the trace counts those that were.

        Raises:
            UnreadableLogError: A line cannot be read, or nothing is in the log.
        """

    def with_cores_per_node(self, count: int, source: str) -> LogFormat[T]:
        """Return this format for a log in which a node has *count* processors.

        Raises:
            UnusableLogError: Logs in this format, as *source* is, count nodes.
        """
        raise UnusableLogError(
            f"{source} is {self.name}, which counts nodes, and not processors of which "
            f"a node has {count}; nothing was done. Leave --cores-per-node out."
        )

    def with_gpus_per_node(self, count: int, source: str) -> LogFormat[T]:
        """Return this format for a log whose jobs share nodes of *count* GPUs.

        Raises:
            UnusableLogError: Logs in this format, as *source* is, say nothing of GPUs.
        """
        raise UnusableLogError(
            f"{source} is {self.name}, which says nothing of GPUs, of which a node has "
            f"{count}; nothing was done. Leave --gpus-per-node out."
        )

    def write(self, trace: T, stream: TextIO) -> None:
        """Write *trace* in this format."""
        del stream
        raise UnusableLogError(
            f"{trace.source} cannot be written as {self.name}, which is only read; "
            f"nothing was written."
        )


class GpuLogFormat(LogFormat[JobTrace]):
    """A format that says how many GPUs jobs had.

    Args:
        gpus_per_node: GPUs of a node that jobs share; None for what the log says.
    """

    def __init__(self, *, gpus_per_node: int | None = None) -> None:
        self._gpus_per_node = gpus_per_node

    def with_gpus_per_node(self, count: int, source: str) -> Self:
        """Return this format for a log whose jobs share nodes of *count* GPUs."""
        del source
        return type(self)(gpus_per_node=count)


# A file and its lines.

_GZIP_MAGIC = b"\x1f\x8b"


_BLOCK_BYTES = 1 << 22


MAX_BYTES = 1 << 30
"""Largest log that is read, unpacked: a gzip file of 10 MB can unpack to 10 GB, and
/dev/zero has no end. Ten million jobs in the Standard Workload Format fit in."""

_MOST_EXPANSION = 100
"""Times that a gzip file may unpack to its own size; logs reach 30, a file of one
letter 1,000."""

_ALWAYS_UNPACKED_BYTES = 1 << 24
"""Unpacked whatever its packed size."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a log file.

    Attributes:
        source: The file, as the user named it.
        raw: Its bytes, unpacked, without a byte-order mark.
    """

    source: str
    raw: bytes

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, line without its end), one at a time.

        Bytes that are not UTF-8 become U+FFFD: harmless in a comment, and
        refused where a number is expected.
        """
        for number, line in enumerate(io.BytesIO(self.raw), 1):
            yield number, line.decode(errors="replace").rstrip("\r\n")


def read_content(path: Path, *, most_bytes: int = MAX_BYTES) -> Content:
    """Return the content of the file at *path*, unpacked where it is gzipped.

    A pipe will do as well: it is read once, from beginning to end.

    Args:
        path: The file.
        most_bytes: The most that is read, and the most that is unpacked.

    Raises:
        OSError: The file is missing or cannot be read.
        UnreadableLogError: It is empty, too large, or a torn or damaged gzip file.
    """
    with path.open("rb") as file:
        raw = _read_to_end(path, file, most_bytes)
    if raw.startswith(_GZIP_MAGIC):
        raw = _unpack(path, raw, most_bytes)
    if not raw or raw.isspace():
        raise UnreadableLogError(str(path), None, None, "the file is empty")
    return Content(str(path), raw.removeprefix(b"\xef\xbb\xbf"))


def _unpack(path: Path, packed: bytes, most_bytes: int) -> bytes:
    likely_bytes = max(_MOST_EXPANSION * len(packed), _ALWAYS_UNPACKED_BYTES)
    most_bytes = min(most_bytes, likely_bytes)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            return _read_to_end(path, stream, most_bytes)
    except EOFError:
        why = "the gzip file is cut off; copy it again"
        raise UnreadableLogError(str(path), None, None, why) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        why = f"the gzip file is damaged ({error}); copy it again"
        raise UnreadableLogError(str(path), None, None, why) from None


def _read_to_end(path: Path, stream: io.BufferedIOBase, most_bytes: int) -> bytes:
    whole = io.BytesIO()
    while block := stream.read(_BLOCK_BYTES):
        whole.write(block)
        if whole.tell() > most_bytes:
            why = (
                f"there are more than {most_bytes:,} bytes in it, more than a log of "
                f"this size has; unpack or split it first"
            )
            raise UnreadableLogError(str(path), None, None, why)
    return whole.getvalue()


_SNIPPET_CHARS = 40


def snippet(text: str) -> str:
    """Return *text* quoted for a message: one line, and never a long one."""
    if len(text) <= _SNIPPET_CHARS:
        return repr(text)
    return f"{text[:_SNIPPET_CHARS]!r}... ({len(text)} characters)"


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

    def empty_log(self, why: str) -> UnreadableLogError:
        """Return the error of a log that has no record but bad lines, or none."""
        if self.skipped:
            why += f" (bad lines skipped: {self.skipped})"
        return UnreadableLogError(self.source, None, None, why)


def parse_lines(
    lines: Iterable[tuple[int, str]],
    parse: Callable[[int, str], Record | None],
    tolerance: Tolerance,
) -> list[Record]:
    """Return the record that *parse* returns for each line; None is left out.

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


# Numbers.

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


_PLAIN = re.compile(r"[-.\d ]*", re.ASCII)


_UNKNOWN = str(NO_VALUE)


_TOO_LARGE = 1e15
"""Above it a double no longer tells one tenth of a second from the next."""


_SURELY_SMALL_CHARS = 15


def read_number(text: str, field: str, expected: str = "a number") -> float:
    """Return the finite number in *text*.

    Raises:
        BadLineError: It is none, or 1e15 and more.
    """
    if _NUMBER.fullmatch(text) is None:
        raise BadLineError(field, f"found {snippet(text)}; expected {expected}")
    value = float(text)
    if abs(value) >= _TOO_LARGE:
        why = f"found {snippet(text)}; expected a number below 1e15"
        raise BadLineError(field, why)
    return value


def read_known(words: Sequence[str], fields: Sequence[str]) -> list[float | None]:
    """Return the numbers in *words*, one for each of *fields*.

    Returns:
        Numbers of 0 or more; None where a word is -1, the mark for unknown.

    Raises:
        BadLineError: A word is no number, 1e15 and more, or negative otherwise.
    """
    line = " ".join(words)
    # Nine lines in ten are plain, and this takes a third of the time.
    if (
        _PLAIN.fullmatch(line)
        and line.count("-") == words.count(_UNKNOWN)
        and max(map(len, words)) <= _SURELY_SMALL_CHARS
    ):
        try:
            return [None if word == _UNKNOWN else float(word) for word in words]
        except ValueError:
            pass
    return [
        _known_or_none(read_number(word, field), field)
        for word, field in zip(words, fields, strict=True)
    ]


def not_negative(value: float, field: str) -> float:
    """Return *value*.

    Raises:
        BadLineError: It is negative.
    """
    if value < 0:
        raise BadLineError(field, f"found {write_number(value)}; expected 0 or more")
    return value


def _known_or_none(value: float, field: str) -> float | None:
    if value >= 0:
        return value
    if value == NO_VALUE:
        return None
    found = write_number(value)
    raise BadLineError(field, f"found {found}; expected 0 or more, or -1 for unknown")


def whole(value: float, field: str) -> int:
    """Return *value* as a whole number.

    Raises:
        BadLineError: It is not whole.
    """
    if not value.is_integer():
        why = f"found {write_number(value)}; expected a whole number"
        raise BadLineError(field, why)
    return int(value)


def counted(number: int, noun: str) -> str:
    """Return ``1 job``, ``1,234 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def write_number(value: float) -> str:
    """Return the shortest text that reads as *value*, whole where it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# Jobs and the machine.

MAX_NODES = 1_000_000
"""Largest machine that is believed; ``n[0-999999999]`` is 16 characters long."""


def actual_run(
    *, start_s: float | None, run_s: float | None, units: int | None
) -> tuple[float | None, float, int]:
    """Return a job's start, run time and units, completed where the log lacks them.

    A job whose run time is unknown, or that held nothing, never ran. It stays in the
    trace without a start and with a run time of 0; no schedule gives it nodes.
    """
    if run_s is None or not units:
        return None, 0.0, units or 0
    return start_s, run_s, units


def on_gpus(job: Job, gpus: int, *, per_node: int, field: str) -> Job:
    """Return *job*, whose size is its nodes, as a job of so many GPUs.

    Without a GPU it had none of the nodes that count, and never ran on them.

    Raises:
        BadLineError: They are more than its nodes have.
    """
    if gpus > job.units * per_node:
        why = (
            f"found {counted(gpus, 'GPU')} on {counted(job.units, 'node')}; expected "
            f"{per_node} a node at most, as --gpus-per-node says"
        )
        raise BadLineError(field, why)
    start_s, run_s, units = actual_run(start_s=job.start_s, run_s=job.run_s, units=gpus)
    return replace(
        job,
        start_s=start_s,
        run_s=run_s,
        units=units,
        node_count=job.units,
        nodes=job.nodes if gpus else (),
    )


def machine_gpus(stated_nodes: int | None, jobs: tuple[Job, ...], per_node: int) -> int:
    """Return the machine's GPUs: of the nodes that *jobs* name, or are *stated_nodes*.

    Else of as few nodes as hold the most GPUs that jobs ever had at once.
    """
    nodes = len(named_nodes(jobs)) or stated_nodes
    return (nodes or -(-machine_units(None, jobs) // per_node)) * per_node


MOST_COMMENTS = 10_000


def keep_comment(comments: list[str], text: str) -> None:
    """Append *text* to *comments*, unless there are as many as are kept."""
    if len(comments) < MOST_COMMENTS:
        comments.append(text)


class JobIds:
    """The jobs read so far, each with its line; refuses one that comes twice."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def has(self, job_id: str) -> bool:
        """Tell whether the job was read."""
        return job_id in self._lines

    def add(self, job_id: str, line_number: int, *, field: str) -> None:
        """Remember a job.

        Raises:
            BadLineError: It was read before.
        """
        before = self._lines.setdefault(job_id, line_number)
        if before != line_number:
            why = f"job {snippet(job_id)} is on line {before} already"
            raise BadLineError(field, f"{why}; expected each once")


def by_submission(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return *jobs* by submission, then in the order given."""
    return tuple(sorted(jobs, key=lambda job: job.submit_s))


def machine_units(stated: int | None, jobs: tuple[Job, ...]) -> int:
    """Return the machine's size: as *stated*, else the most ever held at once.

    Where no job has a start, it is the size of the largest job.
    """
    if stated:
        return stated
    return peak_units(jobs) or max((job.units for job in jobs), default=0)


def peak_units(jobs: Iterable[Job]) -> int:
    """Return the most units that *jobs* ever held at once, 0 for none."""
    return max((held for _, held in levels(jobs)), default=0)


def levels(jobs: Iterable[Job]) -> Iterator[tuple[float, int]]:
    """Yield (second, units held from then on), in the order of time.

    A job that ends when another starts makes room for it. Jobs without a start,
    and those that ran for no time, hold nothing.
    """
    changes: dict[float, int] = {}
    for job in jobs:
        if job.start_s is not None and job.run_s > 0:
            end_s = job.start_s + job.run_s
            changes[job.start_s] = changes.get(job.start_s, 0) + job.units
            changes[end_s] = changes.get(end_s, 0) - job.units
    held = 0
    for time_s in sorted(changes):
        held += changes[time_s]
        yield time_s, held
