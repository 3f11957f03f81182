"""``freetrain trace``: read, convert and generate scheduler logs; find their holes.

Modules that read logs are imported when a verb is called, so that ``-h`` does without
NumPy.
"""

import dataclasses
import gzip
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.api.writing import write_file
from freetrain.cli.context import (
    AsJson,
    CliContext,
    CoresPerNode,
    Force,
    GpusPerNode,
    OutFile,
    ScheduleMethod,
    SchedulerPasses,
    SkipBad,
    above_zero_up_to,
    given_log,
    json_text,
    write_out,
)
from freetrain.errors import UsageError
from freetrain.text import counted, one_line, per_cent, render_duration
from logs.read import READ_ONLY, WRITABLE
from logs.trace import IdleTrace, JobTrace, Trace

if TYPE_CHECKING:
    from logs.summary import PieceSummary, TraceSummary

EXAMPLES = {
    "info": """
freetrain trace info KTH-SP2.swf.gz

freetrain trace info sacct.txt --skip-bad 10 --json

freetrain trace info sacct.txt --gpus-per-node 8
""",
    "convert": """
freetrain trace convert sacct.txt --to swf --out week.swf.gz

freetrain trace convert KTH-SP2.swf.gz --to jobs-csv
""",
    "generate": """
freetrain trace generate --nodes 512 --days 7 --seed 1 --out week.swf

freetrain trace generate --nodes 32 --gpus-per-node 8 --seed 1 --out gpu-week.csv

freetrain trace generate --sample --out logs/samples
""",
    "holes": """
freetrain trace holes jobs.csv.gz --out holes.csv

freetrain trace holes KTH-SP2.swf.gz --schedule slurm --json

freetrain trace holes gpus.csv --gpus-per-node 8 --gpus-per-lease 2
""",
}


def _known_format(name: str) -> str:
    if name not in WRITABLE:
        known = ", ".join(map(repr, WRITABLE))
        raise typer.BadParameter(f"{name!r} is not one of {known}.")
    return name


def _complete_format(incomplete: str) -> list[str]:
    return [name for name in WRITABLE if name.startswith(incomplete)]


_READ = (*WRITABLE, *READ_ONLY)
LogFile = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        readable=False,  # opening it fails with exit code 66
        help=f"A log: {', '.join(_READ[:-1])} or {_READ[-1]}; plain or gzipped.",
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar=f"[{'|'.join(WRITABLE)}]",
        callback=_known_format,
        autocompletion=_complete_format,
        help="What to write.",
    ),
]
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
        callback=above_zero_up_to(MOST_DAYS),
    ),
]
Load = Annotated[
    float,
    typer.Option(
        metavar="L",
        help="Node-time submitted over that of the machine.",
        callback=above_zero_up_to(MOST_LOAD),
    ),
]
ModelSeed = Annotated[
    int, typer.Option(metavar="N", min=0, help="The same seed, the same bytes.")
]
GpusPerLease = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="List what leases of N GPUs could have, several on one node.",
        show_default="leases of whole nodes",
    ),
]
MachineGpus = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        metavar="N",
        min=1,
        max=1024,
        help="Jobs of GPUs, which share nodes of N, as CSV.",
        show_default="jobs of whole nodes",
    ),
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


def info(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: LogFile,
    *,
    cores_per_node: CoresPerNode = None,
    gpus_per_node: GpusPerNode = None,
    skip_bad: SkipBad = 0,
    as_json: AsJson = False,
) -> None:
    """Say what a scheduler log holds."""
    context: CliContext = ctx.obj
    found = given_log(context, log, cores_per_node, gpus_per_node, skip_bad)
    summary = found.info()
    if as_json:
        write_out(context, json_text(summary, indent=2))
        return
    write_out(context, summary_text(summary))


def convert(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: LogFile,
    *,
    to: To,
    cores_per_node: CoresPerNode = None,
    gpus_per_node: GpusPerNode = None,
    skip_bad: SkipBad = 0,
    out: OutFile = None,
    force: Force = False,
) -> None:
    """Write a scheduler log in another format."""
    context: CliContext = ctx.obj
    found = given_log(context, log, cores_per_node, gpus_per_node, skip_bad)
    deliver(context, as_text(found.trace, to), out=out, force=force)
    for line in found.cautions:
        context.stderr.write(f"{line}\n")


def generate(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    *,
    nodes: MachineNodes = 512,
    gpus_per_node: MachineGpus = None,
    days: SpanDays = 7.0,
    load: Load = 0.9,
    seed: ModelSeed = 1,
    starts: Starts = True,
    sample: Sample = False,
    out: OutFile = None,
    force: Force = False,
) -> None:
    """Generate a workload by the Lublin-Feitelson model, as SWF or CSV of GPUs."""
    from logs import generate as lublin  # noqa: PLC0415

    context: CliContext = ctx.obj
    if sample:
        model = lublin.GPU_SAMPLE_MODEL if gpus_per_node else lublin.SAMPLE_MODEL
        name = lublin.GPU_SAMPLE_NAME if gpus_per_node else lublin.SAMPLE_NAME
        trace = lublin.sample_trace(model)
        out = out / name if out is not None else None
    else:
        wanted = lublin.WorkloadModel(
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            days=days,
            load=load,
            seed=seed,
            classes=(lublin.GPU_JOBS if gpus_per_node else lublin.ALL_JOBS,),
        )
        trace = lublin.generate(wanted)
        trace = lublin.start_by_easy(trace) if starts else trace
    text = as_text(trace, "gpu-csv" if trace.counts_gpus else "swf")
    deliver(context, text, out=out, force=force)


