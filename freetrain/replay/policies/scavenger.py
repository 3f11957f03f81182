"""The policy ``scavenger``: rigid jobs in a preemptable partition with requeue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.policies.base import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.base import View


class ScavengerPolicy:
    """First come first served; each trainer is a job of its ``fixed_nodes``.

    A job that loses a node is killed: it gives up the rest and starts anew once
    as many nodes as it needs are free and no job before it waits. It keeps its
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
