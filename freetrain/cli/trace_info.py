"""``freetrain trace info``: a log in figures."""

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain trace info KTH-SP2.swf.gz

freetrain trace info sacct.txt --skip-bad 10 --json
"""


def info(
    ctx: typer.Context,
    log: options.LogFile,
    *,
    skip_bad: options.SkipBad = 0,
    as_json: options.AsJson = False,
) -> None:
    """Say what a scheduler log holds."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.load import load_trace  # noqa: PLC0415
    from logs.summary import summarise  # noqa: PLC0415

    world: World = ctx.obj
    trace = load_trace(world.cwd / log, named=str(log), skip_bad=skip_bad)
    summary = summarise(dataclasses.replace(trace, source=str(log)))
    if as_json:
        write_out(world, json.dumps(dataclasses.asdict(summary), indent=2) + "\n")
        return
    from freetrain.cli.trace_screen import summary_text  # noqa: PLC0415

    write_out(world, summary_text(summary))
