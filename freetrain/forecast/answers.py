"""What was said of idle nodes and what came, in sums that stay small."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from freetrain.forecast.hazard import AGES_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

NODES_LEFT = (1, 2, 5, 17)
"""Where classes of clusters begin, in nodes that are left."""

_BINS = 1000
"""Forecasts are kept by a thousandth, so that a year of them needs no more room."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of all forecasts, and what came.

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
        from_s: Least age when they were asked for, seconds.
        to_s: Where the next class of age begins; None for the last.
        from_nodes: Least nodes that they had left.
        to_nodes: Most nodes; None for the last class.
        part: What was said and what came.
    """

    from_s: float
    to_s: float | None
    from_nodes: int
    to_nodes: int | None
    part: Part


@dataclass(frozen=True, slots=True)
class Reliability:
    """What was said of nodes, and what came.

    Attributes:
        deciles: Ten equal parts by probability, ascending; none without forecasts.
        by_age: By nodes left, then age; classes without forecasts are left out.
    """

    deciles: tuple[Part, ...]
    by_age: tuple[AgePart, ...]

    @property
    def worst(self) -> float:
        """The largest difference of a decile, 0 to 1; 0 without forecasts."""
        return max([abs(one.came - one.said) for one in self.deciles], default=0.0)


class Answers:
    """Counts forecasts by what was said, and by age and nodes left."""

    def __init__(self) -> None:
        self._told = np.zeros((_BINS, 4))
        self._by_age = np.zeros((len(NODES_LEFT), len(AGES_S), 4))

    def add(
        self, said: float, *, nodes: int, age_s: float, stayed: int, departures: int
    ) -> None:
        """Count in what was said of the nodes of one cluster.

        Args:
            said: Probability that each of them stays, 0 to 1.
            nodes: How many they were, 1 or more.
            age_s: How long they had been idle.
            stayed: How many stayed.
            departures: Losses that count with this forecast.
        """
        told = said * nodes, stayed, nodes, departures
        self._told[min(int(said * _BINS), _BINS - 1)] += told
        size = bisect_right(NODES_LEFT, nodes) - 1
        self._by_age[size, bisect_right(AGES_S, age_s) - 1] += told

    @property
    def reliability(self) -> Reliability:
        """How what was said agrees with what came, so far."""
        places = product(range(len(NODES_LEFT)), range(len(AGES_S)))
        ages = (_age_part(self._by_age[place], *place) for place in places)
        return Reliability(
            deciles=tuple(_part(sums) for sums in _tenths(self._told)),
            by_age=tuple(one for one in ages if one is not None),
        )


def _tenths(told: NDArray[np.float64]) -> NDArray[np.float64]:
    """Split the sums by bin into ten equal parts; a bin may be split in proportion."""
    counts = told[:, 2]
    ends = np.cumsum(counts)
    if not ends[-1]:
        return told[:0]
    limits = np.linspace(0.0, ends[-1], 11)
    below = np.clip(limits[:, None] - (ends - counts), 0.0, counts)
    shares = np.diff(below, axis=0) / np.where(counts, counts, 1.0)
    return np.asarray(shares @ told)


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


def _part(sums: NDArray[np.float64]) -> Part:
    said, came, count, departures = sums.tolist()
    return Part(said / count, came / count, count, departures)
