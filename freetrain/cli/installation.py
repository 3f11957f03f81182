"""``freetrain doctor`` and ``freetrain cron``: check an installation; regular ticks."""

import sys
import uuid
from pathlib import Path

import typer

from freetrain.broker.limits import Mode
from freetrain.cli.context import CliContext, json_text, write_out
from freetrain.config.site import LeaseMode
from freetrain.cron import (
    BackEnd,
    CronUnavailableError,
    Found,
    Kind,
    Programs,
    back_ends_of,
    fitting,
)
from freetrain.doctor.checks import examine, last_mode
from freetrain.doctor.findings import Subject, exit_code, finding_text, summary_text
from freetrain.errors import FreeTrainError
from freetrain.state.database import prepare_directory
from freetrain.state.files import StateDir
from freetrain.tick.leases import interval_problem
from slurm.backend import CommandLine
from slurm.runner import SubprocessRunner, scrubbed


def examine_and_show(
    context: CliContext, config: Path | None, *, may_run: bool, as_json: bool
) -> None:
    """Show what the checks find, each as it ends.

    Raises:
        typer.Exit: Always; its code says how bad it is.
    """
    findings = []
    for finding in examine(_subject(context, config, may_run=may_run)):
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
        backend=CommandLine(runner),
        now_s=context.now_s,
        clock=context.clock,
        sleep=context.sleep,
        new_uuid=lambda: str(uuid.uuid4()),
        may_run=may_run,
    )


_COMPARED = {
    Found.NOTHING: "It is not installed ({kind}).",
    Found.SAME: "It is installed ({kind}).",
    Found.OTHER: "Another one is installed ({kind}), with another interval or by an "
    "older release: `freetrain cron install` would write this in its place.",
}


def show_entry(
    context: CliContext, config: Path | None, kind: str | None, *, every_s: int
) -> None:
    """Show what would be installed, and how what is installed compares."""
    back_ends = _back_ends(context, config)
    chosen = Kind(kind) if kind else fitting(back_ends)
    back_end = back_ends[chosen]
    write_out(context, back_end.preview(every_s=every_s))
    try:
        found = back_end.compare(every_s=every_s)
        problem = "" if found is Found.NOTHING else back_end.problem()
    except FreeTrainError as error:
        context.stderr.write(f"Whether it is installed cannot be seen: {error}\n")
    else:
        context.stderr.write(f"{_COMPARED[found].format(kind=chosen)}\n")
        if problem:
            context.stderr.write(f"But {problem}.\n")


def install_entry(
    context: CliContext, config: Path | None, kind: str | None, *, every_s: int
) -> None:
    """Install the entry that ticks every *every_s* seconds."""
    back_ends = _back_ends(context, config)
    chosen = Kind(kind) if kind else fitting(back_ends)
    call = back_ends[chosen].call
    prepare_directory(call.state, uid=context.uid)
    is_new = back_ends[chosen].install(every_s=every_s)
    done = "Installed" if is_new else "Nothing to change: it is installed already"
    write_out(context, f"{done} ({chosen}), every {every_s} s.\n")
    write_out(context, f"What ticks say goes to {call.log}.\n")
    site, mode = context.site(config), last_mode(StateDir(call.state))
    where = ""
    if mode is None:  # before the first tick only the site's own setting is known
        where = "where leases yield, " if site.lease.mode is LeaseMode.AUTO else ""
        mode = Mode.PREEMPT if site.lease.mode is LeaseMode.PREEMPT else Mode.YIELD
    problem, advice = interval_problem(site, mode, every_s=every_s)
    if problem:
        context.stderr.write(f"But {where}{problem}. {advice}\n")
    if chosen is Kind.SYSTEMD:
        write_out(
            context, "To tick while you are logged out: `loginctl enable-linger`\n"
        )


def remove_entry(context: CliContext, config: Path | None, kind: str | None) -> None:
    """Remove the entry of *kind*, or of each kind that is here."""
    back_ends = _back_ends(context, config)
    here = [each for each, back_end in back_ends.items() if back_end.is_here]
    kinds = [Kind(kind)] if kind else here
    if not kinds:
        raise CronUnavailableError(
            "no program is on the PATH that keeps ticks; nothing was removed. Call it "
            "on the host where they were installed."
        )
    for each in kinds:
        was_there = back_ends[each].remove()
        done = "Removed" if was_there else "No entry to remove"
        write_out(context, f"{done} ({each}).\n")


def _back_ends(context: CliContext, config: Path | None) -> dict[Kind, BackEnd]:
    return back_ends_of(
        context.site(config),
        python=Path(sys.executable),
        environ=context.environ,
        uid=context.uid,
        programs=Programs(context.environ),
    )
