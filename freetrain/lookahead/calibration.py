"""Correcting survival probabilities by the outcomes of earlier ones.

:class:`PendingForecasts` records survivals of all clusters every 300 s and scores them
when they are due; :class:`Calibration` is the map that it learns from the scores.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from freetrain.lookahead.counts import (
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    members,
    share,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

CHECKED_S = 600.0
"""Survival over this long is scored, and corrected by the scores."""

_CHECK_EVERY_S = 300.0

_ROUNDED_S = 1e-3
"""Rounding of today's Unix times is less than that."""


@dataclass(frozen=True, slots=True, eq=False)
class _PendingForecast:
    """The survival forecast of a cluster, to be scored when it is due.

    Attributes:
        due_s: When it is scored.
        survival: The forecast.
        nodes: How many nodes it is of.
        left: Those of them that did not leave since; others may have joined the
            cluster.
    """

    due_s: float
    survival: float
    nodes: int
    left: set[int]


class PendingForecasts:
    """Survival forecasts that are not due yet; those due teach how to correct others.

    Args:
        state: From ``to_state``, with ``now_s``, the time of the last event; None to
            begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = state or {"calibration": None, "said": (), "check_s": 0.0}
        self._calibration = Calibration(kept["calibration"])
        self._said: deque[_PendingForecast] = deque()
        self._of: dict[int, list[_PendingForecast]] = {}
        self._check_s = amount(kept["check_s"])
        for row in kept["said"]:
            self._add(_pending_from(row))
        if state is not None:
            self._check_times(amount(state["now_s"]))

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "calibration": self._calibration.to_state(),
            "said": [
                [said.due_s, said.survival, said.nodes, sorted(said.left)]
                for said in self._said
            ],
            "check_s": self._check_s,
        }

    def settle(self, now_s: float) -> None:
        """Score the forecasts that are due by how many of their nodes are left."""
        while self._said and self._said[0].due_s <= now_s:
            said = self._said.popleft()
            for node in said.left:
                self._of[node].remove(said)
            self._calibration.learn(said.survival, came=len(said.left), of=said.nodes)

    def lose(self, left: Iterable[int]) -> None:
        """Remove nodes that leave."""
        for node in left:
            for said in self._of.pop(node, ()):
                said.left.remove(node)

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time for another round of forecasts."""
        return now_s >= self._check_s

    def add_round(
        self, now_s: float, survivals: Iterable[tuple[Collection[int], float]]
    ) -> None:
        """Record the survival over ``CHECKED_S`` of each cluster's nodes."""
        self._check_s = now_s + _CHECK_EVERY_S
        due_s = now_s + CHECKED_S
        for nodes, survival in survivals:
            self._add(_PendingForecast(due_s, survival, len(nodes), set(nodes)))

    def corrected(self, survival: float) -> float:
        """Return *survival* corrected by the scores so far, 0 to 1."""
        return self._calibration.of(survival)

    def forget_pool(self) -> None:
        """Forget the pending forecasts, but nothing that was learned."""
        self._said.clear()
        self._of.clear()
        self._check_s = 0.0

    def _check_times(self, now_s: float) -> None:
        """Refuse times so late that nothing would be scored or recorded for long."""
        due_s = [said.due_s for said in self._said]
        if due_s != sorted(due_s) or (
            due_s and due_s[-1] > now_s + CHECKED_S + _ROUNDED_S
        ):
            raise ValueError(f"forecasts due at {due_s}, at {now_s}")
        if self._check_s > now_s + _CHECK_EVERY_S + _ROUNDED_S:
            raise ValueError(f"no forecast until {self._check_s}, at {now_s}")

    def _add(self, said: _PendingForecast) -> None:
        self._said.append(said)
        for node in said.left:
            self._of.setdefault(node, []).append(said)


def _pending_from(row: Any) -> _PendingForecast:  # noqa: ANN401 - JSON
    """Return a saved forecast; raises as ``PendingForecasts``."""
    due_s, survival, nodes, left = row
    said = _PendingForecast(amount(due_s), share(survival), whole(nodes), members(left))
    if not len(said.left) <= said.nodes or not said.nodes:
        raise ValueError(f"a forecast of {nodes} nodes, of which {left} are left")
    return said


_MOST, _STEP = 7.0, 0.5

_ODDS = tuple(-_MOST + _STEP * place for place in range(29))
"""Log-odds of the knots. Many forecasts are near 0, where nodes stand at the end
of a line that leaves first, or near 1, where machines are nearly empty: there a step of
probability, however fine, holds what fares quite differently."""

