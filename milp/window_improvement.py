"""A longer search of a window, led by the prices of its bound (docs/model.md).

Twenty to a thousand times as long as the search of a replay; for a tick, which has a
second or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.window_bound import Dual, first, loose_bound, tighten
from milp.window_exchange import Exchange
from milp.window_mending import mend
from milp.window_options import Options, options_of
from milp.window_pool import Pool
from milp.window_rounding import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.deadline import Deadline
    from milp.window import Holding, Window

    Places = NDArray[np.intp]

_ROUNDS = 5
"""Prices are made better and rounded so often; a sixth time seldom helps."""

_STEPS = 15
"""Of the bound in a round."""

_LAST_STEPS = 40
"""Of the bound, once the plan is there."""

_ATTEMPTS = 1.5
"""At steps out of the best plan, a trainer."""

_MOST_CELLS = 2_000_000
"""Sizes times classes; one look at so many takes 0.1 s and 100 MB."""

_FEW = 16
"""Classes that many are merged to for a bound."""

_CLOSE = 1e-7


class Improved(NamedTuple):
    """What a longer search came to.

    Attributes:
        holdings: The plan, no worse than the one that it began from.
        bound: No plan gains more.
        options: Sizes of all trainers; None where there was no time, or where there
            are too many sizes and classes.
        dual: The prices that give the bound; None as ``options``.
    """

    holdings: tuple[Holding, ...]
    bound: float
    options: Options | None
    dual: Dual | None


def improve(
    window: Window,
    holdings: Sequence[Holding],
    kept: Sequence[Holding],
    deadline: Deadline,
) -> Improved:
    """Return a plan no worse than *holdings*, and a bound, by *deadline*.

    Args:
        window: The problem.
        holdings: A plan that breaks nothing.
        kept: The present plan, with all trainers on one of their sizes.
        deadline: When to stop.
    """
    pool, most = Pool.of(window), loose_bound(window)
    sizes = sum([len(one.curve.sizes) + 1 for one in window.trainers])
    cells = sizes * len(pool.nodes)
    if not cells or deadline.passed():
        return Improved(tuple(holdings), most, None, None)
    if cells > _MOST_CELLS:
        return _improve_many(window, pool, (holdings, kept), most, deadline)
    options = options_of(window, pool)
    search = _Search(window, options, pool.rows(holdings))
    search.improve(pool.rows(kept), deadline)
    value = min(most, search.dual.value)
    return Improved(pool.holdings(search.counts.tolist()), value, options, search.dual)


def _improve_many(
    window: Window,
    pool: Pool,
    plans: Sequence[Sequence[Holding]],
    most: float,
    deadline: Deadline,
) -> Improved:
    """Return the best of *plans* after exchanges, and a bound by merged classes.

    Args:
        window: The problem.
        pool: Its classes.
        plans: Where to begin from; they break nothing.
        most: A bound.
        deadline: When to stop.
    """
    ledger = (exchange := Exchange(window, pool)).ledger
    gain, best = -np.inf, pool.rows(plans[0])
    for plan in plans:
        ledger.load(pool.rows(plan))
        exchange.run(deadline.share(0.5))
        if ledger.gain > gain:
            gain, best = ledger.gain, ledger.counts.copy()
    if all(float(one.curve.value_per_s.min()) >= 0.0 for one in window.trainers):
        options = options_of(window, pool.merged(_FEW))
        dual = first(options, deadline)
        dual = tighten(
            options, dual, reached=gain, steps=_LAST_STEPS, deadline=deadline
        )
        most = min(most, dual.value)
    return Improved(pool.holdings(best.tolist()), most, None, None)


class _Search:
    """The best plan so far, and the best bound.

    Attributes:
        counts: Of the plan, nodes by trainer and class.
        dual: The bound.
    """

    def __init__(self, window: Window, options: Options, counts: Places) -> None:
        self._options = options
        self._exchange = Exchange(window, options.pool)
        self._gain = -np.inf
        self.counts = counts
        self.dual = Dual(np.inf, np.zeros(len(options.pool.nodes)))

    def improve(self, kept: Places, deadline: Deadline) -> None:
        """Search from the plan, from *kept*, and from what prices say."""
        options = self._options
        self._try(self.counts, deadline)
        if (kept != self.counts).any():
            self._try(kept, deadline)
        self.dual = first(options, deadline)
        for _ in range(_ROUNDS):
            if self._is_done() or deadline.passed():
                return
            self._tighten(_STEPS, deadline)
            self._try(rounded(options, self.dual, kept), deadline)
        self._exchange.ledger.load(self.counts)
        half, rounds = deadline.share(0.5), int(_ATTEMPTS * len(self.counts))
        mend(self._exchange, options, self.dual, rounds=rounds, deadline=half)
        self._take()
        self._tighten(_LAST_STEPS, deadline)

    def _tighten(self, steps: int, deadline: Deadline) -> None:
        self.dual = tighten(
            self._options,
            self.dual,
            reached=self._gain,
            steps=steps,
            deadline=deadline,
        )

    def _is_done(self) -> bool:
        return self.dual.value - self._gain <= _CLOSE * abs(self._gain)

    def _try(self, counts: Places, deadline: Deadline) -> None:
        self._exchange.ledger.load(counts)
        self._exchange.run(deadline)
        self._take()

    def _take(self) -> None:
        ledger = self._exchange.ledger
        if ledger.gain > self._gain:
            self._gain, self.counts = ledger.gain, ledger.counts.copy()
