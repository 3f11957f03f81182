"""Idle nodes in Slurm's order: whether neighbours leave together, and which end first.

Slurm gives jobs nodes in an order of their names where it knows no topology, so that
neighbours in that order leave together, and those at one end leave first. Both are
learned here, from departures.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from freetrain.lookahead.affinity import PRIOR_EVENTS, PRIOR_TOGETHER
from freetrain.lookahead.counts import LEAST, amounts, amounts_above_0

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

APART = (1, 2, 4, 8, 16, 32, 64, 128)
"""Distances in the order at which pairs are counted."""

_PRIOR_DEPARTURES = 8.0
"""Weight of the prior that neighbours leave independently, in departures."""

_PRIOR_HITS = 20.0
"""Weight of the prior that all parts of the order are hit alike, in clusters that began
there at a departure."""

_PARTS = 13
"""Parts of the order begin at places 0, 1, 2, 4, …, 2,048, and the last has no end: so
the nodes looked at one by one are few on a machine of twenty thousand nodes, too."""

_LAST = _PARTS - 1

_ENDS = 1 << (_LAST - 1)
"""The place at which all but the last part end."""

_LASTS = 2_048.0
"""Departures after which a departure counts a third as much, as below leaves. A site
that changes how it places jobs is believed after as many. Of pairs a departure counts
as the share of them that it touches: few nodes of many teach and fade little."""


class NodeOrder:
    """Learns whether neighbours leave together, and how often parts of the order do.

    Args:
        cluster_of: The cluster of each idle node, kept up by the caller.
        order: Sort key of nodes; None where they have no order and leave independently.
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(
        self,
        cluster_of: Mapping[int, int],
        *,
        order: Callable[[int], Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        strangers = PRIOR_TOGETHER / PRIOR_EVENTS
        self._cluster_of = cluster_of
        self._is_line = order is not None
        self._order = order or int
        self._line = sorted(cluster_of, key=order) if self._is_line else []
        self._begins: dict[int, int] | None = None
        self._either = [_PRIOR_DEPARTURES] * len(APART)
        self._both = [_PRIOR_DEPARTURES * strangers] * len(APART)
        self._there = [0.0] * _PARTS
        self._hit = [0.0] * _PARTS
        if state is not None:
            self._either = amounts_above_0(state["either"], len(APART))
            self._both = amounts(state["both"], len(APART))
            self._there = amounts(state["there"], _PARTS)
            self._hit = amounts(state["hit"], _PARTS)
        self.longest = self._longest()
        """How many nodes in a row are expected to leave together; 1 if independent."""
        if self.longest > 1 and min(sum(self._there), sum(self._hit)) < LEAST:
            raise ValueError("neighbours that leave together, and no departure")

    def to_state(self) -> dict[str, Any]:
        """Return all but the order itself for JSON."""
        return {
            "either": list(self._either),
            "both": list(self._both),
            "there": list(self._there),
            "hit": list(self._hit),
        }

    def join(self, nodes: Iterable[int]) -> None:
        """Add *nodes*, which are idle from now on."""
        if self._is_line:
            for node in nodes:
                insort(self._line, node, key=self._order)
        self._begins = None

    def leave(self, left: Collection[int], *, clusters: int) -> None:
        """Remove *left*, which are idle no more; their clusters are still known.

        Args:
            left: Nodes.
            clusters: How many there were until now, those of *left* included.
        """
        if not self._is_line:
            return
        self._count_parts({self._cluster_of[node] for node in left}, clusters)
        gone = sorted(map(self._place, left))
        self._count_pairs(gone)
        self.longest = self._longest()
        for place in reversed(gone):
            del self._line[place]
        self._begins = None

    def forget_pool(self) -> None:
        """Forget the idle nodes, but nothing that was learned."""
        self._line.clear()
        self._begins = None

    def in_line(self, nodes: Iterable[int]) -> Sequence[int]:
        """Return *nodes* in order.

        In another order clusters would begin with gaps between them, and never meet.
        """
        return sorted(nodes, key=self._order)

    def clusters_beside(self, node: int) -> Sequence[int]:
        """Return the clusters of the nodes next to *node*, where they have one."""
        place = self._place(node)
        beside = self._line[max(place - 1, 0) : place + 2]
        of = self._cluster_of
        return sorted({of[other] for other in beside if other in of and other != node})

    def times(self, cluster: int) -> float:
        """Return the hazard of *cluster* for its place, over that of others; mostly 1.

        ::

            (h + 20 H / T) / (t + 20) / (H / T)

        where clusters that began in its part of the order were there t times at a
        departure, and were hit h times; T and H are the same of the whole order.
        """
        if self.longest == 1:
            return 1.0
        part = self._part(cluster)
        rate = sum(self._hit) / sum(self._there)
        seen = self._hit[part] + _PRIOR_HITS * rate
        return seen / (self._there[part] + _PRIOR_HITS) / rate

    def _place(self, node: int) -> int:
        return bisect_left(self._line, self._order(node), key=self._order)

    def _begin(self) -> Mapping[int, int]:
        """Return the place where each cluster begins, if before the last part."""
        if self._begins is None:
            # Back to front, so that the first place of each is the one that stays.
            places = range(min(_ENDS, len(self._line)) - 1, -1, -1)
            nodes = map(self._line.__getitem__, places)
            clusters = map(self._cluster_of.__getitem__, nodes)
            self._begins = dict(zip(clusters, places, strict=True))
        return self._begins

    def _part(self, cluster: int) -> int:
        place = self._begin().get(cluster)
        return _LAST if place is None else place.bit_length()

    def _count_parts(self, hit: Collection[int], clusters: int) -> None:
        for sums in (self._there, self._hit):
            sums[:] = [count - count / _LASTS for count in sums]
        begins = self._begin()
        for place in begins.values():
            self._there[place.bit_length()] += 1.0
        self._there[_LAST] += clusters - len(begins)
        for cluster in hit:
            self._hit[self._part(cluster)] += 1.0

    def _count_pairs(self, gone: Sequence[int]) -> None:
        """Count pairs of which one left, and both; a departure counts 1 at the most.

        Args:
            gone: Places of the nodes that leave, ascending.
        """
        nodes, left = len(self._line), set(gone)
        for at, apart in enumerate(APART):
            pairs = nodes - apart
            if pairs <= 0:
                return
            both = sum(place + apart in left for place in gone)
            either = bisect_left(gone, pairs) + len(gone) - bisect_left(gone, apart)
            self._count(at, (either - both) / pairs, both / pairs)

    def _count(self, at: int, either: float, both: float) -> None:
        """Count pairs at one distance; earlier counts fade, the prior does not."""
        fades, strangers = either / _LASTS, PRIOR_TOGETHER / PRIOR_EVENTS
        self._either[at] -= fades * (self._either[at] - _PRIOR_DEPARTURES)
        self._both[at] -= fades * (self._both[at] - _PRIOR_DEPARTURES * strangers)
        self._either[at] += either
        self._both[at] += both

    def _leave_together(self, place: int) -> bool:
        return 2.0 * self._both[place] >= self._either[place]

    def _longest(self) -> int:
        together = takewhile(self._leave_together, range(len(APART) * self._is_line))
        return max((APART[place] for place in together), default=1)
