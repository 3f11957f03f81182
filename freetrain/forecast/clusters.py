"""Sets of nodes that are expected to leave together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freetrain.forecast.cold_start import lasting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.forecast.hazard import Meter
    from freetrain.forecast.interface import Prospect


_UNTOLD = lasting(0.0)


class Arrivals(NamedTuple):
    """Nodes that became idle together.

    Attributes:
        nodes: Their numbers, ascending.
        affinity: By pair of them, shape (nodes, nodes).
    """

    nodes: NDArray[np.intp]
    affinity: NDArray[np.float64]

    def among(self, some: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity by pair of *some* of the nodes."""
        places = self.nodes.searchsorted(some)
        return self.affinity[places[:, None], places]


@dataclass(slots=True)
class Cluster:
    """Idle nodes that became idle together, or beside each other.

    Attributes:
        nodes: Those left.
        since_s: When the first of them became idle.
        meter: Counts its exposure while it has these nodes.
        prospect: What was expected of it last.
        until_s: Up to what time that is of use.
        times: How much likelier than others of its size and age it was then.
        arrivals: Those who became idle with it; None if not kept.
    """

    nodes: set[int]
    since_s: float
    meter: Meter
    prospect: Prospect = _UNTOLD
    until_s: float = -math.inf
    times: float = 1.0
    arrivals: Arrivals | None = None


def split(affinity: NDArray[np.float64], least: float) -> list[list[int]]:
    """Split nodes greedily into clusters.

    The first node left begins a cluster, and the node of highest mean affinity to the
    cluster joins it, as long as that is *least* or more.

    Args:
        affinity: By pair of nodes, shape (nodes, nodes).
        least: Mean affinity to a cluster that its next node must have.

    Returns:
        Places in *affinity*, each in one cluster.
    """
    pairs = affinity.copy()
    clusters: list[list[int]] = []
    taken: set[int] = set()
    for first in range(len(pairs)):
        if first not in taken:
            clusters.append(_grown(pairs, first, least))
            taken.update(clusters[-1])
    return clusters


def close_to_each_other(affinity: NDArray[np.float64], nodes: int) -> list[int]:
    """Return the places of *nodes* nodes that belong together, greedily.

    The pair of highest affinity comes first, then whoever is closest to those chosen.
    """
    if nodes >= len(affinity):
        return list(range(len(affinity)))
    pairs = affinity.copy()
    pairs.flat[:: len(pairs) + 1] = -np.inf
    chosen = [int(pairs.argmax()) // len(pairs)]
    summed = pairs[chosen[0]].copy()
    while len(chosen) < nodes:
        nearest = int(summed.argmax())
        chosen.append(nearest)
        summed += pairs[nearest]
    return sorted(chosen)


def _grown(pairs: NDArray[np.float64], first: int, least: float) -> list[int]:
    """Return the cluster that begins with *first*.

    Whoever is in it is close to nobody in *pairs* any more: most groups are small, and
    each mask of those who are free would take as long as all else.
    """
    cluster = [first]
    pairs[:, first] = -np.inf
    summed = pairs[first].copy()
    nearest = int(summed.argmax())
    while summed.item(nearest) >= least * len(cluster):
        cluster.append(nearest)
        pairs[:, nearest] = -np.inf
        summed += pairs[nearest]
        nearest = int(summed.argmax())
    return cluster
