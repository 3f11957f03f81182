"""How well survivals foretold agree with what came, while events go by."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from freetrain.forecast.affinity_map import affinity_map
from freetrain.forecast.answers import Answers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.forecast.affinity_map import AffinityMap
    from freetrain.forecast.answers import Reliability
    from freetrain.forecast.interface import Forecaster, Prospect

HORIZON_S = 600.0
"""Survival over how long is asked for."""

EVERY_S = 300.0
"""How often all idle nodes are asked for, at the first event after that time."""


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
class ForecastRecord:
    """The forecasts of a replay, held against what came.

    Attributes:
        horizon_s: Survival over how long was asked for.
        every_s: How often at most.
        reliability: What was said, and what came.
        affinity: Which nodes leave together; None where fewer than two ever left.
    """

    horizon_s: float
    every_s: float
    reliability: Reliability
    affinity: AffinityMap | None


@dataclass(slots=True)
class _Asked:
    """The survival foretold of the nodes of one cluster.

    Attributes:
        due_s: When it shows what came.
        said: The probability.
        nodes: How many nodes it was.
        age_s: How long they had been idle.
        gone: How many have left since.
        departures: Losses that count with this one.
    """

    due_s: float
    said: float
    nodes: int
    age_s: float
    gone: int = 0
    departures: int = 0


@dataclass(slots=True)
class _Cluster:
    """A cluster with nodes left.

    Attributes:
        since_s: When it became idle.
        nodes: How many are left.
        open: What was foretold of it, and may not be due yet.
    """

    since_s: float
    nodes: int = 0
    open: list[_Asked] = field(default_factory=list)


class Watched:
    """A forecaster that is asked for all idle nodes again and again, and held to it.

    It answers as the one it watches does. A cluster is asked for once, for all its
    nodes. What is not due yet is not counted.

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
        self._clusters: dict[int, _Cluster] = {}
        self._due: deque[_Asked] = deque()
        self._answers = Answers()
        self._left: Counter[int] = Counter()

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Show an event, settle what is due, and ask where it is time to."""
        self._part(now_s, left)
        while self._due and self._due[0].due_s <= now_s:
            self._settle(self._due.popleft())
        self._forecaster.see(now_s, joined=joined, left=left)
        for node in joined:
            number = self._forecaster.cluster(node)
            self._clusters.setdefault(number, _Cluster(now_s)).nodes += 1
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
        return self._answers.reliability

    def record(self, names: Sequence[str]) -> ForecastRecord:
        """Return all that was seen of the forecasts so far.

        Args:
            names: Of the nodes, by number.
        """
        return ForecastRecord(
            horizon_s=self._horizon_s,
            every_s=self._every_s,
            reliability=self.reliability(),
            affinity=affinity_map(self._forecaster.affinity, self._left, names),
        )

    def _part(self, now_s: float, left: Collection[int]) -> None:
        """Count losses, while the forecaster still knows whose nodes they were."""
        self._left.update(left)
        parted = Counter(map(self._forecaster.cluster, left))
        for number, nodes in parted.items():
            cluster = self._clusters[number]
            cluster.open = [one for one in cluster.open if now_s < one.due_s]
            for asked in cluster.open:
                asked.gone += nodes
            for last in cluster.open[-1:]:
                last.departures += 1
            cluster.nodes -= nodes
            if not cluster.nodes:
                del self._clusters[number]

    def _settle(self, asked: _Asked) -> None:
        self._answers.add(
            asked.said,
            nodes=asked.nodes,
            age_s=asked.age_s,
            stayed=asked.nodes - asked.gone,
            departures=asked.departures,
        )

    def _ask(self, now_s: float) -> None:
        self._ask_s = now_s + self._every_s
        for number, cluster in self._clusters.items():
            node = next(iter(self._forecaster.members(number)))
            asked = _Asked(
                due_s=now_s + self._horizon_s,
                said=self._forecaster.survival(node, self._horizon_s),
                nodes=cluster.nodes,
                age_s=now_s - cluster.since_s,
            )
            cluster.open = [*(one for one in cluster.open if now_s < one.due_s), asked]
            self._due.append(asked)


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
