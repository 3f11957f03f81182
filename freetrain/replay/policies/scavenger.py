"""The policy ``scavenger``: rigid jobs in a preemptable partition with requeue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.policies.base import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.base import View


class ScavengerPolicy:
    """First come first served; each trainer is a job of its ``fixed_nodes``, not None.

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
        dropped = {
            place: tuple(sorted(held))
            for place in waiting
            if (held := view.trainers[place].held)
        }
        free = sorted([*view.free, *(n for nodes in dropped.values() for n in nodes)])
        taken: dict[int, tuple[int, ...]] = {}
        for place in waiting:
            wanted = view.trainers[place].spec.fixed_nodes or 0
            if wanted > len(free):
                break  # no job overtakes one that waits
            free, taken[place] = free[:-wanted], tuple(free[-wanted:])
        return [
            Change(place, dropped.get(place, ()), taken.get(place, ()))
            for place in sorted(dropped.keys() | taken.keys())
        ]
