"""The exact optimum for one node class (docs/reference/model.md, "One class").

The dense dynamic program looks at every count of every trainer for every size of the
pool. A bound and a good plan rule out almost all of that. The solver prices a node by
the linear relaxation (:func:`node_price`), which shows how much each size of a trainer
loses (:class:`Priced`), and searches only plans that lose little enough to beat the
good plan (:func:`search`). All this counts units of the class: a trainer whose leases
are wider than one has sizes at whole leases only (:func:`stretched`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.answer import MalformedProblemError, Plan
from milp.problem import gains, total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from milp.problem import Curve, Problem, ProblemTrainer

_ROUNDING = 1e-9
"""Rounding of a sum of gains is far below this share of their magnitude; losses this
small are never pruned, so that ties survive (docs/reference/model.md, R5)."""

_LOSSLESS_FIRST = 4.0
"""Roundings that the first search may lose: in two of three calls of a replay the best
plan loses nothing, which shows before any other plan is known."""

_FEW_OPTIONS = 6
"""With more options a trainer than this it pays to try a smaller limit first: the best
plan mostly loses much less than the filled one."""

_SMALL_SHARE = 1 / 8


class ExactSolver:
    """Solves one-class problems; keeps prices and gains between calls.

    Not for use from several threads at once.
    """

    def __init__(self) -> None:
        self._table = SizeTable()
        self._price = 0.0

    def solve(self, problem: Problem) -> Plan:
        """Return the optimal plan; among equal optima model.md says which.

        Raises:
            MalformedProblemError: The problem has not exactly one node class.
        """
        if len(problem.classes) != 1:
            raise MalformedProblemError(
                f"the exact solver plans one node class; this problem has "
                f"{len(problem.classes)}. Use the count formulation."
            )
        pool_nodes = problem.classes[0].nodes
        asked = pool_nodes, problem.t_fwd_s, problem.trainers
        plan = self._table.plans.get(asked)
        if plan is None:
            rows = self._table.rows_of(problem)
            units, value = _best(self._case(rows, pool_nodes))
            counts = [(n // row.width,) for n, row in zip(units, rows, strict=True)]
            plan = Plan(tuple(counts), value, value)
            self._table.keep(asked, plan)
        return plan

    def _case(self, rows: Sequence[Row], pool_nodes: int) -> _Case:
        """Price a node so that the pool just runs out; try the last price first."""
        priced = self._table.priced(rows, self._price)
        if not _runs_out(priced, self._price, pool_nodes):
            self._price = node_price([row.hull for row in rows], pool_nodes)
            priced = self._table.priced(rows, self._price)
        best = [known.best for known in priced]
        pool = self._price * pool_nodes
        rounding = _ROUNDING * (sum(map(abs, best)) + pool)
        return _Case(rows, priced, self._price, pool_nodes, sum(best) + pool, rounding)


class _Case(NamedTuple):
    """A problem at a node price; rows and priced rows are by trainer.

    Attributes:
        bound: No plan gains more.
        rounding: Differences up to this may be rounding.
    """

    rows: Sequence[Row]
    priced: Sequence[Priced]
    price: float
    pool_nodes: int
    bound: float
    rounding: float


def _runs_out(priced: Sequence[Priced], price: float, pool_nodes: int) -> bool:
    """Tell whether sizes without loss can use the whole pool, or nodes are free."""
    if sum([known.least for known in priced]) > pool_nodes:
        return False
    return price == 0.0 or sum([known.most for known in priced]) >= pool_nodes


def _best(case: _Case) -> CountsAndGain:
    for loss in _limits(case):
        limit = Limit(loss, case.price, case.pool_nodes)
        answer = search(case.priced, limit)
        # Near the limit a plan as good as this one may have been pruned (E4).
        if case.bound - answer[1] + case.rounding <= loss:
            break
    return answer


def _limits(case: _Case) -> Iterator[float]:
    """Yield losses to search within; the last but one is almost always enough."""
    yield _LOSSLESS_FIRST * case.rounding
    gap = case.bound - _gain_after_filling(case) + 2 * case.rounding
    options = sum([known.count_within(gap) for known in case.priced])
    if options > _FEW_OPTIONS * len(case.priced):
        yield gap * _SMALL_SHARE
    yield gap
    yield math.inf


def _gain_after_filling(case: _Case) -> float:
    """Return the gain of the smallest sizes without loss, grown where that gains."""
    rows = case.rows
    counts = [known.least for known in case.priced]
    value = sum([row.values[n] for row, n in zip(rows, counts, strict=True)])
    left = case.pool_nodes - sum(counts)
    while left > 0:
        wanted = [
            row.best_within[min(n + left, len(row.best_within) - 1)]
            for row, n in zip(rows, counts, strict=True)
        ]
        more = [
            row.values[n] - row.values[before]
            for row, n, before in zip(rows, wanted, counts, strict=True)
        ]
        most = max(more)
        if most <= 0.0:
            break
        j = more.index(most)
        value += most
        left -= wanted[j] - counts[j]
        counts[j] = wanted[j]
    return value


# The linear relaxation in closed form (docs/reference/model.md, R1 to R3).


class Hull(NamedTuple):
    """Rising segments of the concave hull of a trainer's gains.

    Attributes:
        slopes: Gain a node, falling, all above 0, shape (segments,).
        widths: Nodes, shape (segments,).
    """

    slopes: NDArray[np.float64]
    widths: NDArray[np.float64]


def hull_of(row: NDArray[np.float64]) -> Hull:
    """Return the rising hull segments of gains at 0 .. max nodes."""
    hull = corners(row)
    segments = [(_slope(a, b), b[0] - a[0]) for a, b in pairwise(hull)]
    both = np.array(segments, dtype=np.float64).reshape(-1, 2)
    return Hull(both[:, 0], both[:, 1])


def corners(row: NDArray[np.float64]) -> list[tuple[int, float]]:
    """Return the upper concave hull of gains at 0 .. max nodes, as (nodes, gain).

    ``-inf`` entries and falling segments are left out. Each pass drops the points on or
    under the line between their neighbours, until there are none.
    """
    sizes = np.flatnonzero(row[: int(row.argmax()) + 1] > -np.inf)
    while True:
        values = row[sizes]
        slopes = (values[1:] - values[:-1]) / (sizes[1:] - sizes[:-1])
        is_corner = np.ones(len(sizes), dtype=bool)
        is_corner[1:-1] = slopes[1:] < slopes[:-1]
        if is_corner.all():
            break
        sizes = sizes[is_corner]
    return list(zip(sizes.tolist(), values.tolist(), strict=True))


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


def node_price(hulls: Sequence[Hull], pool_nodes: int) -> float:
    """Return the gain of the last node that the relaxation buys, 0 if all fit."""
    if not hulls:
        return 0.0
    slopes = np.concatenate([hull.slopes for hull in hulls])
    order = (-slopes).argsort()
    bought = np.concatenate([hull.widths for hull in hulls])[order].cumsum()
    last = int(bought.searchsorted(pool_nodes, side="right"))
    return float(slopes[order[last]]) if last < len(order) else 0.0


# Gains by trainer and their losses at a price, kept between calls.

_MOST_SIZES = 1 << 20
"""Sizes over all rows and priced rows, some 50 bytes each; a replay of one log uses a
few hundred rows of some hundred sizes at a few hundred prices."""

_LOSSLESS = 1e-12
"""Losses this small beside the best are rounding; only the search's start uses it."""
_Key = tuple["Curve", tuple[int, ...], float, float, float, bool, int]
_Asked = tuple[int, float, tuple["ProblemTrainer", ...]]
"""Nodes to give, look-ahead, and trainers."""


