"""How long a forecaster learns before plans go by it, and what is said until then."""

from __future__ import annotations

import math

from freetrain.forecast.interface import Prospect


class ColdStart:
    """Counts from the first event on.

    Args:
        lasts_s: Seconds; 0 for no time.
    """

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self.until_s = math.inf if lasts_s else -math.inf
        """When it is over; never before the first event."""

    def see(self, now_s: float) -> None:
        """Take note of an event."""
        if self.until_s == math.inf:
            self.until_s = now_s + self._lasts_s


def lasting(horizon_s: float) -> Prospect:
    """Return what is expected of nodes that stay until *horizon_s*."""
    return Prospect(horizon_s, 0.0, 1.0)
