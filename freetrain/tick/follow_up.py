"""A tick, and the ticks that follow it up before cron starts the next.

Two things cannot wait for cron. Leases that were asked for idle until a tick gives them
to a trainer, so a second tick comes once their agents answer. And where leases make
room for other users' jobs, a tick comes before each of backfill's cycles, and, where
the queue has changed since, another just before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey, uuid_in
from freetrain.broker.polling import APART_S, LEAD_S, last_lead_s
from freetrain.state.database import StoreBusyError
from freetrain.state.files import StateDir
from freetrain.tick.tick import poll_queue, tick
from slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freetrain.config.site import Site
    from freetrain.tick.environment import TickEnvironment
    from freetrain.tick.tick import TickReport

_POLL_S = 0.25

_AGENT_START_S = 20.0
"""Agents that have not begun by then wait for the next tick."""

_NEXT_AGENT_S = 3.0
"""Agents that have begun do not wait longer than this for the next that begins."""

_AT_ONCE_S = 2.0
"""A cycle so soon after a tick that another would come too late for it."""


def tick_and_follow_up(
    site: Site,
    environment: TickEnvironment,
    *,
    within_s: float,
    wait: Callable[[float], None],
) -> Iterator[TickReport]:
    """Run a tick, and more that follow it up; yield the report of each at its end.

    No lock is held between them: another process may tick, and a kill loses nothing.

    Args:
        site: The site's settings.
        environment: Clocks, random names and Slurm.
        within_s: No tick begins later than so long after the first, seconds.
        wait: Waits so many seconds.

    Raises:
        FreeTrainError, SlurmError: As ``tick`` does. Where Slurm does not answer
            before a cycle, or another process ticks, the next cycle is tried all the
            same; the error is raised if the last attempt failed.
    """
    end_s = environment.clock() + within_s
    last = _timed_tick(site, environment)
    yield last.report
    if _has_agents(
        last.report, StateDir(site.state_directory), environment, end_s, wait
    ):
        last = _timed_tick(site, environment)
        yield last.report
    yield from _before_cycles(site, environment, last, end_s=end_s, wait=wait)


def _has_agents(
    report: TickReport,
    folder: StateDir,
    environment: TickEnvironment,
    end_s: float,
    wait: Callable[[float], None],
) -> bool:
    """Wait for the agents of the leases asked for; tell whether any has begun."""
    heartbeats = [
        folder.lease(LeaseKey(uuid, task)).heartbeat
        for request in report.requests
        if (uuid := uuid_in(request.name)) is not None
        for task in range(request.tasks)
    ]
    until_s = end_s = min(end_s, environment.clock() + _AGENT_START_S)
    begun = 0
    while begun < len(heartbeats) and environment.clock() < until_s:
        wait(_POLL_S)
        before, begun = begun, sum(heartbeat.exists() for heartbeat in heartbeats)
        if begun > before:
            until_s = min(end_s, environment.clock() + _NEXT_AGENT_S)
    return begun > 0


@dataclass(frozen=True, slots=True)
class _TimedTick:
    """A tick, when it began by the clock, and how long it took."""

    report: TickReport
    began_s: float
    took_s: float

    def next_s(self, from_s: float, lead_s: float | None) -> float:
        """Return when to look *lead_s* before a cycle, *from_s* at the soonest."""
        cycles = self.report.cycles
        if cycles is None or lead_s is None:
            return math.inf
        rest_s = from_s - self.began_s
        return self.began_s + cycles.next_poll_s(rest_s=rest_s, lead_s=lead_s)


def _timed_tick(site: Site, environment: TickEnvironment) -> _TimedTick:
    began_s = environment.clock()
    report = tick(site, environment)
    return _TimedTick(report, began_s, environment.clock() - began_s)


def _before_cycles(
    site: Site,
    environment: TickEnvironment,
    last: _TimedTick,
    *,
    end_s: float,
    wait: Callable[[float], None],
) -> Iterator[TickReport]:
    """Tick before each of backfill's cycles for as long as there are leases.

    Between two such ticks the queue alone is polled just before the cycle; only where
    it has changed does a tick follow.
    """
    clock = environment.clock
    rested_s, polled_s, failed = clock() + _AT_ONCE_S, -math.inf, None
    while last.report.cycles is not None:
        tick_s = last.next_s(rested_s, LEAD_S)
        poll_from_s = max(clock(), polled_s + APART_S)
        poll_s = last.next_s(poll_from_s, last_lead_s(last.took_s))
        if min(tick_s, poll_s) > end_s:
            break
        wait(max(0.0, min(tick_s, poll_s) - clock()))
        try:
            if poll_s < tick_s:
                polled_s = clock()
                if not _has_queue_changed(site, environment, last):
                    failed = None
                    continue
            last, failed = _timed_tick(site, environment), None
        except (SlurmError, StoreBusyError) as error:
            failed = error
        rested_s = clock() + APART_S
        if failed is None:
            yield last.report
    if failed is not None:
        raise failed


def _has_queue_changed(
    site: Site, environment: TickEnvironment, last: _TimedTick
) -> bool:
    """Tell whether other users' jobs changed so that a tick may have to make room."""
    cycles = last.report.cycles
    since_s = environment.clock() - last.began_s
    now_s = since_s + (0.0 if cycles is None else cycles.seen_s)
    queue = poll_queue(site, environment, now_s=now_s)
    return queue.needs_tick_after(last.report.queue)
