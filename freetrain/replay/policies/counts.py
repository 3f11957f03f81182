"""From node counts to nodes, for policies that only think in counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.policies.interface import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.interface import View


def changes_to(counts: Sequence[int], view: View) -> tuple[Change, ...]:
    """Return the changes that give each trainer its count, without migration.

    As in the published evaluation: who shrinks drops its lowest-numbered nodes,
    and who grows takes the highest-numbered free node first, what others drop
    included.

    Args:
        counts: Nodes by trainer, in the view's order; at most ``idle_nodes``
            together.
        view: The pool as it is.
    """
    surplus = [len(t.held) - n for t, n in zip(view.trainers, counts, strict=True)]
    dropped = {
        place: tuple(sorted(view.trainers[place].held)[:nodes])
        for place, nodes in enumerate(surplus)
        if nodes > 0
    }
    free = view.free
    if dropped:
        free = sorted([*free, *(node for nodes in dropped.values() for node in nodes)])
    changes, untaken = [], len(free)
    for place, nodes in enumerate(surplus):
        if nodes > 0:
            changes.append(Change(place, drop=dropped[place]))
        elif nodes < 0:
            taken = tuple(free[untaken + nodes : untaken])
            untaken += nodes
            changes.append(Change(place, take=taken))
    return tuple(changes)
