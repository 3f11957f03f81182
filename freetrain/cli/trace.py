"""``freetrain trace``: read, convert and generate scheduler logs; find their holes."""

import dataclasses
import gzip
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from freetrain.cli import options
from freetrain.cli.context import CliContext
from freetrain.cli.output import json_text, progress, write_file, write_out
from freetrain.cli.replay_run import idle_of, load_trace
from freetrain.errors import UsageError
from freetrain.report.comparison import idle_records, percent
from freetrain.text import one_line, render_duration
from logs import generate as lublin
from logs import generate as model
from logs import generate as samples
from logs.read import format_named
from logs.schedule import Method
from logs.summary import Spread, TraceSummary, summarise
from logs.trace import IdleTrace, JobTrace, Trace

EXAMPLES = {
    "info": """
freetrain trace info KTH-SP2.swf.gz

freetrain trace info sacct.txt --skip-bad 10 --json
""",
    "convert": """
freetrain trace convert sacct.txt --to swf --out week.swf.gz

freetrain trace convert KTH-SP2.swf.gz --to jobs-csv
""",
    "generate": """
freetrain trace generate --nodes 512 --days 7 --seed 1 --out week.swf

freetrain trace generate --sample --out logs/samples
""",
    "holes": """
freetrain trace holes jobs.csv.gz --out holes.csv

freetrain trace holes KTH-SP2.swf.gz --schedule slurm --json
""",
}


def info(
    ctx: typer.Context,
    log: options.LogFile,
    *,
    skip_bad: options.SkipBad = 0,
    as_json: options.AsJson = False,
) -> None:
    """Say what a scheduler log holds."""
    context: CliContext = ctx.obj
    trace = load_trace(context.cwd / log, named=str(log), skip_bad=skip_bad)
    summary = summarise(dataclasses.replace(trace, source=str(log)))
    if as_json:
        write_out(context, json_text(dataclasses.asdict(summary), indent=2))
        return

    write_out(context, summary_text(summary))


To = Annotated[options.FormatName, typer.Option("--to", help="What to write.")]


def convert(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: options.LogFile,
    *,
    to: To,
    skip_bad: options.SkipBad = 0,
    out: options.OutFile = None,
    force: options.Force = False,
) -> None:
    """Write a scheduler log in another format."""
    context: CliContext = ctx.obj
    trace = load_trace(context.cwd / log, named=str(log), skip_bad=skip_bad)
    deliver(context, rendered(trace, to), out=out, force=force)


MOST_NODES = 1_000_000
MOST_DAYS = 3_660
MOST_LOAD = 4.0

MachineNodes = Annotated[
    int,
    typer.Option(metavar="N", min=1, max=MOST_NODES, help="The machine's size."),
]
SpanDays = Annotated[
    float,
    typer.Option(
        metavar="D",
        help="Days that jobs are submitted on.",
        callback=options.above_zero_up_to(MOST_DAYS),
    ),
]
Load = Annotated[
    float,
    typer.Option(
        metavar="L",
        help="Node-time submitted over that of the machine.",
        callback=options.above_zero_up_to(MOST_LOAD),
    ),
]
ModelSeed = Annotated[
    int, typer.Option(metavar="N", min=0, help="The same seed, the same bytes.")
]
Starts = Annotated[
    bool,
    typer.Option(
        metavar="", help="Give jobs the start times that EASY backfilling finds."
    ),
]
Sample = Annotated[
    bool,
    typer.Option(
        "--sample", metavar="", help="The week that ships; --out is then a folder."
    ),
]


def generate(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    *,
    nodes: MachineNodes = 512,
    days: SpanDays = 7.0,
    load: Load = 0.9,
    seed: ModelSeed = 1,
    starts: Starts = True,
    sample: Sample = False,
    out: options.OutFile = None,
    force: options.Force = False,
) -> None:
    """Generate a workload by the Lublin-Feitelson model, as SWF."""
    context: CliContext = ctx.obj
    if sample:
        trace = samples.sample_trace()
        out = out / samples.SAMPLE_NAME if out is not None else None
    else:
        wanted = model.WorkloadModel(nodes=nodes, days=days, load=load, seed=seed)
        trace = lublin.generate(wanted)
        trace = samples.start_by_easy(trace) if starts else trace
    deliver(context, rendered(trace, "swf"), out=out, force=force)


def holes(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: options.LogFile,
    *,
    schedule: options.ScheduleMethod = "recorded",
    skip_bad: options.SkipBad = 0,
    as_json: options.AsJson = False,
    out: options.OutFile = None,
    force: options.Force = False,
) -> None:
    """Find the node × time holes that a log's jobs leave idle."""
    context: CliContext = ctx.obj
    trace = load_trace(context.cwd / log, named=str(log), skip_bad=skip_bad)
    with progress(context, f"scheduling ({schedule})") as report:
        idle = idle_of(trace, Method(schedule), on_progress=report)
    if as_json:
        text = json_text(idle_records(idle.trace))
    else:
        text = rendered(idle.trace, "fragments")
    deliver(context, text, out=out, force=force)
    for line in idle.left_out:
        context.stderr.write(f"{line}\n")


def rendered(trace: Trace, to: str) -> str:
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

TOLD_APART = ("users",)
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
    if isinstance(value, Spread):
        spread = dataclasses.asdict(value).items()
        return ", ".join(f"{word} {_number(name, part)}" for word, part in spread)
    if name in TOLD_APART and not value:
        return "unknown"
    if name in SECONDS and isinstance(value, float | int):
        return f"{value:.15g} ({render_duration(value)})"
    if name == UNIX_TIME and isinstance(value, float | int):
        return _moment(value)
    if isinstance(value, float | int):
        return _number(name, float(value))
    return "unknown" if value is None else one_line(str(value))


def _moment(unix_s: float) -> str:
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
