"""What was foretold of clusters, held against what came once it is due."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from freetrain.forecast.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

CHECKED_S = 600.0
"""Survival over this long is checked against what came, and corrected."""

_CHECK_EVERY_S = 300.0


@dataclass(frozen=True, slots=True)
class _Said:
    """A survival that was foretold, to be checked when it is due."""

    due_s: float
    cluster: int
    nodes: int
    survival: float


class Sayings:
    """Foretells every 300 s, and learns by what came how to correct what is told.

    Args:
        state: What ``to_state`` gave, more besides; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = state or {"calibration": None, "said": (), "check_s": 0.0}
        self._calibration = Calibration(kept["calibration"])
        self._said = deque(_Said(*row) for row in kept["said"])
        self._check_s = float(kept["check_s"])

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "calibration": self._calibration.to_state(),
            "said": [
                [said.due_s, said.cluster, said.nodes, said.survival]
                for said in self._said
            ],
            "check_s": self._check_s,
        }

    def settle(self, now_s: float, left_of: Callable[[int], int]) -> None:
        """Hold what is due against how many nodes of each cluster are left."""
        while self._said and self._said[0].due_s <= now_s:
            said = self._said.popleft()
            came = left_of(said.cluster)
            self._calibration.learn(said.survival, came=came, of=said.nodes)

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to foretell once more."""
        return now_s >= self._check_s

    def say(self, now_s: float, survivals: Iterable[tuple[int, int, float]]) -> None:
        """Foretell over ``CHECKED_S``: clusters, their nodes and survivals."""
        self._check_s = now_s + _CHECK_EVERY_S
        due_s = now_s + CHECKED_S
        self._said.extend(_Said(due_s, *survival) for survival in survivals)

    def corrected(self, survival: float) -> float:
        """Return what such survivals came to so far, 0 to 1."""
        return self._calibration.of(survival)

    def forget_pool(self) -> None:
        """Forget what was foretold, and nothing that was learned."""
        self._said.clear()
        self._check_s = -math.inf
