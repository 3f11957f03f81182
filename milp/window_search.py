"""The quick search of a window: a plan within a millisecond, as a replay needs it.

:class:`WindowPlanner` starts from the present plan and from the published planner's
counts, and improves each by the best move at a time (:class:`HillClimb`): a trainer
takes free nodes of a class, gives a class back, or nodes that it took go to another
trainer. A plan under search (:class:`PlanState`) has the nodes of each trainer
(:class:`TrainerHolding`). Most of the code saves time: terms of the objective are kept
between windows (:class:`TermCache`), and all plans of a window share what does not
change (:class:`WindowTerms`). docs/notes/lookahead.md, "Search", has the reasons.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import count, zip_longest
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from milp.window import hit_probabilities, violations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from milp.problem import Curve
    from milp.window import Holding, Window, WindowClass, WindowTrainer

ClassTerms: TypeAlias = tuple[float, float, float, list[float]]
"""Of a class: life [L_k], hit [p_k], ``hit_probabilities`` of all its nodes, and the
list of them for 0 .. all.

The hits of n nodes [h_k(n)] are hit * list[n] / whole, which is worked out for the few
counts that are looked at.
"""


NO_CLASS_TERMS: ClassTerms = 0.0, 0.0, 1.0, [0.0]


class TrainerTerms:
    """The terms of W0 that depend on the trainer alone.

    Kept while the trainer stays the same. :meth:`weigh` is called for every window, as
    the weights of losses and changes are learned and differ each time.

    Attributes:
        held: Nodes it holds now, by class.
        before: How many these are.
        worth: By node count; -inf where that is not a size.
        most: Its largest size.
        up: Cost of growing, in objective units.
        down: Cost of shrinking, in objective units.
        start_s: Seconds of its new worth that starting costs; 0 if it holds nodes.
        loss_s: Seconds of its worth that a hit costs.
        new_hit_share: As ``WindowTrainer`` has it.
    """

    __slots__ = (
        "_present",
        "_trainer",
        "before",
        "down",
        "held",
        "loss_s",
        "most",
        "new_hit_share",
        "start_s",
        "up",
        "worth",
    )

    def __init__(self, trainer: WindowTrainer, worth: list[float]) -> None:
        self.held, self.before = trainer.held, sum(trainer.held.values())
        self.worth, self.most = worth, len(worth) - 1
        self.new_hit_share = trainer.new_hit_share
        self._trainer = trainer
        # The count after a loss may be no size, but the trainer did train on it.
        self._present = trainer.curve.value_per_s.item(self.before)
        self.up = self.down = self.start_s = self.loss_s = 0.0

    def weigh(self, hit_weight: float, change_weight: float) -> None:
        """Set the costs for these weights of losses and changes."""
        trainer, present = self._trainer, self._present * change_weight
        self.up = present * trainer.up_s
        self.down = present * trainer.down_s
        self.start_s = 0.0 if self.held else trainer.start_s
        self.loss_s = hit_weight * trainer.loss_s


_MOST_CACHED = 10_000

_WaitingKey: TypeAlias = "tuple[Curve, float, float, frozenset[tuple[int, float]]]"


class TermCache:
    """Terms derived from curves, trainers and shares, kept between windows."""

    def __init__(self) -> None:
        self._worths: dict[Curve, list[float]] = {}
        self._hit_probabilities: dict[tuple[float, int], list[float]] = {}
        self._waiting: dict[_WaitingKey, TrainerTerms] = {}
        self._trainers: tuple[WindowTrainer, ...] = ()
        self._terms: list[TrainerTerms] = []

    def terms(self, window: Window) -> list[TrainerTerms]:
        """Return the terms of each trainer; valid until the next call.

        Few trainers differ from the last window's. Equal trainers that hold nothing
        share their terms.
        """
        known = len(window.trainers)
        self._terms = [
            terms if trainer is before else self._made(trainer)
            for trainer, before, terms in zip_longest(
                window.trainers, self._trainers[:known], self._terms[:known]
            )
        ]
        self._trainers = window.trainers
        for terms in self._terms:
            terms.weigh(window.hit_weight, window.change_weight)
        return self._terms

    def class_terms(self, classes: Mapping[int, WindowClass]) -> dict[int, ClassTerms]:
        """Return the terms of each class; shares change seldom."""
        terms: dict[int, ClassTerms] = {}
        before, made = None, NO_CLASS_TERMS
        for k, own in classes.items():
            # Classes that follow one another are often of the same expectations.
            if own is not before:
                before, made = own, self.of_class(own)
            terms[k] = made
        return terms

    def of_class(self, own: WindowClass) -> ClassTerms:
        """Return the terms of a class."""
        nodes, life_s, hit, share = own
        known = self._hit_probabilities.get((share, nodes))
        if known is None:
            if len(self._hit_probabilities) >= _MOST_CACHED:
                self._hit_probabilities.clear()
            known = hit_probabilities(share, nodes)
            self._hit_probabilities[share, nodes] = known
        return life_s, hit, known[-1], known

    def _made(self, trainer: WindowTrainer) -> TrainerTerms:
        worth = self._worth(trainer.curve)
        if trainer.held:
            return TrainerTerms(trainer, worth)
        new_share = frozenset(trainer.new_hit_share.items())
        key = trainer.curve, trainer.start_s, trainer.loss_s, new_share
        known = self._waiting.get(key)
        if known is None:
            if len(self._waiting) >= _MOST_CACHED:
                self._waiting.clear()
            known = self._waiting[key] = TrainerTerms(trainer, worth)
        return known

    def _worth(self, curve: Curve) -> list[float]:
        """Return the worth at 0 .. the largest size, -inf where that is not a size."""
        known = self._worths.get(curve)
        if known is None:
            if len(self._worths) >= _MOST_CACHED:
                self._worths.clear()
            values, sizes = curve.value_per_s.tolist(), {0, *curve.sizes}
            known = self._worths[curve] = [
                values[n] if n in sizes else -inf for n in range(curve.sizes[-1] + 1)
            ]
        return known


Release: TypeAlias = tuple[float, int, int]
"""A trainer gives nodes of a class: added gain, class, nodes."""

_NO_ROOM = (-inf, 0)

NO_TAKE = 0.0, -1, 0


class TrainerHolding:
    """One trainer's nodes in a plan under search; waiting trainers may share one.

    ``_above`` and ``_below`` count the classes of which it has more or fewer nodes than
    it holds now: M4 forbids both at once.

    Attributes:
        held: Nodes it holds now, by class.
        mine: Nodes it has in the plan, by class; a new mapping after each move.
        nodes: How many these are.
        value: Its gain with ``mine``; -inf where that is no size.
    """

    __slots__ = (
        "_above",
        "_below",
        "_class_terms",
        "_hits",
        "_known",
        "_life_s",
        "_releases",
        "_terms",
        "held",
        "mine",
        "nodes",
        "value",
    )

    def __init__(
        self, terms: TrainerTerms, class_terms: Mapping[int, ClassTerms]
    ) -> None:
        self._terms, self._class_terms = terms, class_terms
        self.held: Holding = terms.held
        self.mine: Holding = terms.held
        life_s = hits = 0.0
        for k, nodes in terms.held.items():
            stays_s, hit, whole, touched = class_terms[k]
            life_s += nodes * stays_s
            hits += hit * touched[nodes] / whole
        self._life_s, self._hits = life_s, hits
        self._above = self._below = 0
        self.nodes = terms.before
        self.value = self._value()
        self._releases: list[Release] | None = None
        self._known: dict[tuple[int, int], tuple[float, int]] = {}

    def copy(self) -> TrainerHolding:
        """Return a holding that can be moved without changing this one."""
        made = object.__new__(TrainerHolding)
        made._terms, made.held, made.mine = self._terms, self.held, self.mine
        made._class_terms = self._class_terms
        made._life_s, made._hits = self._life_s, self._hits
        made._above, made._below = self._above, self._below
        made.nodes, made.value = self.nodes, self.value
        made._releases, made._known = self._releases, {}
        return made

    def fallback(self) -> int:
        """Return the largest size that is no more than its nodes, or 0."""
        worth = self._terms.worth
        nodes = min(self.nodes, self._terms.most)
        while worth[nodes] == -inf:
            nodes -= 1
        return nodes

    @property
    def takes(self) -> bool:
        """Whether it has more of a class than it holds now."""
        return self._above > 0

    def with_more(self, k: int, more: int) -> float:
        """Return its gain with *more* nodes of class *k*, or fewer.

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
        stays_s, hit, whole, touched = self._class_terms[k]
        life_s = (self._life_s + more * stays_s) / nodes
        hits = self._hits + hit * touched[mine + more] / whole
        if mine:
            hits -= hit * touched[mine] / whole
        return worth * (life_s - terms.loss_s * hits - terms.start_s) - cost

    def with_up_to(self, k: int, nodes: int) -> tuple[float, int]:
        """Return its gain with up to *nodes* more of class *k*, and how many it takes.

        Minus infinity and 0 where it has no room. Kept until it moves, as a search
        asks for the same again and again.
        """
        known = self._known.get((k, nodes))
        if known is None:
            room = self._terms.most - self.nodes
            if self._below:
                room = min(room, self.held.get(k, 0) - self.mine.get(k, 0))
            # Here ``min`` takes half as long as ``with_more``.
            taken = nodes if nodes < room else room  # noqa: FURB136
            known = (self.with_more(k, taken), taken) if taken > 0 else _NO_ROOM
            self._known[k, nodes] = known
        return known

    def at_most(self, nodes: int, life_s: float, hits: float) -> float:
        """Return a gain that none of it exceeds with a class of which it has no node.

        The sums of ``with_more``, so that rounding is the same; infinite where a worth
        below 0 makes hits a gain.

        Args:
            nodes: Nodes of the class.
            life_s: Its life at most.
            hits: The hits on all its nodes at least.
        """
        terms, room = self._terms, self._terms.most - self.nodes
        if room <= 0 or self._below:
            return -inf
        taken = min(nodes, room)
        after = self.nodes + taken
        worth = terms.worth[after]
        if worth < 0.0:
            return inf if worth > -inf else worth
        cost = terms.up if after > terms.before else terms.down
        if after == terms.before:
            cost = 0.0
        life_s = (self._life_s + taken * life_s) / after
        hits = self._hits + (hits if taken == nodes else 0.0)
        return worth * (life_s - terms.loss_s * hits - terms.start_s) - cost

    def best_take(self, free: Mapping[int, int]) -> tuple[float, int, int]:
        """Return the best class to take all free nodes of, as far as there is room.

        Returns:
            The added gain, the class, and how many nodes; 0, -1 and 0 where none gains.
        """
        best, present = NO_TAKE, self.value
        for k, nodes in free.items():
            value, more = self.with_up_to(k, nodes)
            if value - present > best[0]:
                best = value - present, k, more
        return best

    def releases(self) -> Sequence[Release]:
        """Return the releases to look at, by class; kept until it moves.

        A trainer that takes may give only nodes that it took (M4). Such a release is
        listed even if it loses, as another trainer may gain more by the nodes. Of a
        trainer that takes nothing, only releases that may gain are listed.
        """
        if self._releases is None:
            value = self.value
            self._releases = [
                (self.with_more(k, -spare) - value, k, spare)
                for k, spare in (self._taken() if self._above else self._doubtful())
            ]
        return self._releases

    def move(self, k: int, more: int) -> None:
        """Take *more* nodes of class *k*, or give some."""
        self._releases = None
        self._known.clear()
        mine, held = self.mine.get(k, 0), self.held.get(k, 0)
        after = mine + more
        stays_s, hit, whole, touched = self._class_terms[k]
        self._above += (after > held) - (mine > held)
        self._below += (after < held) - (mine < held)
        self.nodes += more
        self._life_s += more * stays_s
        self._hits += hit * touched[after] / whole - hit * touched[mine] / whole
        changed = {**self.mine, k: after}
        if not after:
            del changed[k]
        self.mine = changed
        self.value = self._value()

    def _value(self) -> float:
        """Return W0 with ``mine``; -inf where that is no size."""
        terms, nodes = self._terms, self.nodes
        before = terms.before
        cost = terms.up if nodes > before else terms.down if nodes < before else 0.0
        if not nodes:
            return -cost
        if nodes > terms.most:
            return -inf
        useful_s = self._life_s / nodes - terms.loss_s * self._hits - terms.start_s
        worth = terms.worth[nodes]
        # -inf times a negative time would be +inf.
        return worth * useful_s - cost if worth > -inf else worth

    def _taken(self) -> list[tuple[int, int]]:
        """Return (class, nodes that it has beyond those it holds now)."""
        before = self.held.get
        return [
            (k, mine - before(k, 0))
            for k, mine in self.mine.items()
            if mine > before(k, 0)
        ]

    def _doubtful(self) -> list[tuple[int, int]]:
        """Return (class, its nodes) of the classes without which it might gain more.

        A bound rules most out: its gain if the nodes left were never hit.
        """
        terms, class_terms, life_s = self._terms, self._class_terms, self._life_s
        nodes, worths, least = self.nodes, terms.worth, self.value + terms.down
        doubtful = []
        for k, mine in self.mine.items():
            left = nodes - mine
            worth = worths[left]
            # The bound does not hold where a worth below 0 makes hits a gain.
            if (
                worth * (life_s - mine * class_terms[k][0]) > least * left
                or worth < 0.0
                or least < 0.0
            ):
                doubtful.append((k, mine))
        return doubtful


