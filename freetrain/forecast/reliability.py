"""How well survivals foretold agree with what came, while events go by."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.forecast.hazard import AGES_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from freetrain.forecast.interface import Forecaster, Prospect

HORIZON_S = 600.0
"""Survival over how long is asked for."""

EVERY_S = 300.0
"""How often all idle nodes are asked for, at the first event after that time."""

_BINS = 1000
"""Forecasts are kept by a thousandth, so that a year of them needs no more room."""


class Event(Protocol):
    """A moment at which nodes become idle or are taken; ``PoolEvent`` is one."""

    @property
    def time_s(self) -> float:
        """When, ascending in a sequence of events."""
        ...

    @property
    def joined(self) -> tuple[int, ...]:
        """Nodes that are idle from now on."""
        ...

    @property
    def left(self) -> tuple[int, ...]:
        """Nodes that were idle until now."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Some of all forecasts, and what came.

    Attributes:
        said: Mean probability of staying, 0 to 1.
        came: The share of nodes that stayed.
        count: How many forecasts these are.
    """

    said: float
    came: float
    count: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """What was said of nodes, and what came.

    Attributes:
        deciles: Ten equal parts by probability, ascending; none without forecasts.
        by_age: By the node's age when it was asked for: where the class of age
            begins, seconds, and its part. Classes without forecasts are left out.
    """

    deciles: tuple[Part, ...]
    by_age: tuple[tuple[float, Part], ...]

    @property
    def worst(self) -> float:
        """The largest difference of a decile, 0 to 1; 0 without forecasts."""
        return max([abs(one.came - one.said) for one in self.deciles], default=0.0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Survivals foretold at one moment.

    Attributes:
        due_s: When it shows what came.
        said: Probability and age by node.
        gone: Who left before that.
    """

    due_s: float
    said: dict[int, tuple[float, float]]
    gone: set[int] = field(default_factory=set)


class Watched:
    """A forecaster that is asked for all idle nodes again and again, and held to it.

    It answers as the one it watches does. What is not due yet is not counted.

    Args:
        forecaster: One that has seen nothing.
        horizon_s: Survival over how long is asked for.
        every_s: How often, at the first event after that time.
        from_s: When the asking begins.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        *,
        horizon_s: float = HORIZON_S,
        every_s: float = EVERY_S,
        from_s: float = 0.0,
    ) -> None:
        self._forecaster = forecaster
        self._horizon_s = horizon_s
        self._every_s = every_s
        self._ask_s = from_s
        self._since_s: dict[int, float] = {}
        self._open: deque[_Asked] = deque()
        self._told = np.zeros((_BINS, 3))
        self._by_age = np.zeros((len(AGES_S), 3))

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Show an event, settle what is due, and ask where it is time to."""
        while self._open and self._open[0].due_s <= now_s:
            self._settle(self._open.popleft())
        for asked in self._open:
            asked.gone.update(left)
        self._forecaster.see(now_s, joined=joined, left=left)
        for node in left:
            self._since_s.pop(node, None)
        self._since_s.update(dict.fromkeys(joined, now_s))
        if now_s >= self._ask_s:
            self._ask(now_s)

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node."""
        return self._forecaster.cluster(node)

    def members(self, cluster: int) -> Collection[int]:
        """Return the nodes of *cluster* that are still idle."""
        return self._forecaster.members(cluster)

    def prospect(self, cluster: int) -> Prospect:
        """Return what is expected of *cluster* until the forecaster's horizon."""
        return self._forecaster.prospect(cluster)

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        return self._forecaster.survival(node, horizon_s)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together."""
        return self._forecaster.affinity(nodes)

    def reliability(self) -> Reliability:
        """Return how what was said agrees with what came, so far."""
        ages = zip(AGES_S, self._by_age.tolist(), strict=True)
        return Reliability(
            deciles=tuple(_tenths(self._told)),
            by_age=tuple((age_s, _part(*sums)) for age_s, sums in ages if sums[2]),
        )

    def _ask(self, now_s: float) -> None:
        self._ask_s = now_s + self._every_s
        said = {
            node: (self._forecaster.survival(node, self._horizon_s), now_s - since_s)
            for node, since_s in self._since_s.items()
        }
        self._open.append(_Asked(now_s + self._horizon_s, said))

    def _settle(self, asked: _Asked) -> None:
        for node, (said, age_s) in asked.said.items():
            told = said, float(node not in asked.gone), 1.0
            self._told[min(int(said * _BINS), _BINS - 1)] += told
            self._by_age[bisect_right(AGES_S, age_s) - 1] += told


def watch(events: Iterable[Event], watched: Watched) -> Reliability:
    """Show *events* to *watched*, and return how reliable its forecasts were.

    Args:
        events: In order of time, the first with the nodes idle at the beginning; for
            example those of a ``PoolTimeline``.
        watched: Who learns from them and is asked. Nobody need plan by it.
    """
    for event in events:
        watched.see(event.time_s, joined=event.joined, left=event.left)
    return watched.reliability()


def _tenths(told: NDArray[np.float64]) -> list[Part]:
    """Split the sums by bin into ten equal parts; a bin may be split in proportion."""
    counts = told[:, 2]
    ends = np.cumsum(counts)
    if not ends[-1]:
        return []
    limits = np.linspace(0.0, ends[-1], 11)
    below = np.clip(limits[:, None] - (ends - counts), 0.0, counts)
    shares = np.diff(below, axis=0) / np.where(counts, counts, 1.0)
    return [_part(*sums) for sums in (shares @ told).tolist()]


def _part(said: float, came: float, count: float) -> Part:
    return Part(said / count, came / count, count)
