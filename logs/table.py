"""CSV logs: comments, a line of column names, then one record a line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from logs.trace import NO_VALUE, UnreadableLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

    from numpy.typing import NDArray

    from logs.trace import Job


# ----------------------------------------------------------------------
# A log file's content: unpacked, decoded, in lines.

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 22
MAX_BYTES = 1 << 30
"""Largest log that is read, unpacked: a gzip file of 10 MB can unpack to 10 GB, and
/dev/zero has no end. Ten million jobs in the Standard Workload Format fit in."""

_SNIPPET_CHARS = 40


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a log file.

    Attributes:
        source: The file, as the user named it.
        raw: Its bytes, unpacked, without a byte-order mark.
    """

    source: str
    raw: bytes

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, line without its end), one at a time.

        Bytes that are not UTF-8 become U+FFFD: harmless in a comment, and
        refused by whoever expects a number.
        """
        for number, line in enumerate(io.BytesIO(self.raw), 1):
            yield number, line.decode(errors="replace").rstrip("\r\n")


def read_content(path: Path, *, most_bytes: int = MAX_BYTES) -> Content:
    """Return what is in the file at *path*, unpacked where it is gzipped.

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


def snippet(text: str) -> str:
    """Return *text* quoted for a message: one line, and never a long one."""
    if len(text) <= _SNIPPET_CHARS:
        return repr(text)
    return f"{text[:_SNIPPET_CHARS]!r}... ({len(text)} characters)"


def _unpack(path: Path, packed: bytes, most_bytes: int) -> bytes:
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
            why = f"there are more than {most_bytes:,} bytes in it; split it first"
            raise UnreadableLogError(str(path), None, None, why)
    return whole.getvalue()


# ----------------------------------------------------------------------
# Reading a log line by line, and putting up with a few bad ones.

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


# ----------------------------------------------------------------------
# Numbers in the fields of a log line, read strictly and written back.

# float() alone would also take "nan", "1_000", "infinity" and Arabic digits.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[-.\d ]*", re.ASCII)
_UNKNOWN = str(NO_VALUE)
_TOO_LARGE = 1e15
"""Above it a double no longer tells one tenth of a second from the next."""

_SURELY_SMALL_CHARS = 15


def read_number(text: str, field: str, expected: str = "a number") -> float:
    """Return the finite number that *text* says.

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
    """Return the numbers that *words* say, one for each of *fields*.

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


def write_number(value: float) -> str:
    """Return the shortest text that reads as *value*, whole where it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# ----------------------------------------------------------------------
# What the readers of job logs have in common.


class Ran(NamedTuple):
    """Whether, when and on how much a job ran.

    A job that never ran stays in the trace, with no start and no run time: it
    was submitted, and a user waited for it. No schedule gives it nodes. That is
    a job whose run time is unknown, or that held nothing.

    Attributes:
        start_s: When it started, or None where it never did or nobody knows.
        run_s: How long it ran; 0 where it never did.
        units: What it held, or asked for; 0 where nobody knows.
    """

    start_s: float | None
    run_s: float
    units: int

    @classmethod
    def of(
        cls, *, start_s: float | None, run_s: float | None, units: int | None
    ) -> Ran:
        """Return what a log's three fields say, None where they know nothing."""
        if run_s is None or not units:
            return cls(None, 0.0, units or 0)
        return cls(start_s, run_s, units)


class JobIds:
    """The jobs of one log so far, each with its line."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def has(self, job_id: str) -> bool:
        """Tell whether the job was seen."""
        return job_id in self._lines

    def add(self, job_id: str, line_number: int, *, field: str) -> None:
        """Remember a job.

        Raises:
            BadLineError: It was there before.
        """
        before = self._lines.setdefault(job_id, line_number)
        if before != line_number:
            why = f"job {snippet(job_id)} is on line {before} already"
            raise BadLineError(field, f"{why}; expected each once")


def by_submission(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return *jobs* by submission, then in the order given."""
    return tuple(sorted(jobs, key=lambda job: job.submit_s))


# ----------------------------------------------------------------------
# CSV logs: comments, a line of column names, then one record a line.

_UNIX_START = re.compile(r"\bt0_unix=(\d{1,12}(?:\.\d+)?)\b", re.ASCII)
_MACHINE = re.compile(r"\b(\d{1,7})\s+(?:[^\W\d]\w*\s+){0,3}nodes\b", re.ASCII)

MAX_NODES = 1_000_000
"""Largest machine that is believed; more is a slip of the pen."""


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


def quote_field(text: str) -> str:
    """Return *text* as a CSV field that `split_fields` reads back.

    A field's line breaks become blanks: a record is one line.
    """
    flat = " ".join(text.splitlines())
    if flat.startswith("#") or "," in flat or '"' in flat:
        return '"' + flat.replace('"', '""') + '"'
    return flat


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


def _search(pattern: re.Pattern[str], comments: tuple[str, ...]) -> str | None:
    for comment in comments:
        found = pattern.search(comment)
        if found:
            return found.group(1)
    return None


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


# ----------------------------------------------------------------------
# The fast way through a large table of plain whole numbers.

_DIGITS = b"0123456789"
_LARGEST = 10**15


def read_whole_table(body: bytes, *, columns: int) -> NDArray[np.int64] | None:
    r"""Return the numbers in *body*, or None where it is not plain.

    Args:
        body: Lines of *columns* whole numbers, commas between them and ``\n``
            at the end of each line (the last may lack it).
        columns: Numbers a line, 1 or more.

    Returns:
        An array of shape (lines, columns), every number below 1e15; None where
        anything but that stands in *body*: signs, blanks, leading zeros, empty
        fields, other line ends.
    """
    if not body.endswith(b"\n"):
        body += b"\n"
    lines = body.count(b"\n")
    if body.translate(None, _DIGITS) != (b"," * (columns - 1) + b"\n") * lines:
        return None
    flat = body.replace(b"\n", b",")
    if flat.startswith(b",") or b",," in flat:
        return None
    values = np.fromstring(flat, dtype=np.int64, sep=",")
    # fromstring saturates at 2**63 - 1 and forgives leading zeros: digits counted
    # on both sides tell.
    if int(values.max()) >= _LARGEST:
        return None
    written = len(flat) - lines * columns
    return values.reshape(lines, columns) if _digits(values) == written else None


def _digits(values: NDArray[np.int64]) -> int:
    count = values.size
    limit = 10
    while limit <= int(values.max()):
        count += int(np.count_nonzero(values >= limit))
        limit *= 10
    return count
