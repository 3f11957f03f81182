"""Dumps of Slurm's accounting: ``sacct --parsable2`` and ``--parsable``.

A dump that holds everything this reader uses::

    format=JobIDRaw,Submit,Start,End,Elapsed,Timelimit,NNodes,NodeList
    format=$format,Partition,State,Priority,User
    TZ=UTC sacct --allusers --duplicates --allocations --parsable2 --format=$format

``AllocTRES`` beside these says how many GPUs each job had.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from logs.format import (
    MAX_NODES,
    BadLineError,
    GpuLogFormat,
    Tolerance,
    actual_run,
    by_submission,
    counted,
    keep_comment,
    machine_gpus,
    machine_units,
    on_gpus,
    parse_lines,
    snippet,
    write_number,
)
from logs.trace import Job, JobTrace, UnreadableLogError, named_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from logs.format import Content


_NEEDED = (
    ("JobIDRaw", "JobID"),
    ("Submit",),
    ("Start",),
    ("End", "Elapsed", "ElapsedRaw"),
    ("NNodes", "AllocNodes", "NodeList"),
)
_JOB_ID = re.compile(r"\d+(_(\d+|\[[^\]|]*\]))?([+]\d+)?", re.ASCII)
_STEP_ID = re.compile(r"\d+(_\d+)?([+]\d+)?\.\w+([+]\d+)?", re.ASCII)
_NO_TEXT = frozenset(
    {"", "jobid", "jobidraw", "submit", "start", "end", "elapsed", "elapsedraw"}
    | {"timelimit", "timelimitraw", "nnodes", "allocnodes", "nodelist", "partition"}
    | {"state", "priority", "user", "uid", "alloctres"}
)
"""Columns that have no line breaks; nothing stands behind a delimiter that ends."""


class Sacct(GpuLogFormat):
    """A dump of Slurm's accounting."""

    name = "sacct"
    expected = (
        "a dump of `sacct --parsable2` (a first line such as "
        "JobIDRaw|Submit|Start|End|NNodes)"
    )
    holds = JobTrace

    def begins_with(self, line: str) -> bool:
        """Tell whether *line* names a column of job ids, or is a line without names."""
        return _mark_of_header(line) is not None or _mark_of_record(line) is not None

    def read(self, content: Content, *, skip_bad: int = 0) -> JobTrace:
        """Read a dump of ``sacct``, its columns in any order; unused ones may be there.

        Needed are a job id, Submit, Start, one of End, Elapsed and ElapsedRaw, and
        one of NNodes, AllocNodes and NodeList; where the dump has no header line, they
        are recognised by their values. Any of several delimiters may stand between
        them. Units are nodes. t = 0 is the first submission; times without a zone are
        taken as UTC (run sacct with TZ=UTC, or a change to winter time makes jobs end
        before they start).

        * Steps (``123.batch``) are left out; an array's tasks and the components of a
          heterogeneous job are jobs each. Names and comments may have line breaks.
        * A job that was requeued has several lines; each is a job of its own, the
          second one named ``123#2``.
        * A job that still runs has run for Elapsed, or, without that column, until
          the latest time that the dump mentions.
        * A job that never started (no Start, still pending, or cancelled without
          nodes) has no start, see `actual_run`.

        With GPUs per node, AllocTRES is needed too, and units are GPUs: those that
        ``gres/gpu`` counts, of any type. A job without GPUs is kept as one that never
        ran, and its nodes do not count: they may have no GPU.

        Raises:
            UnreadableLogError: A column is missing, a line cannot be read, or there
                is no job.
        """
        tolerance = Tolerance(content.source, skip_bad)
        head = _read_head(content)
        if self._gpus_per_node and "alloctres" not in head.columns:
            why = (
                "the sacct dump has no column AllocTRES, which counts the GPUs of jobs"
            )
            raise UnreadableLogError(content.source, head.line_number, None, why)
        node_lists = NodeLists("NodeList", len(content.raw))
        parser = _DumpParser(head, node_lists, self._gpus_per_node)
        lines = _whole_records(content, head, parser.broken)
        records = parse_lines(lines, parser.parse, tolerance)
        if not records:
            raise tolerance.empty_log("there is no job in it")
        found, cautions = _named_for_all_or_none(_from_zero(records), records)
        jobs = by_submission(found)
        units = len(named_nodes(jobs)) or machine_units(None, jobs)
        if self._gpus_per_node:
            units = machine_gpus(None, jobs, self._gpus_per_node)
        return JobTrace(
            source=content.source,
            log_format="sacct",
            jobs=jobs,
            units=units,
            units_per_node=self._gpus_per_node or 1,
            counts_gpus=self._gpus_per_node is not None,
            unix_start_s=min(record.job.submit_s for record in records),
            comments=head.comments,
            skipped_lines=tolerance.skipped,
            cautions=(*head.cautions, *parser.cautions(), *cautions),
        )


