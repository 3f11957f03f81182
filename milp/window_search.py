"""Best-improvement search over moves of classes: fast, and no worse than its start."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from milp.window import (
    Dual,
    Options,
    Pool,
    Worths,
    ask,
    first,
    loose_bound,
    options_of,
    tighten,
    violations,
)

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from collections.abc import (
        Set as AbstractSet,
    )

    from numpy.typing import NDArray

    from milp.solver import Deadline
    from milp.window import Expected, Holding, Stay, Terms, Window


# ----------------------------------------------------------------------
# Trainers under search: what they hold, and what a change would bring, in no time.

Gift: TypeAlias = tuple[float, int, int]
"""What a trainer gains by giving nodes of a class: gain, class, nodes."""

_NO_ROOM = (-inf, 0)


class Seat:
    """One trainer's nodes in a plan under search; several may share one that waits.

    Attributes:
        held: Nodes it holds now, by class.
        mine: Nodes it has in the plan, by class; another mapping once it moves.
        nodes: How many these are.
        value: What it gains by ``mine``; -inf where they are no size.
    """

    __slots__ = (
        "_above",
        "_below",
        "_expected",
        "_gifts",
        "_hits",
        "_known",
        "_life_s",
        "_terms",
        "held",
        "mine",
        "nodes",
        "value",
    )

    def __init__(self, terms: Terms, expected: Mapping[int, Expected]) -> None:
        self._terms, self._expected = terms, expected
        self.held: Holding = terms.held
        self.mine: Holding = terms.held
        life_s = hits = 0.0
        for k, nodes in terms.held.items():
            stays_s, hit, whole, gone = expected[k]
            life_s += nodes * stays_s
            hits += hit * gone[nodes] / whole
        self._life_s, self._hits = life_s, hits
        self._above = self._below = 0
        self.nodes = terms.before
        self.value = self._value()
        self._gifts: list[Gift] | None = None
        self._known: dict[tuple[int, int], tuple[float, int]] = {}

    def copy(self) -> Seat:
        """Return a seat that moves apart from this one."""
        made = object.__new__(Seat)
        made._terms, made.held, made.mine = self._terms, self.held, self.mine
        made._expected = self._expected
        made._life_s, made._hits = self._life_s, self._hits
        made._above, made._below = self._above, self._below
        made.nodes, made.value = self.nodes, self.value
        made._gifts, made._known = self._gifts, {}
        return made

    def fallback(self) -> int:
        """Return the largest size that is no more than its nodes, or 0."""
        worth = self._terms.worth
        nodes = min(self.nodes, self._terms.most)
        while worth[nodes] == -inf:
            nodes -= 1
        return nodes

    def _value(self) -> float:
        terms, nodes = self._terms, self.nodes
        before = terms.before
        cost = terms.up if nodes > before else terms.down if nodes < before else 0.0
        if not nodes:
            return -cost
        if nodes > terms.most:
            return -inf
        useful_s = self._life_s / nodes - terms.loss_s * self._hits - terms.start_s
        worth = terms.worth[nodes]
        # Off its sizes it gains nothing, however bad the prospects.
        return worth * useful_s - cost if worth > -inf else worth

    @property
    def takes(self) -> bool:
        """Whether it has more of a class than it holds now."""
        return self._above > 0

    def with_more(self, k: int, more: int) -> float:
        """Return what it would gain with *more* nodes of class *k*, or fewer.

        The formula of ``_value`` is written out: this is the innermost step.
        """
        terms, nodes = self._terms, self.nodes + more
        before = terms.before
        cost = terms.up if nodes > before else terms.down if nodes < before else 0.0
        if not nodes:
            return -cost
        worth = terms.worth[nodes]
        if worth == -inf:
            return worth
        mine = self.mine.get(k, 0)
        stays_s, hit, whole, gone = self._expected[k]
        life_s = (self._life_s + more * stays_s) / nodes
        hits = self._hits + hit * gone[mine + more] / whole
        if mine:
            hits -= hit * gone[mine] / whole
        return worth * (life_s - terms.loss_s * hits - terms.start_s) - cost

    def with_up_to(self, k: int, nodes: int) -> tuple[float, int]:
        """Return its value with as many of *nodes* of class *k* as it has room for.

        Kept until it moves: a search asks for the same again and again.

        Returns:
            What it would gain, and how many it takes; minus infinity and 0 where it
            has no room.
        """
        known = self._known.get((k, nodes))
        if known is None:
            room = self._terms.most - self.nodes
            if self._below:
                room = min(room, self.held.get(k, 0) - self.mine.get(k, 0))
            # Here ``min`` takes as long as half of what is worked out.
            taken = nodes if nodes < room else room  # noqa: FURB136
            known = (self.with_more(k, taken), taken) if taken > 0 else _NO_ROOM
            self._known[k, nodes] = known
        return known

    def best_take(self, free: Mapping[int, int]) -> tuple[float, int, int]:
        """Return the best of taking all free nodes of a class that there is room for.

        Returns:
            What is gained, the class, and how many nodes; zeros where nothing gains.
        """
        best, present = (0.0, -1, 0), self.value
        for k, nodes in free.items():
            value, more = self.with_up_to(k, nodes)
            if value - present > best[0]:
                best = value - present, k, more
        return best

    def gifts(self) -> Sequence[Gift]:
        """Return what it gains by giving all that it may of a class, by class.

        Who takes gives no more than it takes (M4); what is no gain as a gift may be one
        where another takes it. Of who takes nothing, gifts that are no gain are left
        out. Kept until it moves.

        Returns:
            What is gained, the class, and how many nodes, above 0.
        """
        if self._gifts is None:
            value = self.value
            self._gifts = [
                (self.with_more(k, -spare) - value, k, spare)
                for k, spare in (self._taken() if self._above else self._doubtful())
            ]
        return self._gifts

    def _taken(self) -> list[tuple[int, int]]:
        """Return how many more nodes it has than it holds now, by class."""
        before = self.held.get
        return [
            (k, mine - before(k, 0))
            for k, mine in self.mine.items()
            if mine > before(k, 0)
        ]

    def _doubtful(self) -> list[tuple[int, int]]:
        """Return all it has of the classes without which it might gain more.

        Of most that is ruled out even if what is left was never hit.
        """
        terms, expected, life_s = self._terms, self._expected, self._life_s
        nodes, worths, least = self.nodes, terms.worth, self.value + terms.down
        doubtful = []
        for k, mine in self.mine.items():
            left = nodes - mine
            worth = worths[left]
            # Where work is worth less than nothing, hits are a gain.
            if (
                worth * (life_s - mine * expected[k][0]) > least * left
                or worth < 0.0
                or least < 0.0
            ):
                doubtful.append((k, mine))
        return doubtful

    def move(self, k: int, more: int) -> None:
        """Take *more* nodes of class *k*, or give some."""
        self._gifts = None
        self._known.clear()
        mine, held = self.mine.get(k, 0), self.held.get(k, 0)
        after = mine + more
        stays_s, hit, whole, gone = self._expected[k]
        self._above += (after > held) - (mine > held)
        self._below += (after < held) - (mine < held)
        self.nodes += more
        self._life_s += more * stays_s
        self._hits += hit * gone[after] / whole - hit * gone[mine] / whole
        changed = {**self.mine, k: after}
        if not after:
            del changed[k]
        self.mine = changed
        self.value = self._value()


# ----------------------------------------------------------------------
# What is worked out once for all plans of a window.

Step: TypeAlias = tuple[float, int, int, int]
"""What is gained where a trainer takes nodes of a class that are free, or gives some:
gain, trainer, class, nodes; a plain tuple, as most are made and never asked."""

NOTHING: Step = 0.0, -1, -1, 0


class Chances:
    """Lives and hits by class, worked out once in a search; and the seats at first.

    Attributes:
        expected: Lives and hits, by class.
        untouched: What is expected of classes of which nobody holds any, and whose hits
            count alike for all.
        seats: Everybody's, with what is held now; never to be moved. Trainers that
            hold nothing and are equal otherwise share one: half of 40 trainers on
            Summit wait.
        magnitude: Of what they gain.
        gifts: The best gift of each trainer that holds a size and gains by one.
    """

    def __init__(self, window: Window, worths: Worths) -> None:
        stays = window.stays
        self.expected = worths.expected(stays)
        self.untouched = {
            k: stays[k] for k, nodes in window.free.items() if nodes == stays[k].nodes
        }
        for fresh in [one.fresh for one in window.trainers if one.fresh]:
            for k in fresh:
                self.untouched.pop(k, None)
        self.seats = self._seats(window, worths)
        values = [abs(seat.value) for seat in self.seats]
        self.magnitude = sum([one for one in values if one < math.inf])
        self.gifts = {
            place: gift
            for place, seat in enumerate(self.seats)
            if seat.mine
            and seat.value > -math.inf
            and (gift := best_gift(place, seat)) is not NOTHING
        }
        self._stays = stays
        self._sharing: dict[Seat, list[int]] = {}
        self._takers: dict[tuple[Stay | int, int], list[tuple[float, list[int]]]] = {}

    def takers(self, k: int, nodes: int) -> Sequence[tuple[float, list[int]]]:
        """Return who gains by *nodes* more of class *k*, who gains most first.

        All hold what they hold now: transfers ask again and again, in every plan.

        Returns:
            What they lose by it, which is below 0, and trainers that share a seat.
        """
        # Who gains by a class that nobody holds gains as much by another one like it.
        asked = self.untouched.get(k, k), nodes
        known = self._takers.get(asked)
        if known is None:
            known = self._takers[asked] = self._ordered(k, nodes)
        return known

    def _ordered(self, k: int, nodes: int) -> list[tuple[float, list[int]]]:
        if not self._sharing:
            for place, seat in enumerate(self.seats):
                self._sharing.setdefault(seat, []).append(place)
        takers, others = [], self._stays[k].nodes - nodes
        for seat, places in self._sharing.items():
            # Who holds more than the others have gave some: it has moved.
            if seat.mine.get(k, 0) <= others:
                less = seat.value - seat.with_up_to(k, nodes)[0]
                if less < 0.0:
                    takers.append((less, places))
        return sorted(takers)

    def _seats(self, window: Window, worths: Worths) -> tuple[Seat, ...]:
        seats = []
        waiting: dict[Terms, Seat] = {}
        for terms in worths.terms(window):
            if terms.held:
                seats.append(self._seat(terms))
                continue
            seat = waiting.get(terms)
            if seat is None:
                seat = waiting[terms] = self._seat(terms)
            seats.append(seat)
        return tuple(seats)

    def _seat(self, terms: Terms) -> Seat:
        if not terms.fresh:
            return Seat(terms, self.expected)
        own = dict(self.expected)
        for k, share in terms.fresh.items():
            life_s, hit, whole, gone = own[k]
            own[k] = life_s, share * hit, whole, gone
        return Seat(terms, own)


def best_gift(place: int, seat: Seat) -> Step:
    """Return the best of what trainer *place* may give, as it sits."""
    best = NOTHING
    for gained, k, spare in seat.gifts():
        if gained > best[0]:
            best = gained, place, k, -spare
    return best


# ----------------------------------------------------------------------
# What every trainer would gain by giving or taking any number of nodes of a class.

if TYPE_CHECKING:
    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]


class Columns(NamedTuple):
    """Counts of every class, one after the other: 0 .. all nodes of it.

    Attributes:
        first: Where each class begins.
        k: Class of a column.
        nodes: How many of it.
        most: All nodes of that class.
        life_s: Its life.
    """

    first: Places
    k: Places
    nodes: Places
    most: Places
    life_s: Vector

    @classmethod
    def of(cls, pool: Pool) -> Columns:
        """Return the columns of *pool*."""
        lengths = pool.nodes + 1
        first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
        k = np.repeat(np.arange(len(lengths)), lengths)
        return cls(
            first, k, np.arange(len(k)) - first[k], pool.nodes[k], pool.life_s[k]
        )


class Ledger:
    """A plan under search, and what one more or one fewer class of nodes would bring.

    Attributes:
        counts: [x_jk] Nodes by trainer and class.
        gains: By trainer, W0.
        gives: By trainer and column: what giving so many would add; -inf where M2
            or M4 forbid it.
        takes: The same for taking, whoever has them now.
    """

    def __init__(self, window: Window, pool: Pool, columns: Columns) -> None:
        trainers, weight = window.trainers, window.change_weight
        self._pool, self._columns = pool, columns
        self._held = pool.rows([one.held for one in trainers])
        self._before = self._held.sum(axis=1)
        self._most = max([len(one.curve.value_per_s) for one in trainers], default=1)
        self._worth = np.zeros((len(trainers), self._most + 1))
        self._sized = np.zeros(self._worth.shape, dtype=np.bool_)
        for place, one in enumerate(trainers):
            sizes = [0, *one.curve.sizes]
            self._worth[place, sizes] = one.curve.value_per_s[sizes]
            self._sized[place, sizes] = True
        present = [
            weight * one.curve.value_per_s.item(n)
            for one, n in zip(trainers, self._before.tolist(), strict=True)
        ]
        self._up = np.array([one.up_s for one in trainers]) * present
        self._down = np.array([one.down_s for one in trainers]) * present
        self._start_s = np.where(
            self._before > 0, 0.0, [weight * one.start_s for one in trainers]
        )
        self._fresh = [pool.fresh(one) for one in trainers]
        self._loss_s = np.array([window.hit_weight * one.loss_s for one in trainers])
        self.counts = self._held.copy()
        self.gains = np.zeros(len(trainers))
        self.gives = np.full((len(trainers), len(columns.k)), -np.inf)
        self.takes = self.gives.copy()

    @property
    def gain(self) -> float:
        """What the plan gains."""
        return float(self.gains.sum())

    def load(self, counts: Places) -> None:
        """Take *counts* for the plan; all of them are sizes and break nothing."""
        self.counts[:] = counts
        for place in range(len(counts)):
            self.refresh(place)

    def lay_down(self, place: int) -> Places:
        """Return what a trainer has if it gives all that it took in this plan."""
        counts, held = self.counts[place], self._held[place]
        is_size = self._sized[place, self._before[place]]
        least: Places = np.minimum(counts, held) if is_size else counts.copy()
        return least

    def refresh(self, place: int) -> None:
        """Work out anew what trainer *place* gains, now and by any change."""
        pool, columns, counts = self._pool, self._columns, self.counts[place]
        fresh = self._fresh[place]
        nodes, life_s = int(counts.sum()), float(counts @ pool.life_s)
        hits_of = fresh * pool.hits[np.arange(len(counts)), counts]
        hits = float(hits_of.sum())
        now = self._values(
            place, np.array([nodes]), np.array([life_s]), np.array([hits])
        )
        self.gains[place] = now[0]
        mine, others = counts[columns.k], hits - hits_of[columns.k]
        for sign, kept, most in (
            (-1, self.gives, self._giveable(place)),
            (1, self.takes, self._takeable(place)),
        ):
            allowed = columns.nodes <= most[columns.k]
            more = np.where(allowed, sign * columns.nodes, 0)
            row = self._values(
                place,
                nodes + more,
                life_s + more * columns.life_s,
                others + fresh[columns.k] * pool.hits[columns.k, mine + more],
            )
            kept[place] = np.where(allowed, row - now[0], -np.inf)

    def _giveable(self, place: int) -> Places:
        """Return the nodes by class that may be given: never below and above (M4)."""
        counts, held = self.counts[place], self._held[place]
        over = np.maximum(counts - held, 0)
        if not over.any():
            mine: Places = counts
            return mine
        # Whoever is above in one class only can get below by giving of that class.
        most: Places = np.where(over == over.sum(), counts, over)
        return most

    def _takeable(self, place: int) -> Places:
        counts, held = self.counts[place], self._held[place]
        room: Places = np.minimum(
            self._pool.nodes - counts, self._most - 1 - int(counts.sum())
        ).clip(0)
        under = np.maximum(held - counts, 0)
        if not under.any():
            return room
        most: Places = np.where(under == under.sum(), room, np.minimum(room, under))
        return most

    def _values(
        self,
        place: int,
        nodes: Places,
        life_s: Vector,
        hits: Vector,
    ) -> Vector:
        """Return W0 of trainer *place* for many holdings; -inf at what is no size."""
        before = self._before[place]
        useful_s = life_s / np.maximum(nodes, 1) - self._loss_s[place] * hits
        gain = self._worth[place, nodes] * (useful_s - self._start_s[place])
        gain -= np.where(nodes > before, self._up[place], 0.0)
        gain -= np.where(nodes < before, self._down[place], 0.0)
        allowed: Vector = np.where(self._sized[place, nodes], gain, -np.inf)
        return allowed


# ----------------------------------------------------------------------
# Best-improvement search in which any number of nodes of a class change hands.

_WORTH_IT_window_exchange = 1e-9
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
            if move.gain <= _WORTH_IT_window_exchange * (
                1.0 + float(np.abs(ledger.gains).sum())
            ):
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

    def _pair(
        self,
        gives: Vector,
        takes: Vector,
        free: Places,
    ) -> _Move:
        columns = self._columns
        given, taken = gives.max(axis=0), takes.max(axis=0)
        given[columns.first] = taken[columns.first] = 0.0
        for start, nodes in zip(columns.first, self._pool.nodes, strict=True):
            run = taken[start : start + nodes + 1]
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


# ----------------------------------------------------------------------
# From prices of nodes to plans that break nothing.


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


# ----------------------------------------------------------------------
# Large steps out of a plan that no single exchange improves.

_TOGETHER = 8
"""Trainers that choose anew together; 3 and 20 find less in the same time."""

_GOLDEN = 0.618034

_PROGRESS = 1e-9


def mend(
    exchange: Exchange,
    options: Options,
    dual: Dual,
    *,
    rounds: int,
    deadline: Deadline,
) -> int:
    """Let few trainers at a time give what they took and choose anew.

    What comes of it is exchanged until nothing improves, and kept if it is better.

    Args:
        exchange: Holds the plan, which only gets better.
        options: Sizes of all trainers.
        dual: Prices of nodes, for which the others may want them.
        rounds: How many attempts to make at most.
        deadline: When to stop.

    Returns:
        How many attempts were kept.
    """
    ledger, kept = exchange.ledger, 0
    for places in _few_at_a_time(len(ledger.counts), rounds):
        if deadline.passed():
            break
        before, gain = ledger.counts.copy(), ledger.gain
        for place in places:
            ledger.counts[place] = ledger.lay_down(place)
        choose(options, dual.prices, places, ledger.counts, free=exchange.free())
        changed = (ledger.counts != before).any(axis=1)
        for place in np.flatnonzero(changed).tolist():
            ledger.refresh(place)
        exchange.run(deadline)
        if ledger.gain > gain + _PROGRESS * abs(gain):
            kept += 1
            continue
        moved = np.flatnonzero((ledger.counts != before).any(axis=1)).tolist()
        ledger.counts[:] = before
        for place in moved:
            ledger.refresh(place)
    return kept


def _few_at_a_time(trainers: int, rounds: int) -> Iterator[list[int]]:
    """Yield trainers spread evenly, other ones each time, by the golden ratio."""
    few = min(_TOGETHER, trainers)
    for number in range(rounds if trainers else 0):
        begin = number * few
        places = [
            int(trainers * (((begin + i) * _GOLDEN + number * 0.017) % 1.0))
            for i in range(few)
        ]
        yield list(dict.fromkeys(places))


# ----------------------------------------------------------------------
# A longer search of a window, led by the prices of its bound (docs/model.md).

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

_FEW_window_improvement = 16
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
        options = options_of(window, pool.merged(_FEW_window_improvement))
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


# ----------------------------------------------------------------------
# Best-improvement search over moves of classes: fast, and no worse than its start.

_MOST_MOVES = 200
"""Six days of Summit take 1 or 2 an event; this ends a search that a huge pool, all
of it free, would make long."""

_WORTH_IT_window_search = 1e-9
"""Relative to the plan's value; less is rounding."""


