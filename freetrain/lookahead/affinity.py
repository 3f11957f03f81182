"""Which nodes leave together: the affinity S of pairs, counted from departures.

:class:`Affinity` counts every pair in a replay, :class:`BoundedAffinity` does so while
nodes are few, :class:`RecentAffinity` counts the departures that a tick has saved, and
:class:`LeafAffinity` adds what is known of leaf switches. :func:`split` makes clusters
of affinities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from freetrain.lookahead.base import Departure, amounts, check_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

Bits: TypeAlias = "NDArray[np.uint8]"

PRIOR_TOGETHER = 0.6

PRIOR_EVENTS = 2
"""The prior of a pair: less than leaving together every other time, so that unknown
nodes are not put into one cluster (six days of Summit: within a group 0.04 of pairs of
low affinity leave together, 0.5 of high)."""


def affinity_of(
    left: NDArray[Any],
    together: NDArray[Any],
    *,
    prior: float | NDArray[np.float64] = PRIOR_TOGETHER,
) -> NDArray[np.float64]:
    """Return the affinity S of pairs from their counts.

    Args:
        left: Events at which the first left while the second was idle, by pair.
        together: Events at which both left, by pair.
        prior: Events at which both left before anything was seen, by pair.
    """
    # Integers until the last step: large groups then take a fifth of the time.
    events = left + left.T
    events -= together
    events += PRIOR_EVENTS
    affinity: NDArray[np.float64] = np.add(together, prior, dtype=np.float64)
    affinity /= events
    return affinity


_LEFT_BITS = 16

_LEFT, _TOGETHER = 1 << _LEFT_BITS, 1
"""Added to the number of a pair by an event: the first left, and both did. Picking
pairs out of a large table takes longest, so both counts share one number."""

_MOST = (1 << _LEFT_BITS) - 1

_HALVES = np.uint32((_MOST >> 1) * (_LEFT + _TOGETHER))
"""Mask that keeps both counts of a number apart when it is shifted by one bit."""


class Affinity:
    """Counts, for every pair of nodes, departures of either and of both.

    Eight bytes a pair of nodes ever seen: 90 MB for 4,734 nodes. Once a node has left
    tens of thousands of times all counts are halved, as no more fit.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, 0), dtype=np.uint32)
        self._room = _MOST  # so many more events fit for certain

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        self._reach(int(idle.max()) + 1)
        if not self._room:
            self._make_room()
        self._room -= 1
        # Adding to whole rows takes less time than picking the idle nodes out.
        once = np.zeros(len(self._counts), dtype=np.uint32)
        once[idle] = _LEFT
        once[np.asarray(left, dtype=np.intp)] = _LEFT + _TOGETHER
        for node in left:
            # Into the row itself: ``self._counts[node] += once`` copies it back, too.
            row = self._counts[node]
            row += once

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*.

        ::

            S = (0.6 + times left together) / (2 + events in which either left)

        where both were idle at the events that count. Symmetric, above 0, below 1.
        """
        return affinity_of(*self.counts(nodes))

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return ``left`` and ``together`` of ``affinity_of``, by pair of *nodes*."""
        self._reach(max(nodes, default=-1) + 1)
        places = np.asarray(nodes, dtype=np.intp)
        counts = self._counts.take(places, axis=0).take(places, axis=1)
        return counts >> _LEFT_BITS, counts & (_LEFT - 1)

    def _make_room(self) -> None:
        """Halve all counts where one is near the most; all, as pairs have two."""
        most = int(self._counts.diagonal().max()) >> _LEFT_BITS
        if most > _MOST // 2:
            self._counts >>= 1
            self._counts &= _HALVES
            most //= 2
        self._room = _MOST - most

    def _reach(self, nodes: int) -> None:
        known = len(self._counts)
        if nodes <= known:
            return
        more = max(nodes, known * 5 // 4) - known
        self._counts = np.pad(self._counts, (0, more))


KEPT = 2_048
"""Departures; a day and a half at one a minute, four days at Summit's rate."""


class RecentAffinity:
    """The affinity S of pairs, counted over the last 2,048 departures.

    Args:
        load: Returns earlier departures, the oldest first; called once, and only when
            an affinity is asked for.
    """

    def __init__(self, load: Callable[[], Iterable[Departure]] = tuple) -> None:
        self._load = load
        self._seen: list[Departure] | None = None
        self.fresh: list[Departure] = []
        """Departures that were not loaded, the oldest first."""

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        nodes = int(idle.max()) + 1
        gone = np.asarray(left, dtype=np.intp)
        self.fresh.append(
            Departure(packed(gone, nodes).tobytes(), packed(idle, nodes).tobytes())
        )

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*; as ``Affinity`` defines it."""
        return affinity_of(*self.counts(nodes))

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return ``left`` and ``together`` of ``affinity_of``, by pair of *nodes*."""
        if self._seen is None:
            self._seen = list(self._load())
        events = [*self._seen, *self.fresh][-KEPT:]
        places = np.asarray(nodes, dtype=np.intp)
        left = _columns([event.left for event in events], places)
        idle = _columns([event.idle for event in events], places)
        return left.T @ idle, left.T @ left


def _columns(rows: Sequence[bytes], nodes: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the bits of *nodes*, shape (rows, nodes); 0 for nodes unknown then."""
    most = max(map(len, rows), default=0)
    width = max(most, int(nodes.max(initial=0)) // 8 + 1)
    table = np.frombuffer(b"".join(row.ljust(width, b"\0") for row in rows), np.uint8)
    return bits_of(table.reshape(len(rows), width), nodes)


MOST_COUNTED = 8_000
"""Nodes whose pairs are all counted, in 256 MB."""


class BoundedAffinity:
    """Counts of all pairs for as long as nodes are few, the latest departures after.

    It changes over at the first node of a higher number, which is at the first event of
    a large machine that is idle in part; the counts until then are forgotten.

    Args:
        most: Nodes whose pairs are all counted.
    """

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self._most = most
        self._pairs: Affinity | LatestAffinity = Affinity()

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        self._reach(int(idle.max()))
        self._pairs.saw(left, idle)

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*; as ``Affinity`` defines it."""
        return affinity_of(*self.counts(nodes))

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return ``left`` and ``together`` of ``affinity_of``, by pair of *nodes*."""
        self._reach(max(nodes, default=-1))
        return self._pairs.counts(nodes)

    def _reach(self, node: int) -> None:
        if node >= self._most and isinstance(self._pairs, Affinity):
            self._pairs = LatestAffinity()


class LatestAffinity:
    """The affinity S of pairs, counted over the last departures.

    Unlike ``RecentAffinity`` it keeps them in one table, out of which a few nodes are
    picked a thousand times as often as in a tick.

    Args:
        kept: How many departures.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._left = np.zeros((kept, 0), dtype=np.uint8)
        self._idle = np.zeros((kept, 0), dtype=np.uint8)
        self._seen = 0

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        self._reach(int(idle.max()))
        row = self._seen % len(self._left)
        self._seen += 1
        for table, nodes in ((self._left, left), (self._idle, idle)):
            table[row] = packed(nodes, 8 * table.shape[1])

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return ``left`` and ``together`` of ``affinity_of``, by pair of *nodes*."""
        self._reach(max(nodes, default=0))
        places = np.asarray(nodes, dtype=np.intp)
        left = bits_of(self._left[: self._seen], places)
        idle = bits_of(self._idle[: self._seen], places)
        return left.T @ idle, left.T @ left

    def _reach(self, node: int) -> None:
        """Make room for nodes of a number up to *node*, and for some more."""
        more = node // 8 + 1 - self._left.shape[1]
        if more > 0:
            wider = (0, 0), (0, max(more, self._left.shape[1] // 4))
            self._left, self._idle = (
                np.pad(self._left, wider),
                np.pad(self._idle, wider),
            )


def packed(nodes: Sequence[int] | NDArray[np.intp], count: int) -> Bits:
    """Return the bits of *count* nodes by number, set for *nodes*."""
    bits = np.zeros(count, dtype=np.uint8)
    bits[nodes] = 1
    return np.packbits(bits)


def bits_of(table: Bits, nodes: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the bits of *nodes* in packed rows, shape (rows, nodes)."""
    shifts = (7 - nodes % 8).astype(np.uint8)
    return ((table[:, nodes // 8] >> shifts) & 1).astype(np.float32)


# ----------------------------------------------------------------------
# Leaf switches, and blocks

_PRIOR_DEPARTURES = 8.0
"""Weight of the prior of leaves, in departures that touch every pair: unknown nodes
below one leaf are put into one cluster after four whole leaves have left."""

_LASTS = 2_048
"""Departures after which a departure counts a third as much; as many as ``KEPT``."""


class PairCounts(Protocol):
    """Counts departures by pair; see ``Affinity`` and ``RecentAffinity``."""

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        ...

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return ``left`` and ``together`` of ``affinity_of``, by pair of *nodes*."""
        ...


class LeafAffinity:
    """The affinity S of pairs, with a prior that is learned for nodes below one leaf.

    ::

        S = (2 max(0.3, q) + times left together) / (2 + events in which either left)

    for pairs below one leaf, and as ``Affinity`` defines it for all others, 0.3 at
    first. Where jobs are placed whatever the racks, q falls below that, and nothing
    changes: pairs below one leaf never have a lower prior than others.

    q is learned from the same departures, by counts of each leaf alone. Where l of i
    idle nodes below it leave, both of a pair do so in l (l - 1) / 2 of them, and either
    does in i (i - 1) / 2 less (i - l) (i - l - 1) / 2. Both are summed over the leaves
    that a departure touches, and divided by all idle pairs below these::

        q = (8 * 0.3 + sum of both / pairs) / (8 + sum of either / pairs)

    So a departure counts once at the most, however many nodes it takes; in sums over
    pairs one maintenance of a whole machine would outweigh a month, and a drain needs
    no clusters, as it takes all nodes. It counts less where it touches few pairs below
    those leaves, as where one node out of many leaves.

    Args:
        counted: Counts by pair.
        leaf_of: Returns the name of a node's leaf; empty for none. Called once a node.
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(
        self,
        counted: PairCounts,
        leaf_of: Callable[[int], str],
        *,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._counted = counted
        self._leaf_of = leaf_of
        self._numbers: dict[str, int] = {}
        self._leaves = np.zeros(0, dtype=np.intp)
        kept = (0.0, 0.0) if state is None else (state["together"], state["either"])
        self._together, self._either = amounts(kept, 2)
        check_shares([self._together], [self._either])

    @property
    def rate(self) -> float:
        """[q] How often pairs below one leaf leave together, if either leaves."""
        prior = PRIOR_TOGETHER / PRIOR_EVENTS
        together = prior * _PRIOR_DEPARTURES + self._together
        return together / (_PRIOR_DEPARTURES + self._either)

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        self._counted.saw(left, idle)
        there = self._by_leaf(idle)
        gone = self._by_leaf(np.asarray(left, dtype=np.intp))
        gone = np.pad(gone, (0, len(there) - len(gone)))
        there, gone = there[gone > 0], gone[gone > 0]
        every = _pairs(there)
        if every:
            fade = 1.0 - 1.0 / _LASTS
            either = every - _pairs(there - gone)
            self._together = self._together * fade + _pairs(gone) / every
            self._either = self._either * fade + either / every

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity S of each pair of *nodes*; as ``Affinity`` defines it."""
        left, together = self._counted.counts(nodes)
        leaves = self._of(np.asarray(nodes, dtype=np.intp))
        is_same = (leaves[:, None] == leaves) & (leaves >= 0)
        usual = max(PRIOR_TOGETHER, PRIOR_EVENTS * self.rate)
        prior = np.where(is_same, usual, PRIOR_TOGETHER)
        return affinity_of(left, together, prior=prior)

    def to_state(self) -> dict[str, float]:
        """Return the counts of leaves for JSON."""
        return {"together": self._together, "either": self._either}

    def _by_leaf(self, nodes: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return how many of *nodes* are below each leaf, by its number."""
        leaves = self._of(nodes)
        return np.bincount(leaves[leaves >= 0]).astype(np.float64)

    def _of(self, nodes: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the numbers of the leaves of *nodes*; -1 for none."""
        known, needed = len(self._leaves), int(nodes.max(initial=-1)) + 1
        if needed > known:
            more = [self._numbered(self._leaf_of(n)) for n in range(known, needed)]
            self._leaves = np.append(self._leaves, np.asarray(more, dtype=np.intp))
        found: NDArray[np.intp] = self._leaves[nodes]
        return found

    def _numbered(self, leaf: str) -> int:
        return self._numbers.setdefault(leaf, len(self._numbers)) if leaf else -1


def _pairs(nodes: NDArray[np.float64]) -> float:
    """Return how many pairs there are in groups of *nodes* nodes, all together."""
    return float((nodes * (nodes - 1.0)).sum() / 2.0)


def line_order(
    leaves: Iterable[str], order: Callable[[int], Any]
) -> Callable[[int], Any] | None:
    """Return *order* of nodes; None where leaf switches say which nodes are near.

    Args:
        leaves: The leaf of each node, "" for none; of use where two have the same.
        order: Sort key of nodes where no leaves are known.
    """
    known = [leaf for leaf in leaves if leaf]
    return None if len(set(known)) < len(known) else order


# ----------------------------------------------------------------------
# Clusters of affinities


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


def _grown(pairs: NDArray[np.float64], first: int, least: float) -> list[int]:
    """Return the cluster that begins with *first*.

    Its nodes are made infinitely far from all others in *pairs*: most groups are small,
    and a mask of free nodes would double the time.
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


def close_to_each_other(affinity: NDArray[np.float64], nodes: int) -> list[int]:
    """Return the places of *nodes* nodes that belong together, greedily.

    The pair of highest affinity comes first, then the node closest to those chosen.
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