_ALWAYS_NAMED = 500_000
_MOST_NAMES_A_BYTE = 16
"""Names of nodes that all different node lists of a dump may mean together: 16 lists of
``n[0-999999]`` are 200 bytes long. Jobs of 1,000 nodes on average are within it."""


class NodeLists:
    """The node lists of one log; keeps their names.

    Args:
        field: The field that they are in, for messages.
        log_bytes: The log's length, which bounds how many names there may be.
    """

    def __init__(self, field: str, log_bytes: int) -> None:
        self._field = field
        self._left_names = _ALWAYS_NAMED + _MOST_NAMES_A_BYTE * log_bytes
        self._names: dict[str, str] = {}  # each name once, however many lists have it
        self._expanded: dict[str, tuple[str, ...]] = {}

    def names(self, text: str) -> tuple[str, ...]:
        """Return the nodes' names; equal lists, which abound, share one tuple.

        Raises:
            BadLineError: It is no node list, or one of too many nodes.
        """
        if is_nothing(text):
            return ()
        if text not in self._expanded:
            try:
                found = expand_hostlist(text, limit=min(MAX_NODES, self._left_names))
            except ValueError as error:
                why = f"found {snippet(text)}; expected a node list: {error}"
                raise BadLineError(self._field, why) from None
            self._left_names -= len(found)
            names = (self._names.setdefault(name, name) for name in found)
            self._expanded[text] = tuple(dict.fromkeys(names))
            if len(self._names) > MAX_NODES:
                why = f"expected a machine of up to {MAX_NODES} nodes"
                raise BadLineError(self._field, why)
        return self._expanded[text]


class _Head(NamedTuple):
    """How a dump is to be read.

    Attributes:
        mark: What stands between fields.
        columns: Names in lower case; empty for a column that is not used.
        line_number: Line of the names, 0 where there are none.
        comments: Comments before it, without ``#``.
        cautions: A sentence where columns were recognised by their values.
    """

    mark: str
    columns: tuple[str, ...]
    line_number: int
    comments: tuple[str, ...]
    cautions: tuple[str, ...] = ()

    @property
    def id_place(self) -> int:
        """The column of job ids."""
        raw = "jobidraw" in self.columns
        return self.columns.index("jobidraw" if raw else "jobid")

    def starts_record(self, line: str) -> bool:
        """Tell whether *line* has a job's or a step's id in its place."""
        fields = line.split(self.mark, self.id_place + 1)
        text = fields[self.id_place].strip() if len(fields) > self.id_place else ""
        return bool(_JOB_ID.fullmatch(text) or _STEP_ID.fullmatch(text))

    def is_step(self, line: str) -> bool:
        """Tell whether *line* begins the record of a step."""
        fields = line.split(self.mark, self.id_place + 1)
        text = fields[self.id_place].strip() if len(fields) > self.id_place else ""
        return bool(_STEP_ID.fullmatch(text))


def _whole_records(
    content: Content, head: _Head, broken: set[int]
) -> Iterator[tuple[int, str]]:
    """Yield records with their first line, those put together that have line breaks.

    A line that has neither all fields nor a job's id continues the one before, if that
    lacks fields, is a step, or ends with a column that is not used. Lines of records
    that were put together are added to *broken*.
    """
    marks = len(head.columns) - 1
    ends_in_text = head.columns[-1] not in _NO_TEXT
    # Thousands of lines may continue one: each is looked at once, and all are joined.
    number, record, has = 0, list[str](), 0
    is_step: bool | None = None  # where a record with all fields is known to be one
    for this, line in content.lines():
        if this <= head.line_number or not line.strip():
            continue
        if not head.line_number and line.startswith("#") and not record:
            continue
        found = line.count(head.mark)
        is_new = found == marks or head.starts_record(line)
        if record and not is_new:
            continues = has < marks or (ends_in_text and not found)
            if not continues and is_step is None:
                is_step = head.is_step(" ".join(record))
            if continues or is_step:
                if has < marks or head.id_place == marks:
                    is_step = None
                record.append(line)
                has += f" {line}".count(head.mark)
                broken.add(number)
                continue
        if record:
            yield number, " ".join(record)
        number, record, has, is_step = this, [line], found, None
    if record:
        yield number, " ".join(record)


