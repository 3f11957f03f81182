"""The forecaster ``learned``: hazards by age and size, affinity by pair, calibrated.

Nodes that become idle together, or stand beside each other in Slurm's order, form
clusters. :class:`Hazard` counts how often clusters of an age and a size lose nodes (a
*hit*), and which share of them; :class:`NodeOrder` learns whether neighbours in Slurm's
order leave together and which end of it leaves first; :class:`PendingForecasts` and
:class:`Calibration` correct survival probabilities by the outcomes of earlier ones.
:class:`LearnedForecaster` puts these together.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import exp, expm1
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freetrain.lookahead.affinity import PRIOR_EVENTS, PRIOR_TOGETHER, Affinity, split
from freetrain.lookahead.base import (
    LEAST,
    Cohort,
    ColdStart,
    Fading,
    LinePosition,
    Prospect,
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    faded,
    lasting,
    members,
    probability,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from freetrain.lookahead.base import Pairs

# ----------------------------------------------------------------------
# Hazard: how often clusters of an age and a size lose nodes

AGES_S = (0.0, 70.0, 150.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0)
"""Where classes of age begin, in seconds since the cluster became idle."""

_AGE_ENDS_S = (*AGES_S[1:], math.inf)

SIZES = (1, 2, 3, 5, 9, 17, 65)
"""Where classes of size begin, in nodes that are left."""

_PRIOR_HITS = 2.0

_PRIOR_EXPOSURE_S = 3000.0
"""The prior: a hit in 1,500 s."""

_PRIOR_SHARE = (1.0, 1.0, 0.7, 0.6, 0.5, 0.5, 0.5)
"""The prior share that a hit takes, by class of size; counts as one hit."""

_LEAST_SHARE = 1e-6
"""A hit takes one node of a million, or more of them."""


class Risk(NamedTuple):
    """The hits and life that a cluster may expect.

    Attributes:
        hits: [Λ] Hits expected until a horizon, 0 or more.
        life_s: [L] Mean seconds until then that one of its nodes stays.
        share: [f] Share of its nodes that a hit takes.
    """

    hits: float
    life_s: float
    share: float


class Hazard:
    """Counts hits and exposure by age and size.

    The hazard is λ = (hits + 2) / (exposure + 3000 s), in hits a second.

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._hits = [[_PRIOR_HITS] * len(AGES_S) for _ in SIZES]
        self._exposure_s = [[_PRIOR_EXPOSURE_S] * len(AGES_S) for _ in SIZES]
        self._share = list(_PRIOR_SHARE)
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
        """Return the state for JSON."""
        return {
            "hits": [list(row) for row in self._hits],
            "exposure": [list(row) for row in self._exposure_s],
            "share": list(self._share),
            "shares": list(self._shares),
        }

    def meter(self, nodes: int, age_s: float) -> Meter:
        """Return a meter of the exposure of a cluster of *nodes*, from *age_s* on."""
        return Meter(self._exposure_s[bisect_right(SIZES, nodes) - 1], age_s)

    def hit(self, nodes: int, age_s: float, lost: int) -> None:
        """Count that a cluster of *nodes* lost some of them at an age."""
        size = bisect_right(SIZES, nodes) - 1
        self._hits[size][bisect_right(AGES_S, age_s) - 1] += 1.0
        self._share[size] += lost / nodes
        self._shares[size] += 1.0

    def fade(self, keeps: float) -> None:
        """Keep the share *keeps* of the counts, and the whole prior."""
        for hits, exposure_s in zip(self._hits, self._exposure_s, strict=True):
            hits[:] = [faded(count, _PRIOR_HITS, keeps) for count in hits]
            # In place, as meters count into these rows.
            exposure_s[:] = [
                faded(count, _PRIOR_EXPOSURE_S, keeps) for count in exposure_s
            ]
        for size, share in enumerate(_PRIOR_SHARE):
            self._share[size] = faded(self._share[size], share, keeps)
            self._shares[size] = faded(self._shares[size], 1.0, keeps)

    def risk(
        self, nodes: int, age_s: float, times: float = 1.0, *, horizon_s: float
    ) -> Risk:
        """Return the risk of a cluster of *nodes* until *horizon_s* from now.

        The hazard is followed through the classes of age, as if the size stayed::

            Λ = ∫ c λ(age + t) dt    L = ∫ exp(-f Λ(t)) dt    over t from 0 to horizon

        Args:
            nodes: Its size.
            age_s: Its age.
            times: [c] Its hazard over that of others of its size and age.
            horizon_s: How far ahead.
        """
        size = bisect_right(SIZES, nodes) - 1
        hits, exposure_s = self._hits[size], self._exposure_s[size]
        share = self._share[size] / self._shares[size]
        place, at_s = bisect_right(AGES_S, age_s) - 1, age_s
        end_s = age_s + horizon_s
        expected, life_s = 0.0, 0.0
        while at_s < end_s:
            ends_s = _AGE_ENDS_S[place]
            # A tenth of the time of this loop goes into ``min`` otherwise.
            until_s = ends_s if ends_s < end_s else end_s  # noqa: FURB136
            rate, span_s = times * hits[place] / exposure_s[place], until_s - at_s
            fall = share * rate
            life_s -= exp(-share * expected) * expm1(-fall * span_s) / fall
            expected += rate * span_s
            at_s, place = until_s, place + 1
        return Risk(expected, min(life_s, horizon_s), share)