Step: TypeAlias = tuple[float, int, int, int]
"""A trainer takes free nodes of a class, or gives some: added gain, trainer, class,
nodes (below 0 where it gives). A plain tuple, as most are made and never looked at."""

NO_STEP: Step = 0.0, -1, -1, 0


def best_release(place: int, holding: TrainerHolding) -> Step:
    """Return the best release of trainer *place*, which has *holding*."""
    best = NO_STEP
    for gained, k, spare in holding.releases():
        if gained > best[0]:
            best = gained, place, k, -spare
    return best


class WindowTerms:
    """The part that all plans of a window share, worked out once.

    Of classes that the window does not name, the first and the last of those that are
    alike are among these; :meth:`name` adds another.

    Attributes:
        class_terms: Lives and hits, by class.
        untouched: The classes of which all nodes are free, and whose hits count alike
            for all trainers.
        free: Nodes that no trainer holds, by class.
        ends: Of each first and last class of those that are alike, the place of these.
        spans: Of those that are alike, the places of the first and the last.
        holdings: Present holding by trainer; never to be moved. Equal trainers that
            hold nothing share one: half of 40 trainers on Summit wait.
        magnitude: Sum of the absolute gains, for tolerances.
        releases: By trainer, the best release of those that hold a size and gain by it.
    """

    def __init__(self, window: Window, cache: TermCache) -> None:
        shared = [t.new_hit_share for t in window.trainers if t.new_hit_share]
        if shared and window.alike:
            window = window.with_all_named()
        self.window, classes = window, window.classes
        self.class_terms = cache.class_terms(classes)
        self.untouched = {
            k: classes[k]
            for k, nodes in window.free.items()
            if nodes == classes[k].nodes
        }
        for shares in shared:
            for k in shares:
                self.untouched.pop(k, None)
        self._alike_terms = [cache.of_class(own.each) for own in window.alike]
        self.free, self.ends = dict(window.free), dict[int, int]()
        self.spans = [self._reveal(place) for place in range(len(window.alike))]
        self._ceilings: dict[int, tuple[float, float]] = {}
        self._order: dict[int, int] = {}
        self.holdings = self._holdings(window, cache)
        values = [abs(holding.value) for holding in self.holdings]
        self.magnitude = sum([value for value in values if value < inf])
        self.releases = {
            place: release
            for place, holding in enumerate(self.holdings)
            if holding.mine
            and holding.value > -inf
            and (release := best_release(place, holding)) is not NO_STEP
        }
        self._sharing: dict[TrainerHolding, list[int]] = {}
        self._takers: dict[
            tuple[WindowClass | int, int], list[tuple[float, list[int]]]
        ] = {}

    def name(self, k: int, place: int) -> int:
        """Keep the terms of *k*, of those alike at *place*; return its nodes."""
        each = self.window.alike[place].each
        self.class_terms[k], self.untouched[k] = self._alike_terms[place], each
        return each.nodes

    def next_of(self, place: int, at: int, step: int) -> int:
        """Return the next place of those alike that the window does not name."""
        numbers, classes = self.window.alike[place].numbers, self.window.classes
        at += step
        while numbers[at] in classes:
            at += step
        return at

    def _reveal(self, place: int) -> tuple[int, int]:
        """Name the first and the last of those alike, and return their places."""
        numbers = self.window.alike[place].numbers
        first = self.next_of(place, -1, 1)
        last = self.next_of(place, len(numbers), -1)
        for k in {numbers[first], numbers[last]}:
            self.free[k], self.ends[k] = self.name(k, place), place
        return first, last

    def order(self, k: int) -> int:
        """Return the sort key of class *k*."""
        known = self._order.get(k)
        if known is None:
            known = self._order[k] = self.window.order(k)
        return known

    @property
    def ceilings(self) -> Mapping[int, tuple[float, float]]:
        """The longest life and the fewest hits of untouched classes, by their nodes."""
        if not self._ceilings:
            self._ceilings = self._found_ceilings()
        return self._ceilings

    def _found_ceilings(self) -> dict[int, tuple[float, float]]:
        ceilings: dict[int, tuple[float, float]] = {}
        named = [self.class_terms[k] for k in self.untouched if k not in self.ends]
        for life_s, hit, whole, touched in [*named, *self._alike_terms]:
            hits, nodes = hit * whole / whole, len(touched) - 1
            longest_s, fewest = ceilings.get(nodes, (life_s, hits))
            ceilings[nodes] = max(longest_s, life_s), min(fewest, hits)
        return ceilings

    def takers(self, k: int, nodes: int) -> Sequence[tuple[float, list[int]]]:
        """Return the trainers that gain by *nodes* more of class *k*, best first.

        For trainers with their present holdings. Kept, as transfers of every plan ask
        again and again.

        Returns:
            Minus the added gain, and the trainers that share a holding.
        """
        # Classes that no trainer holds are alike if their terms are.
        asked = self.untouched.get(k, k), nodes
        known = self._takers.get(asked)
        if known is None:
            known = self._takers[asked] = self._ordered(k, nodes)
        return known

    def _ordered(self, k: int, nodes: int) -> list[tuple[float, list[int]]]:
        if not self._sharing:
            for place, holding in enumerate(self.holdings):
                self._sharing.setdefault(holding, []).append(place)
        takers, others = [], len(self.class_terms[k][3]) - 1 - nodes
        for holding, places in self._sharing.items():
            # A trainer that holds more of it would have to give some first.
            if holding.mine.get(k, 0) <= others:
                less = holding.value - holding.with_up_to(k, nodes)[0]
                if less < 0.0:
                    takers.append((less, places))
        return sorted(takers)

    def _holdings(self, window: Window, cache: TermCache) -> tuple[TrainerHolding, ...]:
        holdings = []
        waiting: dict[TrainerTerms, TrainerHolding] = {}
        for terms in cache.terms(window):
            if terms.held:
                holdings.append(self._holding(terms))
                continue
            holding = waiting.get(terms)
            if holding is None:
                holding = waiting[terms] = self._holding(terms)
            holdings.append(holding)
        return tuple(holdings)

    def _holding(self, terms: TrainerTerms) -> TrainerHolding:
        if not terms.new_hit_share:
            return TrainerHolding(terms, self.class_terms)
        own = dict(self.class_terms)
        for k, share in terms.new_hit_share.items():
            life_s, hit, whole, touched = own[k]
            own[k] = life_s, share * hit, whole, touched
        return TrainerHolding(terms, own)


