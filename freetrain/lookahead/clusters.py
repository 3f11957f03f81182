"""Sets of nodes that are expected to leave together."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from itertools import takewhile
from math import exp, expm1
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freetrain.lookahead.affinity import SAID_EVENTS, SAID_TOGETHER
from freetrain.lookahead.base import (
    LEAST,
    amounts,
    amounts_above_0,
    check_shares,
    faded,
    lasting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.lookahead.base import Prospect


# ----------------------------------------------------------------------
# Sets of nodes that are expected to leave together.

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


# ----------------------------------------------------------------------
# How often clusters of an age and a size lose nodes.

AGES_S = (0.0, 70.0, 150.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0)
"""Where classes of age begin, in seconds since the cluster became idle."""

_ENDS_S = (*AGES_S[1:], math.inf)

SIZES = (1, 2, 3, 5, 9, 17, 65)
"""Where classes of size begin, in nodes that are left."""

_SAID_HITS_hazard = 2.0
_SAID_EXPOSURE_S = 3000.0
"""Worth of what is believed before anything was seen: a hit in 1,500 s."""

_SAID_SHARE = (1.0, 1.0, 0.7, 0.6, 0.5, 0.5, 0.5)
"""Share that a hit takes, by class of size; counts as one hit."""

_LEAST_SHARE = 1e-6
"""A hit takes one node of a million, or more of them."""


class Risk(NamedTuple):
    """What a cluster is in for.

    Attributes:
        hits: [Λ] Hits expected until a horizon, 0 or more.
        life_s: [L] Mean seconds until then that one of its nodes stays.
        share: [f] Share of its nodes that a hit takes.
    """

    hits: float
    life_s: float
    share: float


class Meter:
    """Counts the exposure of one cluster, for as long as it loses no node.

    All clusters are counted at every event. To know the class of size and of age takes
    a third of finding them each time.

    Attributes:
        age_s: Up to what age its exposure is counted.
    """

    __slots__ = ("_ends_s", "_place", "_row_s", "age_s")

    def __init__(self, row_s: list[float], age_s: float) -> None:
        """Count into *row_s*, exposure by class of age, from *age_s* on."""
        self._row_s, self.age_s = row_s, age_s
        self._place = bisect_right(AGES_S, age_s) - 1
        self._ends_s = _ENDS_S[self._place]

    def live(self, to_s: float) -> None:
        """Take note that it lost no node until age *to_s*."""
        while to_s > self._ends_s:
            self._row_s[self._place] += self._ends_s - self.age_s
            self.age_s, self._place = self._ends_s, self._place + 1
            self._ends_s = _ENDS_S[self._place]
        if to_s > self.age_s:
            self._row_s[self._place] += to_s - self.age_s
            self.age_s = to_s


class Hazard:
    """Counts hits and exposure by age and size.

    The hazard is λ = (hits + 2) / (exposure + 3000 s), in hits a second.

    Args:
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._hits = [[_SAID_HITS_hazard] * len(AGES_S) for _ in SIZES]
        self._exposure_s = [[_SAID_EXPOSURE_S] * len(AGES_S) for _ in SIZES]
        self._share = list(_SAID_SHARE)
        self._shares = [1.0] * len(SIZES)
        if state is not None:
            self._hits = [amounts_above_0(row, len(AGES_S)) for row in state["hits"]]
            self._exposure_s = [
                amounts_above_0(row, len(AGES_S)) for row in state["exposure"]
            ]
            self._share = amounts_above_0(state["share"], len(SIZES))
            self._shares = amounts_above_0(state["shares"], len(SIZES))
            if not len(self._hits) == len(self._exposure_s) == len(SIZES):
                raise ValueError("hazards of other classes of size")
            check_shares(self._share, self._shares)
            check_shares([_LEAST_SHARE * of for of in self._shares], self._share)

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "hits": [list(row) for row in self._hits],
            "exposure": [list(row) for row in self._exposure_s],
            "share": list(self._share),
            "shares": list(self._shares),
        }

    def meter(self, nodes: int, age_s: float) -> Meter:
        """Return what counts the exposure of a cluster while it has *nodes* nodes.

        Args:
            nodes: How many it has.
            age_s: Up to what age its exposure is counted.
        """
        return Meter(self._exposure_s[bisect_right(SIZES, nodes) - 1], age_s)

    def hit(self, nodes: int, age_s: float, lost: int) -> None:
        """Take note that a cluster of *nodes* lost some of them at an age."""
        size = bisect_right(SIZES, nodes) - 1
        self._hits[size][bisect_right(AGES_S, age_s) - 1] += 1.0
        self._share[size] += lost / nodes
        self._shares[size] += 1.0

    def fade(self, keeps: float) -> None:
        """Keep the share *keeps* of what was counted, and all that was believed."""
        for hits, exposure_s in zip(self._hits, self._exposure_s, strict=True):
            hits[:] = [faded(one, _SAID_HITS_hazard, keeps) for one in hits]
            # In place, as meters count into these very rows.
            exposure_s[:] = [faded(one, _SAID_EXPOSURE_S, keeps) for one in exposure_s]
        for size, share in enumerate(_SAID_SHARE):
            self._share[size] = faded(self._share[size], share, keeps)
            self._shares[size] = faded(self._shares[size], 1.0, keeps)

    def risk(
        self, nodes: int, age_s: float, times: float = 1.0, *, horizon_s: float
    ) -> Risk:
        """Return what a cluster of *nodes* is in for until *horizon_s* from now.

        The hazard is followed through the classes of age, as if the size stayed::

            Λ = ∫ c λ(age + t) dt    L = ∫ exp(-f Λ(t)) dt    over t from 0 to horizon

        Args:
            nodes: How many it has.
            age_s: Its age.
            times: [c] How much likelier it is hit than others of its size and age.
            horizon_s: Until when.
        """
        size = bisect_right(SIZES, nodes) - 1
        hits, exposure_s = self._hits[size], self._exposure_s[size]
        share = self._share[size] / self._shares[size]
        place, at_s = bisect_right(AGES_S, age_s) - 1, age_s
        end_s = age_s + horizon_s
        expected, life_s = 0.0, 0.0
        while at_s < end_s:
            ends_s = _ENDS_S[place]
            # A tenth of the time of this loop goes into ``min`` otherwise.
            until_s = ends_s if ends_s < end_s else end_s  # noqa: FURB136
            rate, span_s = times * hits[place] / exposure_s[place], until_s - at_s
            fall = share * rate
            life_s -= exp(-share * expected) * expm1(-fall * span_s) / fall
            expected += rate * span_s
            at_s, place = until_s, place + 1
        return Risk(expected, min(life_s, horizon_s), share)


# ----------------------------------------------------------------------
# Idle nodes in a line, by number: whether neighbours leave together, and which end.

APART = (1, 2, 4, 8, 16, 32, 64, 128)
"""How far apart in the line two nodes are, of whom it is learned."""

_SAID_DEPARTURES = 8.0
"""What is believed of neighbours before any left, in departures: they are strangers."""

_SAID_HITS_lineup = 20.0
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


class Lineup:
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
        seen = self._hit[part] + _SAID_HITS_lineup * rate
        return seen / (self._there[part] + _SAID_HITS_lineup) / rate

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
