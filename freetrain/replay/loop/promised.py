"""What the past of the pool says of idle nodes, together with what is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.forecast.promises import Promise, Promises, departures_per_s

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.forecast.delays import Interval
    from freetrain.forecast.interface import Forecaster, Prospect
    from freetrain.replay.loop.leases import Leases


class PromisedForecaster:
    """Groups nodes by the end that is known of them, and the others by their past.

    A node whose lease ends, or would end, within the horizon is in the group of all
    that end then; one that is planned for a job within the hour in that job's; any
    other in the cluster in which it is likely to leave.

    Args:
        learned: What learns from the past.
        leases: What the broker holds, and sees planned.
        horizon_s: Of prospects, seconds; that of *learned*.
    """

    def __init__(
        self, learned: Forecaster, leases: Leases, *, horizon_s: float
    ) -> None:
        self._learned = learned
        self._leases = leases
        self._horizon_s = horizon_s
        self._promises = Promises()
        self._promised: dict[int, Promise] = {}
        self._now_s = 0.0
        self._group_of: dict[int, int] = {}
        self._groups: dict[int, set[int]] = {}
        self._numbers = 0

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by the past."""
        return self._learned.is_learning

    def intervals(self) -> tuple[Interval, ...]:
        """Return what came against what was planned, by lead."""
        return self._promises.intervals()

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Learn from what changed, and from what is planned now."""
        self._now_s = now_s
        self._learned.see(now_s, joined=joined, left=left)
        planned = self._leases.planned(self._learned.idle())
        self._promised = {
            node: Promise(end_s, str(job)) for node, (end_s, job) in planned.items()
        }
        self._promises.see(now_s, left=left, promised=self._promised)
        self._regroup()

    def cluster(self, node: int) -> int:
        """Return the group of an idle node."""
        return self._group_of[node]

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of a group."""
        return self._groups[cluster]

    def prospect(self, cluster: int) -> Prospect:
        """Return what is expected of a group until the horizon."""
        node = min(self._groups[cluster])
        plain = self._learned.prospect(self._learned.cluster(node))
        return self._promises.expected(
            plain,
            self._near(node),
            now_s=self._now_s,
            usable_s=self._leases.usable_until_s(node) - self._now_s,
            horizon_s=self._horizon_s,
        )

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        plain = self._learned.prospect(self._learned.cluster(node))
        promise = self._near(node)
        if promise is None:
            return self._learned.survival(node, horizon_s)
        rate = departures_per_s(plain, self._horizon_s)
        lead_s = promise.end_s - self._now_s
        return self._promises.survival(rate, lead_s=lead_s, after_s=horizon_s)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together, from the past alone."""
        return self._learned.affinity(nodes)

    def _near(self, node: int) -> Promise | None:
        promise = self._promised.get(node)
        is_near = promise is not None and promise.is_near(self._now_s)
        return promise if is_near else None

    def _regroup(self) -> None:
        numbers: dict[tuple[str, float | str], int] = {}
        self._group_of, self._groups = {}, {}
        for node in sorted(self._learned.idle()):
            key = self._key(node)
            if key not in numbers:
                numbers[key] = self._numbers
                self._groups[self._numbers] = set()
                self._numbers += 1
            self._group_of[node] = numbers[key]
            self._groups[numbers[key]].add(node)

    def _key(self, node: int) -> tuple[str, float | str]:
        usable_until_s = self._leases.usable_until_s(node)
        if usable_until_s - self._now_s < self._horizon_s:
            return "ends", usable_until_s
        promise = self._near(node)
        if promise is not None:
            return "promised", promise.by
        return "learned", self._learned.cluster(node)
