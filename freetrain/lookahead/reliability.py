"""How well survival forecasts agree with outcomes, measured while a replay goes on.

:class:`ScoredForecaster` asks a forecaster for all idle nodes again and again,
:class:`ForecastScores` counts the forecasts against outcomes, and ``affinity_map``
shows which nodes leave together, small enough for a page of a report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np

from freetrain.lookahead.learned import AGES_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from freetrain.lookahead.base import Cohort, Prospect, Prospects
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
        deciles: Forecasts against outcomes: ten equal parts by probability, ascending;
            none without forecasts.
        by_age: The same by nodes left, then age; classes without forecasts are left
            out.
        affinity: Which nodes leave together; None where fewer than two ever left.
        promises: Delays against promises, by lead; empty without promises.
    """

    horizon_s: float
    every_s: float
    deciles: tuple[ScorePart, ...]
    by_age: tuple[AgePart, ...]
    affinity: AffinityMap | None
    promises: tuple[DelayInterval, ...] = ()

    @property
    def worst(self) -> float:
        """The largest difference of a decile, 0 to 1; 0 without forecasts."""
        return max([abs(part.came - part.said) for part in self.deciles], default=0.0)


class ScoredForecaster:
    """A forecaster whose survival forecasts are recorded and scored as events go by.

    It answers as the wrapped forecaster does. Nodes of one cluster and age share one
    forecast. Forecasts that are not due yet do not count.

    Args:
        forecaster: The wrapped forecaster, which has seen nothing.
        horizon_s: Of the survival forecasts.
        every_s: How often they are recorded, at the first event after that time.
        from_s: When that begins.
        scores: Counts them, where more than the sums is wanted.
    """

    def __init__(
        self,
        forecaster: Prospects,
        *,
        horizon_s: float = HORIZON_S,
        every_s: float = EVERY_S,
        from_s: float = 0.0,
        scores: ForecastScores | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._horizon_s = horizon_s
        self._every_s = every_s
        self._record_s = from_s
        self._since_s: dict[int, float] = {}
        self._pending: deque[_Round] = deque()
        self._scores = ForecastScores() if scores is None else scores
        self._left: Counter[int] = Counter()

    @property
    def is_learning(self) -> bool:
        """Whether the wrapped forecaster has seen too little for plans."""
        return self._forecaster.is_learning

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Score forecasts that are due, pass the event on, and record new ones."""
        while self._pending and self._pending[0][0] <= now_s:
            _, groups, _ = self._pending.popleft()
            self._score(groups)
        self._part(left)
        self._forecaster.see(now_s, joined=joined, left=left)
        self._since_s.update(dict.fromkeys(joined, now_s))
        if now_s >= self._record_s:
            self._record(now_s)

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node."""
        return self._forecaster.cluster(node)

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of *cluster* that are still idle."""
        return self._forecaster.members(cluster)

    def cohorts(self) -> Collection[Cohort]:
        """Return all clusters by cohort."""
        return self._forecaster.cohorts()

    def cohort(self, cluster: int) -> Cohort:
        """Return the cohort of *cluster*."""
        return self._forecaster.cohort(cluster)

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of *cluster* until the forecaster's horizon."""
        return self._forecaster.prospect(cluster)

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        return self._forecaster.survival(node, horizon_s)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together."""
        return self._forecaster.affinity(nodes)

    def record(self, names: Sequence[str]) -> ForecastRecord:
        """Return the scored forecasts so far; *names* are those of nodes, by number."""
        forecaster = self._forecaster
        return ForecastRecord(
            horizon_s=self._horizon_s,
            every_s=self._every_s,
            deciles=self._scores.deciles,
            by_age=self._scores.by_age,
            affinity=affinity_map(forecaster.affinity, self._left, names),
            promises=forecaster.intervals()
            if isinstance(forecaster, KnowsPromises)
            else (),
        )

    def _part(self, left: Collection[int]) -> None:
        """Count losses with the pending forecasts of the nodes."""
        self._left.update(left)
        lost: set[_GroupForecast] = set()
        for _, _, by_node in self._pending:
            hit = [by_node.pop(node) for node in left if node in by_node]
            for group in hit:
                group.gone += 1
            lost = set(hit)
        for group in lost:
            group.departures += 1
        for node in left:
            self._since_s.pop(node, None)

    def _score(self, groups: Sequence[_GroupForecast]) -> None:
        for group in groups:
            self._scores.add(
                group.survival,
                nodes=group.nodes,
                age_s=group.age_s,
                stayed=group.nodes - group.gone,
                departures=group.departures,
            )

    def _record(self, now_s: float) -> None:
        self._record_s = now_s + self._every_s
        groups: dict[tuple[int, float], _GroupForecast] = {}
        by_node: dict[int, _GroupForecast] = {}
        for node, since_s in self._since_s.items():
            key = self._forecaster.cluster(node), since_s
            if key not in groups:
                survival = self._forecaster.survival(node, self._horizon_s)
                groups[key] = _GroupForecast(survival, now_s - since_s)
            groups[key].nodes += 1
            by_node[node] = groups[key]
        due_s = now_s + self._horizon_s
        self._pending.append((due_s, tuple(groups.values()), by_node))


@dataclass(slots=True, eq=False)
class _GroupForecast:
    """The survival forecast of the nodes of one cluster and age.

    Attributes:
        survival: The probability.
        age_s: How long they had been idle.
        nodes: How many they were.
        gone: How many have left since.
        departures: Losses that count with this forecast.
    """

    survival: float
    age_s: float
    nodes: int = 0
    gone: int = 0
    departures: int = 0


_Round: TypeAlias = (
    "tuple[float, tuple[_GroupForecast, ...], dict[int, _GroupForecast]]"
)
"""The forecasts of one moment: when they are due, all of them, and those of nodes that
have not left since, by node."""


# ----------------------------------------------------------------------
# Scores

NODES_LEFT = (1, 2, 5, 17)
"""Where classes of clusters begin, in nodes that are left."""

_BINS = 1000
"""Forecasts are kept by a thousandth, so that a year of them needs no more room."""


@dataclass(frozen=True, slots=True)
class ScorePart:
    """Some of all forecasts against outcomes; its fields are keys of published JSON.

    Attributes:
        said: Mean forecast probability of staying, 0 to 1.
        came: The share of nodes that stayed.
        count: How many forecasts these are, one a node and time.
        departures: Losses behind ``came``: an event that takes nodes of one cluster
            is one loss, and counts with the last forecast before it. Nodes of a
            cluster fare alike, so these show the certainty better than the count.
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


class ForecastScores:
    """Counts forecasts by probability, and by age and nodes left."""

    def __init__(self) -> None:
        self._by_probability = np.zeros((_BINS, 4))
        self._by_age = np.zeros((len(NODES_LEFT), len(AGES_S), 4))

    def add(
        self, survival: float, *, nodes: int, age_s: float, stayed: int, departures: int
    ) -> None:
        """Count the forecast of the nodes of one cluster.

        Args:
            survival: Probability that each of them stays, 0 to 1.
            nodes: How many they were, 1 or more.
            age_s: How long they had been idle.
            stayed: How many stayed.
            departures: Losses that count with this forecast.
        """
        sums = survival * nodes, stayed, nodes, departures
        self._by_probability[min(int(survival * _BINS), _BINS - 1)] += sums
        size = bisect_right(NODES_LEFT, nodes) - 1
        self._by_age[size, bisect_right(AGES_S, age_s) - 1] += sums

    @property
    def deciles(self) -> tuple[ScorePart, ...]:
        """Ten equal parts by probability; none without forecasts."""
        return tuple(_part(sums) for sums in _tenths(self._by_probability))

    @property
    def by_age(self) -> tuple[AgePart, ...]:
        """The classes by nodes left, then age, that have forecasts."""
        places = product(range(len(NODES_LEFT)), range(len(AGES_S)))
        ages = (_age_part(self._by_age[place], *place) for place in places)
        return tuple(part for part in ages if part is not None)


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


# ----------------------------------------------------------------------
# A map of which nodes leave together

AffinityOf: TypeAlias = "Callable[[Sequence[int]], NDArray[np.float64]]"

MOST_NODES = 1_000
"""Ordering takes memory with the square of the nodes: 8 MB for these."""

MOST_CELLS = 100

LEAST_MEAN = 0.5
"""Two groups are one block where the mean affinity between them is this or more."""


@dataclass(frozen=True, slots=True)
class AffinityBlock:
    """Nodes that leave together more often than not.

    Attributes:
        nodes: Their names, in the map's order.
        within: Mean affinity of pairs of them; None for a node alone.
        outside: Mean affinity to the map's other nodes; None where there are none.
    """

    nodes: tuple[str, ...]
    within: float | None
    outside: float | None


@dataclass(frozen=True, slots=True)
class AffinityMap:
    """Affinity of pairs of nodes, ordered so that nodes that leave together are close.

    Attributes:
        nodes_left: How many nodes ever left.
        cells: Names of the nodes of each row and column, in the map's order: a node
            a cell, or as many neighbours as it takes.
        affinity: Mean affinity of the pairs of two cells, 0 to 1, a row a cell; None
            for a node with itself.
        blocks: In the map's order.
    """

    nodes_left: int
    cells: tuple[tuple[str, ...], ...]
    affinity: tuple[tuple[float | None, ...], ...]
    blocks: tuple[AffinityBlock, ...]


def affinity_map(
    affinity_of: AffinityOf, left: Mapping[int, int], names: Sequence[str]
) -> AffinityMap | None:
    """Return the map of the nodes that left most often; None for fewer than two.

    Average linkage orders them: two groups come together at the mean affinity of
    their pairs, as a node joins a cluster of the forecaster.

    Args:
        affinity_of: Affinity by pair of nodes, symmetric, shape (nodes, nodes).
        left: How often each node left.
        names: Of the nodes, by number.
    """
    most = sorted(left, key=lambda node: (-left[node], node))[:MOST_NODES]
    if len(most) <= 1:
        return None
    nodes = sorted(most)
    affinity = affinity_of(nodes)
    order, block_of = _ordered(affinity)
    pairs = affinity[np.ix_(order, order)]
    in_order = [names[nodes[place]] for place in order]
    return AffinityMap(
        nodes_left=len(left),
        cells=tuple(tuple(in_order[a:b]) for a, b in pairwise(_edges(len(order)))),
        affinity=_cells(pairs),
        blocks=_blocks(pairs, block_of[order], in_order),
    )


def _ordered(
    affinity: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return the order of the nodes, and the block of each, both by place."""
    # SciPy takes 0.3 s to import, which forecasts without a report are spared.
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage  # noqa: PLC0415

    above = np.triu_indices(len(affinity), 1)
    tree = linkage(1.0 - affinity[above], "average")
    return leaves_list(tree), fcluster(tree, 1.0 - LEAST_MEAN, "distance")


def _edges(nodes: int) -> list[int]:
    cells = min(nodes, MOST_CELLS)
    return [nodes * cell // cells for cell in range(cells + 1)]


def _cells(pairs: NDArray[np.float64]) -> tuple[tuple[float | None, ...], ...]:
    """Return the mean of the pairs of two cells; no node is a pair with itself."""
    edges = _edges(len(pairs))
    others = pairs.copy()
    np.fill_diagonal(others, 0.0)
    starts = np.asarray(edges[:-1])
    sums = np.add.reduceat(np.add.reduceat(others, starts, axis=0), starts, axis=1)
    widths = np.diff(edges)
    counts = np.outer(widths, widths) - np.diag(widths)
    return tuple(
        tuple(float(s / c) if c else None for s, c in zip(*rows, strict=True))
        for rows in zip(sums, counts, strict=True)
    )


def _blocks(
    pairs: NDArray[np.float64], block_of: NDArray[np.int32], names: Sequence[str]
) -> tuple[AffinityBlock, ...]:
    changes = (np.flatnonzero(np.diff(block_of)) + 1).tolist()
    edges = [0, *changes, len(names)]
    return tuple(_block(pairs, names, a, b) for a, b in pairwise(edges))


def _block(
    pairs: NDArray[np.float64], names: Sequence[str], first: int, end: int
) -> AffinityBlock:
    nodes = end - first
    inner = pairs[first:end, first:end]
    among = float(inner.sum() - inner.trace())
    across = float(pairs[first:end].sum() - inner.sum())
    others = nodes * (len(names) - nodes)
    return AffinityBlock(
        nodes=tuple(names[first:end]),
        within=among / (nodes * (nodes - 1)) if nodes > 1 else None,
        outside=across / others if others else None,
    )
