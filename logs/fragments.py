"""Idle intervals as CSV: ``node,idle_start_s,idle_end_s``."""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logs.lines import (
    MAX_NODES,
    BadLineError,
    LogFormat,
    Tolerance,
    not_negative,
    parse_lines,
    read_number,
    snippet,
    write_number,
)
from logs.table import (
    TableHead,
    data_lines,
    quote_field,
    read_head,
    split_fields,
    write_head,
)
from logs.trace import IdleTrace, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from numpy.typing import NDArray

    from logs.lines import Content


COLUMNS = ("node", "idle_start_s", "idle_end_s")
_NUMBERED = re.compile(r"0|[1-9]\d*", re.ASCII)


class Fragments(LogFormat[IdleTrace]):
    """A log of the intervals in which nodes are idle."""

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
        Other names are taken as they come, in natural order.

        Args:
            content: The file.
            skip_bad: Bad lines that may be skipped. Of two intervals of one node
                that overlap, the one further down is the bad one.

        Raises:
            UnreadableLogError: A line cannot be read, an interval is negative or
                empty, or a node is idle twice at once.
        """
        head = read_head(content, needed=COLUMNS)
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
        )

    def write(self, trace: IdleTrace, stream: TextIO) -> None:
        """Write *trace* as CSV; `read` reads the same trace back.

        The machine's size and the Unix time of t = 0 go into a comment of their own
        unless the trace's comments say them already; comments that say otherwise are
        left out.
        """
        head = TableHead(trace.comments, COLUMNS, 0)
        numbered = all(_NUMBERED.fullmatch(name) for name in trace.node_names)
        size = len(trace.node_names) if numbered else head.machine_nodes
        write_head(stream, head, machine_nodes=size, unix_start_s=trace.unix_start_s)
        names = [quote_field(name) for name in trace.node_names]
        intervals = zip(
            trace.node.tolist(),
            trace.start_s.tolist(),
            trace.end_s.tolist(),
            strict=True,
        )
        stream.writelines(
            f"{names[node]},{write_number(start_s)},{write_number(end_s)}\n"
            for node, start_s, end_s in intervals
        )


class _Intervals(NamedTuple):
    """All lines of a log, in any order: names by position, and three columns."""

    node_names: tuple[str, ...]
    node: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


def read_plain(content: Content, head: TableHead) -> _Intervals | None:
    """Return the intervals of a log of plain whole numbers, without a flaw.

    Returns:
        None for another form, or an error: then `read_line_by_line` must look.
    """
    if head.columns != COLUMNS:
        return None
    table = read_whole_table(_body(content.raw, head.line_number), columns=3)
    if table is None or int(table[:, 0].max()) >= MAX_NODES:
        return None
    node, start_s, end_s = table.T
    idle = _Intervals(
        _numbered(int(node.max()), head),
        node.astype(np.int32),
        start_s.astype(np.float64),
        end_s.astype(np.float64),
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
    by_node = np.lexsort((idle.start_s, idle.node))
    node, start_s, end_s = (column[by_node] for column in idle[1:])
    return bool(((node[1:] == node[:-1]) & (start_s[1:] < end_s[:-1])).any())


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


def read_line_by_line(
    content: Content, head: TableHead, tolerance: Tolerance
) -> _Intervals:
    """Return the intervals of any log, and name the first line that is wrong."""
    intervals = parse_lines(
        data_lines(content, head), _IntervalParser(head.columns).parse, tolerance
    )
    if not intervals:
        raise tolerance.empty_log("no idle interval in it")
    names = _node_names({interval.node for interval in intervals}, head)
    position = {name: index for index, name in enumerate(names)}
    return _Intervals(
        names,
        np.array([position[interval.node] for interval in intervals], np.int32),
        np.array([interval.start_s for interval in intervals], np.float64),
        np.array([interval.end_s for interval in intervals], np.float64),
    )


class Interval(NamedTuple):
    """One line of the log: *node* is idle from *start_s* until *end_s*."""

    node: str
    start_s: float
    end_s: float


class _IntervalParser:
    """Parses lines, and remembers when each node is idle."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._places = tuple(columns.index(name) for name in COLUMNS)
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
        interval = Interval(node, start_s, end_s)
        self._take(number, interval)
        return interval

    def _take(self, number: int, new: Interval) -> None:
        """Remember *new*, unless its node is idle then already."""
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


def _node_names(seen: Iterable[str], head: TableHead) -> tuple[str, ...]:
    names = set(seen)
    if all(_NUMBERED.fullmatch(name) for name in names):
        return _numbered(max(int(name) for name in names), head)
    return tuple(sorted(names, key=natural_key))


def _numbered(highest: int, head: TableHead) -> tuple[str, ...]:
    size = max(highest + 1, head.machine_nodes or 0)
    return tuple(str(number) for number in range(size))


def _by_start(idle: _Intervals) -> NDArray[np.intp]:
    return np.lexsort((idle.node, idle.start_s))
