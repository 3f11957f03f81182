"""The exact search over plans whose loss against the bound is small (model.md, R4).

An option's loss is how far it lies under its trainer's best at the node price;
a plan's losses, and the price of the nodes it leaves unused, add up to its
distance from the bound. So a search that drops every partial plan whose loss
exceeds a limit finds all plans within that limit, and few states remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

# One trainer's options as (loss, nodes), least loss first.
Options = list[tuple[float, int]]
# One trainer's moves that stay within the limit: (pool before it, its nodes).
Moves = list[tuple[int, int]]


# From here on a list of all gains is cheaper than array look-ups.
_FEW_MOVES = 16


class Limit(NamedTuple):
    """What a search may spend.

    Attributes:
        loss: Largest distance from the bound, objective units.
        price: Loss of each unused node, objective units.
        moves: Most moves to look at before giving up.
    """

    loss: float
    price: float
    moves: int


class TooManyMovesError(Exception):
    """The limit leaves too much to look at; a dense search is cheaper."""


def search(
    options: Sequence[Options],
    gains: NDArray[np.float64],
    pool_nodes: int,
    limit: Limit,
) -> tuple[list[int], float] | None:
    """Return counts and gain of the best plan within *limit*, or None.

    Ties and rounding are those of the dense dynamic program: gains add up in the
    trainers' order, and from the last trainer back each takes its smallest best
    count.

    Args:
        options: By trainer; losses 0 or more.
        gains: Gains, shape (trainers, sizes).
        pool_nodes: Nodes to give.
        limit: What the search may spend.

    Raises:
        TooManyMovesError: More than ``limit.moves`` moves lie within the limit.
    """
    moves, ends = _moves_within(options, pool_nodes, limit)
    best = dict.fromkeys(ends, 0.0)
    choices = []
    for trainer_moves, row in zip(moves, gains, strict=True):
        best, choice = _step(trainer_moves, row, best)
        choices.append(choice)
    if pool_nodes not in best:
        return None
    left, counts = pool_nodes, []
    for choice in reversed(choices):
        counts.append(choice[left])
        left -= counts[-1]
    return counts[::-1], float(best[pool_nodes])


def _moves_within(
    options: Sequence[Options], pool_nodes: int, limit: Limit
) -> tuple[list[Moves], list[int]]:
    """All moves within the limit from the last trainer back; pools left at the end."""
    least, most = _reach(options)
    states = {pool_nodes: 0.0}
    moves: list[Moves] = []
    budget = limit.moves
    for index in range(len(options) - 1, -1, -1):
        bounds = (least[index], most[index])
        trainer_moves, states = _spread(states, options[index], bounds, limit)
        moves.append(trainer_moves)
        budget -= len(trainer_moves)
        if budget < 0:
            raise TooManyMovesError
    ends = [
        left
        for left, loss in states.items()
        if left >= 0 and loss + limit.price * left <= limit.loss
    ]
    return moves[::-1], ends


def _spread(
    states: dict[int, float],
    options: Options,
    bounds: tuple[int, int],
    limit: Limit,
) -> tuple[Moves, dict[int, float]]:
    """One trainer's moves from *states*, and the least loss by pool left after it.

    The trainers before it use at least and at most *bounds* nodes.
    """
    least, most = bounds
    moves: Moves = []
    after: dict[int, float] = {}
    for left, loss in states.items():
        spare = limit.loss - loss
        for extra, nodes in options:
            if extra > spare:
                break
            rest = left - nodes
            if rest < least or (
                rest > most and extra + (rest - most) * limit.price > spare
            ):
                continue
            moves.append((left, nodes))
            total = loss + extra
            known = after.get(rest)
            if known is None or total < known:
                after[rest] = total
    return moves, after


def _step(
    moves: Moves, row: NDArray[np.float64], best: dict[int, float]
) -> tuple[dict[int, float], dict[int, int]]:
    """Best gain and smallest best count of one trainer, by pool before it."""
    after: dict[int, float] = {}
    choice: dict[int, int] = {}
    values = row.tolist() if len(moves) > _FEW_MOVES else row
    for left, nodes in moves:
        before = best.get(left - nodes)
        if before is None:
            continue
        value = before + values[nodes]
        known = after.get(left)
        if known is None or value > known or (value == known and nodes < choice[left]):
            after[left] = value
            choice[left] = nodes
    return after, choice


def _reach(options: Sequence[Options]) -> tuple[list[int], list[int]]:
    """Fewest and most nodes that the trainers before each one can use."""
    least, most = [0], [0]
    for trainer_options in options:
        if len(trainer_options) == 1:
            fewest = largest = trainer_options[0][1]
        else:
            sizes = [nodes for _, nodes in trainer_options]
            fewest, largest = min(sizes), max(sizes)
        least.append(least[-1] + fewest)
        most.append(most[-1] + largest)
    return least, most
