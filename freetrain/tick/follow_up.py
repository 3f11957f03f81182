"""A tick, and once its leases have begun a second one that puts them to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey, uuid_in
from freetrain.exchange.layout import StateDir
from freetrain.tick.tick import tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from freetrain.site.settings import Site
    from freetrain.tick.outside import Outside
    from freetrain.tick.tick import TickReport
    from slurm.batch import LeaseRequest

_LOOK_EVERY_S = 0.25

_REST_S = 3.0
"""Who has begun does not wait longer than this for the next that begins."""


def tick_and_follow_up(
    site: Site, outside: Outside, *, within_s: float, wait: Callable[[float], None]
) -> tuple[TickReport, ...]:
    """Run a tick; where it asked for leases, wait for their agents and run another.

    Without the second one, new leases idle until cron starts the next tick. Nothing
    is held meanwhile: somebody else may tick, and a kill loses nothing.

    Args:
        site: The site's settings.
        outside: Clocks, numbers and Slurm.
        within_s: The longest to wait, seconds.
        wait: Waits so many seconds.

    Returns:
        One report or two. There is no second where no agent was heard.

    Raises:
        FreeTrainError, SlurmError: As ``tick`` does, in either.
    """
    first = tick(site, outside)
    folder = StateDir(site.state_directory)
    beats = [folder.lease(key).heartbeat for key in _asked(first.requests)]
    end_s = until_s = outside.clock() + within_s
    heard = 0
    while heard < len(beats) and outside.clock() < until_s:
        wait(_LOOK_EVERY_S)
        before, heard = heard, sum(beat.exists() for beat in beats)
        if heard > before:
            until_s = min(end_s, outside.clock() + _REST_S)
    return (first, tick(site, outside)) if heard else (first,)


def _asked(requests: Sequence[LeaseRequest]) -> Iterator[LeaseKey]:
    for request in requests:
        uuid = uuid_in(request.name)
        if uuid is not None:
            yield from (LeaseKey(uuid, task) for task in range(request.tasks))
