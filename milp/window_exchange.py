"""Best-improvement search in which any number of nodes of a class change hands.

For windows of large classes, where moves of whole classes are too coarse. A move takes
some 0.7 ms for 100 trainers and 1,000 nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.window_ledger import Columns, Ledger

if TYPE_CHECKING:
    from milp.deadline import Deadline
    from milp.window import Window
    from milp.window_ledger import Places, Vector
    from milp.window_pool import Pool

_WORTH_IT = 1e-9
"""Relative to the plan's value; less is rounding."""

NOBODY = -1


class _Move(NamedTuple):
    """Nodes of a class that *giver* gives and *taker* takes, the rest from or to free.

    Either is ``NOBODY`` where only free nodes are its counterpart.
    """

    gain: float
    k: int
    giver: int
    given: int
    taker: int
    taken: int


class Exchange:
    """Improves plans of one window, one move after the other, the best one each time.

    A move: a trainer gives any number of nodes of a class, or nobody does, and a
    trainer takes any number of these and of the free ones, or nobody does.
    """

    def __init__(self, window: Window, pool: Pool) -> None:
        self._pool, self._columns = pool, Columns.of(pool)
        self.ledger = Ledger(window, pool, self._columns)

    def free(self) -> Places:
        """Return the nodes by class that nobody has in the plan."""
        free: Places = self._pool.nodes - self.ledger.counts.sum(axis=0)
        return free

    def run(self, deadline: Deadline) -> int:
        """Move until nothing improves the plan; return how many moves that took."""
        ledger, free, moves = self.ledger, self.free(), 0
        if not ledger.gives.size:
            return 0
        while not deadline.passed():
            move = self._best(free)
            if move.gain <= _WORTH_IT * (1.0 + float(np.abs(ledger.gains).sum())):
                break
            self._make(move, free)
            moves += 1
        return moves

    def _make(self, move: _Move, free: Places) -> None:
        for place, more in ((move.giver, -move.given), (move.taker, move.taken)):
            if place != NOBODY:
                self.ledger.counts[place, move.k] += more
                free[move.k] -= more
                self.ledger.refresh(place)

    def _best(self, free: Places) -> _Move:
        """Return the best move; no trainer gives to itself."""
        gives, takes = self.ledger.gives, self.ledger.takes
        best = self._pair(gives, takes, free)
        if best.giver != best.taker or best.giver == NOBODY:
            return best
        without = gives.copy(), takes.copy()
        for one in without:
            one[best.giver] = -np.inf
        either = (
            self._pair(without[0], takes, free),
            self._pair(gives, without[1], free),
        )
        apart = [move for move in either if move.giver != move.taker]
        return max(apart, default=_Move(0.0, 0, NOBODY, 0, NOBODY, 0))

    def _pair(self, gives: Vector, takes: Vector, free: Places) -> _Move:
        columns = self._columns
        given, taken = gives.max(axis=0), takes.max(axis=0)
        given[columns.first] = taken[columns.first] = 0.0
        for first, nodes in zip(columns.first, self._pool.nodes, strict=True):
            run = taken[first : first + nodes + 1]
            np.maximum.accumulate(run, out=run)
        reach = np.minimum(columns.nodes + free[columns.k], columns.most)
        both = given + taken[columns.first[columns.k] + reach]
        column = int(both.argmax())
        k, count = int(columns.k[column]), int(columns.nodes[column])
        giver = int(gives[:, column].argmax()) if count else NOBODY
        first = int(columns.first[k])
        within = takes[:, first : first + int(reach[column]) + 1]
        taker, most = divmod(int(within.argmax()), within.shape[1])
        if not most or within[taker, most] <= 0.0:
            taker, most = NOBODY, 0
        return _Move(float(both[column]), k, giver, count, taker, most)
