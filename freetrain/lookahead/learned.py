"""The forecaster ``learned``: hazards by age and size, affinity by pair, calibrated.

Nodes that become idle together, or stand beside each other in Slurm's order, form
clusters. A cluster is hit at the rate that clusters of its age and size were, and a hit
takes the share that hits took; survival probabilities are corrected by earlier ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freetrain.lookahead.affinity import Affinity, split
from freetrain.lookahead.base import ColdStart, LinePosition, Prospect, lasting
from freetrain.lookahead.calibration import CHECKED_S, PendingForecasts
from freetrain.lookahead.counts import Fading, amount, members, whole
from freetrain.lookahead.hazard import Hazard
from freetrain.lookahead.node_order import NodeOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from freetrain.lookahead.base import Pairs
    from freetrain.lookahead.hazard import Meter

LEAST_AFFINITY = 0.5

_MOST_AT_ONCE = 512
"""Larger groups are split in parts of this size: time grows with its square."""

_FRESH = 0.02
"""A prospect is made anew when the cluster's age has grown by this share."""

_NO_PROSPECT = lasting(0.0)


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
class NodeCluster:
    """Idle nodes that became idle together, or beside each other.

    Attributes:
        nodes: Those left.
        since_s: When the first of them became idle.
        meter: Counts its exposure while it has these nodes.
        prospect: Its last forecast.
        until_s: Until when that is valid.
        times: Its hazard then, over that of others of its size and age.
        arrivals: The nodes that became idle with it; None if not kept.
    """

    nodes: set[int]
    since_s: float
    meter: Meter
    prospect: Prospect = _NO_PROSPECT
    until_s: float = -math.inf
    times: float = 1.0
    arrivals: Arrivals | None = None