class Meter:
    """Counts the exposure of clusters of one size and age, while they lose no node.

    All are counted at every event. Remembering the class of size and of age takes a
    third of the time of finding them again.

    Attributes:
        age_s: Up to what age its exposure is counted.
    """

    __slots__ = ("_ends_s", "_place", "_row_s", "age_s")

    def __init__(self, row_s: list[float], age_s: float) -> None:
        """Count into *row_s*, exposure by class of age, from *age_s* on."""
        self._row_s, self.age_s = row_s, age_s
        self._place = bisect_right(AGES_S, age_s) - 1
        self._ends_s = _AGE_ENDS_S[self._place]

    def live(self, to_s: float, clusters: int) -> None:
        """Count that none of *clusters* lost a node until age *to_s*."""
        while to_s > self._ends_s:
            self._add(self._ends_s - self.age_s, clusters)
            self.age_s, self._place = self._ends_s, self._place + 1
            self._ends_s = _AGE_ENDS_S[self._place]
        if to_s > self.age_s:
            self._add(to_s - self.age_s, clusters)
            self.age_s = to_s

    def _add(self, each_s: float, clusters: int) -> None:
        if clusters == 1:
            self._row_s[self._place] += each_s
        else:
            row_s, place = self._row_s, self._place
            row_s[place] = added(row_s[place], each_s, clusters)


_FEW = 16
"""So few numbers are added sooner than put into an array."""


def added(total: float, each: float, times: int) -> float:
    """Return *total* after *each* was added so many *times*.

    Rounded each time: a forecast is the same to the bit, however many clusters are
    counted together.
    """
    if times < _FEW:
        for _ in range(times):
            total += each
        return total
    steps = np.full(times + 1, each)
    steps[0] = total
    return float(steps.cumsum()[-1])


# ----------------------------------------------------------------------
# Slurm's order: Slurm gives jobs nodes in an order of their names where it knows no
# topology, so neighbours leave together, and those at one end leave first.

APART = (1, 2, 4, 8, 16, 32, 64, 128)
"""Distances in the order at which pairs are counted."""

_PRIOR_DEPARTURES = 8.0
"""Weight of the prior that neighbours leave independently, in departures."""

_PRIOR_PART_HITS = 20.0
"""Weight of the prior that all parts of the order are hit alike, in clusters that began
there at a departure."""

_PARTS = 13
"""Parts of the order begin at places 0, 1, 2, 4, …, 2,048, and the last has no end: so
few nodes are looked at one by one, on a machine of twenty thousand nodes, too."""

_LAST_PART = _PARTS - 1

_LAST_PART_BEGINS = 1 << (_LAST_PART - 1)
"""The place at which the last part begins."""

