"""The exact search over plans whose loss against the bound is small (model.md, R4).

An option's loss is how far it lies under its trainer's best at the node price;
a plan's losses, and the price of the nodes it leaves unused, add up to its
distance from the bound. So a search that drops every partial plan whose loss
exceeds a limit finds all plans within that limit, and few states remain.

Ties and rounding are those of the dense dynamic program: gains add up in the
trainers' order, and from the last trainer back each takes its smallest best
count.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.objective import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.rows import Options, Priced

Answer = tuple["Sequence[int]", float]

_NO_PLAN: Answer = ((), -math.inf)
# With more options a trainer than this, or more moves, arrays are quicker: a move
# takes about 0.2 us, a trainer by arrays 10 us and more.
_FEW_OPTIONS = 6
_MOVES_PER_TRAINER = 50


class Limit(NamedTuple):
    """What a search may spend.

    Attributes:
        loss: Largest distance from the bound, objective units.
        price: Loss of each unused node, objective units.
        pool_nodes: Nodes to give.
    """

    loss: float
    price: float
    pool_nodes: int


def search(priced: Sequence[Priced], limit: Limit) -> Answer:
    """Return counts and gain of the best plan within *limit*; -inf if there is none.

    Args:
        priced: By trainer, at the limit's price.
        limit: What the search may spend.
    """
    options = [one.within(limit.loss) for one in priced]
    moves = sum([len(mine.by_loss) for mine in options])
    if moves == len(options):
        return _only_plan(options, limit)
    if moves <= _FEW_OPTIONS * len(options):
        answer = _search_few(options, [one.best for one in priced], limit)
        if answer is not None:
            return answer
    return search_all(options, limit)


def cells(priced: Sequence[Priced], limit: Limit) -> int:
    """Return about how many sums :func:`search` has to look at, at most."""
    options = [one.within(limit.loss) for one in priced]
    return sum(
        len(mine.by_loss) * max(0, most - least + 1)
        for mine, (least, most) in zip(
            options, _windows(options, limit)[1:], strict=True
        )
    )


def _only_plan(options: Sequence[Options], limit: Limit) -> Answer:
    counts = [mine.least for mine in options]
    left = limit.pool_nodes - sum(counts)
    if left < 0 or left * limit.price > limit.loss:
        return _NO_PLAN
    return counts, total([mine.by_loss[0][2] for mine in options])


def _search_few(
    options: Sequence[Options], best: Sequence[float], limit: Limit
) -> Answer | None:
    """Search state by state; None where that becomes too much.

    A state is a number of nodes spoken for, unused ones among them.

    Args:
        options: By trainer.
        best: By trainer, the gain net of price of an option that loses nothing.
        limit: What the search may spend.
    """
    states, least, most = _begin(options, limit)
    net = limit.loss
    moves = _MOVES_PER_TRAINER * len(options)
    choices: list[dict[int, int] | int] = []
    for (fewest, largest, by_loss, *_), top in zip(options, best, strict=True):
        moves -= len(states) * len(by_loss)
        if moves < 0:
            return None
        least += largest
        most += fewest
        if fewest == largest:
            more = by_loss[0][2]
            states = {n + fewest: gain + more for n, gain in states.items()}
            choices.append(fewest)
        else:
            window = (least, most)
            states, choice = _step(states, by_loss, window, (net, limit.price))
            choices.append(choice)
        net -= top
    if limit.pool_nodes not in states:
        return _NO_PLAN
    return _back(choices, limit.pool_nodes), states[limit.pool_nodes]


def _back(choices: Sequence[dict[int, int] | int], pool_nodes: int) -> list[int]:
    """Counts by trainer: the choice at the pool that later trainers leave."""
    left, counts = pool_nodes, []
    for choice in reversed(choices):
        nodes = choice if isinstance(choice, int) else choice[left]
        counts.append(nodes)
        left -= nodes
    return counts[::-1]


def _begin(
    options: Sequence[Options], limit: Limit
) -> tuple[dict[int, float], int, int]:
    """Return the states before the first trainer, and between which they lie."""
    least = limit.pool_nodes - sum([mine.most for mine in options])
    most = limit.pool_nodes - sum([mine.least for mine in options])
    unused = _most_unused(most, limit)
    return dict.fromkeys(range(max(0, least), unused + 1), 0.0), least, most


def _most_unused(most: int, limit: Limit) -> int:
    if limit.price * most > limit.loss:
        return int(limit.loss / limit.price)
    return most


def _step(
    states: dict[int, float],
    by_loss: list[tuple[float, int, float]],
    window: tuple[int, int],
    net_and_price: tuple[float, float],
) -> tuple[dict[int, float], dict[int, int]]:
    """Best gain and smallest best count of one trainer, by nodes spoken for after it.

    What a state has lost is the bound of its trainers less its gain net of price.
    """
    net, price = net_and_price
    least, most = window
    after: dict[int, float] = {}
    choice: dict[int, int] = {}
    for before, gain in states.items():
        spare = net + gain - price * before
        for loss, nodes, more in by_loss:
            if loss > spare:
                break
            taken = before + nodes
            if taken < least or taken > most:
                continue
            value = gain + more
            known = after.get(taken)
            if (
                known is None
                or value > known
                or (value == known and nodes < choice[taken])
            ):
                after[taken] = value
                choice[taken] = nodes
    return after, choice


def search_all(options: Sequence[Options], limit: Limit) -> Answer:
    """Return what :func:`search` does, by array operations.

    Looks at all sums of options that can end at the pool, whatever they lose.
    """
    windows = _windows(options, limit)
    if any(least > most for least, most in windows):
        return _NO_PLAN
    best = [_padded(windows[0][1] - windows[0][0] + 1)]
    best[0][1:-1] = 0.0
    for mine, two in zip(options, pairwise(windows), strict=True):
        best.append(_step_arrays(best[-1], mine, two))
    value = float(best.pop()[1])
    if value == -math.inf:
        return _NO_PLAN
    left, counts = limit.pool_nodes, []
    for mine, before, (least, _) in zip(
        reversed(options), reversed(best), windows[-2::-1], strict=True
    ):
        values = before.take(left - least + 1 - mine.nodes, mode="clip") + mine.gains
        counts.append(int(mine.nodes[values.argmax()]))
        left -= counts[-1]
    return counts[::-1], value


def _padded(states: int) -> NDArray[np.float64]:
    """Room for *states* gains between two that are out of reach."""
    room = np.empty(states + 2)
    room[0] = room[-1] = -np.inf
    return room


def _step_arrays(
    best: NDArray[np.float64],
    options: Options,
    windows: tuple[tuple[int, int], tuple[int, int]],
) -> NDArray[np.float64]:
    """Best gain with one more trainer, over the second window."""
    (first, _), (least, most) = windows
    after = _padded(most - least + 1)
    if len(options.by_loss) == 1:
        begin = least - first + 1 - options.least
        np.add(best[begin : begin + most - least + 1], options.gains, out=after[1:-1])
        return after
    places = np.arange(least - first + 1, most - first + 2) - options.nodes[:, None]
    table = best.take(places, mode="clip")
    table += options.gains[:, None]
    np.maximum.reduce(table, axis=0, out=after[1:-1])
    return after


def _windows(options: Sequence[Options], limit: Limit) -> list[tuple[int, int]]:
    """Between what the states lie before each trainer and after the last one."""
    least = limit.pool_nodes - sum([mine.most for mine in options])
    most = limit.pool_nodes - sum([mine.least for mine in options])
    unused = _most_unused(most, limit)
    fewest = accumulate([mine.least for mine in options], initial=0)
    largest = accumulate([mine.most for mine in options], initial=unused)
    reach_least = accumulate([mine.most for mine in options], initial=least)
    reach_most = accumulate([mine.least for mine in options], initial=most)
    return list(
        zip(map(max, fewest, reach_least), map(min, largest, reach_most), strict=True)
    )
