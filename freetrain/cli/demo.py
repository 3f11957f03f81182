"""``freetrain demo``: a first look, without a log of one's own, and without Slurm."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli.context import AsJson, CliContext, Force, OutFolder, write_out
from freetrain.errors import UsageError
from freetrain.text import option_words

if TYPE_CHECKING:
    from freetrain.api.request import ReplayRequest

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
LEASE_SIZES = (1, 2, 4)
"""GPUs of the leases that are held against whole nodes."""
GPU_REMARK = """\
Small leases also take GPUs that stand idle beside other jobs, and divide them more
finely: the smaller they are, the more is trained."""


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
    """Replay the two sample weeks that ship; or, --live, train here."""
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
    """Replay the week of nodes, then the week of GPUs where people read the result."""
    from freetrain.cli.replay_run import run_and_show  # noqa: PLC0415
    from logs.generate import SAMPLE_NAME  # noqa: PLC0415

    request = replace(
        _sample_request(SAMPLE_NAME),
        policies=POLICIES,
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
    if not as_json:  # one JSON document a command
        _show_gpus(context)


def _show_gpus(context: CliContext) -> None:
    """Replay the week of GPUs with leases of each size, and say how to repeat it."""
    from freetrain.cli.replay_run import run_leases_and_show  # noqa: PLC0415
    from logs.generate import (  # noqa: PLC0415
        GPU_SAMPLE_MODEL,
        GPU_SAMPLE_NAME,
        shipped_sample,
    )

    request, week = _sample_request(GPU_SAMPLE_NAME), GPU_SAMPLE_MODEL
    named = _named_in(context.folder, shipped_sample(GPU_SAMPLE_NAME))
    write_out(
        context,
        f"\n{request.named}: {week.nodes} nodes of {week.gpus_per_node} GPUs that jobs "
        f"share, for {week.days} d.\n",
    )
    # The log goes on until its last job has ended, on nodes that get no new ones.
    request = replace(request, days=week.days)
    run_leases_and_show(request, LEASE_SIZES, context, as_json=False)
    given = {"days": week.days, "policy": request.policies}
    options = option_words(given | {"gpus-per-lease": LEASE_SIZES})
    again = shlex.join(["freetrain", "replay", named, *options])
    write_out(context, f"\n{GPU_REMARK}\nThe same again: {again}\n")


def _sample_request(name: str) -> ReplayRequest:
    """Return the replay of a sample week that ``freetrain replay`` does by default."""
    from freetrain.api.request import ReplayRequest  # noqa: PLC0415
    from logs.generate import shipped_sample  # noqa: PLC0415

    return ReplayRequest(
        log=shipped_sample(name),
        named=f"logs/samples/{name}",
        policies=POLICIES[:1],
    ).checked()


def _named_in(folder: Path, path: Path) -> str:
    """Return *path* as a command line in *folder* names it, briefly where below it."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
