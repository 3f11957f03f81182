"""From prices of nodes to plans that break nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milp.window_bound import ask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from milp.window_bound import Dual
    from milp.window_options import Options

    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]


def rounded(options: Options, dual: Dual, held: Places) -> Places:
    """Return counts near those that trainers choose at *dual*'s prices.

    Whoever wants to shrink does. The others choose among what is left then, one after
    the other, those first who gain most by a node.

    Args:
        options: Sizes of all trainers.
        dual: Prices.
        held: A plan that breaks nothing, near what is held now.
    """
    asked = ask(options, dual.prices)
    takes, counts = asked.takes[asked.chosen], held.copy()
    waits_loses = asked.losses[options.first][options.kind]
    wanted, before = takes.sum(axis=1), held.sum(axis=1)
    shrinking = (wanted < before) & (takes <= held).all(axis=1)
    counts[shrinking] = takes[shrinking]
    free = options.pool.nodes - counts.sum(axis=0)
    gained = waits_loses / np.maximum(wanted, 1)
    growing = np.flatnonzero(wanted > before)
    choose(
        options, dual.prices, growing[np.argsort(-gained[growing])], counts, free=free
    )
    return counts


def choose(
    options: Options,
    prices: Vector,
    places: Iterable[int],
    counts: Places,
    *,
    free: Places,
) -> None:
    """Let trainers choose anew in the order of *places*, each from what is left.

    *counts* and *free* are changed.
    """
    for place in places:
        own = options.of(place)
        within = counts[place] + free
        fitting = (own.least <= within).all(axis=1)
        room = np.minimum(own.room, (within - own.least).clip(0))
        values, takes = own._replace(room=room).best(prices)
        values[~fitting] = -np.inf
        row = int(values.argmax())
        if values[row] > -np.inf:
            free += counts[place] - takes[row]
            counts[place] = takes[row]
