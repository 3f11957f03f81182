"""An outlook for trainings whose values stopped being numbers early on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.quality.outlook import Better, Expected

if TYPE_CHECKING:
    from freetrain.quality.history import History
    from freetrain.quality.outlook import Point

FEWEST_BROKEN = 3
"""Values in a row that are no numbers; one may be a slip of the program's."""


@dataclass(frozen=True, slots=True)
class BrokenOutlook:
    """Nothing is expected of it; an ``Outlook``, without any usable value perhaps."""

    better: Better
    points: tuple[Point, ...]
    family: str = "none"
    is_diverging: bool = True

    def expected(self, samples: float) -> Expected:
        """Return that anything may come; the last usable value is as good a guess."""
        del samples
        last = self.points[-1].value if self.points else math.nan
        return Expected(last, -math.inf, math.inf)

    def quality(self, value: float) -> float:
        """Return 0: there is nothing to measure *value* by."""
        del value
        return 0.0

    def samples_to(self, value: float) -> float:
        """Return inf: no value is expected ever."""
        del value
        return math.inf


def broken_outlook(history: History, better: Better) -> BrokenOutlook | None:
    """Return the outlook of who told little but what is no number, None of others."""
    if history.broken < FEWEST_BROKEN:
        return None
    return BrokenOutlook(better, history.points)
