"""From nodes by cluster to nodes: those that leave together stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.forecast.clusters import close_to_each_other
from freetrain.replay.policies.interface import Change

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.forecast.interface import Prospects
    from freetrain.replay.policies.interface import View
    from milp.window import Holding, Window


def changes_to_holdings(
    holdings: Sequence[Holding], window: Window, view: View, forecaster: Prospects
) -> tuple[Change, ...]:
    """Return the changes that give each trainer its nodes by cluster.

    Of a cluster that is given up or taken in part, those go that are closest to each
    other.

    Args:
        holdings: Nodes by trainer and cluster.
        window: What the trainers hold, by cluster.
        view: The pool as it is.
        forecaster: Who knows the clusters.
    """
    moved = [
        (place, trainer.held, new)
        for place, (trainer, new) in enumerate(
            zip(window.trainers, holdings, strict=True)
        )
        if new is not trainer.held and new != trainer.held
    ]
    if not moved:
        return ()
    dropped = [
        _dropped(view.trainers[place].held, held, new, forecaster)
        for place, held, new in moved
    ]
    given: dict[int, list[int]] = {}
    for own in dropped:
        for k, nodes in own.items():
            given.setdefault(k, []).extend(nodes)
    free, changes = set(view.free), []
    left: dict[int, Sequence[int]] = {}
    for (place, held, new), own in zip(moved, dropped, strict=True):
        taken: list[int] = []
        for k, more in _grown(held, new):
            if k not in left:
                left[k] = sorted([*free & forecaster.members(k), *given.get(k, ())])
            chosen = _together(left[k], more, forecaster)
            taken += chosen
            left[k] = sorted(set(left[k]).difference(chosen))
        gone = sorted([node for nodes in own.values() for node in nodes])
        changes.append(Change(place, tuple(gone), tuple(sorted(taken))))
    return tuple(changes)


def _grown(held: Holding, new: Holding) -> list[tuple[int, int]]:
    """Return how many more nodes of a cluster *new* has than *held*, by cluster."""
    more = [(k, count - held.get(k, 0)) for k, count in sorted(new.items())]
    return [one for one in more if one[1] > 0]


def _dropped(
    nodes: AbstractSet[int], held: Holding, new: Holding, forecaster: Prospects
) -> dict[int, Sequence[int]]:
    """Return which of its *nodes* a trainer gives up, by cluster."""
    dropped: dict[int, Sequence[int]] = {}
    for k, count in held.items():
        given = count - new.get(k, 0)
        if given > 0:
            mine = sorted(nodes & forecaster.members(k))
            dropped[k] = _together(mine, given, forecaster)
    return dropped


def _together(
    nodes: Sequence[int], wanted: int, forecaster: Prospects
) -> Sequence[int]:
    if wanted == len(nodes):
        return nodes
    places = close_to_each_other(forecaster.affinity(nodes), wanted)
    return [nodes[place] for place in places]
