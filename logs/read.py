"""Reading a scheduler log of any format, recognised by its content.

Adding a format is one module with one ``LogFormat``, and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from logs.format import MAX_NODES, LogFormat, read_content, snippet
from logs.trace import JobTrace, UnreadableLogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from logs.format import Content
    from logs.trace import Trace

WRITABLE = {
    "swf": "logs.swf:Swf",
    "gpu-csv": "logs.gpu_csv:GpuCsv",
    "jobs-csv": "logs.csv_tables:JobsCsv",
    "fragments": "logs.csv_tables:Fragments",
}
"""Module and class of the formats that are read and written, by name.

They are imported when they are asked for: the command line shows the names, and does
without NumPy until it reads a log.
"""

READ_ONLY = {
    "sacct": "logs.sacct:Sacct",
}
"""Module and class of the formats that are only read."""

PARQUET_MAGIC = b"PAR1"

MAX_UNITS = 1 << 24
"""Most allocation units that are believed; the largest machine has 10.6 million."""


def formats() -> Iterator[LogFormat[Any]]:
    """Yield every format, in the order in which a log's first line is tried."""
    for name in (*WRITABLE, *READ_ONLY):
        yield format_named(name)


def format_named(name: str) -> LogFormat[Any]:
    """Return the format that is called *name*."""
    module, _, kind = {**WRITABLE, **READ_ONLY}[name].partition(":")
    found: LogFormat[Any] = getattr(import_module(module), kind)()
    return found


def read_trace(
    path: Path,
    *,
    skip_bad: int = 0,
    cores_per_node: int | None = None,
    gpus_per_node: int | None = None,
) -> Trace:
    """Read the scheduler log at *path*, plain or gzipped; of CSV also as Parquet.

    Compression and format are recognised by the content, never by the name. The
    formats' ``read`` methods say what each field becomes.

    Args:
        path: The file.
        skip_bad: Bad lines that may be skipped, 0 or more; the trace counts
            those that were.
        cores_per_node: Processors that a node has, where the log counts those; None
            for what its header says.
        gpus_per_node: GPUs that a node has, to count those that jobs had; None for what
            a log of GPUs says, and to count whole nodes in others.

    Raises:
        OSError: The file is missing or cannot be read.
        UnreadableLogError: It is none of the formats known, or has more bad
            lines than may be skipped; names line, field and what was expected.
            Or it is of a machine larger than any.
        UnusableLogError: *cores_per_node* is given, and the log counts nodes; or
            *gpus_per_node*, and it says nothing of GPUs.
    """
    content = read_content(path)
    if content.raw.startswith(PARQUET_MAGIC):
        from logs.frames import parquet_as_csv  # noqa: PLC0415 - the other CSV formats

        content = parquet_as_csv(content)
    log_format = recognise(content)
    if cores_per_node is not None:
        log_format = log_format.with_cores_per_node(cores_per_node, content.source)
    if gpus_per_node is not None:
        log_format = log_format.with_gpus_per_node(gpus_per_node, content.source)
    trace: Trace = log_format.read(content, skip_bad=skip_bad)
    if isinstance(trace, JobTrace):
        _check_size(trace)
    return trace


def recognise(content: Content) -> LogFormat[Any]:
    """Return the format of *content* by its first line.

    Blank lines and comments with ``#``, as the CSV formats have them, are passed
    over; a comment with ``;`` shows the Standard Workload Format.

    Raises:
        UnreadableLogError: It is none of those known.
    """
    for number, line in content.lines():
        if not line.strip() or line.startswith("#"):
            continue
        for log_format in formats():
            if log_format.begins_with(line):
                return log_format
        what = "binary data" if "\0" in line else snippet(line)
        why = f"not a scheduler log: found {what}; {_expected()}"
        raise UnreadableLogError(content.source, number, None, why)
    why = f"there is nothing but comments in it; {_expected()}"
    raise UnreadableLogError(content.source, None, None, why)


def _expected() -> str:
    known = [log_format.expected for log_format in formats()]
    return f"expected {', '.join(known[:-1])} or {known[-1]}"


def _check_size(trace: JobTrace) -> None:
    nodes = -(-trace.units // trace.units_per_node)
    if trace.units > MAX_UNITS or nodes > MAX_NODES:
        why = (
            f"it is of {nodes:,} nodes with {trace.units:,} allocation units in all, "
            f"larger than any machine; look at its header and at its largest job"
        )
        raise UnreadableLogError(trace.source, None, None, why)
