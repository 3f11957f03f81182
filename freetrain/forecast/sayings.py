"""What was foretold of clusters, held against what came once it is due."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from freetrain.forecast.calibration import Calibration
from freetrain.forecast.kept import amount, members, share, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

CHECKED_S = 600.0
"""Survival over this long is checked against what came, and corrected."""

_CHECK_EVERY_S = 300.0

_ROUNDED_S = 1e-3
"""Times of today as seconds since 1970 are rounded to less than that."""


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """A survival that was foretold, to be checked when it is due.

    Attributes:
        due_s: When it shows what came.
        survival: What was foretold.
        nodes: Of how many nodes.
        left: Those of them that did not leave since; others may have joined them.
    """

    due_s: float
    survival: float
    nodes: int
    left: set[int]


class Sayings:
    """Foretells every 300 s, and learns by what came how to correct what is told.

    Args:
        state: What ``to_state`` gave, with ``now_s``, when it was told last, and more
            besides; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = state or {"calibration": None, "said": (), "check_s": 0.0}
        self._calibration = Calibration(kept["calibration"])
        self._said: deque[_Said] = deque()
        self._of: dict[int, list[_Said]] = {}
        self._check_s = amount(kept["check_s"])
        for row in kept["said"]:
            self._add(_said_from(row))
        if state is not None:
            self._check_times(amount(state["now_s"]))

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "calibration": self._calibration.to_state(),
            "said": [
                [said.due_s, said.survival, said.nodes, sorted(said.left)]
                for said in self._said
            ],
            "check_s": self._check_s,
        }

    def settle(self, now_s: float) -> None:
        """Hold what is due against how many of its nodes are left."""
        while self._said and self._said[0].due_s <= now_s:
            said = self._said.popleft()
            for node in said.left:
                self._of[node].remove(said)
            self._calibration.learn(said.survival, came=len(said.left), of=said.nodes)

    def lose(self, left: Iterable[int]) -> None:
        """Take note that nodes leave."""
        for node in left:
            for said in self._of.pop(node, ()):
                said.left.remove(node)

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to foretell once more."""
        return now_s >= self._check_s

    def say(
        self, now_s: float, survivals: Iterable[tuple[Collection[int], float]]
    ) -> None:
        """Foretell over ``CHECKED_S``: nodes of each cluster, and their survival."""
        self._check_s = now_s + _CHECK_EVERY_S
        due_s = now_s + CHECKED_S
        for nodes, survival in survivals:
            self._add(_Said(due_s, survival, len(nodes), set(nodes)))

    def corrected(self, survival: float) -> float:
        """Return what such survivals came to so far, 0 to 1."""
        return self._calibration.of(survival)

    def forget_pool(self) -> None:
        """Forget what was foretold, and nothing that was learned."""
        self._said.clear()
        self._of.clear()
        self._check_s = 0.0

    def _check_times(self, now_s: float) -> None:
        """Refuse what would not be settled, or not foretold, for longer than ever."""
        due_s = [said.due_s for said in self._said]
        if due_s != sorted(due_s) or (
            due_s and due_s[-1] > now_s + CHECKED_S + _ROUNDED_S
        ):
            raise ValueError(f"foretold for {due_s}, at {now_s}")
        if self._check_s > now_s + _CHECK_EVERY_S + _ROUNDED_S:
            raise ValueError(f"nothing is foretold until {self._check_s}, at {now_s}")

    def _add(self, said: _Said) -> None:
        self._said.append(said)
        for node in said.left:
            self._of.setdefault(node, []).append(said)


def _said_from(row: Any) -> _Said:  # noqa: ANN401 - JSON
    """Return what was kept of one that is not due; raises as ``Sayings``."""
    due_s, survival, nodes, left = row
    said = _Said(amount(due_s), share(survival), whole(nodes), members(left))
    if not len(said.left) <= said.nodes or not said.nodes:
        raise ValueError(f"foretold of {nodes} nodes, of whom {left} are left")
    return said