class _DumpParser:
    """Parses records; keeps job ids.

    Attributes:
        broken: First lines of records that were put together.
    """

    def __init__(
        self, head: _Head, node_lists: NodeLists, gpus_per_node: int | None
    ) -> None:
        self.broken: set[int] = set()
        self._head = head
        self._gpus_per_node = gpus_per_node
        self._node_lists = node_lists
        self._times_seen: dict[str, int] = {}
        self._broken_steps = 0
        self._broken_jobs = 0

    def parse(self, number: int, line: str) -> SacctRecord | None:
        fields = self._fields(number, line)
        if fields is None:
            return None
        job_id = fields.get("jobidraw") or fields.get("jobid", "")
        if not _JOB_ID.fullmatch(job_id):
            why = f"found {snippet(job_id)}; expected a job id such as 123 or 123_4"
            raise BadLineError("JobID", why)
        nodes = self._node_lists.names(fields.get("nodelist", ""))
        record = read_record(job_id, fields, nodes)
        if self._gpus_per_node:
            gpus = read_gpus(fields["alloctres"])
            job = on_gpus(
                record.job, gpus, per_node=self._gpus_per_node, field="AllocTRES"
            )
            record = record._replace(job=job)
        self._broken_jobs += number in self.broken
        times = self._times_seen[job_id] = self._times_seen.get(job_id, 0) + 1
        if times == 1:
            return record
        job = dataclasses.replace(record.job, job_id=f"{job_id}#{times}")
        return record._replace(job=job)

    def cautions(self) -> Iterator[str]:
        """Yield a sentence for records with line breaks: steps, and jobs."""
        breaks = "in a field."
        if self._broken_steps:
            steps = counted(self._broken_steps, "step")
            yield f"{steps} left out that had line breaks {breaks}"
        if self._broken_jobs:
            jobs = counted(self._broken_jobs, "job")
            yield f"{jobs} put together that had line breaks {breaks}"

    def _fields(self, number: int, line: str) -> dict[str, str] | None:
        """Return a job's fields by column; None for a step."""
        columns, place = self._head.columns, self._head.id_place
        fields = line.split(self._head.mark)
        if len(fields) > place and "." in fields[place]:
            self._broken_steps += number in self.broken
            return None
        if len(fields) != len(columns):
            why = (
                f"found {len(fields)} fields, expected {len(columns)} "
                f"(a name with '{self._head.mark}' or a line break in it?)"
            )
            raise BadLineError(None, why)
        stripped = (field.strip() for field in fields)
        return dict(zip(columns, stripped, strict=True))


# The header line, or columns recognised by their values where there is none.

_MARKS = ("|#", "|", ";", "\t", "^", "~", "@")
"""Delimiters that are looked for; ``--delimiter`` takes any. No comma: it stands in
lists of nodes."""

_FEWEST_FIELDS = 4
_FEWEST_TIMES = 2


def _mark_of_header(line: str) -> str | None:
    """Return the delimiter of a header line, None if *line* is none."""
    for mark in _MARKS:
        names = {name.strip().lower() for name in line.split(mark)}
        if not names.isdisjoint({"jobid", "jobidraw"}):
            return mark
    return None


def _mark_of_record(line: str) -> str | None:
    """Return the delimiter of a line without names: it has two times; else None."""
    for mark in _MARKS:
        fields = [field.strip() for field in line.split(mark)]
        times = sum(_TIME.fullmatch(field) is not None for field in fields)
        if len(fields) >= _FEWEST_FIELDS and times >= _FEWEST_TIMES:
            return mark
    return None


