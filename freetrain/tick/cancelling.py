"""Ending leases, or telling them to leave: only what a look of this tick showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.actions import Why, told
from freetrain.store.events import Event, EventKind, add_events
from freetrain.store.leases import put_leases
from slurm.records import JobKey

if TYPE_CHECKING:
    from freetrain.broker.actions import Cancel
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
    extras = {extra.display_id for extra in observed.belief.extras}
    keys = [
        JobKey(_number(name, leases), name)
        for name in what.display_ids
        if name in display_ids or name in extras
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
        kind = EventKind.GAVE_UP if what.why is Why.SURPLUS else EventKind.YIELDED
        add_events(state, [Event(now_s, kind, what.uuid, len(keys), str(what.why))])
    return len(keys)


def _number(display_id: str, leases: list[Lease]) -> int:
    """Return the raw number; the array's where Slurm has given the task none."""
    for lease in leases:
        if lease.display_id == display_id and lease.job_id is not None:
            return lease.job_id
    return int(display_id.partition("_")[0])
