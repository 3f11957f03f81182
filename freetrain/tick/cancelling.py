"""Ending leases, or telling them to leave: only what a look of this tick showed."""

from __future__ import annotations

from collections import Counter as Count
from typing import TYPE_CHECKING

from freetrain.broker.actions import Why, told
from freetrain.exchange.layout import lease_name
from freetrain.store.events import Event, EventKind, add_events
from freetrain.store.leases import put_leases
from slurm.records import JobKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.broker.actions import Cancel
    from freetrain.broker.belief import Extra
    from freetrain.broker.lease import Lease
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run

NOTICE = "TERM"
"""What tells an agent to commit and leave; it is what Slurm itself sends."""


def cancel(run: Run, observed: Observed, what: Cancel) -> int:
    """Carry out *what* and write it down; return how many leases it was about.

    A kill in between repeats it at the next tick, which is harmless.

    Raises:
        SlurmError: It may not have happened; nothing was written down.
        StoreError: It happened, and could not be written down.
    """
    seen = {one.key: one for one in observed.belief.leases if one.missed == 0}
    leases = [seen[key] for key in what.leases if key in seen]
    display_ids = {one.display_id for one in leases}
    extras = [
        one for one in observed.belief.extras if one.display_id in what.display_ids
    ]
    known = display_ids | {one.display_id for one in extras}
    keys = [
        JobKey(_number(name, leases), name)
        for name in what.display_ids
        if name in known
    ]
    if not keys:
        return 0
    with run.effect(f"ending {what.why.name} {len(keys)}"):
        if what.is_gentle:
            run.backend.signal(keys, NOTICE)
        else:
            run.backend.cancel(keys)
    now_s = observed.now_s
    with run.writing("what was ended") as state:
        put_leases(state, [told(lease, what, now_s) for lease in leases])
        add_events(state, _events(observed, what, leases, extras))
    return len(keys)


def _events(
    observed: Observed, what: Cancel, leases: Iterable[Lease], extras: Iterable[Extra]
) -> Iterator[Event]:
    """Yield what is to be remembered: of each submission how many, and who failed.

    A lease whose agent never came has failed to start; that it is ended again
    because it stays says nothing new.
    """
    kind = EventKind.GAVE_UP if what.why is Why.SURPLUS else EventKind.YIELDED
    uuids = Count(one.key.uuid for one in leases) + Count(one.uuid for one in extras)
    for uuid, count in uuids.items():
        yield Event(observed.now_s, kind, uuid, count, str(what.why))
    for lease in leases:
        is_absent = lease.key in observed.hearing.absent and lease.cancel_s is None
        if what.why is Why.UNHEARD and is_absent:
            failed = EventKind.FAILED_START
            name = lease_name(lease.key)
            yield Event(observed.now_s, failed, name, 1, str(what.why))


def _number(display_id: str, leases: list[Lease]) -> int:
    """Return the raw number; the array's where Slurm has given the task none."""
    for lease in leases:
        if lease.display_id == display_id and lease.job_id is not None:
            return lease.job_id
    return int(display_id.partition("_")[0])
