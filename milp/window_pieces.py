"""Hits of a class, bent downwards, as straight pieces (docs/model.md, W5)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ERROR = 1e-6
"""Hits that a piece may lie below the curve: under a millionth of the gain, as a hit
costs less than the life that a node has."""


class Piece(NamedTuple):
    """Node counts between two, and hits along the chord between them.

    Attributes:
        start: Nodes above the least ones at its beginning.
        nodes: How many more at its end.
        hits: Hits above those of the least nodes at its beginning.
        slope: Hits a node.
    """

    start: int
    nodes: int
    hits: float
    slope: float


class Pieces:
    """Makes pieces of the hits of classes, and keeps where they end.

    A chord of a concave curve lies below it, here by ``MOST_ERROR`` at most: what a
    plan gains is overrated, never underrated, so that a bound stays one.

    Args:
        hits: [h_k] By class and node count.
    """

    def __init__(self, hits: Sequence[Sequence[float]]) -> None:
        self._hits = hits
        self._ends: dict[tuple[int, int], list[int]] = {}

    def count(self, k: int, least: int, most: int, *, exact: bool = False) -> int:
        """Return how many pieces :meth:`of` makes."""
        if exact or most <= least:
            return most - least
        return bisect_left(self._ends_from(k, least), most) + 1

    def of(self, k: int, least: int, most: int, *, exact: bool = False) -> list[Piece]:
        """Return the pieces of class *k* from *least* to *most* nodes, few as will do.

        Args:
            k: The class.
            least: Nodes at the beginning.
            most: Nodes at the end, no fewer; none make no piece.
            exact: Whether every node is a piece of its own, without any error.
        """
        count = self.count(k, least, most, exact=exact)
        if exact:
            ends = list(range(least + 1, most + 1))
        else:
            ends = [*self._ends_from(k, least)[: count - 1], most] if count else []
        hits, starts = self._hits[k], [least, *ends][: len(ends)]
        return [
            Piece(
                start - least,
                end - start,
                hits[start] - hits[least],
                (hits[end] - hits[start]) / (end - start),
            )
            for start, end in zip(starts, ends, strict=True)
        ]

    def _ends_from(self, k: int, least: int) -> list[int]:
        known = self._ends.get((k, least))
        if known is None:
            known = self._ends[k, least] = _ends(self._hits[k], least)
        return known


def _ends(hits: Sequence[float], least: int) -> list[int]:
    """Return where the longest pieces end that are close enough, one by one.

    A shorter piece from the same beginning is closer to the curve.
    """
    ends, start, last = [], least, len(hits) - 1
    while start < last:
        near, far = start + 1, last
        while near < far:
            middle = (near + far + 1) // 2
            if _error(hits, start, middle) <= MOST_ERROR:
                near = middle
            else:
                far = middle - 1
        ends.append(near)
        start = near
    return ends


def _error(hits: Sequence[float], start: int, end: int) -> float:
    begin, slope = hits[start], (hits[end] - hits[start]) / (end - start)
    return max(
        [hits[n] - begin - slope * (n - start) for n in range(start + 1, end)],
        default=0.0,
    )
