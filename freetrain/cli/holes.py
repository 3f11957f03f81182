"""``freetrain holes``: what Slurm leaves idle now, and until when."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World
    from slurm.backend import SlurmBackend
    from slurm.snapshot import Snapshot

EXAMPLES = """
freetrain holes

freetrain holes --partition gpu --nodes

freetrain holes --json
"""
LOOKS = 3
"""A look that backfill tears is taken again; on a busy site every one may be torn."""

MOST_REQUESTS = 1 + 6 * LOOKS
WAIT_S = 1.0


def holes(
    ctx: typer.Context,
    *,
    partition: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Another partition than leases are submitted to.",
            show_default=False,
        ),
    ] = "",
    nodes: Annotated[
        bool, typer.Option("--nodes", metavar="", help="A row for each node.")
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show the node × time holes of this cluster, now. Needs no state."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.holes_text import holes_record, holes_screen  # noqa: PLC0415
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.cli.watching import print_out  # noqa: PLC0415
    from freetrain.client.holes import idle_of  # noqa: PLC0415
    from freetrain.tick.environment import slurm_of  # noqa: PLC0415

    world: World = ctx.obj
    site = site_of(world, config)
    backend = slurm_of(world.environ)(MOST_REQUESTS)
    settings = backend.config()
    idle = idle_of(
        look(backend, world), settings, site, uid=world.uid, partition=partition
    )
    if as_json:
        write_out(world, json.dumps(holes_record(idle)) + "\n")
    else:
        print_out(world, holes_screen(idle, each=nodes))


def look(backend: "SlurmBackend", world: "World") -> "Snapshot":
    """Return a look that backfill did not tear, or the last of a few."""
    snapshot = backend.snapshot()
    for _ in range(LOOKS - 1):
        if not snapshot.is_torn:
            break
        world.sleep(WAIT_S)
        snapshot = backend.snapshot()
    return snapshot