def stretched(row: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return gains by count of leases as gains by units, at *width* units a lease.

    Returns:
        Shape (width * max leases + 1,), ``-inf`` between whole leases.
    """
    if width == 1:
        return row
    by_unit = np.full((len(row) - 1) * width + 1, -np.inf)
    by_unit[::width] = row
    return by_unit


class Row(NamedTuple):
    """A trainer's gains by units: nodes, or the units of its leases.

    Attributes:
        gains: At 0 .. max units, ``-inf`` where not allowed, shape (sizes,).
        values: The same as a list, for quick access to single gains.
        best_within: The count of largest gain among 0 .. n, by n.
        hull: Their concave hull.
        width: Units of a lease.
        priced: By price of a unit, as :meth:`SizeTable.priced` made it.
    """

    gains: NDArray[np.float64]
    values: list[float]
    best_within: list[int]
    hull: Hull
    width: int
    priced: dict[float, Priced]


class SizeTable:
    """Rows by trainer state, for one look-ahead at a time, and plans; bounded.

    Attributes:
        plans: The best plan by what was asked, trainers by identity: that is looked up
            at every event of a replay, where most trainers stay as they are.
    """

    def __init__(self) -> None:
        self._clear(t_fwd_s=0.0)

    def rows_of(self, problem: Problem) -> list[Row]:
        """Return the rows of *problem*'s trainers."""
        if problem.t_fwd_s != self._t_fwd_s or self._sizes > _MOST_SIZES:
            self._clear(t_fwd_s=problem.t_fwd_s)
        known = self._by_trainer.get
        return [known(trainer) or self._row(trainer) for trainer in problem.trainers]

    def priced(self, rows: Sequence[Row], price: float) -> list[Priced]:
        """Return *rows* at *price* a node."""
        return [row.priced.get(price) or self._add_priced(row, price) for row in rows]

    def keep(self, asked: _Asked, plan: Plan) -> None:
        """Keep a plan for as long as its rows."""
        self.plans[asked] = plan
        self._sizes += len(plan.counts)

    def _clear(self, *, t_fwd_s: float) -> None:
        self._t_fwd_s = t_fwd_s
        self._rows: dict[_Key, Row] = {}
        self._by_trainer: dict[ProblemTrainer, Row] = {}  # most stay as they are
        self._sizes = 0
        self.plans: dict[_Asked, Plan] = {}

    def _row(self, trainer: ProblemTrainer) -> Row:
        usable = trainer.usable is None or 0 in trainer.usable
        width = trainer.width(0)
        key = (
            trainer.curve,
            trainer.held,
            trainer.up_s,
            trainer.down_s,
            trainer.start_s,
            usable,
            width,
        )
        row = self._rows.get(key)
        if row is None:
            all_gains = gains(trainer, self._t_fwd_s)
            own = all_gains if usable else all_gains[:1]
            row = self._rows[key] = _row_of(stretched(own, width), width)
            self._sizes += len(row.gains)
        self._by_trainer[trainer] = row
        self._sizes += 1
        return row

    def _add_priced(self, row: Row, price: float) -> Priced:
        priced = row.priced[price] = price_sizes(row.gains, price)
        self._sizes += len(priced.losses)
        return priced


def _row_of(row_gains: NDArray[np.float64], width: int) -> Row:
    tops = np.maximum.accumulate(row_gains)
    rises = np.concatenate(([True], tops[1:] > tops[:-1]))
    best_within = np.maximum.accumulate(np.where(rises, np.arange(len(tops)), 0))
    values, hull = row_gains.tolist(), hull_of(row_gains)
    return Row(row_gains, values, best_within.tolist(), hull, width, {})


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
    """The loss of each size of a trainer at a price (docs/reference/model.md, R3).

    Attributes:
        best: Largest gain net of the price of its nodes.
        least: Smallest size that loses nothing.
        most: Largest size that loses nothing.
        gains: The trainer's gains by size.
        losses: Losses of all allowed sizes, ascending.
        sizes: Those sizes, in the order of their losses.
        shortlists: By length, as :meth:`within` made them.
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
        nodes = sizes.copy()
        nodes.sort()
        options = self.shortlists[count] = Options(
            int(nodes[0]), int(nodes[-1]), list(by_loss), nodes, self.gains[nodes]
        )
        return options


def price_sizes(row_gains: NDArray[np.float64], price: float) -> Priced:
    """Return the losses of a row of gains, ``-inf`` where not allowed, at *price*."""
    (sizes,) = (row_gains > -np.inf).nonzero()
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


# The search among plans that lose little against the bound (R4 of the model).

CountsAndGain = tuple["Sequence[int]", float]
_NO_PLAN: CountsAndGain = ((), -math.inf)
_FEW_BY_ARRAYS = 6
_MOVES_PER_TRAINER = 50
"""With more options or more moves a trainer, arrays are quicker: a move takes about
0.2 us, a trainer by arrays 10 us and more."""


class Limit(NamedTuple):
    """The loss that a search may accept.

    Attributes:
        loss: Largest distance from the bound, objective units.
        price: Loss of each unused node, objective units.
        pool_nodes: Nodes to give.
    """

    loss: float
    price: float
    pool_nodes: int


def search(priced: Sequence[Priced], limit: Limit) -> CountsAndGain:
    """Return counts and gain of the best plan within *limit*; -inf if there is none.

    *priced* is by trainer, at the limit's price.
    """
    options = [known.within(limit.loss) for known in priced]
    moves = sum([len(mine.by_loss) for mine in options])
    if moves == len(options):
        return _only_plan(options, limit)
    if moves <= _FEW_BY_ARRAYS * len(options):
        answer = _search_few(options, [known.best for known in priced], limit)
        if answer is not None:
            return answer
    return search_all(options, limit)


def cells(priced: Sequence[Priced], limit: Limit) -> int:
    """Return an upper bound of the sums that :func:`search` looks at."""
    options = [known.within(limit.loss) for known in priced]
    return sum(
        len(mine.by_loss) * max(0, most - least + 1)
        for mine, (least, most) in zip(
            options, _windows(options, limit)[1:], strict=True
        )
    )


def _only_plan(options: Sequence[Options], limit: Limit) -> CountsAndGain:
    counts = [mine.least for mine in options]
    left = limit.pool_nodes - sum(counts)
    if left < 0 or left * limit.price > limit.loss:
        return _NO_PLAN
    return counts, total([mine.by_loss[0][2] for mine in options])


def _search_few(
    options: Sequence[Options], best: Sequence[float], limit: Limit
) -> CountsAndGain | None:
    """Search state by state; None after too many moves.

    A state is a number of nodes given or left unused.

    Args:
        options: By trainer.
        best: By trainer, the gain net of price of an option without loss.
        limit: The loss that it may accept.
    """
    states, least, most = _begin(options, limit)
    net = limit.loss
    moves = _MOVES_PER_TRAINER * len(options)
    choices: list[dict[int, int] | int] = []
    for (fewest, largest, by_loss, *_), top in zip(options, best, strict=True):
        least += largest
        most += fewest
        if fewest == largest:
            more = by_loss[0][2]
            states = {n + fewest: gain + more for n, gain in states.items()}
            choices.append(fewest)
        else:
            # Behind the last trainer that has a choice only one state is of use.
            moves -= len(states) * (len(by_loss) if least < most else 1)
            if moves < 0:
                return None
            window = (least, most)
            states, choice = _step(states, by_loss, window, (net, limit.price))
            choices.append(choice)
        net -= top
    if limit.pool_nodes not in states:
        return _NO_PLAN
    return _back(choices, limit.pool_nodes), states[limit.pool_nodes]


def _begin(
    options: Sequence[Options], limit: Limit
) -> tuple[dict[int, float], int, int]:
    """Return the states before the first trainer, and the least and most of them."""
    least = limit.pool_nodes - sum([mine.most for mine in options])
    most = limit.pool_nodes - sum([mine.least for mine in options])
    unused = _most_unused(most, limit)
    return dict.fromkeys(range(max(0, least), unused + 1), 0.0), least, most


def _step(
    states: dict[int, float],
    by_loss: list[tuple[float, int, float]],
    window: tuple[int, int],
    net_and_price: tuple[float, float],
) -> tuple[dict[int, float], dict[int, int]]:
    """Return the best gain and its smallest count for one trainer, by state after it.

    The loss of a state is the bound of its trainers less its gain net of price.
    """
    net, price = net_and_price
    least, most = window
    after: dict[int, float] = {}
    choice: dict[int, int] = {}
    for before, gain in states.items():
        spare = net + gain - price * before
        fewest, largest = least - before, most - before
        for loss, nodes, more in by_loss:
            if loss > spare:
                break
            if fewest <= nodes <= largest:
                taken, value = before + nodes, gain + more
                known = after.get(taken, -math.inf)
                if value > known or (value == known and nodes < choice[taken]):
                    after[taken] = value
                    choice[taken] = nodes
    return after, choice


def _back(choices: Sequence[dict[int, int] | int], pool_nodes: int) -> list[int]:
    """Return counts by trainer: each choice at the state that later trainers leave."""
    left, counts = pool_nodes, []
    for choice in reversed(choices):
        nodes = choice if isinstance(choice, int) else choice[left]
        counts.append(nodes)
        left -= nodes
    return counts[::-1]


def search_all(options: Sequence[Options], limit: Limit) -> CountsAndGain:
    """Return the result of :func:`search` by array operations.

    It looks at all sums of options that can end at the pool, whatever they lose.
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


def _padded(states: int) -> NDArray[np.float64]:
    """Return room for *states* gains, with -inf on either side."""
    room = np.empty(states + 2)
    room[0] = room[-1] = -np.inf
    return room


def _windows(options: Sequence[Options], limit: Limit) -> list[tuple[int, int]]:
    """Return the least and most state before each trainer and after the last."""
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


def _most_unused(most: int, limit: Limit) -> int:
    if limit.price * most > limit.loss:
        return int(limit.loss / limit.price)
    return most