class Move(NamedTuple):
    """Nodes of one class that change hands; ``to`` is -1 where they stay free."""

    gain: float
    place: int
    k: int
    more: int
    to: int = -1
    taken: int = 0


_STAY = Move(*NOTHING)


class Climb:
    """Improves a plan by one move after the other, the best one each time.

    Moves: a trainer takes all free nodes of a class, or as many as it has room for;
    it gives all of a class that it may give; or what it takes in this plan goes to
    another one instead. Best takes and gifts of a trainer are kept until they change.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._takes: dict[int, Step] = {}
        self._gifts = dict(table.chances.gifts)
        self._step = 0
        self._least = _WORTH_IT_window_search * (1.0 + table.chances.magnitude)
        self._moved_at: dict[int, int] = {}
        self._refused_at: dict[tuple[int, int, int], int] = {}
        if table.free:
            self._look_at_takes(range(len(table.seats)))
        self._look_at_gifts(table.moved)

    def run(
        self,
        stop: Callable[[], bool] | None = None,
        ended: Sequence[Holding] = (),
    ) -> None:
        """Move until nothing improves the plan.

        Args:
            stop: Tells that there is no more time; asked before every move.
            ended: Where another search ended: nothing leads on from there.
        """
        least = self._least
        for _ in range(_MOST_MOVES):
            if stop is not None and stop():
                return
            steps = [*self._takes.values(), *self._gifts.values(), NOTHING]
            step = max(steps)
            # Transfers take longest to look at, and seldom help.
            best = Move(*step) if step[0] > least else self._best_transfer()
            if best.gain <= least:
                return
            self._make(best)
            if ended and self._table.holdings() == ended:
                return

    def _make(self, move: Move) -> None:
        self._step += 1
        self._table.move(move.place, move.k, move.more)
        touched = {move.place}
        if move.to >= 0:
            self._table.move(move.to, move.k, move.taken)
            touched.add(move.to)
        self._moved_at.update(dict.fromkeys(touched, self._step))
        self._look_at_gifts(touched)
        if not self._table.free:
            self._takes.clear()
        else:
            self._look_again(move, touched)
        if move.more > 0 and move.k not in self._table.free:
            self._refused_at[move.place, move.k, move.more] = self._step

    def _look_again(self, move: Move, touched: set[int]) -> None:
        same = [place for _, place, k, _ in self._takes.values() if k == move.k]
        touched.update(same)
        self._look_at_takes(touched)
        if move.k in self._table.free:
            self._look_at_class(move.k, touched)

    def _look_at_takes(self, places: Iterable[int]) -> None:
        """Find the best takes of trainers; those who share a seat have the same."""
        seats, free = self._table.seats, self._table.offers()
        known: dict[Seat, tuple[float, int, int]] = {}
        for place in places:
            seat = seats[place]
            if seat not in known:
                known[seat] = seat.best_take(free)
            gained, k, more = known[seat]
            if more:
                self._takes[place] = gained, place, k, more
            else:
                self._takes.pop(place, None)

    def _look_at_class(self, k: int, seen: AbstractSet[int]) -> None:
        """See whether those who are not among *seen* better take of class *k* now."""
        nodes = self._table.free[k]
        for place, seat in enumerate(self._table.seats):
            if place in seen:
                continue
            value, more = seat.with_up_to(k, nodes)
            take = value - seat.value, place, k, more
            if take > self._takes.get(place, NOTHING):
                self._takes[place] = take

    def _look_at_gifts(self, places: Iterable[int]) -> None:
        for place in places:
            gift = best_gift(place, self._table.seats[place])
            if gift is NOTHING:
                self._gifts.pop(place, None)
            else:
                self._gifts[place] = gift

    def _best_transfer(self) -> Move:
        best, most, least = _STAY, 0.0, self._least
        seats, moved = self._table.seats, sorted(self._table.moved)
        for place in moved:
            giver = seats[place]
            if not giver.takes:
                continue
            others = [to for to in moved if to != place]
            for gift in giver.gifts():
                lost, k, spare = gift
                is_wanted = False
                for to in self._rivals(place, gift, others):
                    rival = seats[to]
                    value, taken = rival.with_up_to(k, spare)
                    gained = lost + value - rival.value
                    if gained > least:
                        is_wanted = True
                        if gained > most:
                            most = gained
                            best = Move(gained, place, k, -spare, to, taken)
                if not is_wanted:
                    self._refused_at[place, k, spare] = self._step
        return best

    def _rivals(self, place: int, gift: Gift, others: Sequence[int]) -> Sequence[int]:
        """Return who may gain more by a gift than who gives it loses.

        Where nobody did when asked last, or all of the class was free and went to who
        gained most by it, those who did not move since do not either: giver and gift
        are the same. Of those who never moved one gains most.
        """
        lost, k, spare = gift
        refused_at = self._refused_at.get((place, k, spare))
        if refused_at is not None and refused_at >= self._moved_at.get(place, 0):
            return sorted([j for j, at in self._moved_at.items() if at > refused_at])
        still = self._still(k, spare, lost)
        return others if still < 0 else sorted([*others, still])

    def _still(self, k: int, spare: int, lost: float) -> int:
        """Return who of those that never moved gains most by nodes; -1 for nobody.

        That is for nobody to whom it is not worth more than what is *lost*, which most
        gifts end with.
        """
        # Half of what is worth it, as sums round differently in another order.
        enough, moved = lost - self._least / 2, self._table.moved
        for less, places in self._table.chances.takers(k, spare):
            if less >= enough:
                break
            for place in places:
                if place not in moved:
                    return place
        return -1


# ----------------------------------------------------------------------
# All seats and the free nodes of a plan under search.

_Rank: TypeAlias = tuple[int, float, int]
"""Of a class that is free: nodes, life, number."""

_FEW_window_table = 3
"""Classes that are looked at sooner than compared."""


class Table:
    """A plan under search, at first what is held now.

    Attributes:
        chances: What is expected.
        seats: By trainer; those that did not move are shared with other tables.
        free: Nodes that nobody has, by class; none of them 0.
        moved: Trainers whose seats moved.
    """

    def __init__(self, window: Window, chances: Chances) -> None:
        self.chances = chances
        self.free = dict(window.free)
        self.seats = list(chances.seats)
        self.moved: set[int] = set()
        self._alike: dict[Stay | int, list[tuple[int, int]]] = {}
        self._turns: dict[int, int] = {}
        self._turn = count()

    @property
    def value(self) -> float:
        """What the plan gains."""
        return sum([seat.value for seat in self.seats])

    def holdings(self) -> tuple[Holding, ...]:
        """Return nodes by trainer and class; equal where everybody has the same."""
        return tuple([seat.mine for seat in self.seats])

    def offers(self) -> Mapping[int, int]:
        """Return free nodes by class; of classes that are alike the first alone.

        Alike are those of equal chances that are free altogether, now and in the plan:
        whoever gains by one gains as much by another. Strangers are many such: a search
        asks after each move, and finds them in no time once they are told apart.
        """
        free = self.free
        if len(free) <= _FEW_window_table:
            return free
        if not self._alike:
            # Which of them is the first stays so, as in the order of ``free``.
            self._turns = dict(zip(free, self._turn, strict=False))
            for k, turn in self._turns.items():
                self._alike.setdefault(self._kind(k, free[k]), []).append((turn, k))
        firsts = sorted([alike[0] for alike in self._alike.values()])
        return {k: free[k] for _, k in firsts}

    def move(self, place: int, k: int, more: int) -> None:
        """Let trainer *place* take *more* free nodes of class *k*, or give some."""
        if place not in self.moved:
            self.moved.add(place)
            self.seats[place] = self.seats[place].copy()
        self.seats[place].move(k, more)
        before = self.free.get(k, 0)
        left = before - more
        if left:
            self.free[k] = left
        else:
            del self.free[k]
        if self._alike:
            self._tell_apart(k, before, left)

    def _tell_apart(self, k: int, before: int, left: int) -> None:
        """Keep up who is alike, now that *left* nodes of class *k* are free."""
        if before:
            kind = self._kind(k, before)
            alike = self._alike[kind]
            del alike[bisect_left(alike, (self._turns[k], k))]
            if not alike:
                del self._alike[kind]
        else:
            self._turns[k] = next(self._turn)
        if left:
            alike = self._alike.setdefault(self._kind(k, left), [])
            insort(alike, (self._turns[k], k))

    def _kind(self, k: int, nodes: int) -> Stay | int:
        """Return what those share who are alike, of whom *nodes* are free."""
        stay = self.chances.untouched.get(k)
        return k if stay is None or nodes < stay.nodes else stay

    def settle(self) -> None:
        """Let trainers that hold what is not a size fall back to the next below."""
        for place, seat in enumerate(self.seats):
            if seat.value == -math.inf:
                self.shed(place, seat.nodes - seat.fallback())

    def reach(self, counts: Sequence[int]) -> None:
        """Give each trainer as many nodes as *counts* says, whole classes first."""
        for place, nodes in enumerate(counts):
            surplus = self.seats[place].nodes - nodes
            if surplus > 0:
                self.shed(place, surplus)
        pairs = enumerate(zip(counts, self.seats, strict=True))
        short = [(n - seat.nodes, -j) for j, (n, seat) in pairs if n > seat.nodes]
        if not short:
            return
        expected = self.chances.expected
        ranks = sorted([(n, expected[k][0], k) for k, n in self.free.items()])
        for wanted, place in sorted(short, reverse=True):
            self._fill(-place, wanted, ranks)

    def shed(self, place: int, surplus: int) -> None:
        """Let a trainer give whole classes that fit, the shortest-lived first."""
        expected = self.chances.expected
        while surplus:
            mine = self.seats[place].mine
            fitting = [k for k, n in mine.items() if n <= surplus]
            k = min(fitting or mine, key=lambda k: (expected[k][0], -mine[k], k))
            given = min(mine[k], surplus)
            surplus -= given
            self.move(place, k, -given)

    def _fill(self, place: int, wanted: int, ranks: list[_Rank]) -> None:
        """Let a trainer take whole classes that fit: its own, then the largest.

        Where none fits, it takes part of its own, or of the longest-lived.

        Args:
            place: The trainer.
            wanted: How many nodes it takes.
            ranks: The classes that are free, ascending; kept up.
        """
        free, expected = self.free, self.chances.expected
        while wanted:
            mine = self.seats[place].mine
            own = [k for k in mine if free.get(k, math.inf) <= wanted]
            fitting = bisect_left(ranks, (wanted + 1,))
            if own:
                k = max(own, key=lambda k: (free[k], expected[k][0], k))
            elif fitting:
                k = ranks[fitting - 1][2]
            else:
                k = max(free, key=lambda k: (k in mine, expected[k][0], k))
            nodes, life_s = free[k], expected[k][0]
            taken = min(nodes, wanted)
            wanted -= taken
            self.move(place, k, taken)
            del ranks[bisect_left(ranks, (nodes, life_s, k))]
            if nodes > taken:
                insort(ranks, (nodes - taken, life_s, k))


# ----------------------------------------------------------------------
# Plans by expected lives: a fast search from two starts, verified.


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """An answer that breaks no constraint.

    Attributes:
        holdings: Nodes by trainer and class.
        gain: What they gain, W0.
        kept: The present plan; who holds what is no size falls back to the next below.
        kept_gain: What it gains; never more than ``gain``.
        refused: Why the search's plan was refused and the present one kept; empty
            as long as there is no defect.
    """

    holdings: tuple[Holding, ...]
    gain: float
    kept: tuple[Holding, ...]
    kept_gain: float
    refused: tuple[str, ...] = ()


class WindowPlanner:
    """Plans window after window; keeps what it derives from curves."""

    def __init__(self) -> None:
        self._worths = Worths()

    def plan(
        self,
        window: Window,
        starts: Sequence[Sequence[int]] = (),
        *,
        stop: Callable[[], bool] | None = None,
    ) -> WindowPlan:
        """Return the best plan found from the present one and from *starts*.

        Args:
            window: What is to be planned.
            starts: Node counts by trainer to begin from besides, for example those
                of the published planner; one that does not fit the pool is left out.
            stop: Tells that there is no more time; the best plan so far is returned.
        """
        chances = Chances(window, self._worths)
        present = Table(window, chances)
        present.settle()
        kept, kept_gain = present.holdings(), present.value
        counts = [seat.nodes for seat in present.seats]
        stock = sum(counts) + sum(present.free.values())
        Climb(present).run(stop)
        ended = present.holdings()
        tables = [present]
        for start in starts:
            fits = min(start, default=0) >= 0 and sum(start) <= stock
            if fits and list(start) != counts:
                table = Table(window, chances)
                table.reach(start)
                # From where the first search ended nothing leads on.
                if table.holdings() != ended:
                    Climb(table).run(stop, ended)
                    tables.append(table)
        gains = [table.value for table in tables]
        gained = max(gains)
        holdings = tables[gains.index(gained)].holdings()
        broken = violations(window, holdings, claimed=gained, least=kept_gain)
        if broken:
            return WindowPlan(kept, kept_gain, kept, kept_gain, broken)
        return WindowPlan(holdings, gained, kept, kept_gain)
