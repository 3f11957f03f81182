"""``freetrain demo``: a first look, without a log of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from freetrain.cli import options
from freetrain.cli.replay import run_and_show
from freetrain.cli.request import ReplayRequest
from freetrain.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain demo

freetrain demo --out my-demo --force
"""
DEFAULT_FOLDER = Path("freetrain-demo")


def demo(
    ctx: typer.Context,
    *,
    as_json: options.AsJson = False,
    out: options.OutFolder = None,
    force: options.Force = False,
) -> None:
    """Replay the sample week that ships with FreeTrain under every policy."""
    # Imported here, so that help and completion stay quick.
    from logs.generate.sample import shipped_sample  # noqa: PLC0415

    world: World = ctx.obj
    sample = shipped_sample()
    request = ReplayRequest(
        log=sample,
        named=f"logs/samples/{sample.name}",
        trainers="hps",
        policies=options.POLICY_NAMES,
        schedule="recorded",
        nodes=None,
        start_s=0.0,
        days=None,
        skip_bad=0,
        seed=0,
        settings=ReplaySettings(),
    )
    run_and_show(
        request,
        world,
        as_json=as_json,
        out=out or DEFAULT_FOLDER,
        # Its own folder may hold nothing but an earlier demo: run twice is fine.
        force=force or out is None,
    )
