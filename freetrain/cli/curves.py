"""``freetrain curves``: what trainers' losses say of what is to come."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_file, write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain curves

freetrain curves digits --out curves.html

freetrain curves digits --json
"""


def curves(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    trainer: Annotated[
        str | None,
        typer.Argument(metavar="[TRAINER]", help="Without it all that are not over."),
    ] = None,
    *,
    as_json: options.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw them, too: a page without network."),
    ] = None,
    force: options.Force = False,
    config: options.Config = None,
) -> None:
    """Show measured values, fits and forecasts, and when targets are expected."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.curves_record import curves_record  # noqa: PLC0415
    from freetrain.cli.curves_text import curves_text  # noqa: PLC0415
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.cli.watching import print_out  # noqa: PLC0415
    from freetrain.client.status import curves_of  # noqa: PLC0415
    from freetrain.state.files import StateDir  # noqa: PLC0415

    world: World = ctx.obj
    state = StateDir(site_of(world, config).state_directory)
    found = curves_of(state, name=trainer, uid=world.uid)
    if out is not None:
        from freetrain.report.curves import render_page  # noqa: PLC0415

        write_file(world.cwd / out, render_page(found).encode(), force=force)
    if as_json:
        write_out(world, json.dumps(curves_record(found), allow_nan=False) + "\n")
        return
    print_out(world, curves_text(found))
    if out is not None:
        write_out(world, f"\nDrawn in {out}.\n")
