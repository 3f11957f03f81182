"""``freetrain trace convert``: a log in another format."""

from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain trace convert sacct.txt --to swf --out week.swf.gz

freetrain trace convert KTH-SP2.swf.gz --to jobs-csv
"""

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
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.load import load_trace  # noqa: PLC0415
    from freetrain.cli.trace_text import deliver, rendered  # noqa: PLC0415

    world: World = ctx.obj
    trace = load_trace(world.cwd / log, named=str(log), skip_bad=skip_bad)
    deliver(world, rendered(trace, to), out=out, force=force)
