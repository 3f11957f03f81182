"""``freetrain doctor`` and ``freetrain cron``: check an installation; regular ticks."""

import sys
import uuid
from pathlib import Path
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
from freetrain.cron import CronUnavailableError, Found, Kind, Programs, Ticks, ticks_of
from freetrain.doctor.checks import examine
from freetrain.doctor.findings import Subject, exit_code, finding_text, summary_text
from freetrain.errors import FreeTrainError, UsageError
from freetrain.state.database import prepare_directory
from slurm.backend import CommandLine
from slurm.runner import SubprocessRunner, scrubbed, user_name

EXAMPLES = {
    "doctor": """
freetrain doctor

freetrain doctor --no-run --json
""",
    "show": """
freetrain cron show

freetrain cron show --kind systemd --every 30s
""",
    "install": """
freetrain cron install --every 30s --config freetrain.toml

freetrain cron install --kind systemd
""",
    "remove": """
freetrain cron remove

freetrain cron remove --kind systemd
""",
}


NoRun = Annotated[
    bool, typer.Option("--no-run", metavar="", help="Run no job on a compute node.")
]
Record = Annotated[
    Path | None,
    typer.Option("--record", hidden=True, help="No longer here."),
]


def doctor(
    ctx: typer.Context,
    *,
    config: Config = None,
    no_run: NoRun = False,
    record: Record = None,
    as_json: AsJson = False,
) -> None:
    """Look at this cluster, and at FreeTrain on it; run one short job to prove it."""
    context: CliContext = ctx.obj
    if record is not None:
        raise UsageError(
            "`freetrain doctor` no longer makes recordings, and nothing was asked or "
            "written. In FreeTrain's source tree `python -m tests.record_slurm "
            f"{record}` does."
        )
    findings = []
    for finding in examine(_subject(context, config, may_run=not no_run)):
        findings.append(finding)
        if not as_json:
            write_out(context, finding_text(finding))
    if as_json:
        write_out(context, json_text(findings, indent=2))
    else:
        write_out(context, summary_text(findings))
    raise typer.Exit(exit_code(findings))


def _subject(context: CliContext, config: Path | None, *, may_run: bool) -> Subject:
    runner = SubprocessRunner(scrubbed(context.environ))
    return Subject(
        site=context.site(config),
        environ=context.environ,
        uid=context.uid,
        python=Path(sys.executable),
        programs=Programs(context.environ),
        runner=runner,
        backend=CommandLine(runner, user=user_name()),
        now_s=context.now_s,
        clock=context.clock,
        sleep=context.sleep,
        new_uuid=lambda: str(uuid.uuid4()),
        may_run=may_run,
    )


def _interval_s(text: str) -> int:
    every_s = duration_s(text)
    if every_s != int(every_s) or every_s < 1:
        raise typer.BadParameter(f"{text} is not a whole number of seconds")
    return int(every_s)


Every = Annotated[
    int,
    typer.Option(
        metavar="TIME", parser=_interval_s, help="Time between two ticks, such as 60s."
    ),
]
Which = Annotated[
    Kind | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="crontab, systemd or scrontab.",
        show_default="the first of them that is here",
    ),
]


_COMPARED = {
    Found.NOTHING: "It is not installed ({kind}).",
    Found.SAME: "It is installed ({kind}).",
    Found.OTHER: "Another one is installed ({kind}), with another interval or by an "
    "older release: `freetrain cron install` would write this in its place.",
}


def show(
    ctx: typer.Context,
    *,
    kind: Which = None,
    every: Every = "60s",  # type: ignore[assignment] # Typer parses the default
    config: Config = None,
) -> None:
    """Show what install would write, and what is installed; change nothing."""
    context: CliContext = ctx.obj
    ticks = _ticks(context, config)
    chosen = kind or ticks.fitting()
    back_end = ticks.back_end(chosen)
    write_out(context, back_end.preview(every_s=every))
    try:
        found = back_end.compare(every_s=every)
    except FreeTrainError as error:
        context.stderr.write(f"Whether it is installed cannot be seen: {error}\n")
    else:
        context.stderr.write(f"{_COMPARED[found].format(kind=chosen)}\n")


def install(
    ctx: typer.Context,
    *,
    kind: Which = None,
    every: Every = "60s",  # type: ignore[assignment] # Typer parses the default
    config: Config = None,
) -> None:
    """Have `freetrain tick` run by itself; twice is no mistake."""
    context: CliContext = ctx.obj
    ticks = _ticks(context, config)
    chosen = kind or ticks.fitting()
    prepare_directory(ticks.call.state, uid=context.uid)
    is_new = ticks.back_end(chosen).install(every_s=every)
    done = "Installed" if is_new else "Nothing to change: it is installed already"
    write_out(context, f"{done} ({chosen}), every {every} s.\n")
    write_out(context, f"What ticks say goes to {ticks.call.log}.\n")
    if chosen is Kind.SYSTEMD:
        write_out(
            context, "To tick while you are logged out: `loginctl enable-linger`\n"
        )


def remove(ctx: typer.Context, *, kind: Which = None, config: Config = None) -> None:
    """Take the entry out again; without --kind from wherever it is."""
    context: CliContext = ctx.obj
    ticks = _ticks(context, config)
    kinds = (kind,) if kind else ticks.kinds_here()
    if not kinds:
        raise CronUnavailableError(
            "no program is on the PATH that keeps ticks; nothing was removed. Call it "
            "on the host where they were installed."
        )
    for each in kinds:
        was_there = ticks.back_end(each).remove()
        done = "Removed" if was_there else "No entry to remove"
        write_out(context, f"{done} ({each}).\n")


def _ticks(context: CliContext, config: Path | None) -> Ticks:
    return ticks_of(
        context.site(config),
        python=Path(sys.executable),
        environ=context.environ,
        uid=context.uid,
        programs=Programs(context.environ),
    )
