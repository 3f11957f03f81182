"""Logs as CSV tables: jobs, and the intervals in which nodes are idle.

Both have comments, a line of column names, then one record a line::

    job,submit_s,start_s,run_s,nodes,req_s,user
    node,idle_start_s,idle_end_s

The second format is called ``fragments``, after the idle fragments of a machine.
"""

from __future__ import annotations

import bisect
import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logs.format import (
    MAX_NODES,
    BadLineError,
    JobIds,
    LogFormat,
    Tolerance,
    actual_run,
    by_submission,
    keep_comment,
    machine_units,
    not_negative,
    parse_lines,
    read_known,
    read_number,
    snippet,
    whole,
    write_number,
)
from logs.timeline import UnitRanges
from logs.trace import (
    NO_VALUE,
    IdleTrace,
    Job,
    JobTrace,
    UnreadableLogError,
    natural_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import TextIO

    from numpy.typing import NDArray

    from logs.format import Content


_UNIX_START = re.compile(r"\bt0_unix=(\d{1,12}(?:\.\d+)?)\b", re.ASCII)


_ENDS = re.compile(r"\bends_s=(\d{1,15}(?:\.\d+)?)\b", re.ASCII)


_MACHINE = re.compile(r"\b(\d{1,7})\s+(?:[^\W\d]\w*\s+){0,3}nodes\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class TableHead:
    """The comments and column names before a table's first record.

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

    @property
    def ends_s(self) -> float | None:
        """When the log ends, where a comment says ``ends_s=``."""
        found = _search(_ENDS, self.comments)
        return None if found is None else float(found)

    def stating(
        self,
        *,
        machine_nodes: int | None,
        unix_start_s: float | None,
        ends_s: float | None = None,
    ) -> TableHead:
        """Return this head with comments that give these three, and no others."""
        comments, added = self.comments, []
        if machine_nodes != self.machine_nodes:
            comments = tuple(c for c in comments if not _MACHINE.search(c))
            added += [] if machine_nodes is None else [f"{machine_nodes} nodes"]
        if unix_start_s != self.unix_start_s:
            comments = tuple(c for c in comments if not _UNIX_START.search(c))
            if unix_start_s is not None:
                added.append(f"t0_unix={write_number(unix_start_s)}")
        if ends_s != self.ends_s:
            comments = tuple(c for c in comments if not _ENDS.search(c))
            added += [] if ends_s is None else [f"ends_s={write_number(ends_s)}"]
        first = (", ".join(added),) if added else ()
        return TableHead(first + comments, self.columns, self.line_number)


def _search(pattern: re.Pattern[str], comments: tuple[str, ...]) -> str | None:
    for comment in comments:
        found = pattern.search(comment)
        if found:
            return found.group(1)
    return None


def read_head(
    content: Content, *, needed: Collection[str], optional: Collection[str] | None = ()
) -> TableHead:
    """Return the head of the table in *content*; of *optional* None, any may be there.

    Raises:
        UnreadableLogError: A column is missing, unknown or named twice.
    """
    comments: list[str] = []
    for number, line in content.lines():
        if line.startswith("#"):
            keep_comment(comments, line[1:].removeprefix(" ").rstrip())
        elif line.strip():
            columns = tuple(name.strip() for name in line.split(","))
            why = _what_is_wrong(columns, needed, optional)
            if why:
                raise UnreadableLogError(content.source, number, None, why)
            return TableHead(tuple(comments), columns, number)
    raise UnreadableLogError(content.source, None, None, "there is no header line")


def _what_is_wrong(
    columns: tuple[str, ...], needed: Collection[str], optional: Collection[str] | None
) -> str | None:
    expected = ",".join((*needed, *(optional or ())))
    for name in needed:
        if name not in columns:
            return f"column {name!r} is missing; expected {expected}"
    for name in columns:
        if optional is not None and name not in needed and name not in optional:
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
    ends_s: float | None = None,
) -> None:
    """Write comments, with machine size, start and end right, and column names."""
    stated = head.stating(
        machine_nodes=machine_nodes, unix_start_s=unix_start_s, ends_s=ends_s
    )
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


# Jobs.

JOB_COLUMNS = ("job", "submit_s", "start_s", "run_s", "nodes", "req_s", "user")


_NEEDED = ("job", "submit_s", "run_s", "nodes")


_OPTIONAL = ("start_s", "req_s", "user", "partition", "state")


_NAMES = {name: (name,) for name in (*_NEEDED, *_OPTIONAL)}


_NUMBERS = ("submit_s", "start_s", "run_s", "nodes", "req_s")


_UNKNOWN = str(NO_VALUE)


class JobsCsv(LogFormat[JobTrace]):
    """A table of jobs, in nodes."""

    name = "jobs-csv"
    expected = "jobs (first line job,submit_s,start_s,run_s,nodes,req_s,user)"
    holds = JobTrace

    def begins_with(self, line: str) -> bool:
        """Tell whether *line* names two needed columns; "nodes" heads many a file."""
        columns = {column.strip() for column in line.split(",")}
        return len(columns.intersection(_NEEDED)) > 1

    def read(self, content: Content, *, skip_bad: int = 0) -> JobTrace:
        """Read a job CSV: columns in any order; ``-1`` or nothing means unknown.

        ``start_s``, ``req_s``, ``user``, ``partition`` and ``state`` may be missing
        altogether. A comment may
        give the Unix time of t = 0 (``t0_unix=1641021254``) and the machine's size
        (``4360 KNL nodes``). `actual_run` says how jobs that never ran are kept.

        Raises:
            UnreadableLogError: A line cannot be read, or there is no job.
        """
        head = read_head(content, needed=_NEEDED, optional=_OPTIONAL)
        tolerance = Tolerance(content.source, skip_bad)
        table = JobTable(head, _NAMES, _job)
        jobs = by_submission(table.read(content, tolerance))
        return JobTrace(
            source=content.source,
            log_format="jobs-csv",
            jobs=jobs,
            units=machine_units(head.machine_nodes, jobs),
            unix_start_s=head.unix_start_s,
            comments=head.comments,
            skipped_lines=tolerance.skipped,
        )

    def write(self, trace: JobTrace, stream: TextIO) -> None:
        """Write *trace* as job CSV, in nodes: parts of nodes count as whole ones."""
        head = TableHead(trace.comments, JOB_COLUMNS, 0)
        size = -(-trace.units // trace.units_per_node)
        write_head(stream, head, machine_nodes=size, unix_start_s=trace.unix_start_s)
        for job in trace.jobs:
            fields = (
                quote_field(job.job_id),
                write_number(job.submit_s),
                _number_or_unknown(job.start_s),
                write_number(job.run_s),
                str(job.node_count or -(-job.units // trace.units_per_node)),
                _number_or_unknown(job.requested_s),
                quote_field(job.user or _UNKNOWN),
            )
            stream.write(",".join(fields) + "\n")


class JobTable:
    """Reads the lines of a table of jobs, each job once.

    *names* has the columns that are read, the job's own first, each with the names that
    files have for it. *job_of* makes a job of its name and of what is known of it.
    """

    def __init__(
        self,
        head: TableHead,
        names: Mapping[str, Sequence[str]],
        job_of: Callable[[str, Mapping[str, str]], Job],
    ) -> None:
        self._head, self._job_of, self._ids = head, job_of, JobIds()
        self._job_column = next(iter(names))
        self._places = {
            name: head.columns.index(alias)
            for name, aliases in names.items()
            for alias in aliases[::-1]
            if alias in head.columns
        }

    def read(self, content: Content, tolerance: Tolerance) -> list[Job]:
        """Return the jobs in the file's order; ``-1`` or nothing means unknown.

        Raises:
            UnreadableLogError: A line cannot be read, or there is no job.
        """
        lines = data_lines(content, self._head)
        found = parse_lines(lines, self._parse, tolerance)
        if not found:
            raise tolerance.empty_log("there is no job in it")
        return found

    def _parse(self, number: int, line: str) -> Job:
        texts, field = split_fields(line, self._head.columns), self._job_column
        job_id = texts[self._places[field]]
        if not job_id:
            raise BadLineError(field, "found nothing; expected the job's name")
        known = {
            name: text
            for name, place in self._places.items()
            if (text := texts[place]) and text != _UNKNOWN
        }
        job = self._job_of(job_id, known)
        self._ids.add(job_id, number, field=field)
        return job


def known_numbers(
    known: Mapping[str, str], columns: Sequence[str]
) -> list[float | None]:
    """Return the numbers in *columns*, 0 or more; None where one is unknown.

    Raises:
        BadLineError: One is no such number.
    """
    return read_known([known.get(name, _UNKNOWN) for name in columns], columns)


def _job(job_id: str, known: Mapping[str, str]) -> Job:
    submit_s, start_s, run_s, nodes, requested_s = known_numbers(known, _NUMBERS)
    if submit_s is None:
        raise BadLineError("submit_s", "found -1 or nothing; expected 0 or more")
    if start_s is not None and start_s < submit_s:
        found, submitted = write_number(start_s), write_number(submit_s)
        why = f"found {found}; expected submit_s, {submitted}, or later"
        raise BadLineError("start_s", why)
    units = None if nodes is None else whole(nodes, "nodes")
    start_s, run_s, units = actual_run(start_s=start_s, run_s=run_s, units=units)
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=requested_s,
        user=known.get("user", ""),
        partition=known.get("partition", ""),
        state=known.get("state", ""),
    )


def _number_or_unknown(value: float | None) -> str:
    return _UNKNOWN if value is None else write_number(value)


# Idle intervals.

IDLE_COLUMNS = ("node", "idle_start_s", "idle_end_s")

NODES_COLUMN = "nodes"
"""How many consecutive nodes a line is of; one where the column is not there."""

MOST_SINGLE_LINES = 10_000_000
"""A larger log is written with a line for nodes that are idle together."""


_NUMBERED = re.compile(r"0|[1-9]\d*", re.ASCII)


class Fragments(LogFormat[IdleTrace]):
    """A log of the intervals in which nodes are idle, which are its fragments.

    They are not the fragments of a trainer (``freetrain.elastic.fragment``): those are
    its stretches of training.
    """

    name = "fragments"
    expected = "idle intervals (first line node,idle_start_s,idle_end_s)"
    holds = IdleTrace

    def begins_with(self, line: str) -> bool:
        """Tell whether *line* names one of the two columns that no other log has."""
        columns = {column.strip() for column in line.split(",")}
        return not columns.isdisjoint({"idle_start_s", "idle_end_s"})

    def read(self, content: Content, *, skip_bad: int = 0) -> IdleTrace:
        """Read a log of idle intervals.

        Where all node names are whole numbers, they are positions on the machine:
        node 1024 means that there are nodes 0 to 1023 too, idle or not, and a
        comment such as ``# Summit, 4734 nodes`` may say that there are more still.
        Other names are taken as they come, in natural order. A comment may say when
        the log ends (``# ends_s=604800``), where no node is idle at its end. A column
        ``nodes`` says how many nodes a line is of, from its number on.

        Args:
            content: The file.
            skip_bad: Bad lines that may be skipped. Of two intervals of one node
                that overlap, the one further down is the bad one.

        Raises:
            UnreadableLogError: A line cannot be read, an interval is negative or
                empty, or a node is idle twice at once.
        """
        head = read_head(content, needed=IDLE_COLUMNS, optional=(NODES_COLUMN,))
        tolerance = Tolerance(content.source, skip_bad)
        idle = read_plain(content, head)
        if idle is None:
            idle = read_line_by_line(content, head, tolerance)
        order = _by_start(idle)
        return IdleTrace(
            source=content.source,
            node_names=idle.node_names,
            node=idle.node[order],
            start_s=idle.start_s[order],
            end_s=idle.end_s[order],
            unix_start_s=head.unix_start_s,
            comments=head.comments,
            skipped_lines=tolerance.skipped,
            log_end_s=head.ends_s,
            nodes=idle.nodes[order],
        )

    def write(self, trace: IdleTrace, stream: TextIO) -> None:
        """Write *trace* as CSV; `read` reads the same trace back.

        The machine's size, the Unix time of t = 0 and the log's end go into a comment
        of their own unless the trace's comments say them already; comments that say
        otherwise are left out. Each line is of one node; in a log of more than
        ``MOST_SINGLE_LINES``, if nodes are numbers, of those that are idle together.
        """
        numbered = all(_NUMBERED.fullmatch(name) for name in trace.node_names)
        is_short = not numbered or trace.holes <= MOST_SINGLE_LINES
        columns = IDLE_COLUMNS if is_short else (*IDLE_COLUMNS, NODES_COLUMN)
        head = TableHead(trace.comments, columns, 0)
        size = len(trace.node_names) if numbered else head.machine_nodes
        write_head(
            stream,
            head,
            machine_nodes=size,
            unix_start_s=trace.unix_start_s,
            ends_s=trace.log_end_s,
        )
        names = [quote_field(name) for name in trace.node_names]
        if is_short:
            stream.writelines(
                f"{names[node]},{write_number(start_s)},{write_number(end_s)}\n"
                for node, start_s, end_s in trace.rows()
            )
            return
        intervals = zip(
            trace.node, trace.start_s, trace.end_s, trace.widths, strict=True
        )
        stream.writelines(
            f"{names[node]},{write_number(start_s)},{write_number(end_s)},{nodes}\n"
            for node, start_s, end_s, nodes in intervals
        )


class _Intervals(NamedTuple):
    """All lines of a log, in any order: names by position, and four columns."""

    node_names: tuple[str, ...]
    node: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    nodes: NDArray[np.int32]


def read_plain(content: Content, head: TableHead) -> _Intervals | None:
    """Return the intervals of a log of plain whole numbers, without a flaw.

    Returns:
        None for another form, or an error: then `read_line_by_line` must look.
    """
    if head.columns not in (IDLE_COLUMNS, (*IDLE_COLUMNS, NODES_COLUMN)):
        return None
    table = read_whole_table(_body(content.raw, head.line_number), len(head.columns))
    if table is None:
        return None
    node, start_s, end_s = table.T[: len(IDLE_COLUMNS)]
    nodes = table.T[-1] if NODES_COLUMN in head.columns else np.ones_like(node)
    highest = int((node + nodes).max()) - 1
    if highest >= MAX_NODES or int(nodes.min()) < 1:
        return None
    idle = _Intervals(
        _numbered(highest, head),
        node.astype(np.int32),
        start_s.astype(np.float64),
        end_s.astype(np.float64),
        nodes.astype(np.int32),
    )
    return idle if bool((start_s < end_s).all()) and not _overlaps(idle) else None


def _body(raw: bytes, header_lines: int) -> bytes:
    at = 0
    for _ in range(header_lines):
        at = raw.find(b"\n", at) + 1
        if not at:
            return b""
    return raw[at:]


def _overlaps(idle: _Intervals) -> bool:
    if (idle.nodes == 1).all():
        by_node = np.lexsort((idle.start_s, idle.node))
        node, start_s, end_s = idle.node[by_node], idle.start_s[by_node], idle.end_s
        ends_s = end_s[by_node]
        return bool(((node[1:] == node[:-1]) & (start_s[1:] < ends_s[:-1])).any())
    lines, there = len(idle.node), UnitRanges()
    first, end = idle.node.tolist(), (idle.node + idle.nodes).tolist()
    # At one time lines close before others open.
    is_open = np.repeat([False, True], lines)
    order = np.lexsort((is_open, np.concatenate((idle.end_s, idle.start_s))))
    for place in order.tolist():
        line = place % lines
        if place < lines:
            there.remove(first[line], end[line])
        else:
            try:
                there.add(first[line], end[line])
            except ValueError:
                return True
    return False


_DIGITS = b"0123456789"


_LARGEST = 10**15


def read_whole_table(body: bytes, columns: int) -> NDArray[np.int64] | None:
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


def read_line_by_line(
    content: Content, head: TableHead, tolerance: Tolerance
) -> _Intervals:
    """Return the intervals of any log, and name the first line that is wrong."""
    intervals = parse_lines(
        data_lines(content, head), _IntervalParser(head.columns).parse, tolerance
    )
    if not intervals:
        raise tolerance.empty_log("no idle interval in it")
    names = _node_names(intervals, head)
    position = {name: index for index, name in enumerate(names)}
    idle = _Intervals(
        names,
        np.array([position[interval.node] for interval in intervals], np.int32),
        np.array([interval.start_s for interval in intervals], np.float64),
        np.array([interval.end_s for interval in intervals], np.float64),
        np.array([interval.nodes for interval in intervals], np.int32),
    )
    if any(interval.nodes > 1 for interval in intervals):
        why = ""
        if not all(_NUMBERED.fullmatch(name) for name in names):
            why = "there are lines of several nodes, and not all nodes are numbers"
        elif _overlaps(idle):
            why = "a node is idle twice at once, among lines of several nodes"
        if why:
            raise UnreadableLogError(content.source, None, None, why)
    return idle


class Interval(NamedTuple):
    """One line of the log: *node* is idle from *start_s* until *end_s*.

    So are the nodes whose numbers follow, *nodes* in all.
    """

    node: str
    start_s: float
    end_s: float
    nodes: int = 1


class _IntervalParser:
    """Parses lines; keeps when each node is idle."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._places = tuple(columns.index(name) for name in IDLE_COLUMNS)
        self._taken: dict[str, list[tuple[float, float, int]]] = {}

    def parse(self, number: int, line: str) -> Interval:
        fields = split_fields(line, self._columns)
        in_node, in_start, in_end = self._places
        node, start, end = fields[in_node], fields[in_start], fields[in_end]
        if node not in self._taken:
            _check_name(node)
        start_s = not_negative(read_number(start, "idle_start_s"), "idle_start_s")
        end_s = read_number(end, "idle_end_s")
        if end_s <= start_s:
            why = f"found {end}; expected more than idle_start_s, {start}"
            raise BadLineError("idle_end_s", why)
        if NODES_COLUMN in self._columns:
            nodes = _node_count(fields[self._columns.index(NODES_COLUMN)], node)
            if nodes > 1:  # whether they overlap shows once all lines are read
                return Interval(node, start_s, end_s, nodes)
        interval = Interval(node, start_s, end_s)
        self._take(number, interval)
        return interval

    def _take(self, number: int, new: Interval) -> None:
        """Keep *new*, unless its node is idle then already."""
        taken = self._taken.setdefault(new.node, [])
        place = len(taken)
        if taken and new.start_s < taken[-1][1]:  # logs are nearly in order
            place = bisect.bisect(taken, (new.start_s,))
        for start_s, end_s, line_number in taken[max(place - 1, 0) : place + 1]:
            if start_s < new.end_s and new.start_s < end_s:
                why = (
                    f"node {snippet(new.node)} is idle twice at once: "
                    f"{_span(new.start_s, new.end_s)} here, "
                    f"{_span(start_s, end_s)} on line {line_number}"
                )
                raise BadLineError(None, why)
        taken.insert(place, (new.start_s, new.end_s, number))


def _node_count(text: str, node: str) -> int:
    """Return how many nodes a line is of, *node* being the first."""
    count = whole(read_number(text, NODES_COLUMN), NODES_COLUMN)
    if count < 1 or (count > 1 and not _NUMBERED.fullmatch(node)):
        raise BadLineError(
            NODES_COLUMN, f"found {snippet(text)}; expected 1, or more of a node number"
        )
    if count > 1 and int(node) + count > MAX_NODES:
        raise BadLineError(
            NODES_COLUMN, f"found {snippet(text)}; expected nodes below {MAX_NODES}"
        )
    return count


def _check_name(node: str) -> None:
    if not node:
        raise BadLineError("node", "found nothing; expected a node name or number")
    if _NUMBERED.fullmatch(node) and not _is_position(node):
        why = (
            f"found {snippet(node)}; expected a node number below "
            f"{MAX_NODES}, or a name"
        )
        raise BadLineError("node", why)


def _span(start_s: float, end_s: float) -> str:
    return f"{write_number(start_s)}-{write_number(end_s)}"


def _is_position(number: str) -> bool:
    # int() itself refuses thousands of digits.
    return len(number) < len(str(MAX_NODES))


def _node_names(intervals: Sequence[Interval], head: TableHead) -> tuple[str, ...]:
    names = {interval.node for interval in intervals}
    if all(_NUMBERED.fullmatch(name) for name in names):
        return _numbered(max(map(_highest, intervals)), head)
    return tuple(sorted(names, key=natural_key))


def _highest(interval: Interval) -> int:
    return int(interval.node) + interval.nodes - 1


def _numbered(highest: int, head: TableHead) -> tuple[str, ...]:
    size = max(highest + 1, head.machine_nodes or 0)
    return tuple(str(number) for number in range(size))


def _by_start(idle: _Intervals) -> NDArray[np.intp]:
    return np.lexsort((idle.node, idle.start_s))
