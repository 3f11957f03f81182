"""The Standard Workload Format 2.2: 18 numbers a line, ``;`` before comments.

Source:
    Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job
    Schedulers" (JSSPP 1999), with the revision 2.2 of the Parallel Workloads
    Archive.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from logs.format import (
    BadLineError,
    JobIds,
    LogFormat,
    Tolerance,
    actual_run,
    by_submission,
    counted,
    keep_comment,
    machine_units,
    parse_lines,
    read_known,
    whole,
    write_number,
)
from logs.trace import NO_VALUE, Job, JobTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from logs.format import Content


FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
"""The format's own names of its fields, in order."""

CARRIED = (
    "wait time",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested memory",
    "group",
    "executable",
    "queue",
    "preceding job",
    "think time",
)
"""Fields that `Job.swf` may hold: those without another attribute of a job."""

PARTIAL_STATUSES = (2, 3, 4)
"""Lines of one execution of a job that was checkpointed or swapped out."""

_JOB_NUMBER, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED = 0, 1, 2, 3, 4, 7
_REQUESTED_TIME, _STATUS, _USER, _PARTITION = 8, 10, 11, 15
_CARRIED_PLACES = tuple((FIELDS.index(name), name) for name in CARRIED)
_DATA_LINE = re.compile(r"\s*[-+.\d]+(\s+[-+.\deE]+)+\s*(;.*)?", re.ASCII)


class Swf(LogFormat[JobTrace]):
    """The Standard Workload Format 2.2."""

    name = "swf"
    expected = "the Standard Workload Format (18 numbers a line)"
    holds = JobTrace

    def __init__(self, *, cores_per_node: int | None = None) -> None:
        self._cores_per_node = cores_per_node

    def with_cores_per_node(self, count: int, source: str) -> Swf:
        """Return this format for a log in which a node has *count* processors."""
        del source
        return Swf(cores_per_node=count)

    def begins_with(self, line: str) -> bool:
        """Tell whether *line* is a comment with ``;`` or numbers only."""
        return line.lstrip().startswith(";") or _DATA_LINE.fullmatch(line) is not None

    def read(self, content: Content, *, skip_bad: int = 0) -> JobTrace:
        """Read a log in the Standard Workload Format.

        A job starts at its submission plus its wait, and holds the processors that
        were allocated, else those requested. Jobs that never ran (no run time, no
        processors, or neither run time nor allocated processors above 0) are kept
        without a start, see `actual_run`, unless their submission is unknown too: these
        are left out and counted. ``-1`` is unknown everywhere.

        A job that was checkpointed or swapped out has one line for the whole and one
        for each partial execution (status 2, 3, 4). Only the line for the whole is
        used, so that nothing is counted twice. Where there is none, each part that ran
        is a job of its own, the second one named ``123#2``; parts of which the first
        has no submission are left out and counted.

        The machine's size is MaxProcs, else MaxNodes, else the most processors that
        the jobs ever held at once; a node has as many units as the user says, else
        MaxProcs / MaxNodes where that is a whole number, else one.

        Raises:
            UnreadableLogError: A line cannot be read, or there is no job.
        """
        tolerance = Tolerance(content.source, skip_bad)
        parser = _SwfParser()
        whole_jobs = parse_lines(content.lines(), parser.parse, tolerance)
        parts, cautions = parser.parts_of_no_job()
        cautions += parser.cautions()
        jobs = by_submission((*whole_jobs, *parts))
        if not jobs:
            raise tolerance.empty_log("there is no job in it")
        comments = tuple(parser.comments)
        size = machine_size(comments)
        if self._cores_per_node is not None:
            size = size._replace(units_per_node=self._cores_per_node)
        elif mismatch := _no_whole_nodes(comments):
            cautions += (mismatch,)
        return JobTrace(
            source=content.source,
            log_format="swf",
            jobs=jobs,
            units=machine_units(size.units, jobs),
            units_per_node=size.units_per_node,
            unix_start_s=unix_start_s(comments),
            comments=comments,
            skipped_lines=tolerance.skipped,
            cautions=cautions,
        )

    def write(self, trace: JobTrace, stream: TextIO) -> None:
        """Write *trace* in the Standard Workload Format.

        The format knows numbers alone. Where a job, user or partition is named
        otherwise, all jobs, users or partitions are numbered from 1, in the order in
        which they appear; Slurm's final states become 1 (completed), 5 (cancelled)
        and 0 (any other end). Names of nodes and priorities have no place in it.

        Whatever the format can express, `read` reads back the same.
        """
        stream.writelines(f"; {text}".rstrip() + "\n" for text in swf_header(trace))
        ids = numbered(job.job_id for job in trace.jobs)
        users = numbered(job.user for job in trace.jobs)
        partitions = numbered(job.partition for job in trace.jobs)
        for job in trace.jobs:
            values = {
                "job number": ids[job.job_id],
                "status": status_code(job.state),
                "user": users[job.user],
                "partition": partitions[job.partition],
                **_amounts(job),
            }
            fields = (write_number(values.get(name, NO_VALUE)) for name in FIELDS)
            stream.write(" ".join(fields) + "\n")


