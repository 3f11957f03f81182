"""The Standard Workload Format 2.2: 18 numbers a line, ``;`` before comments.

Source:
    Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job
    Schedulers" (JSSPP 1999), with the revision 2.2 of the Parallel Workloads
    Archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logs.errors import UnreadableLogError
from logs.fields import known_or_none, not_negative, read_numbers, whole
from logs.lines import BadLineError, Tolerance, parse_lines
from logs.occupancy import machine_units
from logs.record import JobIds, Ran, by_submission
from logs.swf_header import comment_text, machine_size, unix_start_s
from logs.trace import NO_VALUE, Job, JobTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logs.content import Content

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
"""Fields that `Job.swf` may hold: what no other attribute of a job says."""

PARTIAL_STATUSES = (2, 3, 4)
"""Lines of one execution of a job that was checkpointed or swapped out."""

_SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED = 1, 2, 3, 4, 7
_REQUESTED_TIME, _STATUS, _USER, _PARTITION = 8, 10, 11, 15
_PLACES = {name: FIELDS.index(name) for name in CARRIED}


def read_swf(content: Content, *, skip_bad: int = 0) -> JobTrace:
    """Read a log in the Standard Workload Format.

    A job starts at its submission plus its wait, and holds the processors that
    were allocated, else those requested. Jobs that never ran (no run time, no
    processors, or neither run time nor allocated processors above 0) are kept
    without a start, see `logs.record.Ran`. ``-1`` is unknown everywhere.

    A job that was checkpointed or swapped out has one line for the whole and one
    for each partial execution (status 2, 3, 4). Only the line for the whole is
    used, so that nothing is counted twice.

    The machine's size is MaxProcs, else MaxNodes, else the most processors that
    the jobs ever held at once; a node has MaxProcs / MaxNodes units where that
    is a whole number.

    Raises:
        UnreadableLogError: A line cannot be read, or there is no job.
    """
    tolerance = Tolerance(content.source, skip_bad)
    parser = _JobParser()
    jobs = by_submission(parse_lines(content.lines(), parser.parse, tolerance))
    for number, bad in parser.orphans():
        tolerance.spend(number, bad)
    if not jobs:
        raise UnreadableLogError(content.source, None, None, "there is no job in it")
    comments = tuple(parser.comments)
    size = machine_size(comments)
    return JobTrace(
        source=content.source,
        log_format="swf",
        jobs=jobs,
        units=machine_units(size.units, jobs),
        units_per_node=size.units_per_node,
        unix_start_s=unix_start_s(comments),
        comments=comments,
        skipped_lines=tolerance.skipped,
    )


class _JobParser:
    """Parses lines, and remembers comments, jobs and partial executions."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self._ids = JobIds()
        self._partial: dict[str, int] = {}
        self._in_header = True

    def parse(self, number: int, line: str) -> Job | None:
        text, mark, comment = line.partition(";")
        words = text.split()
        if not words:
            if mark and self._in_header:
                self.comments.append(comment_text(comment))
            return None
        self._in_header = False
        if len(words) != len(FIELDS):
            why = f"found {len(words)} fields; expected {len(FIELDS)}"
            raise BadLineError(None, why)
        values = read_numbers(words, FIELDS)
        job_id = str(whole(not_negative(values[0], FIELDS[0]), FIELDS[0]))
        if values[_STATUS] in PARTIAL_STATUSES:
            self._partial.setdefault(job_id, number)
            return None
        job = _job(job_id, values)
        self._ids.add(job_id, number, field=FIELDS[0])
        return job

    def orphans(self) -> list[tuple[int, BadLineError]]:
        """Return partial executions of jobs that have no line for the whole."""
        why = "a partial execution of a job without a summary line (status 0, 1 or 5)"
        return [
            (number, BadLineError(FIELDS[_STATUS], why))
            for job_id, number in self._partial.items()
            if not self._ids.has(job_id)
        ]


def _job(job_id: str, values: Sequence[float]) -> Job:
    submit_s = not_negative(values[_SUBMIT], FIELDS[_SUBMIT])
    wait_s = _known(values, _WAIT)
    requested = _known_whole(values, _REQUESTED)
    ran = _ran(values, submit_s, wait_s, requested)
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=ran.start_s,
        run_s=ran.run_s,
        units=ran.units,
        requested_s=_known(values, _REQUESTED_TIME),
        user=_label(values, _USER),
        partition=_label(values, _PARTITION),
        state=_label(values, _STATUS),
        swf=_carried(values, ran),
    )


def _ran(
    values: Sequence[float],
    submit_s: float,
    wait_s: float | None,
    requested: int | None,
) -> Ran:
    allocated = _known_whole(values, _ALLOCATED)
    run_s = _known(values, _RUN)
    if run_s == 0 and not allocated:
        run_s = None
    return Ran.of(
        start_s=None if wait_s is None else submit_s + wait_s,
        run_s=run_s,
        units=allocated or requested,
    )


def _carried(values: Sequence[float], ran: Ran) -> tuple[tuple[str, float], ...]:
    """Return the known fields that the job's other attributes do not tell."""
    told = {
        "wait time": None if ran.start_s is None else values[_WAIT],
        "requested processors": ran.units,
    }
    return tuple(
        (name, values[place])
        for name, place in _PLACES.items()
        if values[place] != NO_VALUE and values[place] != told.get(name)
    )


def _known(values: Sequence[float], place: int) -> float | None:
    return known_or_none(values[place], FIELDS[place])


def _known_whole(values: Sequence[float], place: int) -> int | None:
    value = _known(values, place)
    return None if value is None else whole(value, FIELDS[place])


def _label(values: Sequence[float], place: int) -> str:
    """Return a user, partition or status: a whole number as text, or nothing."""
    value = _known_whole(values, place)
    return "" if value is None else str(value)