def _read_head(content: Content) -> _Head:
    """Return how the dump in *content* is to be read.

    Raises:
        UnreadableLogError: A column is missing, or looks like another.
    """
    comments: list[str] = []
    for number, line in content.lines():
        if line.startswith("#"):
            keep_comment(comments, line[1:].strip())
        elif mark := _mark_of_header(line):
            columns = tuple(name.strip().lower() for name in line.split(mark))
            _check_columns(content.source, number, columns)
            return _Head(mark, columns, number, tuple(comments))
        elif line.strip():
            mark = _mark_of_record(line) or "|"
            return _headless(content, number, mark, tuple(comments))
    raise UnreadableLogError(content.source, None, None, "there is no job in it")


def _check_columns(source: str, number: int, columns: tuple[str, ...]) -> None:
    for choice in _NEEDED:
        if not any(name.lower() in columns for name in choice):
            why = (
                f"the sacct dump has no column {' or '.join(choice)}; make it with -o "
                f"JobIDRaw,Submit,Start,End,Timelimit,NNodes,NodeList,Partition,State"
            )
            raise UnreadableLogError(source, number, None, why)


_SAMPLE = 1000
"""Records by whose values columns without names are recognised."""

_MOST_COLUMNS = 150
"""``sacct --helpformat`` has 120."""

_FEW_TIMES = 6
"""Up to so many columns of times are tried in any order."""


def _headless(
    content: Content, number: int, mark: str, comments: tuple[str, ...]
) -> _Head:
    lines = (line.split(mark) for _, line in content.lines() if mark in line)
    sample = list(itertools.islice(lines, _SAMPLE))
    width = statistics.mode(map(len, sample)) if sample else 0
    rows = [[text.strip() for text in row] for row in sample if len(row) == width]
    try:
        named = _Unnamed(rows).named() if width <= _MOST_COLUMNS else {}
    except BadLineError as bad:
        raise UnreadableLogError(content.source, number, bad.field, bad.why) from None
    columns = tuple(
        named.get(place, "text" if any(row[place] for row in rows) else "").lower()
        for place in range(width)
    )
    for choice in _NEEDED:
        if not any(name.lower() in columns for name in choice):
            why = (
                f"it has no header line, and of its columns none is surely "
                f"{' or '.join(choice)}. Nothing was read. Put the line with their "
                f"names first, as sacct prints it without --noheader"
            )
            raise UnreadableLogError(content.source, number, None, why)
    listed = ", ".join(f"{place + 1} {name}" for place, name in sorted(named.items()))
    caution = f"The dump has no header line: its columns were taken to be {listed}."
    return _Head(mark, columns, 0, comments, (caution,))


