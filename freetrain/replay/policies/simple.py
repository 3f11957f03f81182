"""The policy ``equal``: every trainer gets the same number of nodes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from freetrain.replay.policies.base import Change, changes_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.base import View


# ----------------------------------------------------------------------
# The policy ``equal``: every trainer gets the same number of nodes.


class EqualPolicy:
    """Spreads the pool evenly, whatever the trainers are worth."""

    name = "equal"

    def decide(self, view: View) -> Sequence[Change]:
        """Give everybody the same; the remainder goes to the first trainers."""
        if not view.trainers:
            return ()
        sizes = [trainer.spec.scaling.sizes for trainer in view.trainers]
        return changes_to(equal_counts(sizes, view.idle_nodes), view)


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


# ----------------------------------------------------------------------
# The policy ``scavenger``: rigid jobs in a preemptable partition with requeue.


class ScavengerPolicy:
    """First come first served; each trainer is a job of its ``fixed_nodes``.

    A job that loses a node is killed: it gives up the rest and starts anew once
    as many nodes as it needs are free and nobody before it waits. It keeps its
    place in the queue, which is that of its arrival.
    """

    name = "scavenger"

    def decide(self, view: View) -> Sequence[Change]:
        """Kill the jobs that lost a node, then start what fits, in order."""
        waiting = [
            place
            for place, trainer in enumerate(view.trainers)
            if len(trainer.held) != trainer.spec.fixed_nodes
        ]
        dropped = {place: sorted(view.trainers[place].held) for place in waiting}
        free = sorted([*view.free, *(n for nodes in dropped.values() for n in nodes)])
        changes, blocked = [], False
        for place in waiting:
            wanted = view.trainers[place].spec.fixed_nodes
            blocked = blocked or wanted > len(free)
            taken: list[int] = []
            if not blocked:
                free, taken = free[:-wanted], free[-wanted:]
            if dropped[place] or taken:
                changes.append(Change(place, tuple(dropped[place]), tuple(taken)))
        return changes
