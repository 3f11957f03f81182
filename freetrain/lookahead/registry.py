"""Every forecaster by the name that users call it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.life_table import LifeTable
from freetrain.text import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.lookahead.base import Maker


# ----------------------------------------------------------------------
# Every forecaster by the name that users call it.

FORECASTERS: Mapping[str, Maker] = MappingProxyType(
    {
        "learned": LearnedForecaster,
        "life-table": LifeTable,
    }
)
"""How each forecaster is made. To try another, name it here: that is all there is."""


def forecaster_named(name: str) -> Maker:
    """Return what makes the forecaster called *name*.

    Raises:
        UsageError: There is no such forecaster.
    """
    if name not in FORECASTERS:
        raise UsageError(
            f"there is no forecaster {name!r}. Choose one of {', '.join(FORECASTERS)}."
            f"{closest(name, FORECASTERS)}"
        )
    return FORECASTERS[name]
