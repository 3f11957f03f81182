"""``freetrain demo``: a first look, without a log of one's own, and without Slurm."""

from pathlib import Path
from typing import Annotated

import typer

from freetrain.cli.context import AsJson, CliContext, Force, OutFolder
from freetrain.errors import UsageError

EXAMPLES = {
    "demo": """
freetrain demo

freetrain demo --out my-demo --force

freetrain demo --live
""",
}
DEFAULT_FOLDER = Path("freetrain-demo")
LIVE_FOLDER = Path("freetrain-live")
SECONDS = 45.0
POLICIES = ("freetrain", "equal", "scavenger", "static")
"""Those whose difference needs no page of its own to be understood."""


def demo(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    *,
    live: Annotated[
        bool,
        typer.Option(
            "--live", metavar="", help="Train three trainers here, for about a minute."
        ),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="S", min=30.0, max=60.0, help="--live: how long others come and go."
        ),
    ] = SECONDS,
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="--live: of the other users' jobs."),
    ] = 1,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", metavar="", help="--live: keep logs and state in --out, too."
        ),
    ] = False,
    as_json: AsJson = False,
    out: OutFolder = None,
    force: Force = False,
) -> None:
    """Replay the sample week that ships under four policies; or, --live, train here."""
    context: CliContext = ctx.obj
    if live:
        # Imported here and below, so that `freetrain demo -h` stays quick.
        from freetrain.cli.demo_live import run_live  # noqa: PLC0415

        run_live(
            context,
            out=out or LIVE_FOLDER,
            # Its own folder may hold nothing but an earlier demo: run twice is fine.
            force=force or out is None,
            seconds=seconds,
            seed=seed,
            keep=keep,
            as_json=as_json,
        )
        return
    if keep or seconds != SECONDS or seed != 1:
        raise UsageError(
            "--seconds, --seed and --keep belong to --live. Nothing was run; add it."
        )
    _replay(context, as_json=as_json, out=out, force=force)


def _replay(
    context: CliContext, *, as_json: bool, out: Path | None, force: bool
) -> None:
    from freetrain.cli.replay import ReplayRequest  # noqa: PLC0415
    from freetrain.cli.replay_run import run_and_show  # noqa: PLC0415
    from freetrain.replay.settings import ReplaySettings  # noqa: PLC0415
    from logs.generate import shipped_sample  # noqa: PLC0415

    sample = shipped_sample()
    request = ReplayRequest(
        log=sample,
        named=f"logs/samples/{sample.name}",
        trainers="hps",
        policies=POLICIES,
        schedule="recorded",
        nodes=None,
        start_s=0.0,
        days=None,
        skip_bad=0,
        seed=0,
        settings=ReplaySettings(),
        # Its sample is within the package, wherever that is.
        demo_command="freetrain demo",
    )
    run_and_show(
        request,
        context,
        as_json=as_json,
        out=out or DEFAULT_FOLDER,
        force=force or out is None,
    )