def holes(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: LogFile,
    *,
    schedule: ScheduleMethod = "recorded",
    passes: SchedulerPasses = "moment",
    gpus_per_lease: GpusPerLease = None,
    cores_per_node: CoresPerNode = None,
    gpus_per_node: GpusPerNode = None,
    skip_bad: SkipBad = 0,
    as_json: AsJson = False,
    out: OutFile = None,
    force: Force = False,
) -> None:
    """Find the node × time holes that a log's jobs leave idle."""
    from freetrain.report.summary import idle_records  # noqa: PLC0415

    context: CliContext = ctx.obj
    found = given_log(context, log, cores_per_node, gpus_per_node, skip_bad)
    idle, cautions = found.idle(
        schedule=schedule,
        passes=passes,
        gpus_per_lease=gpus_per_lease,
        context=context,
    )
    text = (
        json_text(list(idle_records(idle))) if as_json else as_text(idle, "fragments")
    )
    deliver(context, text, out=out, force=force)
    for line in cautions:
        context.stderr.write(f"{line}\n")


def as_text(trace: Trace, to: str) -> str:
    """Return *trace* as text in the format *to*.

    Raises:
        UsageError: The format cannot hold this kind of log.
    """
    from logs.read import format_named  # noqa: PLC0415

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
    "span_s": "time from second 0 to the end",
    "used_node_s": "node-time used",
    "partly_used_node_s": "of it on nodes used in part or shared",
    "utilisation": "utilisation",
    "low_use_share": "time with half the nodes idle or more",
    "mean_idle_nodes": "mean idle nodes",
    "busy_mean_idle_nodes": "mean idle nodes, that time left out",
    "peak_units": "most units held at once",
    "overcommitted_s": "time with more held than there is",
    "used_gpu_s": "GPU time used",
    "size_units": "job size in units",
    "run_s": "run time",
    "wait_s": "wait",
    "cautions": "cautions",
    "ever_idle_nodes": "nodes that were ever idle",
    "holes": "holes",
    "idle_node_s": "node-time idle",
    "idle_share": "share of node-time idle",
    "peak_idle_nodes": "most nodes idle at once",
    "hole_s": "hole length",
    "short_hole_share": "holes shorter than 10 min",
    "long_hole_time_share": "node-time in holes of 10 min and more",
}
"""The labels of the figures of ``logs.summary``."""

UNIX_TIME = "unix_start_s"
SECONDS = ("first_submit_s", "first_start_s")
"""Places in the log, as ``--start`` takes them."""

UNKNOWN_IF_ZERO = ("users",)
"""Counts that are 0 where the log does not say."""

FROM_STARTS = (
    "span_s",
    "used_node_s",
    "partly_used_node_s",
    "idle_node_s",
    "utilisation",
    "low_use_share",
    "mean_idle_nodes",
    "busy_mean_idle_nodes",
    "peak_units",
    "overcommitted_s",
    "used_gpu_s",
    "wait_s",
)
"""Figures of jobs, nothing of which is known where no job has a start."""

SHARES = ("utilisation", "_share")


def summary_text(summary: "TraceSummary") -> str:
    """Return one line a figure, the unit with the value."""
    has_starts = getattr(summary, "first_start_s", 0.0) is not None
    shown = [
        (
            LABELS[field.name],
            _value(field.name, getattr(summary, field.name))
            if has_starts or field.name not in FROM_STARTS
            else "unknown",
        )
        for field in dataclasses.fields(summary)
        if field.name in LABELS
    ]
    if has_starts:
        shown += map(_piece_line, getattr(summary, "pieces", ()))
    width = max(len(label) for label, _ in shown)
    return "".join(f"{label:<{width}}  {value}\n" for label, value in shown)


def _piece_line(piece: "PieceSummary") -> tuple[str, str]:
    """Return the label and the figures of the pieces of one size."""
    lasting, lasting_time = (
        _number("_share", share)
        for share in (piece.lasting_share, piece.lasting_gpu_share)
    )
    figures = (
        f"{_number('gpu_s', piece.idle_gpu_s)}, "
        f"{_number('gpu_s', piece.in_use_gpu_s)} of it on nodes in use; "
        f"{counted(piece.pieces, 'piece')}, {lasting} of 5 min and more, with "
        f"{lasting_time} of the time"
    )
    return f"GPU time idle, in pieces of {piece.gpus}", figures


def _value(name: str, value: object) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        spread = dataclasses.asdict(value).items()
        return ", ".join(f"{word} {_number(name, part)}" for word, part in spread)
    if value is None or (name in UNKNOWN_IF_ZERO and not value):
        return "unknown"
    if name in SECONDS and isinstance(value, float | int):
        return f"{value:.15g} ({render_duration(value)})"
    if name == UNIX_TIME and isinstance(value, float | int):
        return _unix_time(value)
    if isinstance(value, float | int):
        return _number(name, float(value))
    text = " ".join(value) or "none" if isinstance(value, tuple) else str(value)
    return one_line(text)


def _unix_time(unix_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):  # a log may claim any year
        return f"{unix_s:.15g} s of Unix time"


def _number(name: str, value: float) -> str:
    if name.endswith(SHARES):
        return per_cent(value, ".1f")
    for unit in ("node", "gpu"):
        if name.endswith(f"{unit}_s"):
            return f"{value / 3600:,.0f} {unit.replace('gpu', 'GPU')}-h"
    if name.endswith("_s"):
        return render_duration(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
