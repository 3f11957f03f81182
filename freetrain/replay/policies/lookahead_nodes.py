"""From nodes by cluster to nodes: those that leave together stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.forecast.clusters import close_to_each_other
from freetrain.replay.policies.interface import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.interface import Forecaster
    from freetrain.replay.policies.interface import View
    from milp.window import Holding, Window


def changes_to_holdings(
    holdings: Sequence[Holding], window: Window, view: View, forecaster: Forecaster
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
        if trainer.held != new
    ]
    if not moved:
        return ()
    cluster = forecaster.cluster
    pool: dict[int, list[int]] = {}
    for node in view.free:
        pool.setdefault(cluster(node), []).append(node)
    dropped: dict[int, list[int]] = {}
    for place, held, new in moved:
        own = sorted(view.trainers[place].held)
        gone = [k for k, nodes in held.items() if new.get(k, 0) < nodes]
        dropped[place] = []
        for k in sorted(gone):
            mine = [node for node in own if cluster(node) == k]
            chosen = _together(mine, held[k] - new.get(k, 0), forecaster)
            dropped[place] += chosen
            pool[k] = sorted([*pool.get(k, []), *chosen])
    changes = []
    for place, held, new in moved:
        taken: list[int] = []
        for k in sorted(new):
            more = new[k] - held.get(k, 0)
            if more > 0:
                chosen = _together(pool[k], more, forecaster)
                taken += chosen
                pool[k] = sorted(set(pool[k]).difference(chosen))
        changes.append(
            Change(place, tuple(sorted(dropped[place])), tuple(sorted(taken)))
        )
    return tuple(changes)


def _together(
    nodes: Sequence[int], wanted: int, forecaster: Forecaster
) -> Sequence[int]:
    if wanted == len(nodes):
        return nodes
    places = close_to_each_other(forecaster.affinity(nodes), wanted)
    return [nodes[place] for place in places]
