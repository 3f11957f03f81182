"""Numbers that forecasters save: checked when they are read again, fading with age.

A saved text may be torn, or another forecaster's. Each part checks its numbers (finite,
whole where counted, shares up to 1), so that a spoilt state is refused and never used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 1e18
"""Above every saved count and time: a hundred thousand nodes have fewer seconds in a
hundred thousand years. Sums of such numbers stay finite."""

LEAST = 1e-9
"""Divisors are larger than this, so that quotients stay finite."""

_ROUNDED = 1.0 + 1e-9
"""Parts may exceed their whole by the rounding of sums."""


def amount(value: Any) -> float:  # noqa: ANN401 - JSON
    """Return *value*, a finite number of 0 or more.

    Raises:
        ValueError: It is none, or more than ``MOST``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")  # noqa: TRY004 - a torn text
    if not 0.0 <= value <= MOST:
        raise ValueError(f"{value} is none of the numbers of 0 or more that can be")
    return float(value)


def whole(value: Any) -> int:  # noqa: ANN401 - JSON
    """Return *value*, a whole number of 0 or more; raises as ``amount``."""
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")  # noqa: TRY004 - a torn text
    amount(value)
    return value


def members(values: Any) -> set[int]:  # noqa: ANN401 - JSON
    """Return *values*, the numbers of different nodes.

    Raises:
        ValueError: A node is named twice, or a number is no node's.
        TypeError: They are no list.
    """
    found = {whole(value) for value in values}
    if len(found) != len(values):
        raise ValueError(f"{values} name a node twice")
    return found


def share(value: Any) -> float:  # noqa: ANN401 - JSON
    """Return *value*, from 0 to 1; raises as ``amount``."""
    if amount(value) > 1.0:
        raise ValueError(f"{value} is more than all")
    return float(value)


def amounts(values: Any, count: int) -> list[float]:  # noqa: ANN401 - JSON
    """Return *values* as *count* of ``amount``.

    Raises:
        ValueError: They are not.
        TypeError: They are no list.
    """
    found = [amount(value) for value in values]
    if len(found) != count:
        raise ValueError(f"{found} are no {count} numbers of 0 or more")
    return found


def amounts_above_0(values: Any, count: int) -> list[float]:  # noqa: ANN401 - JSON
    """Return *values* as *count* numbers above ``LEAST``; raises as ``amounts``."""
    found = amounts(values, count)
    if min(found, default=LEAST) < LEAST:
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


def check_shares(parts: Sequence[float], of: Sequence[float]) -> None:
    """Refuse *parts* that are more than their wholes *of*, by place.

    Raises:
        ValueError: A part is.
    """
    if any(part > every * _ROUNDED for part, every in zip(parts, of, strict=True)):
        raise ValueError(f"{parts} are no parts of {of}")


def check_origin(state: Mapping[str, Any], *, version: int, forecaster: str) -> None:
    """Refuse a state of another version or another forecaster.

    Raises:
        ValueError: It is.
        KeyError: It names none.
    """
    if state["version"] != version:
        raise ValueError(f"version {state['version']}, expected {version}")
    if state["forecaster"] != forecaster:
        raise ValueError(f"of forecaster {state['forecaster']!r}, not {forecaster!r}")


# Forgetting: machines, and the ways they are used, change.


LASTS_S = 30 * 86_400.0
"""Counts keep their weight so long after the first; then they fade to a third in the
same time."""

_EVERY_S = 3_600.0
"""Fading goes by whole hours, as forecasters learn thousands of times a day."""


class Fading:
    """The share of counts that is kept as time goes by.

    Args:
        lived_s: Time counted before.

    Attributes:
        lived_s: Time counted in all.

    Raises:
        ValueError, TypeError: That is no time.
    """

    def __init__(self, lived_s: object = 0.0) -> None:
        self.lived_s = amount(lived_s)

    def keeps(self, before_s: float, now_s: float) -> float:
        """Return the share of counts to keep; below 1 only once an hour.

        Args:
            before_s: Time of the last call.
            now_s: The time; where the clock went back nothing is forgotten.
        """
        self.lived_s += max(0.0, now_s - before_s)
        hours = now_s // _EVERY_S - before_s // _EVERY_S
        if hours <= 0.0 or self.lived_s <= LASTS_S:
            return 1.0
        return math.exp(-hours * _EVERY_S / LASTS_S)


def faded(count: float, prior: float, keeps: float) -> float:
    """Return *count* with the share *keeps* of its distance from *prior*.

    Args:
        count: The prior, and all that was counted.
        prior: The count before anything was seen, which stays.
        keeps: The share that is kept of the rest.
    """
    return prior + keeps * (count - prior)
