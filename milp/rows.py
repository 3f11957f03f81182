"""What the exact solver derives from curves, kept between two calls.

A replay asks for the same few gains again and again: a curve, a count held and
three costs make a row, and with a node price what each of its sizes loses.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.objective import gains
from milp.relaxation import hull_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import Curve, Problem, TrainerState
    from milp.relaxation import Hull

# Sizes over all rows and priced rows, some 50 bytes each; a replay of one log
# uses a few hundred rows of some hundred sizes at a few hundred prices.
_MOST_SIZES = 1 << 20
# Losses this small beside the best are rounding; only says where to begin.
_LOSSLESS = 1e-12

_Key = tuple["Curve", tuple[int, ...], float, float, float, bool]


class Row(NamedTuple):
    """A trainer's gains.

    Attributes:
        gains: At 0 .. max nodes, ``-inf`` where not allowed, shape (sizes,).
        values: The same as a list, of which single gains are quicker to get.
        best_within: The count of largest gain among 0 .. n, by n.
        hull: Their concave hull.
        priced: By price of a node, what :meth:`RowTable.priced` has made.
    """

    gains: NDArray[np.float64]
    values: list[float]
    best_within: list[int]
    hull: Hull
    priced: dict[float, Priced]


class Options(NamedTuple):
    """Sizes of a trainer to choose from.

    Attributes:
        least: The smallest of them.
        most: The largest of them.
        by_loss: Loss, nodes and gain of each, least loss first.
        nodes: The sizes, ascending.
        gains: Their gains.
    """

    least: int
    most: int
    by_loss: list[tuple[float, int, float]]
    nodes: NDArray[np.intp]
    gains: NDArray[np.float64]


class Priced(NamedTuple):
    """What each size of a trainer loses at a price (docs/model.md, R3).

    Attributes:
        best: Largest gain net of the price of its nodes.
        least: Smallest size that loses nothing.
        most: Largest size that loses nothing.
        gains: The trainer's gains by size.
        losses: Losses of all allowed sizes, ascending.
        sizes: Those sizes, in the order of their losses.
        shortlists: By length, what :meth:`within` has made.
    """

    best: float
    least: int
    most: int
    gains: NDArray[np.float64]
    losses: list[float]
    sizes: NDArray[np.intp]
    shortlists: dict[int, Options]

    def count_within(self, loss: float) -> int:
        """Return how many sizes lose no more than *loss*."""
        return bisect_right(self.losses, loss)

    def within(self, loss: float) -> Options:
        """Return the sizes that lose no more than *loss*, 0 or more."""
        count = bisect_right(self.losses, loss)
        return self.shortlists.get(count) or self._add_shortlist(count)

    def _add_shortlist(self, count: int) -> Options:
        sizes = self.sizes[:count]
        by_loss = zip(
            self.losses[:count],
            sizes.tolist(),
            self.gains[sizes].tolist(),
            strict=True,
        )
        nodes = np.sort(sizes)
        options = self.shortlists[count] = Options(
            int(nodes[0]), int(nodes[-1]), list(by_loss), nodes, self.gains[nodes]
        )
        return options


class RowTable:
    """Rows by trainer state, for one look-ahead at a time; bounded."""

    def __init__(self) -> None:
        self._clear(t_fwd_s=0.0)

    def rows_of(self, problem: Problem) -> list[Row]:
        """Return the rows of *problem*'s trainers."""
        if problem.t_fwd_s != self._t_fwd_s or self._sizes > _MOST_SIZES:
            self._clear(t_fwd_s=problem.t_fwd_s)
        return [self._row(trainer) for trainer in problem.trainers]

    def priced(self, rows: Sequence[Row], price: float) -> list[Priced]:
        """Return *rows* at *price* a node."""
        return [row.priced.get(price) or self._add_priced(row, price) for row in rows]

    def _clear(self, *, t_fwd_s: float) -> None:
        self._t_fwd_s = t_fwd_s
        self._rows: dict[_Key, Row] = {}
        self._sizes = 0

    def _row(self, trainer: TrainerState) -> Row:
        usable = trainer.usable is None or 0 in trainer.usable
        key = (
            trainer.curve,
            trainer.held,
            trainer.up_s,
            trainer.down_s,
            trainer.start_s,
            usable,
        )
        row = self._rows.get(key)
        if row is None:
            all_gains = gains(trainer, self._t_fwd_s)
            row = self._rows[key] = _row_of(all_gains if usable else all_gains[:1])
            self._sizes += len(row.gains)
        return row

    def _add_priced(self, row: Row, price: float) -> Priced:
        priced = row.priced[price] = price_sizes(row.gains, price)
        self._sizes += len(priced.losses)
        return priced


def _row_of(row_gains: NDArray[np.float64]) -> Row:
    tops = np.maximum.accumulate(row_gains)
    rises = np.concatenate(([True], tops[1:] > tops[:-1]))
    best_within = np.maximum.accumulate(np.where(rises, np.arange(len(tops)), 0))
    values, hull = row_gains.tolist(), hull_of(row_gains)
    return Row(row_gains, values, best_within.tolist(), hull, {})


def price_sizes(row_gains: NDArray[np.float64], price: float) -> Priced:
    """Return gains at 0 .. max nodes, ``-inf`` where not allowed, at *price* a node."""
    sizes = np.flatnonzero(row_gains > -np.inf)
    paid = row_gains[sizes] - price * sizes
    best = float(paid.max())
    losses = best - paid
    order = losses.argsort(kind="stable")
    lossless = sizes[losses <= _LOSSLESS * (abs(best) + price * len(row_gains))]
    return Priced(
        best,
        int(lossless[0]),
        int(lossless[-1]),
        row_gains,
        losses[order].tolist(),
        sizes[order],
        {},
    )
