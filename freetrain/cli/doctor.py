"""``freetrain doctor``: what is here, what works, what to do."""

import sys
import uuid
from pathlib import Path
from typing import Annotated

import typer

from freetrain.cli.context import AsJson, CliContext, Config, json_text, write_out
from freetrain.cron import Programs
from freetrain.doctor.checks import examine
from freetrain.doctor.findings import Subject, exit_code, finding_text, summary_text
from freetrain.errors import UsageError
from slurm.backend import CommandLine
from slurm.runner import SubprocessRunner, scrubbed, user_name

EXAMPLES = {
    "doctor": """
freetrain doctor

freetrain doctor --no-run --json
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