class _SwfParser:
    """Parses lines; keeps comments, job ids and partial executions."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self._ids = JobIds()
        self._parts: dict[str, list[list[float | None]]] = {}
        self._in_header = True
        self._nothing_known = 0

    def parse(self, number: int, line: str) -> Job | None:
        text, mark, comment = line.partition(";")
        words = text.split()
        if not words:
            if mark and self._in_header:
                keep_comment(self.comments, comment_text(comment))
            return None
        self._in_header = False
        values = _values(words)
        job_id = _code_text(values, _JOB_NUMBER)
        if not job_id:
            raise BadLineError(
                FIELDS[_JOB_NUMBER], "found -1; expected the job's number"
            )
        is_part = values[_STATUS] in PARTIAL_STATUSES
        if is_part or values[_SUBMIT] is None:
            # Later parts have no submission; a field that cannot be read is an error.
            ran = _job(job_id, _submitted_at(values, values[_SUBMIT] or 0.0)).run_s > 0
            if is_part:
                self._parts.setdefault(job_id, []).append(values)
                return None
            if not ran:
                self._nothing_known += 1
                return None
        job = _job(job_id, values)
        self._ids.add(job_id, number, field=FIELDS[0])
        return job

    def cautions(self) -> tuple[str, ...]:
        """Return a caution where jobs without a submission never ran."""
        if not self._nothing_known:
            return ()
        lines = counted(self._nothing_known, "line")
        return (f"{lines} left out: jobs that never ran, at an unknown submit time.",)

    def parts_of_no_job(self) -> tuple[list[Job], tuple[str, ...]]:
        """Return partial executions without a line for the whole job, and cautions.

        Those that never ran held no nodes, and are left out; so are those that ran
        at an unknown time.
        """
        parts = [
            part
            for job_id, own in self._parts.items()
            if not self._ids.has(job_id)
            for part in _parts(job_id, own)
        ]
        ran = [part for part, is_dated in parts if part.run_s > 0 and is_dated]
        never_ran = sum(part.run_s == 0 for part, _ in parts)
        undated = len(parts) - len(ran) - never_ran
        cautions = []
        what = "parts of jobs (status 2, 3 or 4)"
        if never_ran:
            cautions.append(
                f"{counted(never_ran, 'line')} left out: {what} that never ran and "
                f"have no line for the whole job."
            )
        if undated:
            cautions.append(
                f"{counted(undated, 'line')} left out: {what} that ran at an unknown "
                f"submit time and have no line for the whole job."
            )
        if ran:
            cautions.append(
                f"{counted(len(ran), 'line')} counted as jobs: {what} that have no "
                f"line for the whole job."
            )
        return ran, tuple(cautions)


def _parts(
    job_id: str, parts: Iterable[Sequence[float | None]]
) -> Iterator[tuple[Job, bool]]:
    """Yield the partial executions of one job as jobs, and whether it is known when.

    Where a part has no submission, it waited since the part before it ended. One that
    has no such part before it either is given a submission at 0.
    """
    since_s: float | None = None
    for place, values in enumerate(parts, 1):
        submit_s = since_s if values[_SUBMIT] is None else values[_SUBMIT]
        number = f"{job_id}#{place}" if place > 1 else job_id
        part = _job(number, _submitted_at(values, submit_s or 0.0))
        if submit_s is not None:
            since_s = submit_s if part.start_s is None else part.start_s + part.run_s
        yield part, submit_s is not None


def _submitted_at(
    values: Sequence[float | None], submit_s: float
) -> list[float | None]:
    """Return the fields of a line with another submission."""
    return [values[_JOB_NUMBER], submit_s, *values[_WAIT:]]


def _values(words: Sequence[str]) -> list[float | None]:
    """Return the 18 fields of a line, None where unknown."""
    if len(words) != len(FIELDS):
        why = f"found {len(words)} fields; expected {len(FIELDS)}"
        raise BadLineError(None, why)
    return read_known(words, FIELDS)


def _job(job_id: str, values: Sequence[float | None]) -> Job:
    submit_s = values[_SUBMIT]
    if submit_s is None:
        raise BadLineError(FIELDS[_SUBMIT], "found -1; expected 0 or more")
    start_s, run_s, units = _actual_run(values, submit_s)
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=values[_REQUESTED_TIME],
        user=_code_text(values, _USER),
        partition=_code_text(values, _PARTITION),
        state=_code_text(values, _STATUS),
        swf=_carried(values, start_s, units),
    )


def _actual_run(
    values: Sequence[float | None], submit_s: float
) -> tuple[float | None, float, int]:
    wait_s, run_s = values[_WAIT], values[_RUN]
    allocated, requested = _whole(values, _ALLOCATED), _whole(values, _REQUESTED)
    return actual_run(
        start_s=None if wait_s is None else submit_s + wait_s,
        run_s=run_s if run_s or allocated else None,
        units=allocated or requested,
    )


def _carried(
    values: Sequence[float | None], start_s: float | None, units: int
) -> tuple[tuple[str, float], ...]:
    """Return the known fields that no other attribute of the job says."""
    return tuple(
        (name, value)
        for place, name in _CARRIED_PLACES
        if (value := values[place]) is not None
        and not (place == _WAIT and start_s is not None)
        and not (place == _REQUESTED and value == units)
    )


def _whole(values: Sequence[float | None], place: int) -> int | None:
    value = values[place]
    return None if value is None else whole(value, FIELDS[place])


def _code_text(values: Sequence[float | None], place: int) -> str:
    """Return a user, partition or status: a whole number as text, or nothing."""
    value = _whole(values, place)
    return "" if value is None else str(value)


_LABEL = re.compile(r"\s*([A-Za-z]+)\s*:\s*(.*)", re.ASCII)
_LEADING_NUMBER = re.compile(r"\d{1,14}(?:\.\d+)?", re.ASCII)


class MachineSize(NamedTuple):
    """The machine's size in a header: units (None if unknown), and units a node."""

    units: int | None
    units_per_node: int


