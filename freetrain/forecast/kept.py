"""Checks of what was kept: what is read again may be torn, or another's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def amounts(values: Any, count: int) -> list[float]:  # noqa: ANN401 - JSON
    """Return *values* as *count* finite numbers of 0 or more.

    Raises:
        ValueError: They are not.
        TypeError: They are no numbers.
    """
    found = [float(value) for value in values]
    if len(found) != count or not all(0.0 <= value < math.inf for value in found):
        raise ValueError(f"{found} are no {count} numbers of 0 or more")
    return found


def check_origin(state: Mapping[str, Any], *, version: int, forecaster: str) -> None:
    """Refuse what another version kept, or another forecaster learned.

    Raises:
        ValueError: It did.
        KeyError: It does not say who did.
    """
    if state["version"] != version:
        raise ValueError(f"version {state['version']}, expected {version}")
    if state["forecaster"] != forecaster:
        raise ValueError(f"of forecaster {state['forecaster']!r}, not {forecaster!r}")


def amounts_above_0(values: Any, count: int) -> list[float]:  # noqa: ANN401 - JSON
    """Return *values* as *count* finite numbers above 0; raises as ``amounts``."""
    found = amounts(values, count)
    if not all(found):
        raise ValueError(f"{found} are not all above 0")
    return found


def table(
    rows: Any,  # noqa: ANN401 - JSON
    count: int,
    width: int,
) -> list[list[float]]:
    """Return *rows* as *count* rows of ``amounts``; raises as that does."""
    found = [amounts(row, width) for row in rows]
    if len(found) != count:
        raise ValueError(f"{len(found)} rows, expected {count}")
    return found