_LASTS_DEPARTURES = 2_048.0
"""Departures after which a departure counts a third as much, as in ``LeafAffinity``.
So a change in how a site places jobs is learned after as many. A departure counts as
the share of pairs that it touches: few nodes of many teach and fade little."""


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
        unrelated = PRIOR_TOGETHER / PRIOR_EVENTS
        self._cluster_of = cluster_of
        self._is_line = order is not None
        self._order = order or int
        self._line = sorted(cluster_of, key=order) if self._is_line else []
        self._begins: dict[int, int] | None = None
        self._either = [_PRIOR_DEPARTURES] * len(APART)
        self._both = [_PRIOR_DEPARTURES * unrelated] * len(APART)
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
        """Return *nodes* in order; in another, clusters would begin with gaps."""
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
        seen = self._hit[part] + _PRIOR_PART_HITS * rate
        return seen / (self._there[part] + _PRIOR_PART_HITS) / rate

    def _place(self, node: int) -> int:
        return bisect_left(self._line, self._order(node), key=self._order)

    def _begin(self) -> Mapping[int, int]:
        """Return the place where each cluster begins, if before the last part."""
        if self._begins is None:
            # Back to front, so that the first place of each is the one that stays.
            places = range(min(_LAST_PART_BEGINS, len(self._line)) - 1, -1, -1)
            nodes = map(self._line.__getitem__, places)
            clusters = map(self._cluster_of.__getitem__, nodes)
            self._begins = dict(zip(clusters, places, strict=True))
        return self._begins

    def _part(self, cluster: int) -> int:
        place = self._begin().get(cluster)
        return _LAST_PART if place is None else place.bit_length()

    def _count_parts(self, hit: Collection[int], clusters: int) -> None:
        for sums in (self._there, self._hit):
            sums[:] = [count - count / _LASTS_DEPARTURES for count in sums]
        begins = self._begin()
        for part, began in Counter(map(int.bit_length, begins.values())).items():
            self._there[part] = added(self._there[part], 1.0, began)
        self._there[_LAST_PART] += clusters - len(begins)
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
        fades, unrelated = either / _LASTS_DEPARTURES, PRIOR_TOGETHER / PRIOR_EVENTS
        self._either[at] -= fades * (self._either[at] - _PRIOR_DEPARTURES)
        self._both[at] -= fades * (self._both[at] - _PRIOR_DEPARTURES * unrelated)
        self._either[at] += either
        self._both[at] += both

    def _leave_together(self, place: int) -> bool:
        return 2.0 * self._both[place] >= self._either[place]

    def _longest(self) -> int:
        together = takewhile(self._leave_together, range(len(APART) * self._is_line))
        return max((APART[place] for place in together), default=1)


# ----------------------------------------------------------------------
# Calibration: survival probabilities, corrected by the outcomes of earlier ones

CHECKED_S = 600.0
"""Survival over this long is scored, and corrected by the scores."""

_RECORD_EVERY_S = 300.0

_ROUNDED_S = 1e-3
"""Rounding of today's Unix times is less than that."""


@dataclass(frozen=True, slots=True, eq=False)
class _PendingForecast:
    """The survival forecast of a cluster, to be scored when it is due.

    Attributes:
        due_s: When it is scored.
        survival: The probability.
        nodes: How many nodes the cluster had.
        staying: Those of them that have not left since; others may have joined the
            cluster.
    """

    due_s: float
    survival: float
    nodes: int
    staying: set[int]


