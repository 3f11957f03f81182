"""What was said of idle nodes and what came, in sums that stay small."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from freetrain.lookahead.affinity import affinity_map
from freetrain.lookahead.base import (
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    members,
    share,
    whole,
)
from freetrain.lookahead.clusters import AGES_S

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Iterable,
        Mapping,
        Sequence,
    )
    from collections.abc import (
        Set as AbstractSet,
    )

    from numpy.typing import NDArray

    from freetrain.lookahead.affinity import AffinityMap
    from freetrain.lookahead.base import Prospect, Prospects


# ----------------------------------------------------------------------
# What was said of idle nodes and what came, in sums that stay small.

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


# ----------------------------------------------------------------------
# Corrects probabilities by what came of those said before.

_MOST, _STEP = 7.0, 0.5
_ODDS = tuple(-_MOST + _STEP * place for place in range(29))
"""Log-odds of the knots. Much of what is said is near 0, where nodes stand at the end
of a line that leaves first, or near 1, where machines are nearly empty: there a step of
probability, however fine, holds what fares quite differently."""

_KNOTS = tuple(1.0 / (1.0 + math.exp(-odds)) for odds in _ODDS)

_SAID = 50.0
"""What every knot is believed to have seen come out as said, in nodes' weight."""

_KEPT = 0.9999
"""Of what was learned, at each lesson: half is forgotten after 6,931 of them, two days
of the first 1,024 nodes of Summit, as machines change their ways."""

_MOST_FRESH = 1e6
_LEAST = 1.0
"""A knot never counts less, so that what nobody said for months stays a number."""


class Calibration:
    """A map from probabilities as said to probabilities as they came; never falling.

    It goes through 0 and 1, and straight between the means of its knots, so that a
    survival that falls with its horizon falls still.

    Args:
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._said = [_SAID * knot for knot in _KNOTS]
        self._came = list(self._said)
        self._count = [_SAID] * len(_KNOTS)
        # Lessons weigh more and more, instead of all that was learned less and less.
        self._fresh = 1.0
        self._curve: tuple[list[float], list[float]] | None = None
        if state is not None:
            self._said = amounts(state["said"], len(_KNOTS))
            self._came = amounts(state["came"], len(_KNOTS))
            self._count = amounts_above_0(state["count"], len(_KNOTS))
            (self._fresh,) = amounts_above_0([state["fresh"]], 1)
            check_shares(self._said, self._count)
            check_shares(self._came, self._count)

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        sums = {"said": self._said, "came": self._came, "count": self._count}
        return {name: list(values) for name, values in sums.items()} | {
            "fresh": self._fresh
        }

    def learn(self, said: float, *, came: int, of: int) -> None:
        """Take note that *came* of *of* came true that were given *said* each.

        They fare alike, so that they weigh less than as many that do not: the root
        of their number. The knots on both sides learn, the nearer one more.
        """
        self._fresh /= _KEPT
        place, beyond = _between(said)
        weight = self._fresh * math.sqrt(of)
        self._add(place, weight * (1.0 - beyond), said, came / of)
        self._add(place + 1, weight * beyond, said, came / of)
        self._curve = None
        if self._fresh > _MOST_FRESH:
            self._scale_down()

    def of(self, said: float) -> float:
        """Return what *said* should have been."""
        if self._curve is None:
            self._curve = self._corners()
        xs, ys = self._curve
        right = min(bisect_right(xs, said), len(xs) - 1)
        left = right - 1
        weight = (said - xs[left]) / (xs[right] - xs[left])
        return min(1.0, max(0.0, ys[left] + weight * (ys[right] - ys[left])))

    def _add(self, place: int, weight: float, said: float, came: float) -> None:
        self._said[place] += said * weight
        self._came[place] += came * weight
        self._count[place] += weight

    def _scale_down(self) -> None:
        """Let the next lesson weigh 1 again, before numbers grow too large."""
        for place, count in enumerate(self._count):
            scale = max(count / self._fresh, _LEAST) / count
            for sums in (self._said, self._came, self._count):
                sums[place] *= scale
        self._fresh = 1.0

    def _corners(self) -> tuple[list[float], list[float]]:
        """Pool adjacent knots until they ascend (isotonic regression)."""
        pools: list[tuple[float, float, float]] = []
        for pool in zip(self._said, self._came, self._count, strict=True):
            merged = pool
            while pools and pools[-1][1] / pools[-1][2] >= merged[1] / merged[2]:
                last = pools.pop()
                said, came, count = (a + b for a, b in zip(last, merged, strict=True))
                merged = said, came, count
            pools.append(merged)
        xs = [0.0, *(said / count for said, _, count in pools), 1.0]
        ys = [0.0, *(came / count for _, came, count in pools), 1.0]
        kept = [0, *(b for a, b in pairwise(range(len(xs))) if xs[b] > xs[a])]
        return [xs[k] for k in kept], [ys[k] for k in kept]


def _between(said: float) -> tuple[int, float]:
    """Return the knot below *said*, and how far it is from there to the next, 0 to 1.

    What is below the first knot or above the last counts as that one.
    """
    if said <= _KNOTS[0]:
        return 0, 0.0
    if said >= _KNOTS[-1]:
        return len(_KNOTS) - 2, 1.0
    steps = (math.log(said / (1.0 - said)) + _MOST) / _STEP
    place = min(int(steps), len(_KNOTS) - 2)
    return place, steps - place


# ----------------------------------------------------------------------
# How much earlier or later something came than it was promised.

EDGES_S = (
    *(-14_400.0, -7_200.0, -3_600.0, -1_800.0, -900.0, -600.0, -300.0, -120.0, -60.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0),
)
"""Where classes of delay begin and end, in seconds; below 0 is early. What comes
within a minute is on time: ticks see no more than that."""

_ON_TIME = EDGES_S.index(60.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval between what was promised and what came, for promises of one kind.

    Attributes:
        lead_s: Promises told so long ahead, or longer, up to the next kind.
        nodes: How many nodes were promised and have left since.
        early: Share of these that left more than a minute before, 0 to 1.
        late: Share of these that left more than a minute after.
        low_s: A tenth of them came no later than this after what was promised;
            below 0 is early.
        middle_s: The same of a half.
        high_s: The same of nine tenths.
    """

    lead_s: float
    nodes: int
    early: float
    late: float
    low_s: float
    middle_s: float
    high_s: float


