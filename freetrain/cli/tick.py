"""``freetrain tick``: one short run of the broker."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World
    from freetrain.tick.tick import TickReport

EXAMPLES = """
freetrain tick --dry-run

freetrain tick --follow-up 55s --config ~/.config/freetrain/freetrain.toml
"""

Wait = Annotated[
    float,
    typer.Option(
        metavar="TIME",
        parser=options.duration_s,
        help="Stay so long, to tick again once new leases have begun, and where "
        "leases make room for others before each look of Slurm's backfill.",
    ),
]


def tick(
    ctx: typer.Context,
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Show what would be done; write nothing."
        ),
    ] = False,
    follow_up: Wait = "0s",  # type: ignore[assignment] # Typer parses the default
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Look at Slurm, plan, and act: once. cron calls it every minute."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.tick.follow_up import tick_and_follow_up  # noqa: PLC0415
    from freetrain.tick.line import line_of  # noqa: PLC0415
    from freetrain.tick.page import record_of  # noqa: PLC0415
    from freetrain.tick.real_outside import real_outside  # noqa: PLC0415
    from freetrain.tick.tick import tick as run_tick  # noqa: PLC0415
    from slurm.batch import sbatch_argv  # noqa: PLC0415

    world: World = ctx.obj
    site, outside = site_of(world, config), real_outside(world.environ)
    if dry_run:
        reports: tuple[TickReport, ...] = (run_tick(site, outside, dry_run=True),)
    else:
        reports = tick_and_follow_up(
            site, outside, within_s=follow_up, wait=world.sleep
        )
    requests = [request for report in reports for request in report.requests]
    commands = [sbatch_argv(request) for request in requests]
    if as_json:
        page = record_of(reports[-1].page)
        record = page | {"dry_run": dry_run, "commands": commands}
        write_out(world, json.dumps(record, allow_nan=False) + "\n")
        return
    before = "dry run, nothing was done: " if dry_run else ""
    said = [before + line_of(report.page) for report in reports]
    said += [f"would run: {shlex.join(argv)}" for argv in commands if dry_run]
    write_out(world, "".join(f"{one}\n" for one in map(_readable, said)))


def _readable(text: str) -> str:
    from freetrain.toml.wording import one_line  # noqa: PLC0415 - as above

    return one_line(text)