class PendingForecasts:
    """Survival forecasts that are not due yet; those due teach how to correct others.

    Args:
        state: From ``to_state``, with ``now_s``, the time of the last event; None to
            begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = state or {"calibration": None, "said": (), "check_s": 0.0}
        self._calibration = Calibration(kept["calibration"])
        self._pending: deque[_PendingForecast] = deque()
        self._by_node: dict[int, list[_PendingForecast]] = {}
        self._check_s = amount(kept["check_s"])
        for row in kept["said"]:
            self._add(_pending_from(row))
        if state is not None:
            self._check_times(amount(state["now_s"]))

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "calibration": self._calibration.to_state(),
            "said": [
                [own.due_s, own.survival, own.nodes, sorted(own.staying)]
                for own in self._pending
            ],
            "check_s": self._check_s,
        }

    def settle(self, now_s: float) -> None:
        """Score the forecasts that are due by how many of their nodes stayed."""
        while self._pending and self._pending[0].due_s <= now_s:
            due = self._pending.popleft()
            for node in due.staying:
                self._by_node[node].remove(due)
            self._calibration.learn(
                due.survival, stayed=len(due.staying), nodes=due.nodes
            )

    def lose(self, left: Iterable[int]) -> None:
        """Remove nodes that leave."""
        for node in left:
            for pending in self._by_node.pop(node, ()):
                pending.staying.remove(node)

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time for another round of forecasts."""
        return now_s >= self._check_s

    def add_round(
        self, now_s: float, survivals: Iterable[tuple[Collection[int], float]]
    ) -> None:
        """Record the survival over ``CHECKED_S`` of each cluster's nodes."""
        self._check_s = now_s + _RECORD_EVERY_S
        due_s = now_s + CHECKED_S
        for nodes, survival in survivals:
            self._add(_PendingForecast(due_s, survival, len(nodes), set(nodes)))

    def corrected(self, survival: float) -> float:
        """Return *survival* corrected by the scores so far, 0 to 1."""
        return self._calibration.of(survival)

    def forget_pool(self) -> None:
        """Forget the pending forecasts, but nothing that was learned."""
        self._pending.clear()
        self._by_node.clear()
        self._check_s = 0.0

    def _check_times(self, now_s: float) -> None:
        """Refuse times so late that nothing would be scored or recorded for long."""
        due_s = [own.due_s for own in self._pending]
        if due_s != sorted(due_s) or (
            due_s and due_s[-1] > now_s + CHECKED_S + _ROUNDED_S
        ):
            raise ValueError(f"forecasts due at {due_s}, at {now_s}")
        if self._check_s > now_s + _RECORD_EVERY_S + _ROUNDED_S:
            raise ValueError(f"no forecast until {self._check_s}, at {now_s}")

    def _add(self, pending: _PendingForecast) -> None:
        self._pending.append(pending)
        for node in pending.staying:
            self._by_node.setdefault(node, []).append(pending)


def _pending_from(row: Any) -> _PendingForecast:  # noqa: ANN401 - JSON
    """Return a saved forecast; raises as ``PendingForecasts``."""
    due_s, survival, nodes, staying = row
    pending = _PendingForecast(
        amount(due_s), probability(survival), whole(nodes), members(staying)
    )
    if not len(pending.staying) <= pending.nodes or not pending.nodes:
        raise ValueError(f"a forecast of {nodes} nodes, of which {staying} are left")
    return pending


_MOST_ODDS, _ODDS_STEP = 7.0, 0.5

_ODDS = tuple(-_MOST_ODDS + _ODDS_STEP * place for place in range(29))
"""Log-odds of the knots. Many forecasts are near 0, where nodes stand at the end
of the order that leaves first, or near 1, where machines are nearly empty: there even a
fine step of probability would hold forecasts with quite different outcomes."""

_KNOTS = tuple(1.0 / (1.0 + math.exp(-odds)) for odds in _ODDS)

_PRIOR_LESSONS = 50.0
"""Weight of the prior that forecasts are right, at every knot."""

_LESSON_KEPT = 0.9999
"""Share of all lessons kept at each lesson: half is forgotten after 6,931 of them, two
days of the first 1,024 nodes of Summit, as machines change their ways."""

_MOST_LESSON_WEIGHT = 1e6

_LEAST_WEIGHT = 1.0
"""A knot never counts less, so that one unused for months stays a number."""