def comment_text(after_mark: str) -> str:
    """Return a comment without the blank that follows its mark."""
    return after_mark.removeprefix(" ").rstrip()


def machine_size(comments: tuple[str, ...]) -> MachineSize:
    """Return MaxProcs, else MaxNodes, and how many of them make up a node."""
    processors = int(_number(comments, "MaxProcs") or 0)
    nodes = int(_number(comments, "MaxNodes") or 0)
    if processors and nodes and processors % nodes == 0:
        return MachineSize(processors, processors // nodes)
    return MachineSize(processors or nodes or None, 1)


def _no_whole_nodes(comments: tuple[str, ...]) -> str:
    """Return a caution where MaxProcs is no whole multiple of MaxNodes, else ""."""
    processors = int(_number(comments, "MaxProcs") or 0)
    nodes = int(_number(comments, "MaxNodes") or 0)
    if not (processors and nodes and processors % nodes):
        return ""
    return (
        f"MaxProcs {processors:,} is no whole multiple of MaxNodes {nodes:,}, so each "
        f"processor counts as a node: say how many a node has, with --cores-per-node "
        f"{max(1, round(processors / nodes))} or so."
    )


def unix_start_s(comments: tuple[str, ...]) -> float | None:
    """Return UnixStartTime: Unix time of t = 0, or None where it is not known.

    A 0 or -1 there is a stand-in for "not known", as in converted logs.
    """
    number = _number(comments, "UnixStartTime")
    return number or None


def swf_header(trace: JobTrace) -> tuple[str, ...]:
    """Return the comments that a Standard Workload Format file of *trace* needs.

    These are the trace's own, with Version, UnixStartTime, MaxNodes and MaxProcs
    added where they are missing and corrected where they say otherwise.
    """
    comments = tuple(" ".join(text.splitlines()).rstrip() for text in trace.comments)
    stated: dict[str, str] = {}
    if unix_start_s(comments) != trace.unix_start_s:
        start_s = trace.unix_start_s
        stated["UnixStartTime"] = write_number(-1 if start_s is None else start_s)
    if machine_size(comments) != MachineSize(trace.units, trace.units_per_node):
        stated["MaxNodes"] = str(trace.units // trace.units_per_node)
        stated["MaxProcs"] = str(trace.units)
    version = () if _header_values(comments, "Version") else ("Version: 2.2",)
    kept = (text for text in comments if _split_label(text)[0] not in stated)
    return (*version, *kept, *(f"{name}: {value}" for name, value in stated.items()))


def _number(comments: tuple[str, ...], name: str) -> float | None:
    """Return the number that the first *name* begins with: "1152 (8 a node)"."""
    for value in _header_values(comments, name):
        found = _LEADING_NUMBER.match(value)
        return float(found.group()) if found else None
    return None


def _header_values(comments: tuple[str, ...], name: str) -> list[str]:
    labels = (_split_label(text) for text in comments)
    return [value for label, value in labels if label == name]


def _split_label(comment: str) -> tuple[str, str]:
    found = _LABEL.match(comment)
    return (found.group(1), found.group(2)) if found else ("", comment)


def _amounts(job: Job) -> dict[str, float]:
    never_ran = job.start_s is None and job.run_s == 0
    units = job.units or NO_VALUE
    amounts = {
        "requested processors": units,
        **dict(job.swf),
        "submit time": job.submit_s,
        "run time": NO_VALUE if never_ran else job.run_s,
        "allocated processors": units,
        "requested time": NO_VALUE if job.requested_s is None else job.requested_s,
    }
    if job.start_s is not None:
        amounts["wait time"] = job.start_s - job.submit_s
    elif not never_ran:
        amounts["wait time"] = NO_VALUE
    return amounts


_WHOLE = re.compile(r"0|[1-9]\d{0,14}", re.ASCII)


def numbered(labels: Iterable[str]) -> dict[str, int]:
    """Return a number for each of *labels*; the empty one gets ``NO_VALUE``.

    Labels that are all whole numbers already stand for themselves; otherwise
    each gets one from 1, in the order in which they appear.
    """
    distinct = dict.fromkeys(label for label in labels if label)
    if all(_WHOLE.fullmatch(label) for label in distinct):
        numbers = {label: int(label) for label in distinct}
    else:
        numbers = {label: place for place, label in enumerate(distinct, 1)}
    return {"": NO_VALUE, **numbers}


_STATUSES = ("0", "1", "5")
_FAILED, _COMPLETED, _CANCELLED = map(int, _STATUSES)
_FAILURES = (
    "BOOT_FAIL",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REQUEUED",
    "REVOKED",
    "TIMEOUT",
)


def status_code(state: str) -> int:
    """Return the status for a final state: the format's own, or Slurm's word."""
    if state in _STATUSES:
        return int(state)
    if state.startswith("COMPLETED"):
        return _COMPLETED
    if state.startswith("CANCELLED"):
        return _CANCELLED
    return _FAILED if state.startswith(_FAILURES) else NO_VALUE