_FreeClass: TypeAlias = tuple[int, float, int]
"""Of a class with free nodes: nodes, life, number."""

_InTurn: TypeAlias = tuple[tuple[int, int], int]
"""A class by its place in the order: how many had come back before it did and its sort
key, and its number."""


_FEW_CLASSES = 3
"""So few classes are tried sooner than compared."""

MANY_CLASSES = 16
"""More classes are offered only once a trainer may gain by one."""


class PlanState:
    """A plan under search, at first the present one.

    Classes come in an order: that of the window, and those that come back last.

    Attributes:
        terms: Shared by all plans of the window.
        holdings: By trainer; those that did not move are shared with other plans.
        free: Nodes that no trainer has, by class; none of them 0. Of classes that the
            window does not name only the first and the last of those that are alike.
        moved: Trainers whose holdings moved.
    """

    def __init__(self, terms: WindowTerms) -> None:
        self.terms = terms
        self.free = dict(terms.free)
        self.holdings = list(terms.holdings)
        self.moved: set[int] = set()
        self._ends = dict(terms.ends)
        self._spans = list(terms.spans)
        self._partly = {k for k in terms.window.free if k not in terms.untouched}
        self._alike: dict[WindowClass | int, list[_InTurn]] = {}
        self._turns: dict[int, tuple[int, int]] = {}
        self._turn = count(1)

    @property
    def value(self) -> float:
        """The plan's gain."""
        return sum([holding.value for holding in self.holdings])

    def counts(self) -> tuple[Holding, ...]:
        """Return nodes by trainer and class."""
        return tuple([holding.mine for holding in self.holdings])

    def offers(self) -> Mapping[int, int]:
        """Return free nodes by class; of classes that are alike only the first.

        Classes are alike if their terms are equal and all their nodes are free, now and
        in the plan: each is worth the same to any trainer. Where every node leaves by
        itself, there are many such classes.
        """
        free = self.free
        if len(free) == 1:
            return free
        if self._alike or len(free) > _FEW_CLASSES:
            self._group()
            firsts = sorted([alike[0] for alike in self._alike.values()])
        else:
            firsts = self._in_order()
        return {k: free[k] for _, k in firsts}

    def may_take(self, holding: TrainerHolding) -> bool:
        """Return whether a trainer may gain by free nodes; if they abound, most do not.

        No class of so many nodes gains it more than one with the longest life and the
        fewest hits of all of them.
        """
        value, free = holding.value, self.free
        for nodes, (life_s, hits) in self.terms.ceilings.items():
            if holding.at_most(nodes, life_s, hits) > value:
                return True
        return any(holding.with_up_to(k, free[k])[0] > value for k in self._partly)

    def move(self, place: int, k: int, more: int) -> int | None:
        """Let trainer *place* take *more* free nodes of class *k*, or give some.

        Returns:
            The class that is free from now on behind the first or last of those alike.
        """
        if place not in self.moved:
            self.moved.add(place)
            self.holdings[place] = self.holdings[place].copy()
        self.holdings[place].move(k, more)
        before = self.free.get(k, 0)
        left = before - more
        if left:
            self.free[k] = left
        else:
            del self.free[k]
        if not before:
            self._turns[k] = next(self._turn), k
        known = self.terms.untouched.get(k)
        if left and (known is None or left < known.nodes):
            self._partly.add(k)
        else:
            self._partly.discard(k)
        if self._alike:
            self._update_alike(k, before, left)
        return self._uncovered(k) if k in self._ends else None

    def settle(self) -> None:
        """Let each trainer whose nodes are no size fall back to the next size below."""
        for place, holding in enumerate(self.holdings):
            if holding.value == -inf:
                self._shed(place, holding.nodes - holding.fallback())

    def resize(self, counts: Sequence[int]) -> None:
        """Give each trainer its number of nodes in *counts*, whole classes first."""
        for place, nodes in enumerate(counts):
            surplus = self.holdings[place].nodes - nodes
            if surplus > 0:
                self._shed(place, surplus)
        pairs = enumerate(zip(counts, self.holdings, strict=True))
        short = [(n - own.nodes, -j) for j, (n, own) in pairs if n > own.nodes]
        if not short:
            return
        terms = self.terms.class_terms
        ranks = sorted([(n, terms[k][0], k) for k, n in self.free.items()])
        for wanted, place in sorted(short, reverse=True):
            self._fill(-place, wanted, ranks)

    def _group(self) -> None:
        """Note which free classes are alike, unless that is known."""
        if not self._alike:
            for turn, k in self._in_order():
                kind = self._kind(k, self.free[k])
                self._alike.setdefault(kind, []).append((turn, k))

    def _in_order(self) -> list[_InTurn]:
        return sorted([(self._turn_of(k), k) for k in self.free])

    def _turn_of(self, k: int) -> tuple[int, int]:
        turn = self._turns.get(k)
        if turn is None:
            turn = self._turns[k] = 0, self.terms.order(k)
        return turn

    def _uncovered(self, k: int) -> int | None:
        """Free the class behind *k*, the first or last of those alike; return it."""
        place = self._ends.pop(k)
        numbers = self.terms.window.alike[place].numbers
        first, last = self._spans[place]
        if first == last:
            return None
        if k == numbers[first]:
            at = first = self.terms.next_of(place, first, 1)
        else:
            at = last = self.terms.next_of(place, last, -1)
        self._spans[place] = first, last
        if first == last:
            return None  # the other end, which is free already
        behind = numbers[at]
        nodes = self.free[behind] = self.terms.name(behind, place)
        self._ends[behind] = place
        if self._alike:
            self._update_alike(behind, 0, nodes)
        return behind

    def _update_alike(self, k: int, before: int, left: int) -> None:
        """Note that of class *k* now *left* nodes are free instead of *before*."""
        if before:
            kind = self._kind(k, before)
            alike = self._alike[kind]
            del alike[bisect_left(alike, (self._turns[k], k))]
            if not alike:
                del self._alike[kind]
        if left:
            alike = self._alike.setdefault(self._kind(k, left), [])
            insort(alike, (self._turn_of(k), k))

    def _kind(self, k: int, nodes: int) -> WindowClass | int:
        """Return a key that is equal for classes that are alike, at *nodes* free."""
        known = self.terms.untouched.get(k)
        return k if known is None or nodes < known.nodes else known

    def _shed(self, place: int, surplus: int) -> None:
        """Let a trainer give whole classes, the shortest-lived first."""
        terms = self.terms.class_terms
        while surplus:
            mine = self.holdings[place].mine
            fitting = [k for k, n in mine.items() if n <= surplus]
            k = min(fitting or mine, key=lambda k: (terms[k][0], -mine[k], k))
            given = min(mine[k], surplus)
            surplus -= given
            self.move(place, k, -given)

    def _fill(self, place: int, wanted: int, ranks: list[_FreeClass]) -> None:
        """Let a trainer take whole classes: of those it has nodes of, then the largest.

        Where none fits, it takes part of one that it has nodes of, else of the
        longest-lived.

        Args:
            place: The trainer.
            wanted: How many nodes it takes.
            ranks: The classes with free nodes, ascending; updated.
        """
        free, terms = self.free, self.terms.class_terms
        while wanted:
            mine = self.holdings[place].mine
            own = [k for k in mine if free.get(k, inf) <= wanted]
            fitting = bisect_left(ranks, (wanted + 1,))
            if own:
                k = max(own, key=lambda k: (free[k], terms[k][0], k))
            elif fitting:
                k = ranks[fitting - 1][2]
            else:
                k = max(free, key=lambda k: (k in mine, terms[k][0], k))
            nodes, life_s = free[k], terms[k][0]
            taken = min(nodes, wanted)
            wanted -= taken
            behind = self.move(place, k, taken)
            del ranks[bisect_left(ranks, (nodes, life_s, k))]
            if nodes > taken:
                insort(ranks, (nodes - taken, life_s, k))
            if behind is not None:
                insort(ranks, (free[behind], terms[behind][0], behind))


