"""``freetrain tick``: one short run of the broker."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain tick --dry-run

freetrain tick --config ~/.config/freetrain/freetrain.toml
"""


def tick(
    ctx: typer.Context,
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Show what would be done; write nothing."
        ),
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Look at Slurm, plan, and act: once. cron calls it every minute."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.tick.line import line_of  # noqa: PLC0415
    from freetrain.tick.page import record_of  # noqa: PLC0415
    from freetrain.tick.real_outside import real_outside  # noqa: PLC0415
    from freetrain.tick.tick import tick as run_tick  # noqa: PLC0415
    from slurm.batch import sbatch_argv  # noqa: PLC0415

    world: World = ctx.obj
    outside = real_outside(world.environ)
    report = run_tick(site_of(world, config), outside, dry_run=dry_run)
    commands = [sbatch_argv(request) for request in report.requests]
    if as_json:
        record = record_of(report.page) | {"dry_run": dry_run, "commands": commands}
        write_out(world, json.dumps(record, allow_nan=False) + "\n")
        return
    line = line_of(report.page)
    shown = [f"would run: {shlex.join(argv)}" for argv in commands if dry_run]
    said = [f"dry run, nothing was done: {line}" if dry_run else line, *shown]
    write_out(world, "".join(f"{one}\n" for one in map(_readable, said)))


def _readable(text: str) -> str:
    from freetrain.toml.wording import one_line  # noqa: PLC0415 - as above

    return one_line(text)
