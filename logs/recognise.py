"""Telling what a log is from its content."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from logs.content import snippet
from logs.errors import UnreadableLogError

if TYPE_CHECKING:
    from logs.content import Content

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
