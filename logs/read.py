"""Reading a scheduler log of any format, told from its content.

Adding a format is one module with one ``LogFormat``, and one line in ``FORMATS``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logs.fragments import Fragments
from logs.jobs_csv import JobsCsv
from logs.lines import MAX_NODES, read_content, snippet
from logs.sacct import Sacct
from logs.swf import Swf
from logs.trace import JobTrace, UnreadableLogError

if TYPE_CHECKING:
    from pathlib import Path

    from logs.lines import Content, LogFormat
    from logs.trace import Trace

FORMATS: tuple[LogFormat[Any], ...] = (
    Swf(),
    Sacct(),
    Fragments(),
    JobsCsv(),
)
"""Every format, in the order in which a log's first line is held against them."""

MAX_UNITS = 1 << 24
"""Most allocation units that are believed; the largest machine has 10.6 million."""


def format_named(name: str) -> LogFormat[Any]:
    """Return the format that is called *name*."""
    return next(each for each in FORMATS if each.name == name)


def read_trace(path: Path, *, skip_bad: int = 0) -> Trace:
    """Read the scheduler log at *path*, plain or gzipped.

    Compression and format are told from the content, never from the name. The
    formats' ``read`` methods say what each field becomes.

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
    content = read_content(path)
    trace: Trace = recognise(content).read(content, skip_bad=skip_bad)
    if isinstance(trace, JobTrace):
        _check_size(trace)
    return trace


def recognise(content: Content) -> LogFormat[Any]:
    """Return the format of *content*, told from its first line.

    Blank lines, and comments as the CSV formats have them (``#``), are passed over;
    those of the Standard Workload Format (``;``) are telling.

    Raises:
        UnreadableLogError: It is none of those known.
    """
    known = [each.expected for each in FORMATS]
    expected = f"expected {', '.join(known[:-1])} or {known[-1]}"
    for number, line in content.lines():
        if not line.strip() or line.startswith("#"):
            continue
        for each in FORMATS:
            if each.begins_with(line):
                return each
        what = "binary data" if "\0" in line else snippet(line)
        why = f"not a scheduler log: found {what}; {expected}"
        raise UnreadableLogError(content.source, number, None, why)
    why = f"there is nothing but comments in it; {expected}"
    raise UnreadableLogError(content.source, None, None, why)


def _check_size(trace: JobTrace) -> None:
    nodes = -(-trace.units // trace.units_per_node)
    if trace.units > MAX_UNITS or nodes > MAX_NODES:
        why = (
            f"it is of {nodes:,} nodes with {trace.units:,} allocation units in all, "
            f"larger than any machine; look at its header and at its largest job"
        )
        raise UnreadableLogError(trace.source, None, None, why)