class Calibration:
    """A map from forecast probabilities to observed frequencies; never falling.

    It goes through 0 and 1, and straight between the means of its knots, so that a
    survival that falls with its horizon falls still.

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._forecast = [_PRIOR_LESSONS * knot for knot in _KNOTS]
        self._stayed = list(self._forecast)
        self._count = [_PRIOR_LESSONS] * len(_KNOTS)
        # Lessons weigh more and more, instead of earlier ones less and less.
        self._fresh = 1.0
        self._curve: tuple[list[float], list[float]] | None = None
        if state is not None:
            self._forecast = amounts(state["said"], len(_KNOTS))
            self._stayed = amounts(state["came"], len(_KNOTS))
            self._count = amounts_above_0(state["count"], len(_KNOTS))
            (self._fresh,) = amounts_above_0([state["fresh"]], 1)
            check_shares(self._forecast, self._count)
            check_shares(self._stayed, self._count)

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "said": list(self._forecast),
            "came": list(self._stayed),
            "count": list(self._count),
            "fresh": self._fresh,
        }

    def learn(self, forecast: float, *, stayed: int, nodes: int) -> None:
        """Learn that *stayed* of *nodes* nodes stayed, each forecast at *forecast*.

        Nodes of a cluster fare alike, so they weigh less than as many independent
        ones: the root of their number. The knots on both sides learn, the nearer more.
        """
        self._fresh /= _LESSON_KEPT
        place, beyond = _between(forecast)
        weight = self._fresh * math.sqrt(nodes)
        self._add(place, weight * (1.0 - beyond), forecast, stayed / nodes)
        self._add(place + 1, weight * beyond, forecast, stayed / nodes)
        self._curve = None
        if self._fresh > _MOST_LESSON_WEIGHT:
            self._scale_down()

    def of(self, forecast: float) -> float:
        """Return *forecast*, a probability, corrected."""
        if self._curve is None:
            self._curve = self._corners()
        xs, ys = self._curve
        right = min(bisect_right(xs, forecast), len(xs) - 1)
        left = right - 1
        weight = (forecast - xs[left]) / (xs[right] - xs[left])
        return min(1.0, max(0.0, ys[left] + weight * (ys[right] - ys[left])))

    def _add(self, place: int, weight: float, forecast: float, stayed: float) -> None:
        self._forecast[place] += forecast * weight
        self._stayed[place] += stayed * weight
        self._count[place] += weight

    def _scale_down(self) -> None:
        """Let the next lesson weigh 1 again, before numbers grow too large."""
        for place, count in enumerate(self._count):
            scale = max(count / self._fresh, _LEAST_WEIGHT) / count
            for sums in (self._forecast, self._stayed, self._count):
                sums[place] *= scale
        self._fresh = 1.0

    def _corners(self) -> tuple[list[float], list[float]]:
        """Pool adjacent knots until they ascend (isotonic regression)."""
        pools: list[tuple[float, float, float]] = []
        for pool in zip(self._forecast, self._stayed, self._count, strict=True):
            merged = pool
            while pools and pools[-1][1] / pools[-1][2] >= merged[1] / merged[2]:
                last = pools.pop()
                merged = (
                    last[0] + merged[0],
                    last[1] + merged[1],
                    last[2] + merged[2],
                )
            pools.append(merged)
        xs = [0.0, *(forecast / count for forecast, _, count in pools), 1.0]
        ys = [0.0, *(stayed / count for _, stayed, count in pools), 1.0]
        kept = [0, *(b for a, b in pairwise(range(len(xs))) if xs[b] > xs[a])]
        return [xs[k] for k in kept], [ys[k] for k in kept]


def _between(forecast: float) -> tuple[int, float]:
    """Return the knot below *forecast*, and the part of the way to the next, 0 to 1.

    A value below the first knot or above the last counts as that one.
    """
    if forecast <= _KNOTS[0]:
        return 0, 0.0
    if forecast >= _KNOTS[-1]:
        return len(_KNOTS) - 2, 1.0
    steps = (math.log(forecast / (1.0 - forecast)) + _MOST_ODDS) / _ODDS_STEP
    place = min(int(steps), len(_KNOTS) - 2)
    return place, steps - place


# ----------------------------------------------------------------------
# The forecaster: clusters of idle nodes, from when they become idle until they leave

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


@dataclass(slots=True, eq=False)
class LearnedCohort(Cohort):
    """Clusters of one size that began at one event and have lost no node since.

    A cluster that loses a node is alone in its cohort; so is each that is judged by its
    place in Slurm's order.

    Attributes:
        since_s: When the first nodes of each became idle.
        meter: Counts their exposure.
        prospect: Their last forecast.
        until_s: Until when that is valid.
        times: Their hazard then, over that of others of their size and age.
    """

    since_s: float
    meter: Meter
    prospect: Prospect = _NO_PROSPECT
    until_s: float = -math.inf
    times: float = 1.0


@dataclass(slots=True)
class NodeCluster:
    """Idle nodes that became idle together, or beside each other.

    Attributes:
        nodes: Those left.
        cohort: Says since when, and what is expected of it.
        arrivals: The nodes that became idle with it; None if not kept.
    """

    nodes: set[int]
    cohort: LearnedCohort
    arrivals: Arrivals | None = None


class LearnedForecaster:
    """Learns from events alone; see ``Forecaster``, and ``Maker`` for its arguments.

    Args:
        horizon_s: Of prospects.
        knows_pairs: Whether affinity is learned; without, all nodes that became idle
            together are a cluster. For ablation.
        checks: Whether survival forecasts are scored, and corrected by the scores.
        pairs: Counts by pair; None for counts of all pairs ever seen.
        state: From ``to_state``; None to begin.
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
        self._cohorts: dict[float, list[LearnedCohort]] = {}  # by since_s, ascending
        self._is_idle = np.zeros(0, dtype=np.bool_)
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
        """Whether it has seen too little for plans."""
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
                [number, of.since_s, of.meter.age_s, sorted(own.nodes)]
                for number, own in self._clusters.items()
                for of in (own.cohort,)
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
        self._cohorts.clear()
        self._is_idle[:] = False
        self._order.forget_pool()
        self._pending.forget_pool()

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._numbers, self._now_s = whole(state["numbers"]), amount(state["now_s"])
        for row in state["clusters"]:
            self._restore_cluster(row)
        named = sum(len(cluster.nodes) for cluster in self._clusters.values())
        if (len(self._clusters), len(self._cluster_of)) != (
            len(state["clusters"]),
            named,
        ):
            raise ValueError("a cluster named twice, or a node in two")
        if max(self._clusters, default=-1) >= self._numbers:
            raise ValueError("a cluster with a number that is not in use yet")

    def _restore_cluster(self, row: Sequence[Any]) -> None:
        number, since_s, counted_s, nodes = row
        age_s = self._now_s - amount(since_s)
        if not nodes or not amount(counted_s) <= age_s:
            raise ValueError(f"a cluster that cannot be at {self._now_s}: {row}")
        own = members(nodes)
        cohort = self._cohort(len(own), since_s, counted_s)
        self._clusters[whole(number)] = NodeCluster(own, cohort)
        cohort.clusters.append(number)
        self._cluster_of.update(dict.fromkeys(own, number))
        self._mark(own, is_idle=True)

    def idle(self) -> Collection[int]:
        """Return all idle nodes."""
        return self._cluster_of.keys()

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node."""
        return self._cluster_of[node]

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of *cluster* that are still idle."""
        return self._clusters[cluster].nodes

    def cohorts(self) -> Collection[LearnedCohort]:
        """Return all clusters by cohort."""
        return [cohort for own in self._cohorts.values() for cohort in own]

    def cohort(self, cluster: int) -> Cohort:
        """Return the cohort of *cluster*."""
        return self._clusters[cluster].cohort

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of *cluster* until the horizon.

        Kept for a fiftieth of the cluster's age, as little changes in that time.
        """
        known, now_s = self._clusters[cluster].cohort, self._now_s
        # Called for each cohort of each plan: even a call that returns 1 takes time.
        times = 1.0 if self._order.longest == 1 else self._order.times(cluster)
        if now_s <= known.until_s and times == known.times:
            return known.prospect
        if now_s < self._cold.until_s:
            return self._lasting
        age_s = now_s - known.since_s
        alike = known.nodes, age_s, times
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
        age_s = self._now_s - cluster.cohort.since_s
        nodes = len(cluster.nodes)
        risk = self._hazard.risk(nodes, age_s, times, horizon_s=horizon_s)
        return math.exp(-risk.share * risk.hits)

    def _settle(self, now_s: float) -> None:
        """Count exposure until *now_s*, and score the forecasts that are due."""
        for since_s, cohorts in self._cohorts.items():
            for cohort in cohorts:
                cohort.meter.live(now_s - since_s, len(cohort.clusters))
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
        were_independent = self._order.longest == 1
        self._order.leave(left, clusters=len(self._clusters))
        if were_independent and self._order.longest > 1:
            self._separate()
        self._pending.lose(left)
        if self._knows_pairs:
            self._affinity.saw(left, np.flatnonzero(self._is_idle))
        self._mark(left, is_idle=False)
        parted: dict[int, list[int]] = {}
        for node in left:
            parted.setdefault(self._cluster_of.pop(node), []).append(node)
        for number, nodes in parted.items():
            cluster = self._clusters[number]
            age_s = self._now_s - cluster.cohort.since_s
            self._hazard.hit(cluster.cohort.nodes, age_s, len(nodes))
            cluster.nodes.difference_update(nodes)
            if cluster.nodes:
                self._set_apart(number, age_s)
            else:
                self._leave_cohort(number, cluster.cohort)
                del self._clusters[number]

    def _group(self, joined: Sequence[int]) -> None:
        self._mark(joined, is_idle=True)
        self._order.join(joined)
        if self._order.longest > 1:
            for node in self._order.in_line(joined):
                self._line_up(node)
            return
        cohorts: dict[int, LearnedCohort] = {}
        for first in range(0, len(joined), _MOST_AT_ONCE):
            nodes = joined[first : first + _MOST_AT_ONCE]
            if len(nodes) == 1 or not self._knows_pairs:
                self._found(set(nodes), cohorts)
                continue
            affinity = self._affinity.of(nodes)
            arrivals = Arrivals(np.asarray(nodes, dtype=np.intp), affinity)
            for places in split(affinity, LEAST_AFFINITY):
                self._found({nodes[place] for place in places}, cohorts, arrivals)

    def _line_up(self, node: int) -> None:
        """Put *node* into the larger cluster beside it that has room, or a new one."""
        beside = self._order.clusters_beside(node)
        sizes = {number: len(self._clusters[number].nodes) for number in beside}
        room = [own for own, nodes in sizes.items() if nodes < self._order.longest]
        if not room:
            self._found({node}, {})
            return
        number = max(room, key=sizes.__getitem__)
        cluster = self._clusters[number]
        cluster.nodes.add(node)
        cluster.arrivals = None
        self._set_apart(number, cluster.cohort.meter.age_s)
        self._cluster_of[node] = number

    def _found(
        self,
        nodes: set[int],
        cohorts: dict[int, LearnedCohort],
        arrivals: Arrivals | None = None,
    ) -> None:
        """Make *nodes* a cluster of the cohort of its size."""
        cohort = cohorts.get(len(nodes))
        if cohort is None:
            cohort = cohorts[len(nodes)] = self._cohort(len(nodes), self._now_s, 0.0)
        cohort.clusters.append(self._numbers)
        self._clusters[self._numbers] = NodeCluster(nodes, cohort, arrivals)
        self._cluster_of.update(dict.fromkeys(nodes, self._numbers))
        self._numbers += 1

    def _cohort(self, nodes: int, since_s: float, age_s: float) -> LearnedCohort:
        """Return a new cohort of clusters of *nodes*, counted from *age_s* on."""
        cohort = LearnedCohort(nodes, [], since_s, self._hazard.meter(nodes, age_s))
        self._cohorts.setdefault(since_s, []).append(cohort)
        return cohort

    def _set_apart(self, number: int, age_s: float) -> LearnedCohort:
        """Return the cohort of a cluster with other nodes, counted from *age_s* on."""
        cluster = self._clusters[number]
        before, nodes = cluster.cohort, len(cluster.nodes)
        if len(before.clusters) == 1:
            before.nodes, before.until_s = nodes, -math.inf
            before.meter = self._hazard.meter(nodes, age_s)
            return before
        cluster.cohort = self._cohort(nodes, before.since_s, age_s)
        cluster.cohort.clusters.append(number)
        self._leave_cohort(number, before)
        return cluster.cohort

    def _leave_cohort(self, number: int, cohort: LearnedCohort) -> None:
        del cohort.clusters[bisect_left(cohort.clusters, number)]
        if cohort.clusters:
            return
        beside = self._cohorts[cohort.since_s]
        beside.remove(cohort)
        if not beside:
            del self._cohorts[cohort.since_s]

    def _separate(self) -> None:
        """Make each cluster a cohort, as its place in the order counts from now on."""
        for cohort in self.cohorts():
            for number in cohort.clusters[1:]:
                own = self._set_apart(number, cohort.meter.age_s)
                own.prospect, own.until_s = cohort.prospect, cohort.until_s

    def _mark(self, nodes: Collection[int], *, is_idle: bool) -> None:
        """Note which nodes are idle by number, as counts of pairs take them."""
        more = max(nodes, default=-1) + 1 - len(self._is_idle)
        if more > 0:
            self._is_idle = np.pad(self._is_idle, (0, more + len(self._is_idle) // 4))
        self._is_idle[list(nodes)] = is_idle
