"""``freetrain cron``: having the tick run by itself."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out
from freetrain.cli.world import World
from freetrain.cron.tables import CronUnavailableError, Found, Kind, fitting
from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from freetrain.cron.install import Ticks

SHOW_EXAMPLES = """
freetrain cron show

freetrain cron show --kind systemd --every 30s
"""
INSTALL_EXAMPLES = """
freetrain cron install --every 30s --config freetrain.toml

freetrain cron install --kind systemd
"""
REMOVE_EXAMPLES = """
freetrain cron remove

freetrain cron remove --kind systemd
"""


def _interval_s(text: str) -> int:
    every_s = options.duration_s(text)
    if every_s != int(every_s) or every_s < 1:
        raise typer.BadParameter(f"{text} is not a whole number of seconds")
    return int(every_s)


Every = Annotated[
    int,
    typer.Option(
        metavar="TIME", parser=_interval_s, help="Time between two ticks, such as 60s."
    ),
]
Which = Annotated[
    Kind | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="crontab, systemd or scrontab.",
        show_default="the first of them that is here",
    ),
]


_SAID = {
    Found.NOTHING: "It is not installed ({kind}).",
    Found.SAME: "It is installed ({kind}).",
    Found.OTHER: "Another one is installed ({kind}), with another interval or by an "
    "older release: `freetrain cron install` would write this in its place.",
}


def show(
    ctx: typer.Context,
    *,
    kind: Which = None,
    every: Every = "60s",  # type: ignore[assignment] # Typer parses the default
    config: options.Config = None,
) -> None:
    """Show what install would write, and what is installed; change nothing."""
    world: World = ctx.obj
    ticks = _ticks(world, config)
    chosen = kind or fitting(ticks.programs)
    write_out(world, ticks.preview(chosen, every_s=every))
    try:
        found = ticks.compare(chosen, every_s=every)
    except FreeTrainError as error:
        world.stderr.write(f"Whether it is installed cannot be seen: {error}\n")
    else:
        world.stderr.write(f"{_SAID[found].format(kind=chosen)}\n")


def install(
    ctx: typer.Context,
    *,
    kind: Which = None,
    every: Every = "60s",  # type: ignore[assignment] # Typer parses the default
    config: options.Config = None,
) -> None:
    """Have `freetrain tick` run by itself; twice is no mistake."""
    world: World = ctx.obj
    from freetrain.state.database import prepare_directory  # noqa: PLC0415

    ticks = _ticks(world, config)
    chosen = kind or fitting(ticks.programs)
    prepare_directory(ticks.call.state, uid=world.uid)
    is_new = ticks.install(chosen, every_s=every)
    said = "Installed" if is_new else "Nothing to change: it is installed already"
    write_out(world, f"{said} ({chosen}), every {every} s.\n")
    write_out(world, f"What ticks say goes to {ticks.call.log}.\n")
    if chosen is Kind.SYSTEMD:
        write_out(world, "To tick while you are logged out: `loginctl enable-linger`\n")


def remove(
    ctx: typer.Context, *, kind: Which = None, config: options.Config = None
) -> None:
    """Take the entry out again; without --kind from wherever it is."""
    world: World = ctx.obj
    ticks = _ticks(world, config)
    kinds = (kind,) if kind else ticks.kinds_here()
    if not kinds:
        raise CronUnavailableError(
            "no program is on the PATH that keeps ticks; nothing was removed. Call it "
            "on the host where they were installed."
        )
    for one in kinds:
        if ticks.remove(one):
            write_out(world, f"Removed ({one}).\n")
        else:
            write_out(world, f"No entry to remove ({one}).\n")


def _ticks(world: World, config: Path | None) -> "Ticks":
    # Imported here, so that help and completion stay quick.
    from freetrain.config.site import Surroundings, find_site  # noqa: PLC0415
    from freetrain.cron.install import ticks_of  # noqa: PLC0415
    from freetrain.cron.tables import RealPrograms  # noqa: PLC0415

    around = Surroundings(world.environ, world.folder, world.uid)
    return ticks_of(
        find_site(around, asked=config),
        python=Path(sys.executable),
        environ=world.environ,
        uid=world.uid,
        programs=RealPrograms(world.environ),
    )