class Delays:
    """Counts of nodes by delay.

    Args:
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        TypeError: Likewise.
    """

    def __init__(self, state: Sequence[int] | None = None) -> None:
        kept = [0] * (len(EDGES_S) + 1) if state is None else state
        self._counts = [whole(count) for count in kept]
        if len(self._counts) != len(EDGES_S) + 1:
            raise ValueError(f"{state} are no counts of delays")

    def add(self, delay_s: float, nodes: int) -> None:
        """Take note that *nodes* came *delay_s* after what was promised."""
        self._counts[bisect_right(EDGES_S, delay_s)] += nodes

    def interval(self, lead_s: float) -> Interval | None:
        """Return what they say; None where nothing has come yet."""
        nodes = sum(self._counts)
        if not nodes:
            return None
        low_s, middle_s, high_s = (self._quantile_s(q) for q in (0.1, 0.5, 0.9))
        return Interval(
            lead_s=lead_s,
            nodes=nodes,
            early=sum(self._counts[:_ON_TIME]) / nodes,
            late=sum(self._counts[_ON_TIME + 1 :]) / nodes,
            low_s=low_s,
            middle_s=middle_s,
            high_s=high_s,
        )

    def _quantile_s(self, share: float) -> float:
        """Return a quantile, straight within a class; at the ends the edge."""
        wanted = share * sum(self._counts)
        summed = list(accumulate(self._counts))
        place = next(k for k, total in enumerate(summed) if total >= wanted)
        if place in {0, len(EDGES_S)}:
            return EDGES_S[0] if place == 0 else EDGES_S[-1]
        before = summed[place] - self._counts[place]
        weight = (wanted - before) / self._counts[place]
        return EDGES_S[place - 1] + weight * (EDGES_S[place] - EDGES_S[place - 1])

    def to_state(self) -> list[int]:
        """Return it as JSON has it."""
        return list(self._counts)


# ----------------------------------------------------------------------
# How well survivals foretold agree with what came, while events go by.

HORIZON_S = 600.0
"""Survival over how long is asked for."""

