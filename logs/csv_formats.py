"""Idle intervals as CSV: ``node,idle_start_s,idle_end_s``."""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logs.table import (
    MAX_NODES,
    BadLineError,
    JobIds,
    Ran,
    TableHead,
    Tolerance,
    by_submission,
    data_lines,
    not_negative,
    parse_lines,
    quote_field,
    read_head,
    read_known,
    read_number,
    read_whole_table,
    snippet,
    split_fields,
    whole,
    write_head,
    write_number,
)
from logs.trace import NO_VALUE, IdleTrace, Job, JobTrace, machine_units, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

    from numpy.typing import NDArray

    from logs.table import Content


# ----------------------------------------------------------------------
# Idle intervals as CSV: ``node,idle_start_s,idle_end_s``.

COLUMNS_fragments = ("node", "idle_start_s", "idle_end_s")
_NUMBERED = re.compile(r"0|[1-9]\d*", re.ASCII)


class Interval(NamedTuple):
    """One line of the log: *node* is idle from *start_s* until *end_s*."""

    node: str
    start_s: float
    end_s: float


class _Idle(NamedTuple):
    """All lines of a log, in any order: names by position, and three columns."""

    node_names: tuple[str, ...]
    node: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


def read_fragments(content: Content, *, skip_bad: int = 0) -> IdleTrace:
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
    head = read_head(content, needed=COLUMNS_fragments)
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


def read_plain(content: Content, head: TableHead) -> _Idle | None:
    """Return the intervals of a log of plain whole numbers, without a flaw.

    Returns:
        None where the exact reader must look: another form, or an error.
    """
    if head.columns != COLUMNS_fragments:
        return None
    table = read_whole_table(_body(content.raw, head.line_number), columns=3)
    if table is None or int(table[:, 0].max()) >= MAX_NODES:
        return None
    node, start_s, end_s = table.T
    idle = _Idle(
        _numbered(int(node.max()), head),
        node.astype(np.int32),
        start_s.astype(np.float64),
        end_s.astype(np.float64),
    )
    return idle if bool((start_s < end_s).all()) and not _overlaps(idle) else None


def read_line_by_line(content: Content, head: TableHead, tolerance: Tolerance) -> _Idle:
    """Return the intervals of any log, and name the first line that is wrong."""
    intervals = parse_lines(
        data_lines(content, head), _IntervalParser(head.columns).parse, tolerance
    )
    if not intervals:
        raise tolerance.nothing_left("no idle interval in it")
    names = _node_names({interval.node for interval in intervals}, head)
    position = {name: index for index, name in enumerate(names)}
    return _Idle(
        names,
        np.array([position[interval.node] for interval in intervals], np.int32),
        np.array([interval.start_s for interval in intervals], np.float64),
        np.array([interval.end_s for interval in intervals], np.float64),
    )


def write_fragments(trace: IdleTrace, stream: TextIO) -> None:
    """Write *trace* as CSV; what `read_fragments` reads is the same trace.

    The machine's size and the Unix time of t = 0 go into a comment of their own
    unless the trace's comments say them already; comments that say otherwise are
    left out.
    """
    head = TableHead(trace.comments, COLUMNS_fragments, 0)
    numbered = all(_NUMBERED.fullmatch(name) for name in trace.node_names)
    size = len(trace.node_names) if numbered else head.machine_nodes
    write_head(stream, head, machine_nodes=size, unix_start_s=trace.unix_start_s)
    names = [quote_field(name) for name in trace.node_names]
    intervals = zip(
        trace.node.tolist(), trace.start_s.tolist(), trace.end_s.tolist(), strict=True
    )
    stream.writelines(
        f"{names[node]},{write_number(start_s)},{write_number(end_s)}\n"
        for node, start_s, end_s in intervals
    )


