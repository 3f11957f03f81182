"""When waiting jobs could start, were our leases away: a plan like backfill's.

Jobs get their nodes in order of priority, each the earliest that stay free for all of
its limit, and hold them against whoever comes after. Backfill itself plans around our
leases, by their limits: it moves others to where they would not be without us, and
lets some go ahead of a job whose start it put off. So what it planned says little of
who could start now, and a lease that puts a start off must go, too.
"""

from __future__ import annotations

import math
from itertools import chain, islice
from typing import TYPE_CHECKING

from freetrain.broker.ground import Fittings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.ground import Ground, Rank
    from freetrain.broker.suiting import Kind, Wish
    from logs.schedule.agenda import Need
    from logs.schedule.timeline import Gap
    from logs.schedule.unitset import UnitSet

MOST_BOOKINGS = 50
"""Jobs in order of priority that are booked for; each costs a look at every node."""

PUT_OFF_S = 60.0
"""A planned start that is later by less may be backfill's grain, or limits' minutes."""

_LONGEST_S = 1e9
"""Stands for no limit: thirty years."""


class Bookings:
    """Who gets which node when, by the limits of others' jobs and in their order.

    Args:
        now_s: The moment of the snapshot, Unix time.
        ground: Where jobs might start.
        free_s: By node: when it comes free, our leases not counted, Unix time; a node
            that is missing never does.
        rank: Which nodes that are idle or ours are to be given first.
        closed_s: By node: from when on nobody may have it, where there is such a time.
    """

    def __init__(
        self,
        now_s: float,
        ground: Ground,
        free_s: Mapping[str, float],
        *,
        rank: Rank,
        closed_s: Mapping[str, float],
    ) -> None:
        # It brings NumPy along, and a tick at which nobody waits needs neither.
        from logs.schedule.agenda import Agenda  # noqa: PLC0415

        self._now_s = now_s
        self._fittings = Fittings(ground)
        self._suiting = ground.suiting
        self._leases = ground.spans
        self._window_s = ground.backfill.window_s
        ends = self._together(free_s)
        free = ends.pop(now_s, 0)
        ends.pop(math.inf, None)
        self._agenda = Agenda(
            now_s,
            free,
            ends.items(),
            closed=self._together(closed_s).items(),
            resolution_s=ground.backfill.grain_s,
        )
        self._made = 0
        ranked = sorted(ground.holes, key=rank)
        self._ranked = {hole.node: self._suiting.bit(hole.node) for hole in ranked}
        self._failed: dict[Kind, list[tuple[int, float]]] = {}
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

    def start(self, wish: Wish) -> tuple[str, ...] | None:
        """Return the nodes on which a job could start now, which it has from now on.

        Arrays have up to millions of tasks, so that all are placed at once.

        Args:
            wish: What each of its tasks needs.

        Returns:
            As many nodes that are idle or ours as it can use; None where it cannot
            start.
        """
        if self._has_failed(wish):
            return None
        fitting = self._fittings.of(wish.kind)
        need = _need(wish, fitting.now, wish.least_s, beside=fitting.others)
        gap = self._agenda.start(need)
        if gap is None:
            self._failed.setdefault(wish.kind, []).append((wish.nodes, wish.least_s))
            return None
        count = gap.units.bit_count()
        rest = count % wish.nodes
        if rest < need.size:  # too few for one task more
            count -= rest
        most = 1 if need.must else wish.tasks
        got = self._first(gap.units, need.must, min(count, wish.nodes * most))
        for name in got:
            del self._ranked[name]
        self._agenda.book(gap, self._suiting.units(got))
        return got

    def book(self, wish: Wish) -> tuple[str, ...]:
        """Book the earliest nodes, and return those whose leases put the job off.

        Args:
            wish: What the job needs.
        """
        if self._made >= MOST_BOOKINGS:
            return ()
        self._made += 1
        if wish.kind.insists & ~wish.kind.suits:
            return ()
        gap = self._agenda.earliest(_need(wish, wish.kind.suits, wish.most_s))
        if gap is None:
            return ()
        start_s = self._agenda.starts_s(gap.at) if gap.at else self._now_s
        if start_s > self._now_s + self._window_s:
            return ()
        return self._book(wish, gap, start_s)

    def _book(self, wish: Wish, gap: Gap, start_s: float) -> tuple[str, ...]:
        must = wish.kind.insists
        names = [*self._names(gap.units & must), *self._names(gap.units & ~must)]
        # Backfill takes the first, whoever is there; we count on the kindest.
        booked = names[: wish.nodes]
        self._agenda.book(gap, self._suiting.units(booked))
        for name in booked:
            self._booked_s[name] = min(start_s, self._booked_s.get(name, math.inf))
        late = {name for name, span in self._leases.items() if span.end_s > start_s}
        self._moving |= dict.fromkeys(name for name in booked if name in late)
        if wish.planned_s is None or wish.planned_s <= start_s + PUT_OFF_S:
            return ()
        insists = (gap.units & must).bit_count()
        first, others = names[:insists], names[insists:]
        for some in (first, others):
            some.sort(key=late.__contains__)
        return tuple(n for n in [*first, *others][: wish.nodes] if n in late)

    def _has_failed(self, wish: Wish) -> bool:
        """Tell whether one of its kind that needs no more could not start.

        Nothing has come free since: bookings only take away.
        """
        for nodes, limit_s in self._failed.get(wish.kind, ()):
            if nodes <= wish.nodes and limit_s <= wish.least_s:
                return True
        return False

    def _first(self, units: UnitSet, must: UnitSet, count: int) -> tuple[str, ...]:
        """Return the first so many of *units*, those of *must* in front."""
        ranked = self._ranked.items()
        theirs = [name for name, bit in ranked if bit & must] if must else []
        others = (name for name, bit in ranked if bit & units and not bit & must)
        return tuple(islice(chain(theirs, others), count))

    def _names(self, units: UnitSet) -> list[str]:
        from logs.schedule.unitset import members  # noqa: PLC0415 - as above

        return [self._suiting.names[place] for place in members(units)]

    def _together(self, at_s: Mapping[str, float]) -> dict[float, UnitSet]:
        """Return the nodes of each time, none of them before now."""
        units: dict[float, UnitSet] = {}
        for name, when_s in at_s.items():
            moment_s = max(when_s, self._now_s)
            units[moment_s] = units.get(moment_s, 0) | self._suiting.bit(name)
        return units


def _need(wish: Wish, among: UnitSet, request_s: float, *, beside: int = 0) -> Need:
    from logs.schedule.agenda import Need  # noqa: PLC0415 - as above

    return Need(
        size=max(0, wish.nodes - beside),
        request_s=min(request_s, _LONGEST_S),
        among=among,
        must=among & wish.kind.insists,
    )