EVERY_S = 300.0
"""How often all idle nodes are asked for, at the first event after that time."""


@runtime_checkable
class KnowsPromises(Protocol):
    """A forecaster that is told who is to have idle nodes, and from when on."""

    def intervals(self) -> tuple[Interval, ...]:
        """Return what came against what was promised so far, by lead."""
        ...


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """The forecasts of a replay, held against what came.

    Attributes:
        horizon_s: Survival over how long was asked for.
        every_s: How often at most.
        reliability: What was said, and what came.
        affinity: Which nodes leave together; None where fewer than two ever left.
        promises: What came against what was promised, by lead; empty where nothing
            was promised.
    """

    horizon_s: float
    every_s: float
    reliability: Reliability
    affinity: AffinityMap | None
    promises: tuple[Interval, ...] = ()


@dataclass(slots=True, eq=False)
class _Asked:
    """The survival foretold of nodes of one cluster and age.

    Attributes:
        said: The probability.
        age_s: How long they had been idle.
        nodes: How many they were.
        gone: How many have left since.
        departures: Losses that count with this one.
    """

    said: float
    age_s: float
    nodes: int = 0
    gone: int = 0
    departures: int = 0


@dataclass(frozen=True, slots=True)
class _Round:
    """What was foretold at one moment.

    Attributes:
        due_s: When it shows what came.
        asked: All of it.
        by_node: The same by node, of nodes that have not left since.
    """

    due_s: float
    asked: tuple[_Asked, ...]
    by_node: dict[int, _Asked]