_MOST_MOVES = 200
"""Six days of Summit take 1 or 2 an event; a huge pool that is all free would take
thousands."""

_WORTH_IT = 1e-9
"""Relative to the plan's value; less is rounding."""


class Move(NamedTuple):
    """Nodes of one class change hands.

    Attributes:
        gain: Added gain.
        place: The trainer that takes *more* nodes, or gives them (below 0).
        k: The class.
        more: Nodes.
        to: The trainer that takes given nodes; -1 where they stay free.
        taken: How many it takes.
    """

    gain: float
    place: int
    k: int
    more: int
    to: int = -1
    taken: int = 0


_NO_MOVE = Move(*NO_STEP)


class HillClimb:
    """Improves a plan by one move after the other, the best one each time.

    A trainer takes all free nodes of a class, or as many as it has room for; it gives
    all nodes of a class that it may give; or nodes that it took in this plan go to
    another trainer (a transfer). The best take and the best release of each trainer
    are kept until they may have changed.

    ``_moved_at`` has the step in which a trainer moved last; ``_refused_at`` the step
    after which no other trainer gained by a release (trainer, class, nodes).
    """

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._takes: dict[int, Step] = {}
        self._releases = dict(state.terms.releases)
        self._step = 0
        self._least = _WORTH_IT * (1.0 + state.terms.magnitude)
        self._moved_at: dict[int, int] = {}
        self._refused_at: dict[tuple[int, int, int], int] = {}
        if state.free:
            self._update_takes(range(len(state.holdings)))
        self._update_releases(state.moved)

    def run(
        self,
        stop: Callable[[], bool] | None = None,
        ended: Sequence[Holding] = (),
    ) -> None:
        """Move until nothing improves the plan.

        Args:
            stop: Whether time is up; asked before every move.
            ended: The plan in which another search ended, where this one ends too.
        """
        least = self._least
        for _ in range(_MOST_MOVES):
            if stop is not None and stop():
                return
            steps = [*self._takes.values(), *self._releases.values(), NO_STEP]
            step = max(steps)
            # Transfers take the longest to find, and seldom help.
            best = Move(*step) if step[0] > least else self._best_transfer()
            if best.gain <= least:
                return
            self._make(best)
            if ended and self._state.counts() == ended:
                return

    def _make(self, move: Move) -> None:
        self._step += 1
        self._state.move(move.place, move.k, move.more)
        touched = {move.place}
        if move.to >= 0:
            self._state.move(move.to, move.k, move.taken)
            touched.add(move.to)
        self._moved_at.update(dict.fromkeys(touched, self._step))
        self._update_releases(touched)
        if not self._state.free:
            self._takes.clear()
        else:
            touched.update(
                [place for _, place, k, _ in self._takes.values() if k == move.k]
            )
            self._update_takes(touched)
            if move.k in self._state.free:
                self._offer_class(move.k, touched)
        if move.more > 0 and move.k not in self._state.free:
            self._refused_at[move.place, move.k, move.more] = self._step

    def _update_takes(self, places: Iterable[int]) -> None:
        """Find the best takes of trainers, once for those that share a holding."""
        state, holdings = self._state, self._state.holdings
        is_many = len(state.free) > MANY_CLASSES
        offers: Mapping[int, int] = {}
        known: dict[TrainerHolding, tuple[float, int, int]] = {}
        for place in places:
            holding = holdings[place]
            if holding not in known:
                if is_many and not state.may_take(holding):
                    known[holding] = NO_TAKE
                else:
                    offers = offers or state.offers()
                    known[holding] = holding.best_take(offers)
            gained, k, more = known[holding]
            if more:
                self._takes[place] = gained, place, k, more
            else:
                self._takes.pop(place, None)

    def _offer_class(self, k: int, updated: AbstractSet[int]) -> None:
        """Make class *k* the best take of other trainers for which it is."""
        nodes = self._state.free[k]
        for place, holding in enumerate(self._state.holdings):
            if place in updated:
                continue
            value, more = holding.with_up_to(k, nodes)
            take = value - holding.value, place, k, more
            if take > self._takes.get(place, NO_STEP):
                self._takes[place] = take

    def _update_releases(self, places: Iterable[int]) -> None:
        for place in places:
            release = best_release(place, self._state.holdings[place])
            if release is NO_STEP:
                self._releases.pop(place, None)
            else:
                self._releases[place] = release

    def _best_transfer(self) -> Move:
        best, most, least = _NO_MOVE, 0.0, self._least
        holdings, moved = self._state.holdings, sorted(self._state.moved)
        for place in moved:
            giver = holdings[place]
            if not giver.takes:
                continue
            others = [to for to in moved if to != place]
            for release in giver.releases():
                lost, k, spare = release
                is_wanted = False
                for to in self._rivals(place, release, others):
                    rival = holdings[to]
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

    def _rivals(
        self, place: int, release: Release, others: Sequence[int]
    ) -> Sequence[int]:
        """Return the trainers that may gain more by a release than its giver loses.

        If no trainer did when this release was looked at last, or the giver took all
        free nodes of the class because it gained most by them, only trainers that have
        moved since need another look. Of those that never moved, the one that gains
        most is enough.
        """
        lost, k, spare = release
        refused_at = self._refused_at.get((place, k, spare))
        if refused_at is not None and refused_at >= self._moved_at.get(place, 0):
            return sorted([j for j, at in self._moved_at.items() if at > refused_at])
        best = self._best_unmoved(k, spare, lost)
        return others if best < 0 else sorted([*others, best])

    def _best_unmoved(self, k: int, spare: int, lost: float) -> int:
        """Return the trainer that never moved and gains most by nodes.

        -1 where none gains more than is *lost*, as for most releases.
        """
        # Half the tolerance, as sums round differently in another order.
        enough, moved = lost - self._least / 2, self._state.moved
        for less, places in self._state.terms.takers(k, spare):
            if less >= enough:
                break
            for place in places:
                if place not in moved:
                    return place
        return -1


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """An answer that breaks no constraint.

    Attributes:
        holdings: Nodes by trainer and class.
        gain: Their gain, W0.
        kept: The present plan; a trainer off its sizes falls back to the next below.
        kept_gain: Its gain; never more than ``gain``.
        refused: Why the search's plan was refused and the present one kept: a defect.
    """

    holdings: tuple[Holding, ...]
    gain: float
    kept: tuple[Holding, ...]
    kept_gain: float
    refused: tuple[str, ...] = ()


