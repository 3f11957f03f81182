"""``freetrain tick``: one short run of the broker."""

import shlex
from collections.abc import Iterable
from typing import Annotated

import typer

from freetrain.cli.context import (
    AsJson,
    CliContext,
    Config,
    duration_s,
    json_text,
    write_out,
)
from freetrain.text import one_line
from freetrain.tick.environment import real_environment
from freetrain.tick.status_report import as_plain, summary_line
from freetrain.tick.tick import TickReport, tick_and_follow_up
from freetrain.tick.tick import tick as run_tick
from slurm.batch import sbatch_argv

EXAMPLES = {
    "tick": """
freetrain tick --dry-run

freetrain tick --follow-up 55s --config ~/.config/freetrain/freetrain.toml
""",
}

Wait = Annotated[
    float,
    typer.Option(
        metavar="TIME",
        parser=duration_s,
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
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Look at Slurm, plan, and act: once. cron calls it every minute."""
    context: CliContext = ctx.obj
    site, outside = context.site(config), real_environment(context.environ)
    reports: Iterable[TickReport] = (
        (run_tick(site, outside, dry_run=True),)
        if dry_run
        else tick_and_follow_up(site, outside, within_s=follow_up, wait=context.sleep)
    )
    write = _write_record if as_json else _write_lines
    write(context, reports, is_dry=dry_run)


def _write_record(
    context: CliContext, reports: Iterable[TickReport], *, is_dry: bool
) -> None:
    """Write the last tick's status report, and the commands of all."""
    record: dict[str, object] = {}
    commands: list[list[str]] = []
    for report in reports:
        commands += map(sbatch_argv, report.requests)
        record = {**as_plain(report.status), "dry_run": is_dry, "commands": commands}
    write_out(context, json_text(record, allow_nan=False))


def _write_lines(
    context: CliContext, reports: Iterable[TickReport], *, is_dry: bool
) -> None:
    """Write a line of each tick as soon as it is over; it may be long to the next."""
    before = "dry run, nothing was done: " if is_dry else ""
    for report in reports:
        write_out(context, _readable(before + summary_line(report.status)))
        for request in report.requests if is_dry else ():
            write_out(
                context, _readable(f"would run: {shlex.join(sbatch_argv(request))}")
            )


def _readable(text: str) -> str:
    return one_line(text) + "\n"
