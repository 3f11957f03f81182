"""``freetrain submit``: hand in a trainer."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain submit job.toml --dry-run

freetrain submit job.toml

freetrain submit longer.toml --go-on
"""


def submit(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.TOML", readable=False, help="The trainer; docs/job-file.md."
        ),
    ],
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Only show what would be kept and run."
        ),
    ] = False,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on", metavar="", help="Go on from an earlier training's checkpoints."
        ),
    ] = False,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", metavar="", help="Begin from the start, under a name used before."
        ),
    ] = False,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked", metavar="", help="Though directory or program is not here."
        ),
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Submit a trainer; a later tick gives it nodes. Submitted twice it is one."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.cli.submit_text import (  # noqa: PLC0415
        preview_text,
        submitted_record,
        submitted_text,
    )
    from freetrain.client.submit import (  # noqa: PLC0415
        Asked,
        hand_in,
        preview_of,
    )
    from freetrain.tick.environment import real_outside  # noqa: PLC0415

    world: World = ctx.obj
    handed_in = hand_in(
        Asked(
            path=world.folder / job,
            named=str(job),
            go_on=go_on,
            anew=anew,
            is_checked=not unchecked,
            is_dry_run=dry_run,
        ),
        site_of(world, config),
        environ=world.environ,
        home=world.home,
        uid=world.uid,
        now_s=world.now_s(),
    )
    preview = None
    if dry_run:
        outside = real_outside(world.environ)
        preview = preview_of(handed_in.submission, handed_in.site, outside)
    if as_json:
        write_out(world, json.dumps(submitted_record(handed_in, preview)) + "\n")
    else:
        write_out(world, submitted_text(handed_in))
        write_out(world, "" if preview is None else preview_text(preview))
        for remark in handed_in.remarks:
            world.stderr.write(f"note: {remark}\n")
