"""What an integer program of a window would look like (docs/reference/model.md, W5).

:func:`rows_within` says which sizes it needs, :class:`Segments` cuts the hits of a
class into straight pieces, and :func:`variables` counts its variables, so that PuLP is
loaded only for a program that is worth writing down.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.problem import SOLVER_TOLERANCE
from milp.window_bound import relax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.window import Window
    from milp.window_bound import BoundedPlan, Dual, SizeRows

MOST_ERROR = 1e-6
"""Hits that a segment may lie below the curve: under a millionth of the gain, as a hit
costs less than the life that a node has."""


class Segment(NamedTuple):
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


class Segments:
    """Cuts the hits of classes into straight segments, and keeps where they end.

    A chord of a concave curve lies below it, here by ``MOST_ERROR`` at most: a plan's
    gain is overrated, never underrated, so that a bound stays one.

    Args:
        hits: [h_k] By class and node count.
    """

    def __init__(self, hits: Sequence[Sequence[float]]) -> None:
        self._hits = hits
        self._ends: dict[tuple[int, int], list[int]] = {}

    def count(self, k: int, least: int, most: int, *, exact: bool = False) -> int:
        """Return how many segments :meth:`of` makes."""
        if exact or most <= least:
            return most - least
        return bisect_left(self._ends_from(k, least), most) + 1

    def of(
        self, k: int, least: int, most: int, *, exact: bool = False
    ) -> list[Segment]:
        """Return the segments of class *k* from *least* to *most* nodes, as few as do.

        Args:
            k: The class.
            least: Nodes at the beginning.
            most: Nodes at the end, no fewer; none make no segment.
            exact: Whether every node is a segment of its own, without any error.
        """
        count = self.count(k, least, most, exact=exact)
        if exact:
            ends = list(range(least + 1, most + 1))
        else:
            ends = [*self._ends_from(k, least)[: count - 1], most] if count else []
        hits, starts = self._hits[k], [least, *ends][: len(ends)]
        return [
            Segment(
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
    """Return where the longest segments end that are close enough, one by one.

    A shorter segment from the same beginning is closer to the curve.
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


def rows_within(rows: SizeRows, dual: Dual, known: BoundedPlan) -> list[list[int]]:
    """Return the rows, by trainer, that a better plan than *known* may have (R4).

    The size that the known plan has is always among them.
    """
    losses = relax(rows, dual.prices).losses
    slack = SOLVER_TOLERANCE * abs(known.bound)
    within = losses <= dual.value - known.gain + slack
    ends = rows.ends
    chosen = []
    for kind, own in zip(rows.kind.tolist(), known.holdings, strict=True):
        numbers = np.arange(rows.first[kind], ends[kind])
        mine = rows.size[numbers] == sum(own.values())
        chosen.append(numbers[within[numbers] | mine].tolist())
    return chosen


def variables(
    window: Window, rows: SizeRows, chosen: Sequence[Sequence[int]], *, enough: int
) -> int:
    """Return how many variables a program has, or a part of them above *enough*.

    Args:
        window: The problem.
        rows: Sizes of all trainers.
        chosen: Rows of these, by trainer.
        enough: A count at which it need not go on.
    """
    numbers = [row for own in chosen for row in own]
    least = len(numbers) + int((rows.room[numbers] > 0).sum())
    if least > enough:
        return least
    segments = Segments(rows.pool.hits.tolist())
    curves = [
        (trainer.curve, row)
        for trainer, own in zip(window.trainers, chosen, strict=True)
        for row in own
    ]
    for curve, row in curves:
        exact = curve.value_per_s.item(int(rows.size[row])) < 0.0
        froms, rooms = rows.least[row].tolist(), rows.room[row].tolist()
        counts = [
            segments.count(k, start, start + room, exact=exact)
            for k, (start, room) in enumerate(zip(froms, rooms, strict=True))
        ]
        # A segment alone needs no variable that chooses it.
        least += sum([2 * n - 1 for n in counts if n > 1])
        if least > enough:
            break
    return least
