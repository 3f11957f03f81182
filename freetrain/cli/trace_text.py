"""Scheduler logs as text in each format, and their figures as people read them."""

from __future__ import annotations

import dataclasses
import gzip
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from freetrain.cli.context import CliContext, write_file, write_out
from freetrain.errors import UsageError
from freetrain.report.summary import percent
from freetrain.text import one_line, render_duration
from logs.read import format_named
from logs.summary import Distribution, TraceSummary
from logs.trace import IdleTrace, JobTrace, Trace

if TYPE_CHECKING:
    from pathlib import Path


def as_text(trace: Trace, to: str) -> str:
    """Return *trace* as text in the format *to*.

    Raises:
        UsageError: The format cannot hold this kind of log.
    """
    log_format = format_named(to)
    if isinstance(trace, IdleTrace) and log_format.holds is JobTrace:
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so it cannot become "
            f"{to}. Nothing was written. Use --to fragments."
        )
    if isinstance(trace, JobTrace) and log_format.holds is IdleTrace:
        raise UsageError(
            f"{trace.source} holds jobs and no idle intervals. Nothing was written. "
            f"`freetrain trace holes` finds what its jobs leave idle."
        )
    text = io.StringIO(newline="")
    log_format.write(trace, text)
    return text.getvalue()


def deliver(context: CliContext, text: str, *, out: Path | None, force: bool) -> None:
    """Write *text* to standard output, or into *out*, gzipped if so named.

    Raises:
        CannotWriteError: See ``write_file``.
    """
    if out is None:
        write_out(context, text)
        return
    content = text.encode("utf-8", "surrogateescape")
    if out.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_file(context.cwd / out, content, force=force)


LABELS = {
    "source": "log",
    "log_format": "format",
    "unix_start_s": "second 0 is",
    "skipped_lines": "bad lines passed over",
    "jobs": "jobs",
    "never_ran_jobs": "jobs that never ran",
    "without_start_jobs": "jobs that ran at an unknown time",
    "without_limit_jobs": "jobs without a time limit",
    "over_limit_jobs": "jobs that ran past their limit",
    "oversized_jobs": "jobs larger than the machine",
    "users": "users",
    "machine_units": "allocation units",
    "units_per_node": "units per node",
    "machine_nodes": "nodes",
    "first_submit_s": "first submission at second",
    "first_start_s": "first start at second",
    "span_s": "time from first to last",
    "used_node_s": "node-time used",
    "utilisation": "utilisation",
    "low_use_share": "time with half the nodes idle or more",
    "mean_idle_nodes": "mean idle nodes",
    "busy_mean_idle_nodes": "mean idle nodes, that time left out",
    "peak_units": "most units held at once",
    "overcommitted_s": "time with more held than there is",
    "size_units": "job size in units",
    "run_s": "run time",
    "wait_s": "wait",
    "ever_idle_nodes": "nodes that were ever idle",
    "holes": "holes",
    "idle_node_s": "node-time idle",
    "idle_share": "share of node-time idle",
    "peak_idle_nodes": "most nodes idle at once",
    "hole_s": "hole length",
    "short_hole_share": "holes shorter than 10 min",
    "long_hole_time_share": "node-time in holes of 10 min and more",
}
"""What the figures of ``logs.summary`` are called on the screen."""

UNIX_TIME = "unix_start_s"
SECONDS = ("first_submit_s", "first_start_s")
"""Places in the log, as ``--start`` takes them."""

UNKNOWN_IF_ZERO = ("users",)
"""Counts that are 0 where the log does not say."""

SHARES = ("utilisation", "_share")


def summary_text(summary: TraceSummary) -> str:
    """Return one line a figure, the unit with the value."""
    shown = [
        (LABELS[field.name], _value(field.name, getattr(summary, field.name)))
        for field in dataclasses.fields(summary)
    ]
    width = max(len(label) for label, _ in shown)
    return "".join(f"{label:<{width}}  {value}\n" for label, value in shown)


def _value(name: str, value: object) -> str:
    if isinstance(value, Distribution):
        spread = dataclasses.asdict(value).items()
        return ", ".join(f"{word} {_number(name, part)}" for word, part in spread)
    if name in UNKNOWN_IF_ZERO and not value:
        return "unknown"
    if name in SECONDS and isinstance(value, float | int):
        return f"{value:.15g} ({render_duration(value)})"
    if name == UNIX_TIME and isinstance(value, float | int):
        return _unix_time(value)
    if isinstance(value, float | int):
        return _number(name, float(value))
    return "unknown" if value is None else one_line(str(value))


def _unix_time(unix_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):  # a log may claim any year
        return f"{unix_s:.15g} s of Unix time"


def _number(name: str, value: float) -> str:
    if name.endswith(SHARES):
        return percent(value)
    if name.endswith("node_s"):
        return f"{value / 3600:,.0f} node-h"
    if name.endswith("_s"):
        return render_duration(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