_KNOTS = tuple(1.0 / (1.0 + math.exp(-odds)) for odds in _ODDS)

_PRIOR = 50.0
"""Weight of the prior that forecasts come true, at every knot."""

_KEPT = 0.9999
"""Share of all lessons kept at each lesson: half is forgotten after 6,931 of them, two
days of the first 1,024 nodes of Summit, as machines change their ways."""

_MOST_FRESH = 1e6

_LEAST = 1.0
"""A knot never counts less, so that one unused for months stays a number."""


class Calibration:
    """A map from forecast probabilities to observed frequencies; never falling.

    It goes through 0 and 1, and straight between the means of its knots, so that a
    survival that falls with its horizon falls still.

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._said = [_PRIOR * knot for knot in _KNOTS]
        self._came = list(self._said)
        self._count = [_PRIOR] * len(_KNOTS)
        # Lessons weigh more and more, instead of earlier ones less and less.
        self._fresh = 1.0
        self._curve: tuple[list[float], list[float]] | None = None
        if state is not None:
            self._said = amounts(state["said"], len(_KNOTS))
            self._came = amounts(state["came"], len(_KNOTS))
            self._count = amounts_above_0(state["count"], len(_KNOTS))
            (self._fresh,) = amounts_above_0([state["fresh"]], 1)
            check_shares(self._said, self._count)
            check_shares(self._came, self._count)

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        sums = {"said": self._said, "came": self._came, "count": self._count}
        return {name: list(values) for name, values in sums.items()} | {
            "fresh": self._fresh
        }

    def learn(self, said: float, *, came: int, of: int) -> None:
        """Learn that *came* of *of* nodes stayed, each forecast at *said*.

        Nodes of a cluster fare alike, so they weigh less than as many independent
        ones: the root of their number. The knots on both sides learn, the nearer more.
        """
        self._fresh /= _KEPT
        place, beyond = _between(said)
        weight = self._fresh * math.sqrt(of)
        self._add(place, weight * (1.0 - beyond), said, came / of)
        self._add(place + 1, weight * beyond, said, came / of)
        self._curve = None
        if self._fresh > _MOST_FRESH:
            self._scale_down()

    def of(self, said: float) -> float:
        """Return the corrected probability of a forecast of *said*."""
        if self._curve is None:
            self._curve = self._corners()
        xs, ys = self._curve
        right = min(bisect_right(xs, said), len(xs) - 1)
        left = right - 1
        weight = (said - xs[left]) / (xs[right] - xs[left])
        return min(1.0, max(0.0, ys[left] + weight * (ys[right] - ys[left])))

    def _add(self, place: int, weight: float, said: float, came: float) -> None:
        self._said[place] += said * weight
        self._came[place] += came * weight
        self._count[place] += weight

    def _scale_down(self) -> None:
        """Let the next lesson weigh 1 again, before numbers grow too large."""
        for place, count in enumerate(self._count):
            scale = max(count / self._fresh, _LEAST) / count
            for sums in (self._said, self._came, self._count):
                sums[place] *= scale
        self._fresh = 1.0

    def _corners(self) -> tuple[list[float], list[float]]:
        """Pool adjacent knots until they ascend (isotonic regression)."""
        pools: list[tuple[float, float, float]] = []
        for pool in zip(self._said, self._came, self._count, strict=True):
            merged = pool
            while pools and pools[-1][1] / pools[-1][2] >= merged[1] / merged[2]:
                last = pools.pop()
                said, came, count = (a + b for a, b in zip(last, merged, strict=True))
                merged = said, came, count
            pools.append(merged)
        xs = [0.0, *(said / count for said, _, count in pools), 1.0]
        ys = [0.0, *(came / count for _, came, count in pools), 1.0]
        kept = [0, *(b for a, b in pairwise(range(len(xs))) if xs[b] > xs[a])]
        return [xs[k] for k in kept], [ys[k] for k in kept]


def _between(said: float) -> tuple[int, float]:
    """Return the knot below *said*, and how far it is from there to the next, 0 to 1.

    A value below the first knot or above the last counts as that one.
    """
    if said <= _KNOTS[0]:
        return 0, 0.0
    if said >= _KNOTS[-1]:
        return len(_KNOTS) - 2, 1.0
    steps = (math.log(said / (1.0 - said)) + _MOST) / _STEP
    place = min(int(steps), len(_KNOTS) - 2)
    return place, steps - place
