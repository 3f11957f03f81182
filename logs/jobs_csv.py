"""Jobs as CSV: ``job,submit_s,start_s,run_s,nodes,req_s,user``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logs.lines import (
    BadLineError,
    JobIds,
    LogFormat,
    Tolerance,
    actual_run,
    by_submission,
    parse_lines,
    read_known,
    whole,
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
from logs.trace import NO_VALUE, Job, JobTrace, machine_units

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from logs.lines import Content


COLUMNS = ("job", "submit_s", "start_s", "run_s", "nodes", "req_s", "user")
_NEEDED = ("job", "submit_s", "run_s", "nodes")
_OPTIONAL = ("start_s", "req_s", "user")
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

        ``start_s``, ``req_s`` and ``user`` may be missing altogether. A comment may
        give the Unix time of t = 0 (``t0_unix=1641021254``) and the machine's size
        (``4360 KNL nodes``). `actual_run` says how jobs that never ran are kept.

        Raises:
            UnreadableLogError: A line cannot be read, or there is no job.
        """
        head = read_head(content, needed=_NEEDED, optional=_OPTIONAL)
        tolerance = Tolerance(content.source, skip_bad)
        parser = _TableParser(head.columns)
        jobs = by_submission(
            parse_lines(data_lines(content, head), parser.parse, tolerance)
        )
        if not jobs:
            raise tolerance.empty_log("there is no job in it")
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
        head = TableHead(trace.comments, COLUMNS, 0)
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


class _TableParser:
    """Parses lines, and remembers the jobs it saw."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._places = {
            name: columns.index(name) for name in COLUMNS if name in columns
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
    start_s, run_s, units = actual_run(start_s=start_s, run_s=run_s, units=units)
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=requested_s,
        user="" if user == _UNKNOWN else user,
    )


def _number_or_unknown(value: float | None) -> str:
    return _UNKNOWN if value is None else write_number(value)