class _Unnamed:
    """Columns without names, recognised by their values.

    Args:
        rows: Fields of some records, all of one length. Steps are not looked at.
    """

    def __init__(self, rows: list[list[str]]) -> None:
        ids = {
            place: len(set(values))
            for place, values in enumerate(zip(*rows, strict=True))
            if all(_JOB_ID.fullmatch(v) or _STEP_ID.fullmatch(v) for v in values)
        }
        self._id = max(ids, key=lambda place: ids[place], default=None)
        jobs = [
            row for row in rows if self._id is None or _JOB_ID.fullmatch(row[self._id])
        ]
        self._columns = [*zip(*jobs, strict=True)]
        self._known = [
            [text for text in column if not is_nothing(text)]
            for column in self._columns
        ]

    def named(self) -> dict[int, str]:
        """Return by place the names of columns that surely are what they are called."""
        if self._id is None or not self._columns:
            return {}
        named = {self._id: "JobID", **self._times()}
        named |= self._durations(named)
        named |= self._nodes(named)
        states = [place for place in self._of(_STATE) if place not in named]
        return named | dict.fromkeys(states[:1], "State")

    def _of(self, pattern: re.Pattern[str]) -> list[int]:
        """Return the columns that have values, all of them like *pattern*."""
        return [
            place
            for place, known in enumerate(self._known)
            if known and all(map(pattern.fullmatch, known))
        ]

    def _times(self) -> dict[int, str]:
        """Return Submit, Start and, of three or more, End, which follow each other.

        Of more than three columns it is the first and the last two: Eligible stands
        between Submit and Start.
        """
        times = [place for place in self._of(_TIME) if place != self._id]
        names = ("Submit", "Start", "End")[: len(times)]
        usual = (*times[:1], *times[1:][-2:])
        orders = itertools.permutations(times[:_FEW_TIMES], len(names))
        for places in itertools.chain([usual], orders):
            if len(names) >= _FEWEST_TIMES and self._follow_each_other(places):
                return dict(zip(places, names, strict=True))
        return {}

    def _follow_each_other(self, places: Sequence[int]) -> bool:
        for texts in zip(*(self._columns[place] for place in places), strict=True):
            times_s = [time_s for text in texts if (time_s := read_time(text, ""))]
            if times_s != sorted(times_s):
                return False
        return True

    def _durations(self, named: Mapping[int, str]) -> dict[int, str]:
        """Return Elapsed, which is End - Start where there is an End, and Timelimit."""
        places = [
            place
            for place in self._of(_LIMIT)
            if any(":" in text for text in self._known[place])
        ]
        by_name = {name: self._columns[place] for place, name in named.items()}
        if "End" not in by_name:
            return {places[0]: "Elapsed"} if len(places) == 1 else {}
        ran_s = [
            None if start_s is None or end_s is None else end_s - start_s
            for start_s, end_s in (
                (read_time(start, "Start"), read_time(end, "End"))
                for start, end in zip(by_name["Start"], by_name["End"], strict=True)
            )
        ]
        elapsed = [
            place
            for place in places
            if all(
                run_s is None or read_duration(text, "", bare_unit_s=1.0) == run_s
                for text, run_s in zip(self._columns[place], ran_s, strict=True)
            )
        ]
        limits = [place for place in places if place not in elapsed]
        found = dict.fromkeys(elapsed[:1], "Elapsed")
        return found | ({limits[0]: "Timelimit"} if len(limits) == 1 else {})

    def _nodes(self, named: Mapping[int, str]) -> dict[int, str]:
        """Return NodeList and NNodes, which has as many; or the only count there is."""
        counts = [place for place in self._of(_COUNT) if place not in named]
        lists = [place for place in self._of(_NODE_LIST) if place not in named]
        # A user or partition may look like a node, but is on more lines the same.
        lists.sort(key=lambda place: -len(set(self._columns[place])))
        # Any list may go with any count, so each of them is read once.
        sizes = {place: self._numbers(place, _length) for place in lists}
        numbers = {place: self._numbers(place, _count) for place in counts}
        for place, count in itertools.product(lists, counts):
            size, number = sizes[place], numbers[count]
            if size and number and all(map(_is_so_long, size, number)):
                return {place: "NodeList", count: "NNodes"}
        return {counts[0]: "NNodes"} if len(counts) == 1 else {}

    def _numbers(
        self, place: int, read: Callable[[str], int | None]
    ) -> list[int | None]:
        """Return what the values of a column count; nothing where one is unreadable."""
        try:
            return list(map(read, self._columns[place]))
        except (ValueError, BadLineError):
            return []


def _length(text: str) -> int | None:
    return None if is_nothing(text) else count_hostlist(text)


def _count(text: str) -> int | None:
    return read_count(text, "NNodes")


def _is_so_long(size: int | None, number: int | None) -> bool:
    return size is None or size == number


def _from_zero(records: list[SacctRecord]) -> list[Job]:
    zero_s = min(record.job.submit_s for record in records)
    latest_s = max(record.seen_s for record in records)
    jobs: list[Job] = []
    for job, running, *_ in records:
        start_s, run_s = job.start_s, job.run_s
        if running and start_s is not None:
            run_s = latest_s - start_s
        jobs.append(
            dataclasses.replace(
                job,
                submit_s=job.submit_s - zero_s,
                start_s=None if start_s is None else start_s - zero_s,
                run_s=run_s,
            )
        )
    return jobs


def _named_for_all_or_none(
    jobs: list[Job], records: list[SacctRecord]
) -> tuple[list[Job], tuple[str, ...]]:
    """Return *jobs*, which have a node list all or none, and cautions.

    A job whose nodes are not known may have been on any, also on those that other jobs
    name: names say which nodes were idle only where every job that ran has them. Where
    others name nodes, "None assigned" means that a job had none.
    """
    if not any(job.nodes for job in jobs):
        return jobs, ()
    cautions = []
    had_none = [
        place
        for place, record in enumerate(records)
        if record.had_no_nodes and jobs[place].start_s is not None
    ]
    for place in had_none:
        jobs[place] = dataclasses.replace(jobs[place], start_s=None, run_s=0.0)
    if had_none:
        lines = counted(len(had_none), "job")
        why = "the log gives them a run time and no nodes (None assigned)."
        cautions.append(f"{lines} left out: {why}")
    ran = [job for job in jobs if job.start_s is not None and job.units]
    if unnamed := sum(not job.nodes for job in ran):
        jobs = [dataclasses.replace(job, nodes=()) for job in jobs]
        why = "so the nodes of all are counted and not named: shared ones count twice."
        cautions.append(
            f"{counted(unnamed, 'job')} of {len(ran):,} that ran without a node list, "
            f"{why}"
        )
    return jobs, tuple(cautions)


