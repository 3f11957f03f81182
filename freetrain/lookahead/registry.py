"""Forecasters by name: each is one class in one module, and one line here.

Nothing is imported before it is asked for: NumPy takes 0.1 s, which commands and cheap
ticks are spared.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.text import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.lookahead.base import Maker

FORECASTERS: Mapping[str, str] = MappingProxyType(
    {
        "learned": "freetrain.lookahead.learned:LearnedForecaster",
        "life-table": "freetrain.lookahead.life_table:LifeTable",
    }
)
"""Module and class by the name that users give; the first is the default."""

DEFAULT_FORECASTER = next(iter(FORECASTERS))


def check_forecaster(name: str) -> None:
    """Refuse a forecaster that does not exist.

    Raises:
        UsageError: There is no forecaster called *name*.
    """
    if name not in FORECASTERS:
        raise UsageError(
            f"there is no forecaster {name!r}. Choose one of {', '.join(FORECASTERS)}."
            f"{closest(name, FORECASTERS)}"
        )


def forecaster_named(name: str) -> Maker:
    """Return the class of the forecaster called *name*.

    Raises:
        UsageError: There is no such forecaster.
    """
    check_forecaster(name)
    module, made = FORECASTERS[name].split(":")
    maker: Maker = getattr(import_module(module), made)
    return maker