class Watched:
    """A forecaster that is asked for all idle nodes again and again, and held to it.

    It answers as the one it watches does. Nodes of one cluster and age are asked for
    once, for all of them. What is not due yet is not counted.

    Args:
        forecaster: One that has seen nothing.
        horizon_s: Survival over how long is asked for.
        every_s: How often, at the first event after that time.
        from_s: When the asking begins.
        answers: Who counts them, where more than the sums is wanted.
    """

    def __init__(
        self,
        forecaster: Prospects,
        *,
        horizon_s: float = HORIZON_S,
        every_s: float = EVERY_S,
        from_s: float = 0.0,
        answers: Answers | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._horizon_s = horizon_s
        self._every_s = every_s
        self._ask_s = from_s
        self._since_s: dict[int, float] = {}
        self._open: deque[_Round] = deque()
        self._answers = Answers() if answers is None else answers
        self._left: Counter[int] = Counter()

    @property
    def is_learning(self) -> bool:
        """Whether it has seen too little to plan by it."""
        return self._forecaster.is_learning

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Show an event, settle what is due, and ask where it is time to."""
        while self._open and self._open[0].due_s <= now_s:
            self._settle(self._open.popleft())
        self._part(left)
        self._forecaster.see(now_s, joined=joined, left=left)
        self._since_s.update(dict.fromkeys(joined, now_s))
        if now_s >= self._ask_s:
            self._ask(now_s)

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node."""
        return self._forecaster.cluster(node)

    def members(self, cluster: int) -> AbstractSet[int]:
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
        told = self._forecaster
        return ForecastRecord(
            horizon_s=self._horizon_s,
            every_s=self._every_s,
            reliability=self.reliability(),
            affinity=affinity_map(told.affinity, self._left, names),
            promises=told.intervals() if isinstance(told, KnowsPromises) else (),
        )

    def _part(self, left: Collection[int]) -> None:
        """Count losses with what was foretold of the nodes and is not due yet."""
        self._left.update(left)
        lost: set[_Asked] = set()
        for told in self._open:
            hit = [told.by_node.pop(node) for node in left if node in told.by_node]
            for asked in hit:
                asked.gone += 1
            lost = set(hit)
        for asked in lost:
            asked.departures += 1
        for node in left:
            self._since_s.pop(node, None)

    def _settle(self, told: _Round) -> None:
        for asked in told.asked:
            self._answers.add(
                asked.said,
                nodes=asked.nodes,
                age_s=asked.age_s,
                stayed=asked.nodes - asked.gone,
                departures=asked.departures,
            )

    def _ask(self, now_s: float) -> None:
        self._ask_s = now_s + self._every_s
        groups: dict[tuple[int, float], _Asked] = {}
        by_node: dict[int, _Asked] = {}
        for node, since_s in self._since_s.items():
            group = self._forecaster.cluster(node), since_s
            if group not in groups:
                said = self._forecaster.survival(node, self._horizon_s)
                groups[group] = _Asked(said, now_s - since_s)
            groups[group].nodes += 1
            by_node[node] = groups[group]
        due_s = now_s + self._horizon_s
        self._open.append(_Round(due_s, tuple(groups.values()), by_node))


# ----------------------------------------------------------------------
# What was foretold of clusters, held against what came once it is due.

CHECKED_S = 600.0
"""Survival over this long is checked against what came, and corrected."""

_CHECK_EVERY_S = 300.0

_ROUNDED_S = 1e-3
"""Times of today as seconds since 1970 are rounded to less than that."""


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """A survival that was foretold, to be checked when it is due.

    Attributes:
        due_s: When it shows what came.
        survival: What was foretold.
        nodes: Of how many nodes.
        left: Those of them that did not leave since; others may have joined them.
    """

    due_s: float
    survival: float
    nodes: int
    left: set[int]


class Sayings:
    """Foretells every 300 s, and learns by what came how to correct what is told.

    Args:
        state: What ``to_state`` gave, with ``now_s``, when it was told last, and more
            besides; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = state or {"calibration": None, "said": (), "check_s": 0.0}
        self._calibration = Calibration(kept["calibration"])
        self._said: deque[_Said] = deque()
        self._of: dict[int, list[_Said]] = {}
        self._check_s = amount(kept["check_s"])
        for row in kept["said"]:
            self._add(_said_from(row))
        if state is not None:
            self._check_times(amount(state["now_s"]))

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "calibration": self._calibration.to_state(),
            "said": [
                [said.due_s, said.survival, said.nodes, sorted(said.left)]
                for said in self._said
            ],
            "check_s": self._check_s,
        }

    def settle(self, now_s: float) -> None:
        """Hold what is due against how many of its nodes are left."""
        while self._said and self._said[0].due_s <= now_s:
            said = self._said.popleft()
            for node in said.left:
                self._of[node].remove(said)
            self._calibration.learn(said.survival, came=len(said.left), of=said.nodes)

    def lose(self, left: Iterable[int]) -> None:
        """Take note that nodes leave."""
        for node in left:
            for said in self._of.pop(node, ()):
                said.left.remove(node)

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to foretell once more."""
        return now_s >= self._check_s

    def say(
        self, now_s: float, survivals: Iterable[tuple[Collection[int], float]]
    ) -> None:
        """Foretell over ``CHECKED_S``: nodes of each cluster, and their survival."""
        self._check_s = now_s + _CHECK_EVERY_S
        due_s = now_s + CHECKED_S
        for nodes, survival in survivals:
            self._add(_Said(due_s, survival, len(nodes), set(nodes)))

    def corrected(self, survival: float) -> float:
        """Return what such survivals came to so far, 0 to 1."""
        return self._calibration.of(survival)

    def forget_pool(self) -> None:
        """Forget what was foretold, and nothing that was learned."""
        self._said.clear()
        self._of.clear()
        self._check_s = 0.0

    def _check_times(self, now_s: float) -> None:
        """Refuse what would not be settled, or not foretold, for longer than ever."""
        due_s = [said.due_s for said in self._said]
        if due_s != sorted(due_s) or (
            due_s and due_s[-1] > now_s + CHECKED_S + _ROUNDED_S
        ):
            raise ValueError(f"foretold for {due_s}, at {now_s}")
        if self._check_s > now_s + _CHECK_EVERY_S + _ROUNDED_S:
            raise ValueError(f"nothing is foretold until {self._check_s}, at {now_s}")

    def _add(self, said: _Said) -> None:
        self._said.append(said)
        for node in said.left:
            self._of.setdefault(node, []).append(said)


def _said_from(row: Any) -> _Said:  # noqa: ANN401 - JSON
    """Return what was kept of one that is not due; raises as ``Sayings``."""
    due_s, survival, nodes, left = row
    said = _Said(amount(due_s), share(survival), whole(nodes), members(left))
    if not len(said.left) <= said.nodes or not said.nodes:
        raise ValueError(f"foretold of {nodes} nodes, of whom {left} are left")
    return said