class _IntervalParser:
    """Parses lines, and remembers when each node is idle."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._places = tuple(columns.index(name) for name in COLUMNS_fragments)
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


def _body(raw: bytes, header_lines: int) -> bytes:
    at = 0
    for _ in range(header_lines):
        at = raw.find(b"\n", at) + 1
        if not at:
            return b""
    return raw[at:]


def _overlaps(idle: _Idle) -> bool:
    by_node = np.lexsort((idle.start_s, idle.node))
    node, start_s, end_s = (column[by_node] for column in idle[1:])
    return bool(((node[1:] == node[:-1]) & (start_s[1:] < end_s[:-1])).any())


def _by_start(idle: _Idle) -> NDArray[np.intp]:
    return np.lexsort((idle.node, idle.start_s))


def _node_names(seen: Iterable[str], head: TableHead) -> tuple[str, ...]:
    names = set(seen)
    if all(_NUMBERED.fullmatch(name) for name in names):
        return _numbered(max(int(name) for name in names), head)
    return tuple(sorted(names, key=natural_key))


def _numbered(highest: int, head: TableHead) -> tuple[str, ...]:
    size = max(highest + 1, head.machine_nodes or 0)
    return tuple(str(number) for number in range(size))


def _is_position(number: str) -> bool:
    # int() itself refuses thousands of digits.
    return len(number) < len(str(MAX_NODES))


# ----------------------------------------------------------------------
# Jobs as CSV: ``job,submit_s,start_s,run_s,nodes,req_s,user``.

COLUMNS_job_csv = ("job", "submit_s", "start_s", "run_s", "nodes", "req_s", "user")
_NEEDED = ("job", "submit_s", "run_s", "nodes")
_OPTIONAL = ("start_s", "req_s", "user")
_NUMBERS = ("submit_s", "start_s", "run_s", "nodes", "req_s")
_UNKNOWN = str(NO_VALUE)


def read_job_csv(content: Content, *, skip_bad: int = 0) -> JobTrace:
    """Read a job CSV: columns in any order; ``-1`` or nothing means unknown.

    ``start_s``, ``req_s`` and ``user`` may be missing altogether. A comment may
    give the Unix time of t = 0 (``t0_unix=1641021254``) and the machine's size
    (``4360 KNL nodes``). Jobs that never ran are kept as `logs.record.Ran` says.

    Raises:
        UnreadableLogError: A line cannot be read, or there is no job.
    """
    head = read_head(content, needed=_NEEDED, optional=_OPTIONAL)
    tolerance = Tolerance(content.source, skip_bad)
    parser = _JobParser(head.columns)
    jobs = by_submission(
        parse_lines(data_lines(content, head), parser.parse, tolerance)
    )
    if not jobs:
        raise tolerance.nothing_left("there is no job in it")
    return JobTrace(
        source=content.source,
        log_format="jobs-csv",
        jobs=jobs,
        units=machine_units(head.machine_nodes, jobs),
        unix_start_s=head.unix_start_s,
        comments=head.comments,
        skipped_lines=tolerance.skipped,
    )


def write_jobs_csv(trace: JobTrace, stream: TextIO) -> None:
    """Write *trace* as job CSV, in nodes: parts of nodes count as whole ones."""
    head = TableHead(trace.comments, COLUMNS_job_csv, 0)
    size = -(-trace.units // trace.units_per_node)
    write_head(stream, head, machine_nodes=size, unix_start_s=trace.unix_start_s)
    for job in trace.jobs:
        fields = (
            quote_field(job.job_id),
            write_number(job.submit_s),
            _number_or_unknown(job.start_s),
            write_number(job.run_s),
            str(-(-job.units // trace.units_per_node)),
            _number_or_unknown(job.requested_s),
            quote_field(job.user or _UNKNOWN),
        )
        stream.write(",".join(fields) + "\n")


class _JobParser:
    """Parses lines, and remembers the jobs it saw."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._places = {
            name: columns.index(name) for name in COLUMNS_job_csv if name in columns
        }
        self._ids = JobIds()

    def parse(self, number: int, line: str) -> Job:
        texts = split_fields(line, self._columns)
        job_id = texts[self._places["job"]]
        if not job_id:
            raise BadLineError("job", "found nothing; expected the job's name")
        user = self._text(texts, "user")
        words = [self._text(texts, name) for name in _NUMBERS]
        job = _job(job_id, read_known(words, _NUMBERS), user)
        self._ids.add(job_id, number, field="job")
        return job

    def _text(self, texts: list[str], name: str) -> str:
        place = self._places.get(name)
        return _UNKNOWN if place is None else texts[place] or _UNKNOWN


def _job(job_id: str, values: Sequence[float | None], user: str) -> Job:
    submit_s, start_s, run_s, nodes, requested_s = values
    if submit_s is None:
        raise BadLineError("submit_s", "found -1 or nothing; expected 0 or more")
    if start_s is not None and start_s < submit_s:
        found, submitted = write_number(start_s), write_number(submit_s)
        why = f"found {found}; expected submit_s, {submitted}, or later"
        raise BadLineError("start_s", why)
    units = None if nodes is None else whole(nodes, "nodes")
    ran = Ran.of(start_s=start_s, run_s=run_s, units=units)
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=ran.start_s,
        run_s=ran.run_s,
        units=ran.units,
        requested_s=requested_s,
        user="" if user == _UNKNOWN else user,
    )


def _number_or_unknown(value: float | None) -> str:
    return _UNKNOWN if value is None else write_number(value)
