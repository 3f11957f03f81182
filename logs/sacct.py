"""Dumps of Slurm's accounting: ``sacct --parsable2`` and ``--parsable``.

A dump that holds everything this reader uses::

    format=JobIDRaw,Submit,Start,End,Elapsed,Timelimit,NNodes,NodeList
    format=$format,Partition,State,Priority,User
    TZ=UTC sacct --allusers --duplicates --allocations --parsable2 --format=$format
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from logs.content import snippet
from logs.errors import UnreadableLogError
from logs.hostlist import expand_hostlist
from logs.lines import BadLineError, Tolerance, parse_lines
from logs.occupancy import machine_units
from logs.record import by_submission
from logs.sacct_job import SacctRecord, read_record
from logs.sacct_values import is_nothing
from logs.trace import Job, JobTrace

if TYPE_CHECKING:
    from logs.content import Content

_NEEDED = (
    ("JobIDRaw", "JobID"),
    ("Submit",),
    ("Start",),
    ("End", "Elapsed", "ElapsedRaw"),
    ("NNodes", "AllocNodes", "NodeList"),
)
_JOB_ID = re.compile(r"\d+(_(\d+|\[[^\]|]*\]))?([+]\d+)?", re.ASCII)


def read_sacct(content: Content, *, skip_bad: int = 0) -> JobTrace:
    """Read a dump of ``sacct``, its columns in any order; unused ones may be there.

    Needed are a job id, Submit, Start, one of End, Elapsed and ElapsedRaw, and
    one of NNodes, AllocNodes and NodeList. Units are nodes. t = 0 is the first
    submission; times without a zone are taken as UTC (run sacct with TZ=UTC, or
    a change to winter time makes jobs end before they start).

    * Steps (``123.batch``) are left out; an array's tasks and the components of a
      heterogeneous job are jobs each.
    * A job that was requeued has several lines; each is a job of its own, the
      second one named ``123#2``.
    * A job that still runs has run for Elapsed, or, without that column, until
      the latest time that the dump mentions.
    * A job that never started (no Start, still pending, or cancelled without
      nodes) has no start, see `logs.record.Ran`.

    Raises:
        UnreadableLogError: A column is missing, a line cannot be read, or there
            is no job.
    """
    tolerance = Tolerance(content.source, skip_bad)
    parser = _DumpParser(content.source)
    records = parse_lines(content.lines(), parser.parse, tolerance)
    if not records:
        raise tolerance.nothing_left("there is no job in it")
    jobs = by_submission(_from_zero(records))
    return JobTrace(
        source=content.source,
        log_format="sacct",
        jobs=jobs,
        units=machine_units(None, jobs),
        unix_start_s=min(record.job.submit_s for record in records),
        comments=tuple(parser.comments),
        skipped_lines=tolerance.skipped,
    )


def _from_zero(records: list[SacctRecord]) -> list[Job]:
    zero_s = min(record.job.submit_s for record in records)
    latest_s = max(record.seen_s for record in records)
    jobs: list[Job] = []
    for job, running, _ in records:
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


class _DumpParser:
    """Parses lines, and remembers columns, job ids and node names."""

    def __init__(self, source: str) -> None:
        self.comments: list[str] = []
        self._source = source
        self._columns: tuple[str, ...] = ()
        self._times_seen: dict[str, int] = {}
        self._expanded: dict[str, tuple[str, ...]] = {}

    def parse(self, number: int, line: str) -> SacctRecord | None:
        if not line.strip():
            return None
        if line.startswith("#") and not self._columns:
            self.comments.append(line[1:].strip())
            return None
        if not self._columns:
            self._columns = _columns(self._source, number, line)
            return None
        fields = self._fields(line)
        job_id = fields.get("jobidraw") or fields.get("jobid", "")
        if "." in job_id:
            return None
        if not _JOB_ID.fullmatch(job_id):
            why = f"found {snippet(job_id)}; expected a job id such as 123 or 123_4"
            raise BadLineError("JobID", why)
        record = read_record(job_id, fields, self._nodes(fields.get("nodelist", "")))
        times = self._times_seen[job_id] = self._times_seen.get(job_id, 0) + 1
        if times == 1:
            return record
        job = dataclasses.replace(record.job, job_id=f"{job_id}#{times}")
        return record._replace(job=job)

    def _fields(self, line: str) -> dict[str, str]:
        fields = line.split("|")
        if len(fields) != len(self._columns):
            why = (
                f"found {len(fields)} fields, expected {len(self._columns)} "
                f"(a name with '|' or a line break in it?)"
            )
            raise BadLineError(None, why)
        stripped = (field.strip() for field in fields)
        return dict(zip(self._columns, stripped, strict=True))

    def _nodes(self, text: str) -> tuple[str, ...]:
        """Return the nodes' names; equal lists, which abound, share one tuple."""
        if is_nothing(text):
            return ()
        if text not in self._expanded:
            try:
                self._expanded[text] = expand_hostlist(text)
            except ValueError as error:
                why = f"found {snippet(text)}; expected a node list: {error}"
                raise BadLineError("NodeList", why) from None
        return self._expanded[text]


def _columns(source: str, number: int, line: str) -> tuple[str, ...]:
    columns = tuple(name.strip().lower() for name in line.split("|"))
    for choice in _NEEDED:
        if not any(name.lower() in columns for name in choice):
            why = (
                f"the sacct dump has no column {' or '.join(choice)}; make it with -o "
                f"JobIDRaw,Submit,Start,End,Timelimit,NNodes,NodeList,Partition,State"
            )
            raise UnreadableLogError(source, number, None, why)
    return columns
