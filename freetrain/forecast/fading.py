"""How what was counted is forgotten: machines, and what is done with them, change.

Only while there is something to learn from: a broker that was away for months goes on
with what it knew.
"""

from __future__ import annotations

import math

from freetrain.forecast.kept import amount

LASTS_S = 30 * 86_400.0
"""All counts alike for so long; from then on it is worth a third after so long."""

_EVERY_S = 3_600.0
"""Fading goes by whole hours, as forecasters learn thousands of times a day."""


class Fading:
    """Tells what share of counts is kept as time goes by.

    Args:
        lived_s: For how long was counted before, seconds.

    Attributes:
        lived_s: For how long was counted in all, seconds.

    Raises:
        ValueError: This is no such time.
        TypeError: Likewise.
    """

    def __init__(self, lived_s: object = 0.0) -> None:
        self.lived_s = amount(lived_s)

    def keeps(self, before_s: float, now_s: float) -> float:
        """Return what is kept of what was counted; 1 but for the first time in an hour.

        Args:
            before_s: When it was asked last, seconds of the forecaster's clock.
            now_s: The time; where the clock went back nothing is forgotten.
        """
        self.lived_s += max(0.0, now_s - before_s)
        hours = now_s // _EVERY_S - before_s // _EVERY_S
        if hours <= 0.0 or self.lived_s <= LASTS_S:
            return 1.0
        return math.exp(-hours * _EVERY_S / LASTS_S)


def faded(count: float, said: float, keeps: float) -> float:
    """Return *count* with the share *keeps* of what is above, or below, *said*.

    Args:
        count: What was counted, and what was believed before that.
        said: The latter, which stays.
        keeps: What is kept of the former.
    """
    return said + keeps * (count - said)
