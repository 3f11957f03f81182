"""Reading a scheduler log of any kind that this package knows."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from logs.csv_formats import read_fragments, read_job_csv
from logs.sacct import read_sacct
from logs.swf import read_swf
from logs.table import MAX_NODES, read_content, snippet
from logs.trace import JobTrace, UnreadableLogError

if TYPE_CHECKING:
    from pathlib import Path

    from logs.table import Content
    from logs.trace import Trace


# ----------------------------------------------------------------------
# Telling what a log is from its content.

_KNOWN = (
    "expected the Standard Workload Format (18 numbers a line), a dump of "
    "`sacct --parsable2` (a first line such as JobIDRaw|Submit|Start|End|NNodes), "
    "idle intervals (first line node,idle_start_s,idle_end_s) or jobs "
    "(first line job,submit_s,start_s,run_s,nodes,req_s,user)"
)
_FRAGMENT_COLUMNS = {"idle_start_s", "idle_end_s"}
_JOB_COLUMNS = {"job", "submit_s", "run_s", "nodes"}
_SACCT_COLUMNS = {"jobid", "jobidraw"}
_SWF_DATA = re.compile(r"\s*[-+.\d]+(\s+[-+.\deE]+)+\s*(;.*)?", re.ASCII)


class LogFormat(StrEnum):
    """The kinds of scheduler log that are read."""

    SWF = "swf"
    SACCT = "sacct"
    JOBS_CSV = "jobs-csv"
    FRAGMENTS = "fragments"


def recognise(content: Content) -> LogFormat:
    """Return what kind of log *content* is, from its first telling line.

    Comment lines of the Standard Workload Format (``;``) tell at once; comments
    of the CSV formats (``#``) and blank lines are passed over.

    Raises:
        UnreadableLogError: It is none of those known.
    """
    for number, line in content.lines():
        if not line.strip() or line.startswith("#"):
            continue
        found = _kind(line)
        if found is not None:
            return found
        what = "binary data" if "\0" in line else snippet(line)
        why = f"not a scheduler log: found {what}; {_KNOWN}"
        raise UnreadableLogError(content.source, number, None, why)
    why = f"there is nothing but comments in it; {_KNOWN}"
    raise UnreadableLogError(content.source, None, None, why)


def _kind(line: str) -> LogFormat | None:
    if line.lstrip().startswith(";") or _SWF_DATA.fullmatch(line):
        return LogFormat.SWF
    if _SACCT_COLUMNS & {name.strip().lower() for name in line.split("|")}:
        return LogFormat.SACCT
    columns = {name.strip() for name in line.split(",")}
    if columns & _FRAGMENT_COLUMNS:
        return LogFormat.FRAGMENTS
    # One name alone proves little: "nodes" heads many a file.
    if len(columns & _JOB_COLUMNS) > 1:
        return LogFormat.JOBS_CSV
    return None


# ----------------------------------------------------------------------
# Reading a scheduler log of any kind that this package knows.

MAX_UNITS = 1 << 24
"""Most allocation units that are believed; the largest machine has 10.6 million."""


def read_trace(path: Path, *, skip_bad: int = 0) -> Trace:
    """Read the scheduler log at *path*, plain or gzipped.

    Compression and format are told from the content, never from the name: the
    Standard Workload Format 2.2, ``sacct --parsable2``, job CSV, and CSV of idle
    intervals. Their readers' docstrings say what each field becomes.

    Args:
        path: The file.
        skip_bad: Bad lines that may be skipped, 0 or more; the trace counts
            those that were.

    Raises:
        OSError: The file is missing or cannot be read.
        UnreadableLogError: It is none of the formats known, or has more bad
            lines than may be skipped; names line, field and what was expected.
            Or it is of a machine larger than any.
    """
    trace = _read(read_content(path), skip_bad)
    if isinstance(trace, JobTrace):
        _check_size(trace)
    return trace


def _read(content: Content, skip_bad: int) -> Trace:
    match recognise(content):
        case LogFormat.SWF:
            return read_swf(content, skip_bad=skip_bad)
        case LogFormat.SACCT:
            return read_sacct(content, skip_bad=skip_bad)
        case LogFormat.JOBS_CSV:
            return read_job_csv(content, skip_bad=skip_bad)
        case LogFormat.FRAGMENTS:
            return read_fragments(content, skip_bad=skip_bad)


def _check_size(trace: JobTrace) -> None:
    nodes = -(-trace.units // trace.units_per_node)
    if trace.units > MAX_UNITS or nodes > MAX_NODES:
        why = (
            f"it is of {nodes:,} nodes with {trace.units:,} allocation units in all, "
            f"larger than any machine; look at its header and at its largest job"
        )
        raise UnreadableLogError(trace.source, None, None, why)
