"""When to look again, so that nobody is overtaken between two ticks.

A job that could start but for our leases waits for the tick that sees it. In between
only backfill lets others go ahead of it, on nodes that it then has to wait for: the
main scheduler stops at the first job of a partition that cannot start. So a look
that is over, with leases gone, just before each of backfill's cycles lets nobody be
overtaken but by what happens in between (docs/replay.md, "Harm under yield"). Hence
a second, last look, as close to the cycle as looks here are quick.

Source: Slurm's backfill thread sleeps bf_interval after each cycle, and then until
something has changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.config import ClusterConfig
    from slurm.records import Sdiag

LEAD_S = 5.0
"""A tick, the commit, and the end of a lease, which Slurm's logs show to take 1 to 2 s
together; every second more lets more happen unseen, which is what a last look sees."""

LEAST_LEAD_S = 2.0
"""No look is closer to a cycle than this, however quick the last one was."""

LEAVING_S = 1.0
"""A commit takes 0.1 s at most, and a lease is gone 0.4 to 0.8 s after its signal."""

SECOND_S = 1.0
"""sdiag tells whole seconds: a cycle may come by so much sooner than it says."""

APART_S = 5.0
"""Looks before cycles are further apart than this, however often backfill looks; and
so are last looks from each other."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """When backfill is due, as a look told it; by slurmctld's clock.

    Attributes:
        seen_s: When it told, Unix time.
        due_s: The earliest moment at which the next cycle can begin, Unix time; long
            past where nothing has changed since the last.
        interval_s: Between two cycles, seconds, above 0.
    """

    seen_s: float
    due_s: float
    interval_s: float

    def next_look_s(self, *, rest_s: float, lead_s: float = LEAD_S) -> float:
        """Return when to look again, in seconds after this look.

        Args:
            rest_s: Not sooner than this.
            lead_s: How long before a cycle.
        """
        due_s = self.due_s - self.seen_s
        if due_s <= 0.0:  # the next is brought about by whoever comes, unseen
            due_s = self.interval_s
        first_s = due_s - lead_s
        missed = math.ceil((rest_s - first_s) / self.interval_s)
        return first_s + missed * self.interval_s


def last_lead_s(took_s: float) -> float | None:
    """Return how long before a cycle a last look comes in time.

    Args:
        took_s: How long a look takes here.

    Returns:
        Seconds; None where only the usual look does.
    """
    lead_s = max(LEAST_LEAD_S, took_s + LEAVING_S + SECOND_S)
    return lead_s if lead_s < LEAD_S else None


def cycles_of(sdiag: Sdiag, config: ClusterConfig) -> Cycles | None:
    """Return when backfill is due; None where there is none, or has not been yet."""
    if config.scheduler_type != "sched/backfill" or sdiag.bf_last_cycle_s is None:
        return None
    interval_s = max(1.0, config.bf_interval_s)
    ended_s = sdiag.bf_last_cycle_s + sdiag.bf_last_took_s
    return Cycles(sdiag.taken_s, ended_s + interval_s, interval_s)
