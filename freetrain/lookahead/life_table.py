"""The forecaster ``life-table``: each node by itself, by how long others stayed.

Departures over node-seconds lived through, by class of age, as actuaries count them (S.
J. Cutler and F. Ederer, "Maximum utilization of the life table method in analyzing
survival", Journal of Chronic Diseases 8, 1958). Added up along an age this is the
estimate of Nelson (Technometrics 14, 1972) and Aalen (Annals of Statistics 6, 1978) of
the cumulative hazard, with ages in classes, so that little is kept. Nodes that are
still idle count as censored.

It knows nothing of neighbours or of sizes: a yardstick for forecasters that do.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from freetrain.lookahead.affinity import PRIOR_EVENTS, PRIOR_TOGETHER
from freetrain.lookahead.base import (
    Cohort,
    ColdStart,
    Fading,
    LinePosition,
    Prospect,
    amount,
    amounts,
    lasting,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
        Sequence,
    )
    from collections.abc import (
        Set as AbstractSet,
    )

    from numpy.typing import NDArray

    from freetrain.lookahead.base import Pairs


Floats: TypeAlias = "NDArray[np.float64]"

_LIMITS_S = np.array([0.0, *(30.0 * 2.0 ** (k / 2) for k in range(21)), math.inf])
"""Of classes of age: two to a doubling, from half a minute to eight hours."""

_CLASSES = len(_LIMITS_S) - 1

_PRIOR_S = 1_500.0
"""The prior mean stay of a node; counts as one departure."""


class _Stay(NamedTuple):
    """An idle node: its cluster, which is its own, and since when it is idle."""

    cluster: int
    since_s: float


class LifeTable:
    """Learns at what age nodes leave, all nodes alike; see ``Forecaster``.

    In a class of age with d departures in e node-seconds a node leaves at the rate

    ::

        λ = (d + 1) / (e + 1 / λ0)    λ0 = (all departures + 1) / (all e + 1500 s)

    ``Maker`` has the arguments; *pairs*, *checks* and *order* are not used.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(  # noqa: PLR0913 - the arguments of ``Maker``
        self,
        horizon_s: float,
        *,
        pairs: Pairs | None = None,
        checks: bool = True,
        state: Mapping[str, Any] | None = None,
        learns_s: float = 0.0,
        order: Callable[[int], Any] | None = None,
    ) -> None:
        del pairs, checks, order
        self._horizon_s = horizon_s
        self._cold = ColdStart(learns_s)
        self._departures = np.zeros(_CLASSES)
        self._exposure_s = np.zeros(_CLASSES)
        self._fading = Fading()
        self._stays: dict[int, _Stay] = {}
        self._nodes: dict[int, frozenset[int]] = {}
        self._cohorts: dict[float, Cohort] = {}
        self._numbers = 0
        self._now_s = 0.0
        self._prospects: dict[float, Prospect] = {}
        if state is not None:
            self._restore(state)

    @property
    def is_learning(self) -> bool:
        """Whether it has seen too little for plans."""
        return self._now_s < self._cold.until_s

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Count node-seconds lived, and departures by age."""
        self._cold.see(now_s)
        since_s = np.fromiter(self._cohorts, np.float64, len(self._cohorts))
        nodes = np.array(
            [len(own.clusters) for own in self._cohorts.values()], dtype=np.float64
        )
        self._exposure_s += nodes @ _spans_s(self._now_s - since_s, now_s - since_s)
        if self._stays and (keeps := self._fading.keeps(self._now_s, now_s)) < 1.0:
            self._exposure_s *= keeps
            self._departures *= keeps
        self._now_s = now_s
        self._prospects = {}
        for node in left:
            self._part(self._stays.pop(node))
        for node in sorted(joined):
            self._join(node, _Stay(self._numbers, now_s))
            self._numbers += 1

    def idle(self) -> Collection[int]:
        """Return all idle nodes."""
        return self._stays.keys()

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node, which no other is in."""
        return self._stays[node].cluster

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the node of *cluster*."""
        return self._nodes[cluster]

    def cohorts(self) -> Collection[Cohort]:
        """Return all clusters by cohort: those idle since one moment."""
        return self._cohorts.values()

    def cohort(self, cluster: int) -> Cohort:
        """Return the cohort of *cluster*."""
        (node,) = self._nodes[cluster]
        return self._cohorts[self._stays[node].since_s]

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of the node of *cluster* until the horizon."""
        if self.is_learning:
            return lasting(self._horizon_s)
        if not self._prospects:
            self._prospects = self._all_prospects()
        (node,) = self._nodes[cluster]
        return self._prospects[self._stays[node].since_s]

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        age_s = np.array([self._now_s - self._stays[node].since_s])
        hits = _spans_s(age_s, age_s + horizon_s) @ self._rates()
        return math.exp(-float(hits[0]))

    def in_line(self, node: int) -> LinePosition:
        """Return the position that says that the order is not used."""
        del node
        return LinePosition()

    def affinity(self, nodes: Sequence[int]) -> Floats:
        """Return the prior of unknown nodes, for each pair of *nodes*."""
        return np.full((len(nodes), len(nodes)), PRIOR_TOGETHER / PRIOR_EVENTS)

    def to_state(self) -> dict[str, Any]:
        """Return the whole state for JSON."""
        return {
            "departures": self._departures.tolist(),
            "lived_s": self._fading.lived_s,
            "exposure": self._exposure_s.tolist(),
            "idle": [[node, *stay] for node, stay in self._stays.items()],
            "numbers": self._numbers,
            "now_s": self._now_s,
        }

    def forget_pool(self) -> None:
        """Forget the idle nodes, but nothing that was learned."""
        self._stays.clear()
        self._nodes.clear()
        self._cohorts.clear()

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._departures[:] = amounts(state["departures"], _CLASSES)
        self._exposure_s[:] = amounts(state["exposure"], _CLASSES)
        self._fading = Fading(state["lived_s"])
        self._numbers, self._now_s = whole(state["numbers"]), amount(state["now_s"])
        for node, cluster, since_s in state["idle"]:
            if not amount(since_s) <= self._now_s:
                raise ValueError(f"idle since {since_s}, after {self._now_s}")
            self._join(whole(node), _Stay(whole(cluster), amount(since_s)))
        if not len(self._stays) == len(self._nodes) == len(state["idle"]):
            raise ValueError("a node or a cluster named twice")
        if max(self._nodes, default=-1) >= self._numbers:
            raise ValueError("a cluster with a number that is not in use yet")

    def _join(self, node: int, stay: _Stay) -> None:
        self._stays[node] = stay
        self._nodes[stay.cluster] = frozenset((node,))
        if stay.since_s not in self._cohorts:
            self._cohorts[stay.since_s] = Cohort(1, [])
        insort(self._cohorts[stay.since_s].clusters, stay.cluster)

    def _part(self, stay: _Stay) -> None:
        del self._nodes[stay.cluster]
        age_s = self._now_s - stay.since_s
        self._departures[_LIMITS_S.searchsorted(age_s, side="right") - 1] += 1.0
        own = self._cohorts[stay.since_s].clusters
        del own[bisect_left(own, stay.cluster)]
        if not own:
            del self._cohorts[stay.since_s]

    def _rates(self) -> Floats:
        """Return departures a node and second, by class of age."""
        usual_s = (self._exposure_s.sum() + _PRIOR_S) / (self._departures.sum() + 1.0)
        rates: Floats = (self._departures + 1.0) / (self._exposure_s + usual_s)
        return rates

    def _all_prospects(self) -> dict[float, Prospect]:
        """Return the prospect of a node until the horizon, by when it became idle."""
        age_s = self._now_s - np.fromiter(self._cohorts, np.float64, len(self._cohorts))
        rates = self._rates()
        hits = _spans_s(age_s, age_s + self._horizon_s) * rates
        before = hits.cumsum(axis=1) - hits
        lives_s = (np.exp(-before) * -np.expm1(-hits) / rates).sum(axis=1)
        leaves = -np.expm1(-hits.sum(axis=1))
        return {
            since_s: Prospect(min(life_s, self._horizon_s), hit, 1.0)
            for since_s, life_s, hit in zip(
                self._cohorts, lives_s.tolist(), leaves.tolist(), strict=True
            )
        }


def _spans_s(from_s: Floats, to_s: Floats) -> Floats:
    """Return the seconds between ages in each class, shape (ages, classes)."""
    return np.diff(_LIMITS_S.clip(from_s[:, None], to_s[:, None]), axis=1)
