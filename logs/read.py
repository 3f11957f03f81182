"""Reading a scheduler log of any kind that this package knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logs.content import read_content
from logs.errors import UnreadableLogError
from logs.fragments import read_fragments
from logs.job_csv import read_job_csv
from logs.recognise import LogFormat, recognise
from logs.sacct import read_sacct
from logs.swf import read_swf
from logs.table import MAX_NODES
from logs.trace import JobTrace

if TYPE_CHECKING:
    from pathlib import Path

    from logs.content import Content
    from logs.trace import Trace

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
