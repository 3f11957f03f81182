"""A moment at which planning has to have an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Deadline:
    """An end by a clock that comes in, so that planning itself knows none.

    Attributes:
        end_s: When *clock* will have reached it.
        clock: Seconds that only go up.
    """

    end_s: float
    clock: Callable[[], float]

    def left_s(self) -> float:
        """Return the seconds that are left; below 0 where it has passed."""
        return self.end_s - self.clock()

    def passed(self) -> bool:
        """Tell whether nothing is left."""
        return self.left_s() <= 0.0

    def share(self, part: float) -> Deadline:
        """Return an earlier end: *part* of what is left from now."""
        now_s = self.clock()
        return Deadline(now_s + part * max(0.0, self.end_s - now_s), self.clock)


def _no_time() -> float:
    return 0.0


NEVER = Deadline(math.inf, _no_time)
"""For callers with all the time there is."""
