"""``--forecaster``: who says how long nodes stay.

No ``from __future__ import annotations`` here: Typer reads the annotations while the
program runs. Reading numpy for ``freetrain -h`` would make it wait, so that forecasters
are imported where they are needed.
"""

from typing import Annotated

import typer

from freetrain.errors import UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER


def _known(values: list[str] | None) -> list[str]:
    """Refuse a forecaster that does not exist; name each one once."""
    if not values:
        return []
    from freetrain.lookahead.registry import forecaster_named  # noqa: PLC0415

    try:
        for value in values:
            forecaster_named(value)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
    return list(dict.fromkeys(values))


def _complete(incomplete: str) -> list[str]:
    from freetrain.lookahead.registry import FORECASTERS  # noqa: PLC0415

    return [name for name in FORECASTERS if name.startswith(incomplete)]


ForecasterNames = Annotated[
    list[str] | None,
    typer.Option(
        "--forecaster",
        metavar="NAME",
        help="lookahead: who says how long nodes stay, such as life-table "
        "(docs/lookahead.md); repeat to compare.",
        show_default=DEFAULT_FORECASTER,
        callback=_known,
        autocompletion=_complete,
    ),
]