class LearnedForecaster:
    """Learns from nothing but the events that it is shown.

    Args:
        horizon_s: Of prospects.
        knows_pairs: Whether affinity is learned; without, all nodes that became idle
            together are a cluster. For ablation.
        checks: Whether survival forecasts are scored, and corrected by the scores;
            plans need prospects alone.
        pairs: Counts by pair; None for counts of all pairs ever seen.
        state: From ``to_state``: everything but the affinities; None to begin.
        learns_s: For so long after its first event no node is expected to leave.
        order: Sort key of nodes in Slurm's order; None where they have none.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(  # noqa: PLR0913 - parts that a loop or a test replaces
        self,
        horizon_s: float,
        *,
        knows_pairs: bool = True,
        checks: bool = True,
        pairs: Pairs | None = None,
        state: Mapping[str, Any] | None = None,
        learns_s: float = 0.0,
        order: Callable[[int], Any] | None = None,
    ) -> None:
        self._horizon_s = horizon_s
        self._lasting = lasting(horizon_s)
        self._cold = ColdStart(learns_s)
        self._knows_pairs = knows_pairs
        self._affinity = Affinity() if pairs is None else pairs
        kept = state or {"hazard": None, "lineup": None, "lived_s": 0.0}
        self._hazard = Hazard(kept["hazard"])
        self._fading = Fading(kept["lived_s"])
        self._clusters: dict[int, NodeCluster] = {}
        self._cluster_of: dict[int, int] = {}
        self._prospects: dict[tuple[int, float, float], Prospect] = {}
        self._numbers = 0
        self._pending = PendingForecasts(state)
        self._checks = checks
        self._now_s = 0.0
        if state is not None:
            self._restore(state)
        self._order = NodeOrder(self._cluster_of, order=order, state=kept["lineup"])

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by it."""
        return self._now_s < self._cold.until_s

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Learn from an event; see ``Forecaster``."""
        self._cold.see(now_s)
        self._prospects.clear()
        self._settle(now_s)
        if left:
            self._part(sorted(left))
        if joined:
            self._group(sorted(joined))
        if self._checks and self._pending.is_due(now_s):
            self._record_forecasts()

    def to_state(self) -> dict[str, Any]:
        """Return the whole state for JSON, except the affinities."""
        return {
            "hazard": self._hazard.to_state(),
            "lived_s": self._fading.lived_s,
            "clusters": [
                [number, own.since_s, own.meter.age_s, sorted(own.nodes)]
                for number, own in self._clusters.items()
            ],
            "numbers": self._numbers,
            "now_s": self._now_s,
            "lineup": self._order.to_state(),
            **self._pending.to_state(),
        }

    def forget_pool(self) -> None:
        """Forget the idle nodes and pending forecasts, but nothing that was learned."""
        self._clusters.clear()
        self._cluster_of.clear()
        self._order.forget_pool()
        self._pending.forget_pool()

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._numbers, self._now_s = whole(state["numbers"]), amount(state["now_s"])
        for row in state["clusters"]:
            self._clusters[whole(row[0])] = cluster = self._cluster_from(row)
            self._cluster_of |= dict.fromkeys(cluster.nodes, row[0])
        named = sum(len(cluster.nodes) for cluster in self._clusters.values())
        if (len(self._clusters), len(self._cluster_of)) != (
            len(state["clusters"]),
            named,
        ):
            raise ValueError("a cluster named twice, or a node in two")
        if max(self._clusters, default=-1) >= self._numbers:
            raise ValueError("a cluster with a number that is not in use yet")

    def _cluster_from(self, row: Sequence[Any]) -> NodeCluster:
        _, since_s, counted_s, nodes = row
        age_s = self._now_s - amount(since_s)
        if not nodes or not amount(counted_s) <= age_s:
            raise ValueError(f"a cluster that cannot be at {self._now_s}: {row}")
        meter = self._hazard.meter(len(nodes), counted_s)
        return NodeCluster(members(nodes), since_s, meter)

    def idle(self) -> Collection[int]:
        """Return all idle nodes."""
        return self._cluster_of.keys()

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node."""
        return self._cluster_of[node]

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of *cluster* that are still idle."""
        return self._clusters[cluster].nodes

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of *cluster* until the horizon.

        Kept for a fiftieth of the cluster's age, as little changes in that time.
        """
        known, now_s = self._clusters[cluster], self._now_s
        # Called for each class of each plan: even a call that returns 1 takes a tenth.
        times = 1.0 if self._order.longest == 1 else self._order.times(cluster)
        if now_s <= known.until_s and times == known.times:
            return known.prospect
        if now_s < self._cold.until_s:
            return self._lasting
        age_s = now_s - known.since_s
        alike = len(known.nodes), age_s, times
        if (made := self._prospects.get(alike)) is None:
            hits, life_s, share = self._hazard.risk(*alike, horizon_s=self._horizon_s)
            made = Prospect(life_s, -math.expm1(-hits), share)
            self._prospects[alike] = made
        known.prospect, known.times = made, times
        known.until_s = now_s + _FRESH * age_s
        return made

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        number = self._cluster_of[node]
        return self._pending.corrected(self._survival(number, horizon_s))

    def in_line(self, node: int) -> LinePosition:
        """Return the effect of an idle node's place in Slurm's order, for people."""
        times = self._order.times(self._cluster_of[node])
        return LinePosition(self._order.longest, times)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together; 0.3 for unknown ones.

        Nodes of one cluster have the affinity of when they became idle: it changes only
        when one of a pair leaves.
        """
        known = self._clusters.get(self._cluster_of.get(min(nodes, default=-1), -1))
        if known and known.arrivals and known.nodes.issuperset(nodes):
            return known.arrivals.among(nodes)
        return self._affinity.of(nodes)

    def _survival(self, number: int, horizon_s: float) -> float:
        cluster, times = self._clusters[number], self._order.times(number)
        age_s = self._now_s - cluster.since_s
        nodes = len(cluster.nodes)
        risk = self._hazard.risk(nodes, age_s, times, horizon_s=horizon_s)
        return math.exp(-risk.share * risk.hits)

    def _settle(self, now_s: float) -> None:
        """Count exposure until *now_s*, and score the forecasts that are due."""
        for cluster in self._clusters.values():
            cluster.meter.live(now_s - cluster.since_s)
        if self._clusters and (keeps := self._fading.keeps(self._now_s, now_s)) < 1.0:
            self._hazard.fade(keeps)
        self._pending.settle(now_s)
        self._now_s = now_s

    def _record_forecasts(self) -> None:
        """Record the survival of all clusters, without the nodes that leave now."""
        self._pending.add_round(
            self._now_s,
            (
                (own.nodes, self._survival(number, CHECKED_S))
                for number, own in self._clusters.items()
            ),
        )

    def _part(self, left: Sequence[int]) -> None:
        self._order.leave(left, clusters=len(self._clusters))
        self._pending.lose(left)
        if self._knows_pairs:
            idle = np.fromiter(self._cluster_of, np.intp, len(self._cluster_of))
            self._affinity.saw(left, idle)
        parted: dict[int, list[int]] = {}
        for node in left:
            parted.setdefault(self._cluster_of.pop(node), []).append(node)
        for number, nodes in parted.items():
            cluster = self._clusters[number]
            age_s = self._now_s - cluster.since_s
            self._hazard.hit(len(cluster.nodes), age_s, len(nodes))
            cluster.nodes.difference_update(nodes)
            cluster.until_s = -math.inf
            if cluster.nodes:
                cluster.meter = self._hazard.meter(len(cluster.nodes), age_s)
            else:
                del self._clusters[number]

    def _group(self, joined: Sequence[int]) -> None:
        self._order.join(joined)
        if self._order.longest > 1:
            for node in self._order.in_line(joined):
                self._line_up(node)
            return
        for first in range(0, len(joined), _MOST_AT_ONCE):
            nodes = joined[first : first + _MOST_AT_ONCE]
            if len(nodes) == 1 or not self._knows_pairs:
                self._found(set(nodes))
                continue
            affinity = self._affinity.of(nodes)
            arrivals = Arrivals(np.asarray(nodes, dtype=np.intp), affinity)
            for places in split(affinity, LEAST_AFFINITY):
                self._found({nodes[place] for place in places}, arrivals)

    def _line_up(self, node: int) -> None:
        """Put *node* into the larger cluster beside it that has room, or a new one."""
        beside = self._order.clusters_beside(node)
        sizes = {number: len(self._clusters[number].nodes) for number in beside}
        room = [own for own, nodes in sizes.items() if nodes < self._order.longest]
        if not room:
            self._found({node})
            return
        number = max(room, key=sizes.__getitem__)
        cluster = self._clusters[number]
        cluster.nodes.add(node)
        cluster.meter = self._hazard.meter(len(cluster.nodes), cluster.meter.age_s)
        cluster.until_s, cluster.arrivals = -math.inf, None
        self._cluster_of[node] = number

    def _found(self, nodes: set[int], arrivals: Arrivals | None = None) -> None:
        meter = self._hazard.meter(len(nodes), 0.0)
        cluster = NodeCluster(nodes, self._now_s, meter, arrivals=arrivals)
        self._clusters[self._numbers] = cluster
        self._cluster_of.update(dict.fromkeys(nodes, self._numbers))
        self._numbers += 1
