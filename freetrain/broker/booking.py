"""When jobs that must wait for others could start, were our leases away.

Backfill plans with the time limits of our leases, and lets others go ahead of a job
whose planned start they put off. Such a lease delays the job without holding a node
that it could have now, so it must go as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_BOOKINGS = 50
"""Jobs in order of priority that are booked for; each costs a look at every node."""

PUT_OFF_S = 60.0
"""A planned start that is later by less may be backfill's grain, or limits' minutes."""

YOUNG_S = 120.0
"""A lease that began after the job and has run for less is left alone: backfill let
it begin, and a plan that is late for reasons unseen here must not end leases over and
over."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long a lease holds its node.

    Attributes:
        start_s: When it began, Unix time.
        end_s: When its limit ends it, Unix time.
    """

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Wish:
    """What a waiting job needs.

    Attributes:
        nodes: How many nodes.
        insists: Nodes that must be among them.
        limit_s: For how long.
        since_s: Since when it waits, Unix time.
        planned_s: When backfill means to start it; None for no plan.
    """

    nodes: int
    insists: frozenset[str]
    limit_s: float
    since_s: float
    planned_s: float | None


@dataclass(slots=True)
class Bookings:
    """Who gets which node when, by the limits of others' jobs and in their order.

    Attributes:
        now_s: The moment of the snapshot, Unix time.
        free_s: By node: when it comes free, our leases not counted, Unix time; a node
            that is missing never does.
        leases: By node: how long our lease there lasts.
    """

    now_s: float
    free_s: dict[str, float]
    leases: Mapping[str, Span]
    _from_s: dict[str, float] = field(default_factory=dict)
    _made: int = 0

    def leaves(self, node: str, limit_s: float) -> bool:
        """Tell whether a job that starts on *node* now is over before its booking."""
        return self.now_s + limit_s <= self._from_s.get(node, math.inf)

    def start(self, nodes: Iterable[str], limit_s: float) -> None:
        """Write down that a job of *limit_s* starts on *nodes* now."""
        self.free_s.update(dict.fromkeys(nodes, self.now_s + limit_s))

    def book(self, wish: Wish, suiting: Iterable[str]) -> tuple[str, ...]:
        """Book the earliest nodes, and return those whose leases put the job off.

        Args:
            wish: What the job needs.
            suiting: Nodes that it could run on, whoever holds them.
        """
        if not self.leases or self._made >= MOST_BOOKINGS:
            return ()
        self._made += 1
        known = [name for name in suiting if name in self.free_s]
        start_s = self._start_s(wish, known)
        if math.isinf(start_s):
            return ()
        known = [name for name in known if self.free_s[name] <= start_s]
        known.sort(key=lambda n: (n not in wish.insists, self._is_late(n, start_s), n))
        booked = known[: wish.nodes]
        for name in booked:
            self.free_s[name] = start_s + wish.limit_s
            self._from_s[name] = min(start_s, self._from_s.get(name, math.inf))
        if wish.planned_s is None or wish.planned_s <= start_s + PUT_OFF_S:
            return ()
        return tuple(n for n in booked if self._puts_off(n, start_s, wish))

    def _start_s(self, wish: Wish, known: Sequence[str]) -> float:
        """Return when enough of *known* are free together; inf for never."""
        if len(known) < wish.nodes or not wish.insists <= set(known):
            return math.inf
        enough_s = sorted(self.free_s[name] for name in known)[wish.nodes - 1]
        return max([enough_s, *(self.free_s[name] for name in wish.insists)])

    def _is_late(self, name: str, start_s: float) -> bool:
        return name in self.leases and self.leases[name].end_s > start_s

    def _puts_off(self, name: str, start_s: float, wish: Wish) -> bool:
        if not self._is_late(name, start_s):
            return False
        old_s = max(wish.since_s, self.now_s - YOUNG_S)
        return self.leases[name].start_s <= old_s
