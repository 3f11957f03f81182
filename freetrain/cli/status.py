"""``freetrain status``: how trainers stand."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from rich.console import RenderableType

    from freetrain.cli.world import World
    from freetrain.client.status import Overview

EXAMPLES = """
freetrain status

freetrain status digits --watch

freetrain status --json
"""
EVERY_S = 2.0


def status(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this trainer.")
    ] = None,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", metavar="", help="Show it anew every two seconds."),
    ] = False,
    ended: Annotated[
        bool, typer.Option("--all", metavar="", help="Those that ended long ago too.")
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show trainers: state, nodes, progress, and why. Slurm is not asked."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.cli.status_record import status_record  # noqa: PLC0415
    from freetrain.cli.watching import print_out  # noqa: PLC0415
    from freetrain.cli.watching import watch as watch_it  # noqa: PLC0415
    from freetrain.client.status import overview  # noqa: PLC0415
    from freetrain.state.files import StateDir  # noqa: PLC0415

    world: World = ctx.obj
    state = StateDir(site_of(world, config).state_directory)

    def look() -> "Overview":
        now_s = world.now_s()
        return overview(state, name=name, uid=world.uid, now_s=now_s, ended=ended)

    if as_json:
        write_out(world, json.dumps(status_record(look())) + "\n")
    elif watch and world.is_out_terminal:
        watch_it(world, lambda: _screen(look(), name), every_s=EVERY_S)
    else:
        print_out(world, _screen(look(), name))


def _screen(seen: "Overview", name: str | None) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415

    from freetrain.cli.detail_text import detail_lines  # noqa: PLC0415
    from freetrain.cli.status_text import status_screen  # noqa: PLC0415

    screen = status_screen(seen)
    if name is None:
        return screen
    return Group(screen, *(detail_lines(one, seen) for one in seen.standings))
