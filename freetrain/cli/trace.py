"""``freetrain trace``: read, convert and generate scheduler logs; find their holes.

What reads logs is imported when a verb is called, so that ``-h`` does without NumPy.
"""

from dataclasses import replace
from typing import Annotated

import typer

from freetrain.cli.context import (
    AsJson,
    CliContext,
    Force,
    LogFile,
    OutFile,
    ScheduleMethod,
    SkipBad,
    above_zero_up_to,
    json_text,
    progress,
    write_out,
)
from logs.read import WRITABLE

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


def _known_format(name: str) -> str:
    if name not in WRITABLE:
        known = ", ".join(map(repr, WRITABLE))
        raise typer.BadParameter(f"{name!r} is not one of {known}.")
    return name


def _complete_format(incomplete: str) -> list[str]:
    return [name for name in WRITABLE if name.startswith(incomplete)]


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


def info(
    ctx: typer.Context,
    log: LogFile,
    *,
    skip_bad: SkipBad = 0,
    as_json: AsJson = False,
) -> None:
    """Say what a scheduler log holds."""
    from freetrain.cli.replay_input import load_trace  # noqa: PLC0415
    from freetrain.cli.trace_text import summary_text  # noqa: PLC0415
    from logs.summary import summarise  # noqa: PLC0415

    context: CliContext = ctx.obj
    trace = load_trace(context.cwd / log, named=str(log), skip_bad=skip_bad)
    summary = summarise(replace(trace, source=str(log)))
    if as_json:
        write_out(context, json_text(summary, indent=2))
        return
    write_out(context, summary_text(summary))


def convert(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: LogFile,
    *,
    to: To,
    skip_bad: SkipBad = 0,
    out: OutFile = None,
    force: Force = False,
) -> None:
    """Write a scheduler log in another format."""
    from freetrain.cli.replay_input import load_trace  # noqa: PLC0415
    from freetrain.cli.trace_text import as_text, deliver  # noqa: PLC0415

    context: CliContext = ctx.obj
    trace = load_trace(context.cwd / log, named=str(log), skip_bad=skip_bad)
    deliver(context, as_text(trace, to), out=out, force=force)


def generate(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    *,
    nodes: MachineNodes = 512,
    days: SpanDays = 7.0,
    load: Load = 0.9,
    seed: ModelSeed = 1,
    starts: Starts = True,
    sample: Sample = False,
    out: OutFile = None,
    force: Force = False,
) -> None:
    """Generate a workload by the Lublin-Feitelson model, as SWF."""
    from freetrain.cli.trace_text import as_text, deliver  # noqa: PLC0415
    from logs import generate as lublin  # noqa: PLC0415

    context: CliContext = ctx.obj
    if sample:
        trace = lublin.sample_trace()
        out = out / lublin.SAMPLE_NAME if out is not None else None
    else:
        wanted = lublin.WorkloadModel(nodes=nodes, days=days, load=load, seed=seed)
        trace = lublin.generate(wanted)
        trace = lublin.start_by_easy(trace) if starts else trace
    deliver(context, as_text(trace, "swf"), out=out, force=force)


def holes(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: LogFile,
    *,
    schedule: ScheduleMethod = "recorded",
    skip_bad: SkipBad = 0,
    as_json: AsJson = False,
    out: OutFile = None,
    force: Force = False,
) -> None:
    """Find the node × time holes that a log's jobs leave idle."""
    from freetrain.cli.replay_input import idle_of, load_trace  # noqa: PLC0415
    from freetrain.cli.trace_text import as_text, deliver  # noqa: PLC0415
    from freetrain.report.summary import idle_records  # noqa: PLC0415
    from logs.simulation import Method  # noqa: PLC0415

    context: CliContext = ctx.obj
    trace = load_trace(context.cwd / log, named=str(log), skip_bad=skip_bad)
    with progress(context, f"scheduling ({schedule})") as report:
        idle = idle_of(trace, Method(schedule), on_progress=report)
    if as_json:
        text = json_text(idle_records(idle.trace))
    else:
        text = as_text(idle.trace, "fragments")
    deliver(context, text, out=out, force=force)
    for line in idle.left_out:
        context.stderr.write(f"{line}\n")
