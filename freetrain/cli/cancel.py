"""``freetrain cancel``: stop a trainer for good."""

import typer

from freetrain.cli import options

EXAMPLES = """
freetrain cancel digits

freetrain cancel digits resnet --json
"""


def cancel(
    ctx: typer.Context,
    names: options.Names,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Stop trainers for good: each commits, and gives up its nodes."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.change_text import change_and_show  # noqa: PLC0415
    from freetrain.client.change import Verb  # noqa: PLC0415

    change_and_show(ctx.obj, Verb.CANCEL, names, as_json=as_json, config=config)
