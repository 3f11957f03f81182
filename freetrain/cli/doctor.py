"""``freetrain doctor``: what is here, what works, what to do."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out
from freetrain.cli.world import World
from freetrain.errors import UsageError

if TYPE_CHECKING:
    from freetrain.doctor.checks import Subject

EXAMPLES = """
freetrain doctor

freetrain doctor --no-run --json
"""

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
    config: options.Config = None,
    no_run: NoRun = False,
    record: Record = None,
    as_json: options.AsJson = False,
) -> None:
    """Look at this cluster, and at FreeTrain on it; run one short job to prove it."""
    world: World = ctx.obj
    # Imported here, so that help and completion stay quick.
    from freetrain.doctor.checks import exit_code  # noqa: PLC0415
    from freetrain.doctor.run import (  # noqa: PLC0415
        examine,
        finding_text,
        summary_text,
    )

    if record is not None:
        raise UsageError(
            "`freetrain doctor` no longer makes recordings, and nothing was asked or "
            "written. In FreeTrain's source tree `python -m tests.record_slurm "
            f"{record}` does."
        )
    subject = _subject(world, config, may_run=not no_run)
    findings = []
    for found in examine(subject):
        findings.append(found)
        if not as_json:
            write_out(world, finding_text(found))
    if as_json:
        import dataclasses  # noqa: PLC0415

        told = [dataclasses.asdict(found) for found in findings]
        write_out(world, json.dumps(told, indent=2) + "\n")
    else:
        write_out(world, summary_text(findings))
    raise typer.Exit(exit_code(findings))


def _subject(world: World, config: Path | None, *, may_run: bool) -> "Subject":
    import sys  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    from freetrain.config.site import Surroundings, find_site  # noqa: PLC0415
    from freetrain.cron.tables import RealPrograms  # noqa: PLC0415
    from freetrain.doctor.checks import Subject  # noqa: PLC0415
    from slurm.command_line import CommandLine  # noqa: PLC0415
    from slurm.runner import SubprocessRunner, scrubbed, user_name  # noqa: PLC0415

    around = Surroundings(world.environ, world.folder, world.uid)
    runner = SubprocessRunner(scrubbed(world.environ))
    return Subject(
        site=find_site(around, asked=config),
        environ=world.environ,
        uid=world.uid,
        python=Path(sys.executable),
        programs=RealPrograms(world.environ),
        runner=runner,
        backend=CommandLine(runner, user=user_name()),
        now_s=world.now_s,
        clock=world.clock,
        sleep=world.sleep,
        new_uuid=lambda: str(uuid.uuid4()),
        may_run=may_run,
    )
