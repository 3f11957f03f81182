"""Affinity where it is known which nodes are below one leaf switch, or in one block.

Pairs that were never idle together before have no history. How often other pairs of
one leaf left together says what to believe of them until they have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from freetrain.forecast.affinity import SAID_EVENTS, SAID_TOGETHER, affinity_of
from freetrain.forecast.kept import amounts, check_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

_SAID_DEPARTURES = 8.0
"""What is believed of leaves before any departure was seen counts as much as so many
that touch every pair: four whole leaves must leave until strangers below one are put
into one cluster."""

_LASTS = 2_048
"""Departures after which one counts a third as much; so many are kept of pairs."""


class Counted(Protocol):
    """Counts departures by pair; see ``Affinity`` and ``RecentAffinity``."""

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        ...

    def counts(self, nodes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what ``affinity_of`` takes, by pair of *nodes*."""
        ...


class LeafAffinity:
    """The affinity S of pairs, which begins with what is usual below one leaf.

    ::

        S = (2 max(0.3, q) + times left together) / (2 + events in which either left)

    for pairs below one leaf, and as ``Affinity`` has it for all others, 0.3 at first.
    Where those who take nodes care for no racks q falls below that, and nothing
    changes: being below one leaf makes no two nodes stranger than others are.

    q is learned from the same departures, by counts of each leaf alone. Where l of i
    idle nodes below it leave, both of a pair do so in l (l - 1) / 2 of them, and either
    does in i (i - 1) / 2 less (i - l) (i - l - 1) / 2. Both are summed over the leaves
    that a departure touches, and divided by all idle pairs below these::

        q = (8 * 0.3 + sum of both / pairs) / (8 + sum of either / pairs)

    So a departure counts once at the most, however many nodes it takes; in sums over
    pairs one maintenance of a whole machine would outweigh a month, and a drain needs
    no clusters, as it takes everybody. It counts less where few pairs below those
    leaves see anything of it, as where one node out of many leaves.

    Args:
        counted: What pairs did.
        leaf_of: Returns the name of a node's leaf; empty for none. A node that was
            asked for once keeps it.
        state: What ``to_state`` gave; None to begin.

    Raises:
        ValueError: The state is nothing of the kind.
        KeyError: Likewise.
        TypeError: Likewise.
    """

    def __init__(
        self,
        counted: Counted,
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
        said = SAID_TOGETHER / SAID_EVENTS
        together = said * _SAID_DEPARTURES + self._together
        return together / (_SAID_DEPARTURES + self._either)

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
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
        """Return the affinity S of each pair of *nodes*; as ``Affinity`` has it."""
        left, together = self._counted.counts(nodes)
        leaves = self._of(np.asarray(nodes, dtype=np.intp))
        is_one = (leaves[:, None] == leaves) & (leaves >= 0)
        usual = max(SAID_TOGETHER, SAID_EVENTS * self.rate)
        said = np.where(is_one, usual, SAID_TOGETHER)
        return affinity_of(left, together, said=said)

    def to_state(self) -> dict[str, float]:
        """Return what was learned of leaves as JSON has it."""
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


def order_beside(
    leaves: Iterable[str], order: Callable[[int], Any]
) -> Callable[[int], Any] | None:
    """Return *order*, by which nodes stand in line; None where leaves say who is near.

    Args:
        leaves: The leaf of each node, "" for none; of use where two have the same.
        order: What nodes are sorted by elsewhere.
    """
    known = [leaf for leaf in leaves if leaf]
    return None if len(set(known)) < len(known) else order
