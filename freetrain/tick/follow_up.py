"""A tick, and those that follow it up before somebody else starts the next.

One as soon as its leases have begun, which puts them to use. And where each tick makes
room for others, one before each of backfill's cycles, so that nobody whom leases keep
waiting is overtaken; and another, as late as is in time, where a last look at others'
jobs shows that something has changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.cycles import APART_S, LEAD_S, last_lead_s
from freetrain.broker.lease import LeaseKey, uuid_in
from freetrain.exchange.layout import StateDir
from freetrain.store.errors import StoreBusyError
from freetrain.tick.tick import glance, tick
from slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from freetrain.site.settings import Site
    from freetrain.tick.outside import Outside
    from freetrain.tick.tick import TickReport
    from slurm.batch import LeaseRequest

_LOOK_EVERY_S = 0.25

_PATIENCE_S = 20.0
"""Agents that have not begun by then wait for the next tick."""

_REST_S = 3.0
"""Who has begun does not wait longer than this for the next that begins."""

_AT_ONCE_S = 2.0
"""A cycle so soon after a look that it would be too late."""


def tick_and_follow_up(
    site: Site, outside: Outside, *, within_s: float, wait: Callable[[float], None]
) -> Iterator[TickReport]:
    """Run a tick, and more that follow it up.

    Where it asked for leases, wait for their agents and run another: without it, new
    leases idle until cron starts the next. Where leases make room for others, run
    another before each of backfill's cycles, and one more where others' jobs have
    changed until just before it. Nothing is held meanwhile: somebody else may tick, and
    a kill loses nothing.

    Args:
        site: The site's settings.
        outside: Clocks, numbers and Slurm.
        within_s: None begins later than so long after the first, seconds.
        wait: Waits so many seconds.

    Yields:
        The report of each, as soon as it is over.

    Raises:
        FreeTrainError, SlurmError: As ``tick`` does. Where Slurm does not answer a
            look before a cycle, or somebody else ticks, the next is tried all the
            same; raised is what stopped the last.
    """
    end_s = outside.clock() + within_s
    looked = _look(site, outside)
    yield looked.report
    folder = StateDir(site.state_directory)
    if _heard(looked.report, folder, outside, end_s, wait):
        looked = _look(site, outside)
        yield looked.report
    yield from _before_cycles(site, outside, looked, end_s=end_s, wait=wait)


@dataclass(frozen=True, slots=True)
class _Looked:
    """The last tick.

    Attributes:
        report: Of it.
        began_s: When it began, by the clock.
        took_s: How long it took.
    """

    report: TickReport
    began_s: float
    took_s: float

    def again_s(self, from_s: float, lead_s: float | None) -> float:
        """Return when to look so long before a cycle, *from_s* at the soonest."""
        cycles = self.report.cycles
        if cycles is None or lead_s is None:
            return math.inf
        rest_s = from_s - self.began_s
        return self.began_s + cycles.next_look_s(rest_s=rest_s, lead_s=lead_s)


def _look(site: Site, outside: Outside) -> _Looked:
    began_s = outside.clock()
    report = tick(site, outside)
    return _Looked(report, began_s, outside.clock() - began_s)


def _before_cycles(
    site: Site,
    outside: Outside,
    looked: _Looked,
    *,
    end_s: float,
    wait: Callable[[float], None],
) -> Iterator[TickReport]:
    """Tick before each of backfill's cycles for as long as there are leases."""
    rested_s, glanced_s, failed = outside.clock() + _AT_ONCE_S, -math.inf, None
    while looked.report.cycles is not None:
        look_s = looked.again_s(rested_s, LEAD_S)
        last_from_s = max(outside.clock(), glanced_s + APART_S)
        last_s = looked.again_s(last_from_s, last_lead_s(looked.took_s))
        if min(look_s, last_s) > end_s:
            break
        wait(max(0.0, min(look_s, last_s) - outside.clock()))
        try:
            if last_s < look_s:
                glanced_s = outside.clock()
                if not _is_stirred(site, outside, looked):
                    failed = None
                    continue
            looked, failed = _look(site, outside), None
        except (SlurmError, StoreBusyError) as error:
            failed = error
        rested_s = outside.clock() + APART_S
        if failed is None:
            yield looked.report
    if failed is not None:
        raise failed


def _is_stirred(site: Site, outside: Outside, looked: _Looked) -> bool:
    """Ask who else is there; tell whether another tick may make room for somebody."""
    cycles = looked.report.cycles
    since_s = outside.clock() - looked.began_s
    now_s = since_s + (0.0 if cycles is None else cycles.seen_s)
    return glance(site, outside, now_s=now_s).is_stirred(looked.report.crowd)


def _heard(
    report: TickReport,
    folder: StateDir,
    outside: Outside,
    end_s: float,
    wait: Callable[[float], None],
) -> bool:
    """Wait for the agents of the leases that were asked for; tell whether one came."""
    beats = [folder.lease(key).heartbeat for key in _asked(report.requests)]
    until_s = end_s = min(end_s, outside.clock() + _PATIENCE_S)
    heard = 0
    while heard < len(beats) and outside.clock() < until_s:
        wait(_LOOK_EVERY_S)
        before, heard = heard, sum(beat.exists() for beat in beats)
        if heard > before:
            until_s = min(end_s, outside.clock() + _REST_S)
    return heard > 0


def _asked(requests: Sequence[LeaseRequest]) -> Iterator[LeaseKey]:
    for request in requests:
        uuid = uuid_in(request.name)
        if uuid is not None:
            yield from (LeaseKey(uuid, task) for task in range(request.tasks))
