"""``freetrain trace holes``: when which node is idle."""

import json
from typing import TYPE_CHECKING

import typer

from freetrain.cli import options

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain trace holes jobs.csv.gz --out holes.csv

freetrain trace holes KTH-SP2.swf.gz --schedule slurm --json
"""


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
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.load import idle_of, load_trace  # noqa: PLC0415
    from freetrain.cli.progress import progress  # noqa: PLC0415
    from freetrain.cli.trace_text import deliver, rendered  # noqa: PLC0415
    from freetrain.report.comparison import idle_records  # noqa: PLC0415
    from logs.schedule import Method  # noqa: PLC0415

    world: World = ctx.obj
    trace = load_trace(world.cwd / log, named=str(log), skip_bad=skip_bad)
    with progress(world, f"scheduling ({schedule})") as report:
        idle = idle_of(trace, Method(schedule), on_progress=report)
    if as_json:
        text = json.dumps(idle_records(idle.trace)) + "\n"
    else:
        text = rendered(idle.trace, "fragments")
    deliver(world, text, out=out, force=force)
    for line in idle.left_out:
        world.stderr.write(f"{line}\n")
