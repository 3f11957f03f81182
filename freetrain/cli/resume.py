"""``freetrain resume``: let a trainer go on."""

import typer

from freetrain.cli import options

EXAMPLES = """
freetrain resume digits

freetrain resume digits resnet
"""


def resume(
    ctx: typer.Context,
    names: options.Names,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Let paused, cancelled or failed trainers go on from their last commits."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.change_text import change_and_show  # noqa: PLC0415
    from freetrain.client.change import Verb  # noqa: PLC0415

    change_and_show(ctx.obj, Verb.RESUME, names, as_json=as_json, config=config)
