"""How well survival forecasts agree with outcomes, measured while a replay goes on.

:class:`ScoredForecaster` asks a forecaster for all idle nodes again and again, and
:class:`ForecastScores` counts forecasts against outcomes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from freetrain.lookahead.affinity_map import affinity_map
from freetrain.lookahead.hazard import AGES_S

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from freetrain.lookahead.affinity_map import AffinityMap
    from freetrain.lookahead.base import Prospect, Prospects
    from freetrain.lookahead.promises import DelayInterval

HORIZON_S = 600.0
"""Horizon of the survival forecasts."""

EVERY_S = 300.0
"""How often forecasts of all idle nodes are recorded, at the first event after that."""


@runtime_checkable
class KnowsPromises(Protocol):
    """A forecaster that also learns from promised ends of idle nodes."""

    def intervals(self) -> tuple[DelayInterval, ...]:
        """Return delays against promises so far, by lead."""
        ...


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """The forecasts of a replay, scored; its fields are keys of published JSON.

    Attributes:
        horizon_s: Of the survival forecasts.
        every_s: How often they were recorded at most.
        reliability: Forecasts against outcomes.
        affinity: Which nodes leave together; None where fewer than two ever left.
        promises: Delays against promises, by lead; empty without promises.
    """

    horizon_s: float
    every_s: float
    reliability: Reliability
    affinity: AffinityMap | None
    promises: tuple[DelayInterval, ...] = ()


class ScoredForecaster:
    """A forecaster whose survival forecasts are recorded and scored as events go by.

    It answers as the wrapped forecaster does. Nodes of one cluster and age share one
    forecast. Forecasts that are not due yet do not count.

    Args:
        forecaster: The wrapped forecaster, which has seen nothing.
        horizon_s: Of the survival forecasts.
        every_s: How often they are recorded, at the first event after that time.
        from_s: When that begins.
        answers: Counts them, where more than the sums is wanted.
    """

    def __init__(
        self,
        forecaster: Prospects,
        *,
        horizon_s: float = HORIZON_S,
        every_s: float = EVERY_S,
        from_s: float = 0.0,
        answers: ForecastScores | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._horizon_s = horizon_s
        self._every_s = every_s
        self._ask_s = from_s
        self._since_s: dict[int, float] = {}
        self._open: deque[_Round] = deque()
        self._answers = ForecastScores() if answers is None else answers
        self._left: Counter[int] = Counter()

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by it."""
        return self._forecaster.is_learning

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Score forecasts that are due, pass the event on, and record new ones."""
        while self._open and self._open[0].due_s <= now_s:
            self._settle(self._open.popleft())
        self._part(left)
        self._forecaster.see(now_s, joined=joined, left=left)
        self._since_s.update(dict.fromkeys(joined, now_s))
        if now_s >= self._ask_s:
            self._ask(now_s)

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node."""
        return self._forecaster.cluster(node)

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of *cluster* that are still idle."""
        return self._forecaster.members(cluster)

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of *cluster* until the forecaster's horizon."""
        return self._forecaster.prospect(cluster)

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        return self._forecaster.survival(node, horizon_s)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together."""
        return self._forecaster.affinity(nodes)

    def reliability(self) -> Reliability:
        """Return forecasts against outcomes so far."""
        return self._answers.reliability

    def record(self, names: Sequence[str]) -> ForecastRecord:
        """Return the scored forecasts so far; *names* are those of nodes, by number."""
        forecaster = self._forecaster
        return ForecastRecord(
            horizon_s=self._horizon_s,
            every_s=self._every_s,
            reliability=self.reliability(),
            affinity=affinity_map(forecaster.affinity, self._left, names),
            promises=forecaster.intervals()
            if isinstance(forecaster, KnowsPromises)
            else (),
        )

    def _part(self, left: Collection[int]) -> None:
        """Count losses with the pending forecasts of the nodes."""
        self._left.update(left)
        lost: set[_Asked] = set()
        for pending in self._open:
            by_node = pending.by_node
            hit = [by_node.pop(node) for node in left if node in by_node]
            for asked in hit:
                asked.gone += 1
            lost = set(hit)
        for asked in lost:
            asked.departures += 1
        for node in left:
            self._since_s.pop(node, None)

    def _settle(self, due: _Round) -> None:
        for asked in due.asked:
            self._answers.add(
                asked.said,
                nodes=asked.nodes,
                age_s=asked.age_s,
                stayed=asked.nodes - asked.gone,
                departures=asked.departures,
            )

    def _ask(self, now_s: float) -> None:
        self._ask_s = now_s + self._every_s
        groups: dict[tuple[int, float], _Asked] = {}
        by_node: dict[int, _Asked] = {}
        for node, since_s in self._since_s.items():
            group = self._forecaster.cluster(node), since_s
            if group not in groups:
                said = self._forecaster.survival(node, self._horizon_s)
                groups[group] = _Asked(said, now_s - since_s)
            groups[group].nodes += 1
            by_node[node] = groups[group]
        due_s = now_s + self._horizon_s
        self._open.append(_Round(due_s, tuple(groups.values()), by_node))


@dataclass(slots=True, eq=False)
class _Asked:
    """The survival forecast of the nodes of one cluster and age.

    Attributes:
        said: The probability.
        age_s: How long they had been idle.
        nodes: How many they were.
        gone: How many have left since.
        departures: Losses that count with this forecast.
    """

    said: float
    age_s: float
    nodes: int = 0
    gone: int = 0
    departures: int = 0


@dataclass(frozen=True, slots=True)
class _Round:
    """The forecasts of one moment.

    Attributes:
        due_s: When they are scored.
        asked: All of them.
        by_node: The same by node, of nodes that have not left since.
    """

    due_s: float
    asked: tuple[_Asked, ...]
    by_node: dict[int, _Asked]


NODES_LEFT = (1, 2, 5, 17)
"""Where classes of clusters begin, in nodes that are left."""

_BINS = 1000
"""Forecasts are kept by a thousandth, so that a year of them needs no more room."""


@dataclass(frozen=True, slots=True)
class ScorePart:
    """Some of all forecasts against outcomes; its fields are keys of published JSON.

    Attributes:
        said: Mean probability of staying, 0 to 1.
        came: The share of nodes that stayed.
        count: How many forecasts these are, one a node and time.
        departures: Losses behind what came: an event that takes nodes of one cluster
            is one, and counts with the last forecast before it. Nodes of a cluster
            fare alike, so that these tell more of the certainty than the count.
    """

    said: float
    came: float
    count: float
    departures: float


@dataclass(frozen=True, slots=True)
class AgePart:
    """The forecasts of clusters of an age and a size.

    Attributes:
        from_s: Least age when they were made, seconds.
        to_s: Where the next class of age begins; None for the last.
        from_nodes: Least nodes that they had left.
        to_nodes: Most nodes; None for the last class.
        part: Forecasts against outcomes.
    """

    from_s: float
    to_s: float | None
    from_nodes: int
    to_nodes: int | None
    part: ScorePart


@dataclass(frozen=True, slots=True)
class Reliability:
    """Forecasts against outcomes.

    Attributes:
        deciles: Ten equal parts by probability, ascending; none without forecasts.
        by_age: By nodes left, then age; classes without forecasts are left out.
    """

    deciles: tuple[ScorePart, ...]
    by_age: tuple[AgePart, ...]

    @property
    def worst(self) -> float:
        """The largest difference of a decile, 0 to 1; 0 without forecasts."""
        return max([abs(part.came - part.said) for part in self.deciles], default=0.0)


class ForecastScores:
    """Counts forecasts by probability, and by age and nodes left."""

    def __init__(self) -> None:
        self._by_probability = np.zeros((_BINS, 4))
        self._by_age = np.zeros((len(NODES_LEFT), len(AGES_S), 4))

    def add(
        self, said: float, *, nodes: int, age_s: float, stayed: int, departures: int
    ) -> None:
        """Count the forecast of the nodes of one cluster.

        Args:
            said: Probability that each of them stays, 0 to 1.
            nodes: How many they were, 1 or more.
            age_s: How long they had been idle.
            stayed: How many stayed.
            departures: Losses that count with this forecast.
        """
        sums = said * nodes, stayed, nodes, departures
        self._by_probability[min(int(said * _BINS), _BINS - 1)] += sums
        size = bisect_right(NODES_LEFT, nodes) - 1
        self._by_age[size, bisect_right(AGES_S, age_s) - 1] += sums

    @property
    def reliability(self) -> Reliability:
        """Forecasts against outcomes so far."""
        places = product(range(len(NODES_LEFT)), range(len(AGES_S)))
        ages = (_age_part(self._by_age[place], *place) for place in places)
        return Reliability(
            deciles=tuple(_part(sums) for sums in _tenths(self._by_probability)),
            by_age=tuple(part for part in ages if part is not None),
        )


def _tenths(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Split the sums by bin into ten equal parts; a bin may be split in proportion."""
    counts = sums[:, 2]
    ends = np.cumsum(counts)
    if not ends[-1]:
        return sums[:0]
    limits = np.linspace(0.0, ends[-1], 11)
    below = np.clip(limits[:, None] - (ends - counts), 0.0, counts)
    shares = np.diff(below, axis=0) / np.where(counts, counts, 1.0)
    return np.asarray(shares @ sums)


def _age_part(sums: NDArray[np.float64], size: int, age: int) -> AgePart | None:
    if not sums[2]:
        return None
    oldest, largest = age + 1 == len(AGES_S), size + 1 == len(NODES_LEFT)
    return AgePart(
        from_s=AGES_S[age],
        to_s=None if oldest else AGES_S[age + 1],
        from_nodes=NODES_LEFT[size],
        to_nodes=None if largest else NODES_LEFT[size + 1] - 1,
        part=_part(sums),
    )


def _part(sums: NDArray[np.float64]) -> ScorePart:
    said, came, count, departures = sums.tolist()
    return ScorePart(said / count, came / count, count, departures)
