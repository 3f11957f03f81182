"""A tick, and those that follow it up before somebody else starts the next.

One as soon as its leases have begun, which puts them to use. And where each tick makes
room for others, one just before each of backfill's cycles, so that nobody whom leases
keep waiting is overtaken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.cycles import APART_S
from freetrain.broker.lease import LeaseKey, uuid_in
from freetrain.exchange.layout import StateDir
from freetrain.store.errors import StoreBusyError
from freetrain.tick.tick import tick
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
    another just before each of backfill's cycles. Nothing is held meanwhile: somebody
    else may tick, and a kill loses nothing.

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
    began_s = outside.clock()
    end_s = began_s + within_s
    report = tick(site, outside)
    yield report
    if _heard(report, StateDir(site.state_directory), outside, end_s, wait):
        began_s = outside.clock()
        report = tick(site, outside)
        yield report
    rest_s, failed = _AT_ONCE_S, None
    while report.cycles is not None:
        over_s = outside.clock() - began_s
        look_s = began_s + report.cycles.next_look_s(rest_s=over_s + rest_s)
        if look_s > end_s:
            break
        wait(look_s - outside.clock())
        rest_s, tried_s = APART_S, outside.clock()
        try:
            report, began_s, failed = tick(site, outside), tried_s, None
        except (SlurmError, StoreBusyError) as error:
            failed = error
            continue
        yield report
    if failed is not None:
        raise failed


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