_MINUTE_S = 60.0
_PRIORITY = re.compile(r"\d{1,18}", re.ASCII)


class SacctRecord(NamedTuple):
    """One line of a dump.

    Attributes:
        job: The job, its times in Unix time.
        running: Whether it still runs, for an unknown time so far; then its
            ``run_s`` is 0.
        seen_s: The latest time that the line mentions.
        had_no_nodes: Whether NodeList is "None assigned".
    """

    job: Job
    running: bool
    seen_s: float
    had_no_nodes: bool


class _Times(NamedTuple):
    submit_s: float
    start_s: float | None
    end_s: float | None
    elapsed_s: float | None


def read_record(
    job_id: str, fields: Mapping[str, str], nodes: tuple[str, ...]
) -> SacctRecord:
    """Return the record of a line with *fields*, by column in lower case.

    Raises:
        BadLineError: A field cannot be read, or the job starts before its
            submission or ends before its start.
    """
    state = fields.get("state", "")
    times = _times(fields)
    if _never_started(fields, state, times):
        times = times._replace(start_s=None)
    running = times.start_s is not None and times.end_s is times.elapsed_s is None
    start_s, run_s, units = actual_run(
        start_s=times.start_s,
        run_s=0.0 if running else _run_s(times),
        units=_units(fields, nodes),
    )
    job = Job(
        job_id=job_id,
        submit_s=times.submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=_limit_s(fields),
        user=fields.get("user") or fields.get("uid", ""),
        partition=fields.get("partition", ""),
        state=state,
        priority=_priority(fields.get("priority", "")),
        nodes=nodes,
    )
    known_s = [time_s for time_s in times[:3] if time_s is not None]
    had_no_nodes = fields.get("nodelist", "").lower() == _NO_NODES
    return SacctRecord(job, running, max(known_s), had_no_nodes)


def _times(fields: Mapping[str, str]) -> _Times:
    submit_s = read_time(fields["submit"], "Submit")
    if submit_s is None:
        why = f"found {snippet(fields['submit'])}; expected the time of submission"
        raise BadLineError("Submit", why)
    start_s = read_time(fields["start"], "Start")
    end_s = read_time(fields.get("end", ""), "End")
    if start_s is not None:
        _check_order("Start", fields["start"], start_s - submit_s, "Submit")
        if end_s is not None:
            _check_order("End", fields["end"], end_s - start_s, "Start")
    return _Times(submit_s, start_s, end_s, _elapsed_s(fields))


def _check_order(field: str, text: str, after_s: float, other: str) -> None:
    if after_s < 0:
        early = write_number(-after_s)
        why = f"found {snippet(text)}, {early} s before {other}; expected {other} first"
        raise BadLineError(field, why)


def _never_started(fields: Mapping[str, str], state: str, times: _Times) -> bool:
    """Tell whether Start is missing or no start at all.

    Slurm gives a job that was cancelled while it waited the time of the cancel
    as Start and End, and "None assigned" as its nodes; a pending job can carry
    the start that is planned. A job that ran for a while without nodes is no such job:
    the dump lacks its nodes.
    """
    if times.start_s is None or state.startswith("PENDING"):
        return True
    ran_no_time = times.start_s == times.end_s
    without_nodes = "nodelist" in fields and is_nothing(fields["nodelist"])
    return ran_no_time and (without_nodes or state.startswith("CANCELLED"))


def _run_s(times: _Times) -> float | None:
    """Return how long the job held its nodes; Elapsed leaves suspensions out."""
    if times.start_s is None:
        return None
    if times.end_s is None:
        return times.elapsed_s
    return times.end_s - times.start_s


