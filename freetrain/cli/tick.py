"""``freetrain tick``: one short run of the broker."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from freetrain.cli.context import CliContext, json_text, write_out
from freetrain.state.files import StateDir
from freetrain.text import one_line
from freetrain.tick.environment import deadline, real_environment, rotate_full
from freetrain.tick.status_report import as_plain, summary_line
from freetrain.tick.tick import TickReport, tick_and_follow_up
from freetrain.tick.tick import tick as run_tick
from slurm.batch import sbatch_argv


def tick_and_show(
    context: CliContext,
    config: Path | None,
    *,
    is_dry: bool,
    follow_up_s: float,
    as_json: bool,
) -> None:
    """Tick once, or again and again for *follow_up_s*, and show what was done."""
    site = context.site(config)
    outside = replace(
        real_environment(context.environ), sleep=context.sleep, deadline=deadline
    )
    if not is_dry:
        rotate_full(StateDir(site.state_directory).cron_log)
    reports: Iterable[TickReport] = (
        (run_tick(site, outside, dry_run=True),)
        if is_dry
        else tick_and_follow_up(site, outside, within_s=follow_up_s)
    )
    write = _write_record if as_json else _write_lines
    write(context, reports, is_dry=is_dry)


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
