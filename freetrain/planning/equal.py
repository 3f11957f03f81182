"""The policy ``equal``: every trainer gets the same number of nodes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def equal_counts(sizes: Sequence[Sequence[int]], pool_nodes: int) -> list[int]:
    """Return each trainer's equal share of *pool_nodes*.

    The share is the largest level at which everybody can have the largest of
    its sizes that is at most the level; what remains lifts the first trainers,
    in order, to the next level, where it is enough for them. Where every size
    from 1 on is allowed, this is the pool over the trainers, and one node more
    for the first ones.

    Args:
        sizes: By trainer: node counts above 0 that it can run on, ascending.
        pool_nodes: Nodes to spread.
    """
    top = max(own[-1] for own in sizes)
    over = bisect_left(
        range(1, top + 1), 1, key=lambda n: sum(_at_level(sizes, n)) > pool_nodes
    )
    counts = _at_level(sizes, over)
    left = pool_nodes - sum(counts)
    for place, lifted in enumerate(_at_level(sizes, over + 1)):
        more = lifted - counts[place]
        if 0 < more <= left:
            counts[place] = lifted
            left -= more
    return counts


def _at_level(sizes: Sequence[Sequence[int]], level: int) -> list[int]:
    """Return each trainer's largest size of at most *level* nodes, or 0."""
    return [
        own[at_most - 1] if (at_most := bisect_right(own, level)) else 0
        for own in sizes
    ]
