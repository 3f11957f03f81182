"""When waiting jobs could start, were our leases away: a plan like backfill's.

Jobs get their nodes in order of priority, each the earliest that stay free for all of
its limit, and hold them against whoever comes after. Backfill itself plans around our
leases, by their limits: it moves others to where they would not be without us, and
lets some go ahead of a job whose start it put off. So what it planned says little of
who could start now, and a lease that puts a start off must go, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from logs.schedule.timeline import Gap, Need

MOST_BOOKINGS = 50
"""Jobs in order of priority that are booked for; each costs a look at every node."""

PUT_OFF_S = 60.0
"""A planned start that is later by less may be backfill's grain, or limits' minutes."""

_LONGEST_S = 1e9
"""Stands for no limit: thirty years."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long a lease holds its node.

    Attributes:
        start_s: When it began, Unix time.
        end_s: When its limit ends it, Unix time.
    """

    start_s: float
    end_s: float


class Backfill(NamedTuple):
    """How Slurm's backfill plans.

    Attributes:
        grain_s: In slots of this length.
        window_s: No start further ahead than this; nothing is held for those.
    """

    grain_s: float = 1.0
    window_s: float = math.inf


TO_THE_SECOND = Backfill()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a waiting job needs.

    Attributes:
        nodes: How many nodes.
        insists: Nodes that must be among them.
        limit_s: For how long.
        planned_s: When backfill means to start it; None for no plan.
    """

    nodes: int
    insists: frozenset[str]
    limit_s: float
    planned_s: float | None


class Bookings:
    """Who gets which node when, by the limits of others' jobs and in their order.

    Args:
        now_s: The moment of the snapshot, Unix time.
        free_s: By node, in Slurm's order: when it comes free, our leases not counted,
            Unix time; a node that is missing never does.
        leases: By node: how long our lease there lasts.
        closed_s: By node: from when on nobody may have it, where there is such a time.
        backfill: How it plans.
    """

    def __init__(
        self,
        now_s: float,
        free_s: Mapping[str, float],
        leases: Mapping[str, Span],
        *,
        closed_s: Mapping[str, float] | None = None,
        backfill: Backfill = TO_THE_SECOND,
    ) -> None:
        # It brings NumPy along, and a tick at which nobody waits needs neither.
        from logs.schedule.timeline import Timeline  # noqa: PLC0415

        self._now_s = now_s
        self._leases = leases
        self._window_s = backfill.window_s
        self._names = [name for name in free_s if free_s[name] < math.inf]
        self._bit = {name: 1 << k for k, name in enumerate(self._names)}
        free = self._bits(name for name in self._names if free_s[name] <= now_s)
        ends: dict[float, int] = {}
        for name in self._names:
            if free_s[name] > now_s:  # the nodes of a job come free together
                ends[free_s[name]] = ends.get(free_s[name], 0) | self._bit[name]
        self._timeline = Timeline(now_s, free, ends.items(), backfill.grain_s)
        for name, from_s in (closed_s or {}).items():
            self._timeline.close(self._bit.get(name, 0), max(from_s, now_s))
        self._made = 0
        self._sets: dict[tuple[str, ...], int] = {}
        self._moving: dict[str, None] = {}
        self._booked_s: dict[str, float] = {}

    @property
    def booked_s(self) -> Mapping[str, float]:
        """When nodes are booked for a job that cannot start now, first, Unix time."""
        return self._booked_s

    @property
    def moving(self) -> tuple[str, ...]:
        """Nodes whose leases outlast the start of a job that is booked there.

        Backfill plans that job elsewhere or later, perhaps where somebody behind it
        could start now.
        """
        return tuple(self._moving)

    def start(
        self, wish: Wish, preferred: Sequence[str], *, beside: int = 0, tasks: int = 1
    ) -> tuple[str, ...] | None:
        """Return the nodes on which a job could start now, which it has from now on.

        Args:
            wish: What each of its tasks needs.
            preferred: Nodes that it could run on and that are idle or ours, whichever
                is to be given first in front.
            beside: How many nodes it could have besides, of which others hold a part.
            tasks: How many tasks it may start; arrays have up to millions, so that
                all are placed at once.

        Returns:
            As many of *preferred* as it can use; None where it cannot start.
        """
        need = self._need(wish, preferred, beside=beside)
        gap = self._timeline.place(0, need, now_s=self._now_s)
        if gap is None:
            return None
        got = [name for name in preferred if self._bit[name] & gap.units]
        most = 1 if need.must else tasks
        rest = len(got) % wish.nodes
        if rest < need.size:  # too few for one task more
            got = got[: len(got) - rest]
        return self._book(gap, got[: wish.nodes * most])

    def book(self, wish: Wish, suiting: Iterable[str]) -> tuple[str, ...]:
        """Book the earliest nodes, and return those whose leases put the job off.

        Args:
            wish: What the job needs.
            suiting: Nodes that it could run on, whoever holds them.
        """
        if self._made >= MOST_BOOKINGS:
            return ()
        self._made += 1
        need = self._need(wish, suiting)
        if len(wish.insists) > need.must.bit_count():
            return ()
        gap = self._timeline.find_among(need, now_s=self._now_s)
        if gap is None:
            return ()
        start_s = self._timeline.starts_s(gap.at) if gap.at else self._now_s
        if start_s > self._now_s + self._window_s:
            return ()
        from logs.schedule.unitset import members  # noqa: PLC0415 - as above

        names = [self._names[place] for place in members(gap.units)]
        if wish.insists:
            names.sort(key=lambda name: name not in wish.insists)
        # Backfill takes the first, whoever is there; we count on the kindest.
        booked = self._book(gap, names[: wish.nodes])
        for name in booked:
            self._booked_s[name] = min(start_s, self._booked_s.get(name, math.inf))
        self._moving |= dict.fromkeys(n for n in booked if self._is_late(n, start_s))
        if wish.planned_s is None or wish.planned_s <= start_s + PUT_OFF_S:
            return ()
        names.sort(key=lambda n: (n not in wish.insists, self._is_late(n, start_s)))
        return tuple(n for n in names[: wish.nodes] if self._is_late(n, start_s))

    def _need(self, wish: Wish, suiting: Iterable[str], *, beside: int = 0) -> Need:
        from logs.schedule.timeline import Need  # noqa: PLC0415 - as above

        among = self._all(suiting)
        return Need(
            size=max(0, wish.nodes - beside),
            request_s=min(wish.limit_s, _LONGEST_S),
            among=among,
            must=among & self._bits(wish.insists),
        )

    def _book(self, gap: Gap, names: Sequence[str]) -> tuple[str, ...]:
        self._timeline.book(gap, self._bits(names))
        return tuple(names)

    def _all(self, names: Iterable[str]) -> int:
        """Return the bits of *names*, which are asked for again and again."""
        known = tuple(names)
        if known not in self._sets:
            self._sets[known] = self._bits(known)
        return self._sets[known]

    def _bits(self, names: Iterable[str]) -> int:
        bits = 0
        for name in names:
            bits |= self._bit.get(name, 0)
        return bits

    def _is_late(self, name: str, start_s: float) -> bool:
        return name in self._leases and self._leases[name].end_s > start_s
