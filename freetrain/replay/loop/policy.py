"""A policy that is asked at ticks only, and holds nodes by leases."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.replay.policies.interface import Change

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.replay.loop.hole_use import HoleUse
    from freetrain.replay.loop.leases import Leases
    from freetrain.replay.policies.interface import Policy, View


class TickedPolicy:
    """Lets a policy decide at ticks, over nodes whose holes are worth a lease.

    In between, trainers go on with what they have: they shrink where nodes are taken
    or leases end, and nobody grows.

    Attributes:
        name: The policy's.
        tick_s: When the tick is that is due.
    """

    def __init__(self, policy: Policy, leases: Leases, use: HoleUse) -> None:
        self.name = policy.name
        self.tick_s = -math.inf
        self._policy = policy
        self._leases = leases
        self._use = use
        self._joined: set[int] = set()
        self._left: set[int] = set()

    def decide(self, view: View) -> Sequence[Change]:
        """Return the policy's changes at a tick, and what must be given up else."""
        self._use.until(view.now_s)
        self._use.moved(view.joined, view.left)
        self._use.free(view.free)
        self._note(view)
        is_tick = view.now_s == self.tick_s
        changes = self._tick(view) if is_tick else self._end_due(view)
        for change in changes:
            self._use.given_up(change.drop)
        for change in changes:
            self._use.held(change.take)
        return changes

    def _note(self, view: View) -> None:
        """Remember what a look at the next tick will show to have changed."""
        unseen = self._joined.intersection(view.left)
        self._joined -= unseen
        self._left.update(set(view.left) - unseen)
        self._joined.update(view.joined)

    def _tick(self, view: View) -> Sequence[Change]:
        self.tick_s = -math.inf  # one decision a tick
        free = self._leases.open(view.free, view.now_s)
        closed = len(view.free) - len(free)
        seen = replace(
            view,
            free=free,
            idle_nodes=view.idle_nodes - closed,
            joined=tuple(sorted(self._joined)),
            left=tuple(sorted(self._left)),
        )
        self._joined, self._left = set(), set()
        changes = self._policy.decide(seen)
        self._leases.keep(_held_after(view, changes), view.now_s)
        return changes

    def _end_due(self, view: View) -> Sequence[Change]:
        due = self._leases.due(view.now_s)
        if not due:
            return ()
        self._leases.drop(tuple(due))
        return _drops(view, due)


def _drops(view: View, nodes: AbstractSet[int]) -> list[Change]:
    """Return the changes by which trainers give up what they hold of *nodes*."""
    lost = (sorted(trainer.held & nodes) for trainer in view.trainers)
    return [Change(place, drop=tuple(own)) for place, own in enumerate(lost) if own]


def _held_after(view: View, changes: Sequence[Change]) -> set[int]:
    held = {node for trainer in view.trainers for node in trainer.held}
    held.difference_update(node for change in changes for node in change.drop)
    held.update(node for change in changes for node in change.take)
    return held
