"""Showing something anew and anew, where somebody watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cli.exits import error_line
from freetrain.cli.output import write_out
from freetrain.errors import TryLaterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from freetrain.cli.world import World


def watch(world: World, show: Callable[[], RenderableType], *, every_s: float) -> None:
    """Show what *show* returns, anew every *every_s* seconds, until interrupted."""
    from rich.live import Live  # noqa: PLC0415 - only where it is seen

    # Our own clock refreshes, so that nothing is drawn while files are read.
    with Live(console=world.watched(), auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(_shown(show), refresh=True)
                world.sleep(every_s)
        except KeyboardInterrupt:
            return


def _shown(show: Callable[[], RenderableType]) -> RenderableType:
    """Return what *show* returns, or why it cannot just now."""
    try:
        return show()
    except TryLaterError as error:
        return error_line(error)


def print_out(world: World, screen: RenderableType) -> None:
    """Write *screen* to standard output, whole."""
    console = world.out()
    with console.capture() as captured:
        console.print(screen, crop=False)
    write_out(world, captured.get())
