"""``freetrain logs``: what a trainer printed."""

from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain logs digits --tail 50

freetrain logs -f digits

freetrain logs digits --generation 3 --agent
"""


def logs(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The trainer.")],
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", metavar="", help="Go on as it prints more."),
    ] = False,
    generation: Annotated[
        int | None,
        typer.Option(
            metavar="G", min=1, help="Only this one.", show_default="all of them"
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Only the last N lines.", show_default="all"
        ),
    ] = None,
    agent: Annotated[
        bool,
        typer.Option("--agent", metavar="", help="What its agents did instead."),
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show what a trainer's program printed, generation by generation."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.log_printing import LogRequest, print_logs  # noqa: PLC0415
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.state.files import StateDir  # noqa: PLC0415

    world: World = ctx.obj
    request = LogRequest(
        state=StateDir(site_of(world, config).state_directory),
        name=name,
        generation=generation,
        of_agents=agent,
        tail=tail,
        follow=follow,
        as_json=as_json,
    )
    print_logs(request, world)
