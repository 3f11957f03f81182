"""``freetrain pause``: take a trainer off its nodes."""

import typer

from freetrain.cli import options

EXAMPLES = """
freetrain pause digits

freetrain pause digits resnet
"""


def pause(
    ctx: typer.Context,
    names: options.Names,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Take trainers off their nodes until they are resumed; each commits first."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.change_text import change_and_show  # noqa: PLC0415
    from freetrain.client.change import Verb  # noqa: PLC0415

    change_and_show(ctx.obj, Verb.PAUSE, names, as_json=as_json, config=config)
