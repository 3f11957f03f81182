"""Idle nodes in Slurm's order: whether neighbours leave together, and which end first.

Slurm gives jobs nodes in an order of their names where it knows no topology, so that
neighbours in that order leave together, and those at one end leave first. Both are
learned here, from departures.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from freetrain.lookahead.affinity import SAID_EVENTS, SAID_TOGETHER
from freetrain.lookahead.counts import LEAST, amounts, amounts_above_0

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

APART = (1, 2, 4, 8, 16, 32, 64, 128)
"""How far apart in the line two nodes are, of whom it is learned."""

_SAID_DEPARTURES = 8.0
"""What is believed of neighbours before any left, in departures: they are strangers."""

_SAID_HITS = 20.0
"""What is believed of a part of the line before any left, in clusters that began there
when somebody left: they are hit as often as those of any other part."""

_PARTS = 13
"""Parts of the line begin at places 0, 1, 2, 4, …, 2,048, and the last has no end: who
is looked at one by one is as few on a machine of twenty thousand nodes as on others."""

_LAST = _PARTS - 1

_ENDS = 1 << (_LAST - 1)
"""Where in line all but the last part end."""

_LASTS = 2_048.0
"""Departures after which one counts a third as much, as below leaves; so many are kept
of pairs. A site that changes how it places jobs is believed after as many, however long
it did otherwise. Of pairs a departure counts as the share of them that it touches: few
nodes of many teach little, and make little be forgotten."""


class NodeOrder:
    """Learns whether neighbours leave together, and how likely parts of the line.

    Args:
        cluster_of: The cluster of each idle node, as it is when asked.
        order: By what nodes stand in line; None where they stand in none, and are
            strangers for good.
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(
        self,
        cluster_of: Mapping[int, int],
        *,
        order: Callable[[int], Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        strangers = SAID_TOGETHER / SAID_EVENTS
        self._cluster_of = cluster_of
        self._is_line = order is not None
        self._order = order or int
        self._line = sorted(cluster_of, key=order) if self._is_line else []
        self._begins: dict[int, int] | None = None
        self._either = [_SAID_DEPARTURES] * len(APART)
        self._both = [_SAID_DEPARTURES * strangers] * len(APART)
        self._there = [0.0] * _PARTS
        self._hit = [0.0] * _PARTS
        if state is not None:
            self._either = amounts_above_0(state["either"], len(APART))
            self._both = amounts(state["both"], len(APART))
            self._there = amounts(state["there"], _PARTS)
            self._hit = amounts(state["hit"], _PARTS)
        self.longest = self._longest()
        """How many nodes in a row are expected to leave together; 1 for strangers."""
        if self.longest > 1 and min(sum(self._there), sum(self._hit)) < LEAST:
            raise ValueError("neighbours that leave together, and nobody ever left")

    def to_state(self) -> dict[str, Any]:
        """Return all but the line itself as JSON has it."""
        return {
            "either": list(self._either),
            "both": list(self._both),
            "there": list(self._there),
            "hit": list(self._hit),
        }

    def join(self, nodes: Iterable[int]) -> None:
        """Take note that *nodes* are idle from now on."""
        if self._is_line:
            for node in nodes:
                insort(self._line, node, key=self._order)
        self._begins = None

    def leave(self, left: Collection[int], *, clusters: int) -> None:
        """Take note that *left* are idle no more; their clusters are still known.

        Args:
            left: Who leaves.
            clusters: How many there were until now, those of *left* among them.
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
        """Forget who is idle, and nothing that was learned."""
        self._line.clear()
        self._begins = None

    def in_line(self, nodes: Iterable[int]) -> Sequence[int]:
        """Return *nodes* as they stand, whatever their numbers are.

        In another order clusters begin with gaps between them, and never meet.
        """
        return sorted(nodes, key=self._order)

    def clusters_beside(self, node: int) -> Sequence[int]:
        """Return the clusters of the nodes next to *node*, as far as they have one."""
        place = self._place(node)
        beside = self._line[max(place - 1, 0) : place + 2]
        of = self._cluster_of
        return sorted({of[other] for other in beside if other in of and other != node})

    def times(self, cluster: int) -> float:
        """Return how much likelier *cluster* is hit for where it stands; mostly 1.

        ::

            (h + 20 H / T) / (t + 20) / (H / T)

        where clusters that began in its part of the line were there t times when
        somebody left, and were hit h times; T and H are the same of the whole line.
        """
        if self.longest == 1:
            return 1.0
        part = self._part(cluster)
        rate = sum(self._hit) / sum(self._there)
        seen = self._hit[part] + _SAID_HITS * rate
        return seen / (self._there[part] + _SAID_HITS) / rate

    def _place(self, node: int) -> int:
        return bisect_left(self._line, self._order(node), key=self._order)

    def _begin(self) -> Mapping[int, int]:
        """Return where each cluster begins, of all that do in any but the last part."""
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
            sums[:] = [one - one / _LASTS for one in sums]
        begins = self._begin()
        for place in begins.values():
            self._there[place.bit_length()] += 1.0
        self._there[_LAST] += clusters - len(begins)
        for cluster in hit:
            self._hit[self._part(cluster)] += 1.0

    def _count_pairs(self, gone: Sequence[int]) -> None:
        """Count pairs of whom one left, and both; a departure counts 1 at the most.

        Args:
            gone: Places of those who leave, ascending.
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
        """Count pairs so far apart in; what was counted fades, what is believed not."""
        fades, strangers = either / _LASTS, SAID_TOGETHER / SAID_EVENTS
        self._either[at] -= fades * (self._either[at] - _SAID_DEPARTURES)
        self._both[at] -= fades * (self._both[at] - _SAID_DEPARTURES * strangers)
        self._either[at] += either
        self._both[at] += both

    def _leave_together(self, place: int) -> bool:
        return 2.0 * self._both[place] >= self._either[place]

    def _longest(self) -> int:
        together = takewhile(self._leave_together, range(len(APART) * self._is_line))
        return max((APART[place] for place in together), default=1)
