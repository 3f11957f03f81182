"""``freetrain explain``: why a trainer has what it has, and why holes are empty."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_out

if TYPE_CHECKING:
    from freetrain.cli.world import World
    from freetrain.client.status import Curves
    from freetrain.state.files import StateDir

EXAMPLES = """
freetrain explain digits

freetrain explain

freetrain explain --json
"""
MOST_CHAPTERS = 12


def explain(
    ctx: typer.Context,
    trainer: Annotated[
        str | None,
        typer.Argument(metavar="[TRAINER]", help="Without it all, and every hole."),
    ] = None,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Say why trainers have the nodes they have, and what holes are used for."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.explain_record import explain_record  # noqa: PLC0415
    from freetrain.cli.explain_text import holes_part, trainer_part  # noqa: PLC0415
    from freetrain.cli.site import site_of  # noqa: PLC0415
    from freetrain.cli.watching import print_out  # noqa: PLC0415
    from freetrain.client.status import (  # noqa: PLC0415
        history,
        overview,
    )
    from freetrain.state.files import StateDir  # noqa: PLC0415

    world: World = ctx.obj
    state = StateDir(site_of(world, config).state_directory)
    now_s = world.now_s()
    seen = overview(state, name=trainer, uid=world.uid, now_s=now_s, ended=False)
    most = MOST_CHAPTERS if trainer is not None or as_json else 0
    chapters = {
        one.row.name: history(state.trainer(one.row.name), most=most)
        for one in seen.standings
    }
    is_asked = trainer is not None or as_json
    learned = _learned(state, trainer, uid=world.uid) if is_asked else {}
    if as_json:
        record = explain_record(seen, chapters, learned)
        write_out(world, json.dumps(record, allow_nan=False) + "\n")
        return
    for one in seen.standings:
        name = one.row.name
        print_out(world, trainer_part(one, seen, chapters[name], learned.get(name)))
    if trainer is None:
        print_out(world, holes_part(seen))


def _learned(
    state: "StateDir", trainer: str | None, *, uid: int
) -> "dict[str, Curves]":
    # Imported here: fits take longer than all the rest, and few ask for them.
    from freetrain.client.status import curves_of  # noqa: PLC0415

    return {one.name: one for one in curves_of(state, name=trainer, uid=uid)}