def _elapsed_s(fields: Mapping[str, str]) -> float | None:
    if "elapsedraw" in fields:
        return read_duration(fields["elapsedraw"], "ElapsedRaw", bare_unit_s=1.0)
    return read_duration(fields.get("elapsed", ""), "Elapsed", bare_unit_s=1.0)


def _limit_s(fields: Mapping[str, str]) -> float | None:
    if "timelimit" in fields:
        return read_duration(fields["timelimit"], "Timelimit", bare_unit_s=_MINUTE_S)
    raw = fields.get("timelimitraw", "")
    return read_duration(raw, "TimelimitRaw", bare_unit_s=_MINUTE_S)


def _units(fields: Mapping[str, str], nodes: tuple[str, ...]) -> int:
    counted = (
        ("NNodes", read_count(fields.get("nnodes", ""), "NNodes")),
        ("AllocNodes", read_count(fields.get("allocnodes", ""), "AllocNodes")),
    )
    column, count = next((pair for pair in counted if pair[1]), ("", len(nodes)))
    if nodes and count != len(nodes):
        why = f"found {len(nodes)} nodes; expected {count}, as {column} says"
        raise BadLineError("NodeList", why)
    return count or 0


_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d{1,9})", re.ASCII)
_ALL_GPUS = re.compile(r"gres/gpu=(\d{1,9})", re.ASCII)


def read_gpus(tres: str) -> int:
    """Return the GPUs in a list such as ``cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G``.

    A site may count GPUs of any type, of each type, or both.
    """
    counted = _ALL_GPUS.search(tres)
    return int(counted[1]) if counted else sum(map(int, _GPUS.findall(tres)))


def _priority(text: str) -> int | None:
    if is_nothing(text):
        return None
    if not _PRIORITY.fullmatch(text):
        raise BadLineError("Priority", f"found {snippet(text)}; expected a number")
    return int(text)


_UNIX = re.compile(r"\d{1,12}(\.\d+)?", re.ASCII)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)

_DURATION = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?P<parts>\d{1,9}(?::\d{1,9}){0,2})(?P<fraction>\.\d+)?",
    re.ASCII,
)
_COUNT = re.compile(r"(\d{1,12}(?:\.\d+)?)([KMG]?)", re.ASCII)
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_NO_NODES = "none assigned"
_NOTHING = frozenset({"", "unknown", "none", "n/a", _NO_NODES, "invalid"})
_NO_LIMIT = _NOTHING | {"unlimited", "partition_limit"}

# Values by which columns without names are recognised.
_TIME = re.compile(rf"{_ISO.pattern}|\d{{9,10}}", re.ASCII)
_LIMIT = re.compile(rf"{_DURATION.pattern}|UNLIMITED|Partition_Limit", re.ASCII)
_NODE_LIST = re.compile(r"(?=[^A-Za-z]*[A-Za-z])(?=\D*\d)[^\s|]+", re.ASCII)
_STATE = re.compile(
    r"(BOOT_FAIL|CANCELLED|COMPLETED|CONFIGURING|COMPLETING|DEADLINE|FAILED|NODE_FAIL|"
    r"OUT_OF_MEMORY|PENDING|PREEMPTED|RUNNING|RESIZING|REQUEUED|REVOKED|SUSPENDED|"
    r"TIMEOUT)\b.*",
    re.ASCII,
)


def is_nothing(text: str) -> bool:
    """Tell whether *text* is one of Slurm's words for "there is no such value"."""
    return text.lower() in _NOTHING


def read_time(text: str, field: str) -> float | None:
    """Return a point in Unix time, or None for Unknown, None and the like.

    A time without a zone is taken as UTC: sacct prints the local time of where
    it ran, and does not say where that was.

    Raises:
        BadLineError: It is no time.
    """
    if is_nothing(text):
        return None
    if _UNIX.fullmatch(text):
        return float(text)
    try:
        if _ISO.fullmatch(text):
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass
    why = (
        f"found {snippet(text)}; expected a time such as 2026-08-20T04:00:00, a Unix "
        f"time, Unknown or None"
    )
    raise BadLineError(field, why)


