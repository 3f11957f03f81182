"""``freetrain drill``: rehearse a preemption."""

from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain drill digits

freetrain drill digits --lease n3 --patience 60
"""


def drill(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    trainer: Annotated[str, typer.Argument(metavar="TRAINER", help="It must train.")],
    *,
    lease: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="The lease, by its node or name; without it the last one.",
            show_default=False,
        ),
    ] = "",
    patience_s: Annotated[
        float,
        typer.Option(
            "--patience",
            metavar="S",
            help="Seconds that it may take to train again.",
            callback=options.above_zero,
        ),
    ] = 120.0,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Take one node from a trainer as Slurm would, and watch what it does."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.drilling import DrillRequest, rehearse  # noqa: PLC0415
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.state.files import StateDir  # noqa: PLC0415

    world: World = ctx.obj
    request = DrillRequest(
        state=StateDir(site_of(world, config).state_directory),
        trainer=trainer,
        lease=lease,
        patience_s=patience_s,
        as_json=as_json,
    )
    rehearse(request, world)
