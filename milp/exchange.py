"""Better one-class plans by moving nodes from one trainer to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# A plan rarely takes more than a dozen exchanges; each gains, so none repeats.
_MOST_EXCHANGES = 100


def exchange(
    rows: Sequence[NDArray[np.float64]], counts: Sequence[int], pool_nodes: int
) -> list[int]:
    """Apply the best exchange between two trainers until none gains.

    One trainer grows on unused nodes and on what another gives up. Grown by at
    most r and shrunk by at least r nodes, the best of all trainers for every r
    are a few passes over the gains.

    Args:
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not allowed.
        counts: A plan of at most *pool_nodes* nodes.
        pool_nodes: Nodes to give.

    Returns:
        Counts that gain no less.
    """
    sizes = max(map(len, rows), default=0)
    gains = np.full((len(rows), sizes), -np.inf)
    for line, row in zip(gains, rows, strict=True):
        line[: len(row)] = row
    now = np.array(counts, dtype=np.intp)
    if len(rows) > 1:
        for _ in range(_MOST_EXCHANGES):
            if not _exchange_once(gains, now, pool_nodes - int(now.sum())):
                break
    return [int(n) for n in now]


def _exchange_once(
    gains: NDArray[np.float64], now: NDArray[np.intp], left: int
) -> bool:
    everyone, sizes = np.arange(len(now)), gains.shape[1]
    step = np.arange(sizes)
    base = gains[everyone, now]
    more = _differences(gains, now[:, None] + step, base)
    less = _differences(gains, now[:, None] - step, base)
    grow = np.maximum.accumulate(more, axis=1)
    give = np.maximum.accumulate(less[:, ::-1], axis=1)[:, ::-1]
    freed = np.maximum(step - left, 0)
    taker, giver, value = _best_pair(grow, give[:, freed])
    r = int(value.argmax())
    if value[r] <= 1e-12 * float(np.abs(base).sum()):
        return False
    a, b = int(giver[r]), int(taker[r])
    now[a] -= freed[r] + int(less[a, freed[r] :].argmax())
    now[b] += int(more[b, : r + 1].argmax())
    return True


def _differences(
    gains: NDArray[np.float64], sizes: NDArray[np.intp], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Gain over *base* at *sizes*, ``-inf`` off the curve."""
    inside = (sizes >= 0) & (sizes < gains.shape[1])
    there = np.take_along_axis(gains, np.where(inside, sizes, 0), axis=1)
    return np.where(inside, there, -np.inf) - base[:, None]


def _best_pair(
    grow: NDArray[np.float64], give: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """By column, the best two different trainers: who takes, who gives, the gain."""
    columns = np.arange(grow.shape[1])
    taker = np.stack(_top_two(grow))
    giver = np.stack(_top_two(give))
    pairs = [(0, 0), (0, 1), (1, 0)]
    values = np.stack(
        [
            np.where(
                taker[i] == giver[j],
                -np.inf,
                grow[taker[i], columns] + give[giver[j], columns],
            )
            for i, j in pairs
        ]
    )
    best = values.argmax(axis=0)
    rank = np.array(pairs)[best]
    return (
        taker[rank[:, 0], columns],
        giver[rank[:, 1], columns],
        values[best, columns],
    )


def _top_two(
    table: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of the largest and second largest entry of each column."""
    first = table.argmax(axis=0)
    rest = table.copy()
    rest[first, np.arange(table.shape[1])] = -np.inf
    return first, rest.argmax(axis=0)