def read_duration(text: str, field: str, *, bare_unit_s: float) -> float | None:
    """Return seconds, or None where there is no limit or no value.

    Forms: ``D-HH:MM:SS``, ``D-HH:MM``, ``D-HH``, ``HH:MM:SS``, ``MM:SS``,
    ``MM:SS.mmm`` and a bare number.

    Args:
        text: What sacct printed.
        field: Its column, for the message.
        bare_unit_s: Seconds that a bare number counts: 60 in Timelimit, 1 in
            ElapsedRaw.

    Raises:
        BadLineError: It is no duration.
    """
    if text.lower() in _NO_LIMIT:
        return None
    found = _DURATION.fullmatch(text)
    if not found:
        why = (
            f"found {snippet(text)}; expected a duration such as 2-03:04:05 or 30:00, "
            f"UNLIMITED or Partition_Limit"
        )
        raise BadLineError(field, why)
    parts = [float(part) for part in found["parts"].split(":")]
    fraction_s = float(found["fraction"] or 0)
    if found["days"]:
        hours, minutes, seconds = [*parts, 0.0, 0.0][:3]
        return int(found["days"]) * 86400 + _clock(hours, minutes, seconds) + fraction_s
    if len(parts) == 1:
        return (parts[0] + fraction_s) * bare_unit_s
    hours, minutes, seconds = [0.0, *parts][-3:]
    return _clock(hours, minutes, seconds) + fraction_s


def _clock(hours: float, minutes: float, seconds: float) -> float:
    return hours * 3600 + minutes * 60 + seconds


def read_count(text: str, field: str) -> int | None:
    """Return a count such as 1536 or ``1.5K`` (1,024 each), None for no value.

    Raises:
        BadLineError: It is no whole count.
    """
    if is_nothing(text):
        return None
    found = _COUNT.fullmatch(text)
    count = float(found[1]) * _FACTORS[found[2]] if found else 0.5
    if not count.is_integer():
        why = f"found {snippet(text)}; expected a whole number, or one such as 1.5K"
        raise BadLineError(field, why)
    return int(count)


_PART = re.compile(r"([^\[\],\s]+)|\[([\d,\-]+)\]", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


def expand_hostlist(text: str, *, limit: int = MAX_NODES) -> tuple[str, ...]:
    """Return the node names that *text* stands for, in its order.

    Brackets may stand anywhere and more than once; the last one counts fastest.
    Numbers keep the width that the range's first number has. Names are counted before
    any is made.

    Raises:
        ValueError: It is no such list, or one of more than *limit* nodes.
    """
    count_hostlist(text, limit=limit)
    return tuple(name for parts in _terms(text) for name in _names(parts))


def count_hostlist(text: str, *, limit: int = MAX_NODES) -> int:
    """Return how many names *text* stands for; raises as `expand_hostlist` does."""
    count = 0
    for parts in _terms(text):
        count += math.prod(sum(len(numbers) for numbers, _ in part) for part in parts)
        if count > limit:
            raise ValueError(f"more than {limit} nodes")
    return count


_LONGEST_NAME = 300
"""Characters of a node's name, a range counting as one; DNS takes 253."""

_Words = tuple[Sequence[int] | Sequence[str], int]
"""Numbers and their width; or one word, and 0."""


def _terms(text: str) -> Iterator[list[list[_Words]]]:
    """Yield the parts of each term of *text*: alternatives that follow each other."""
    at = 0
    while at < len(text):
        parts: list[list[_Words]] = []
        longest = _LONGEST_NAME
        while found := _PART.match(text, at):
            parts.append([((found[1],), 0)] if found[1] else _ranges(found[2]))
            longest -= len(found[1] or "") + 1
            if longest < 0:
                raise ValueError(f"a name of more than {_LONGEST_NAME} characters")
            at = found.end()
        if not parts or (at < len(text) and text[at] != ","):
            raise ValueError(f"no node name at character {at + 1}")
        yield parts
        at += 1
    if text.endswith(","):
        raise ValueError("nothing after the last comma")


def _ranges(text: str) -> list[_Words]:
    ranges: list[_Words] = []
    for item in text.split(","):
        found = _RANGE.fullmatch(item)
        if not found:
            raise ValueError(f"{item!r} is no range of numbers")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"the range {item!r} runs backwards")
        ranges.append((range(first, last + 1), len(found[1])))
    return ranges


def _names(parts: list[list[_Words]]) -> Iterator[str]:
    words = (
        [
            f"{word:0{width}d}" if isinstance(word, int) else word
            for numbers, width in part
            for word in numbers
        ]
        for part in parts
    )
    return map("".join, itertools.product(*words))