class WindowPlanner:
    """Plans window after window; keeps terms between two calls."""

    def __init__(self) -> None:
        self._cache = TermCache()

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
            starts: Node counts by trainer to begin from as well, for example those
                of the published planner; one that does not fit the pool is left out.
            stop: Whether time is up; the best plan so far is returned.
        """
        terms = WindowTerms(window, self._cache)
        present = PlanState(terms)
        present.settle()
        kept, kept_gain = present.counts(), present.value
        counts = [holding.nodes for holding in present.holdings]
        held = sum([holding.nodes for holding in terms.holdings])
        stock = held + window.free_nodes
        HillClimb(present).run(stop)
        ended = present.counts()
        states = [present]  # no search goes on from where the first one ended
        for start in starts:
            fits = min(start, default=0) >= 0 and sum(start) <= stock
            if fits and list(start) != counts:
                state = PlanState(terms)
                state.resize(start)
                if state.counts() != ended:
                    HillClimb(state).run(stop, ended)
                    states.append(state)
        gains = [state.value for state in states]
        gained = max(gains)
        holdings = states[gains.index(gained)].counts()
        broken = violations(window, holdings, claimed=gained, least=kept_gain)
        if broken:
            return WindowPlan(kept, kept_gain, kept, kept_gain, broken)
        return WindowPlan(holdings, gained, kept, kept_gain)
