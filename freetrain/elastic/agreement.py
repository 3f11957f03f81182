"""How ranks agree, at a step boundary, to stop or to commit: one small allreduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.elastic.stop import Stop

if TYPE_CHECKING:
    from freetrain.elastic.clock import Clock
    from freetrain.elastic.world import World

# A stop waits at most this long for the next agreement, as long as steps take what
# they took.
_WITHIN_S = 0.05
# Bounds the wait where steps suddenly take longer than they took.
_MOST_STEPS = 64
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all ranks will do now.

    Attributes:
        stop: Whether to stop, and why.
        commit: Whether to commit.
    """

    stop: Stop
    commit: bool


class Agreement:
    """Lets the ranks agree every so many steps, the same number on all of them.

    The number follows from the slowest rank's step time, which travels in the same
    allreduce, so that tiny steps do not pay for agreeing.
    """

    def __init__(self, world: World, clock: Clock) -> None:
        self._world = world
        self._clock = clock
        self._interval = 1
        self._left = 1
        self._since_s = clock.elapsed_s()

    def is_due(self) -> bool:
        """Count a step; tell whether the ranks agree after it."""
        self._left -= 1
        return self._left <= 0

    def agree(self, stop: Stop, *, commit: bool) -> Agreed:
        """Agree with every rank; collective.

        Args:
            stop: What this rank wants; the largest of all ranks' is done.
            commit: Whether this rank wants a commit; one is enough.
        """
        now_s = self._clock.elapsed_s()
        step_ns = int((now_s - self._since_s) / self._interval * _NS)
        mine = np.array([stop, commit, step_ns], dtype=np.int64)
        stop_code, commit_code, slowest_ns = map(int, self._world.maxima(mine))
        fitting = int(_WITHIN_S * _NS) // max(slowest_ns, 1)
        self._interval = self._left = min(max(fitting, 1), _MOST_STEPS)
        self._since_s = self._clock.elapsed_s()
        return Agreed(Stop(stop_code), bool(commit_code))
