"""A fast plan that breaks no constraint: incumbent for the exact methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milp.keep import drop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import Problem

# Sweeps over all trainers; each gives every trainer at most one better size.
_MOST_SWEEPS = 20


def greedy(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    *,
    targets: Sequence[int],
    price: Sequence[float],
) -> list[list[int]]:
    """Bring every trainer near its target size, then spend what is left.

    Shrinking trainers release nodes first; growing ones follow, those with the
    fewest classes to choose from first; at last every trainer that gains by
    growing on the nodes left does so.

    Args:
        problem: The problem.
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not allowed.
        targets: Wanted size by trainer, each an allowed one.
        price: What a node of each class is worth; cheap ones are taken first.

    Returns:
        Counts, shape (trainers, classes).
    """
    stock = _Stock(problem, price)
    trainers = list(enumerate(problem.trainers))
    for j, trainer in trainers:
        if targets[j] < sum(trainer.held) or not np.isfinite(
            rows[j][sum(trainer.held)]
        ):
            stock.resize(j, _most_within(rows[j], min(targets[j], stock.reach(j))))
    by_choice = sorted(trainers, key=lambda jt: len(stock.usable[jt[0]]))
    for j, trainer in by_choice:
        if targets[j] > sum(trainer.held) == sum(stock.counts[j]):
            size = _most_within(rows[j], min(targets[j], stock.reach(j)))
            stock.resize(j, max(size, sum(trainer.held)))
    for _ in range(_MOST_SWEEPS):
        if not _sweep(stock, rows):
            break
    return stock.counts


def _sweep(stock: _Stock, rows: Sequence[NDArray[np.float64]]) -> bool:
    """Let each trainer grow to its best size within reach, best gain first."""
    gained = []
    for j, row in enumerate(rows):
        best = _best_within(row, stock.reach(j))
        more = float(row[best] - row[sum(stock.counts[j])])
        if more > 0:
            gained.append((more, -j))
    for _, negative in sorted(gained, reverse=True):
        j = -negative
        best = _best_within(rows[j], stock.reach(j))
        if rows[j][best] > rows[j][sum(stock.counts[j])]:
            stock.resize(j, best)
    return bool(gained)


def _most_within(row: NDArray[np.float64], most: int) -> int:
    """The largest allowed size up to *most*."""
    return int(np.flatnonzero(np.isfinite(row[: most + 1]))[-1])


def _best_within(row: NDArray[np.float64], most: int) -> int:
    return int(row[: most + 1].argmax())


class _Stock:
    """Who has how many nodes of which class while a plan is being made."""

    def __init__(self, problem: Problem, price: Sequence[float]) -> None:
        every = range(len(problem.classes))
        self._trainers = problem.trainers
        self._price = price
        self._cheap_first = sorted(every, key=lambda k: (price[k], k))
        self.usable = [
            frozenset(every) if t.usable is None else t.usable for t in problem.trainers
        ]
        self.counts = [list(t.held) for t in problem.trainers]
        self._free = [
            c.nodes - sum(t.held[k] for t in problem.trainers)
            for k, c in enumerate(problem.classes)
        ]

    def reach(self, j: int) -> int:
        """Most nodes that the trainer can have now without migrating."""
        trainer, usable = self._trainers[j], self.usable[j]
        own = self._own_within_reach(j)
        if sum(own) < sum(trainer.held):
            return sum(own)
        return sum(own) + sum(
            self._free[k] - (own[k] - self.counts[j][k]) for k in usable
        )

    def resize(self, j: int, size: int) -> None:
        """Give the trainer *size* nodes, at most its reach, nested in its old ones."""
        for k, count in enumerate(self.counts[j]):
            self._free[k] += count
        own = [
            min(n, self._free[k]) if k in self.usable[j] else 0
            for k, n in enumerate(self._trainers[j].held)
        ]
        row = drop(own, max(0, sum(own) - size), self._price)
        missing = size - sum(row)
        for k in self._cheap_first:
            if k in self.usable[j]:
                more = min(missing, self._free[k] - row[k])
                row[k] += more
                missing -= more
        self.counts[j] = row
        for k, count in enumerate(row):
            self._free[k] -= count

    def _own_within_reach(self, j: int) -> list[int]:
        """Nodes it held at first that it still has or that are free again."""
        held = self._trainers[j].held
        return [
            min(n, self.counts[j][k] + self._free[k]) if k in self.usable[j] else 0
            for k, n in enumerate(held)
        ]
