"""What happened lately, and when repeated failures make the broker pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseEnd

if TYPE_CHECKING:
    from freetrain.broker.lease import Lease
    from freetrain.broker.limits import Limits


@dataclass(frozen=True, slots=True)
class Pace:
    """What happened lately, as the caps count it.

    Attributes:
        churned: Leases asked for and given up by choice in the last window.
        failed_starts: Failed starts since the last one that worked.
        last_failed_s: When the last of them was, Unix time.
    """

    churned: int = 0
    failed_starts: int = 0
    last_failed_s: float = 0.0


NOTHING_LATELY = Pace()


def paused_until_s(pace: Pace, limits: Limits) -> float | None:
    """Return until when nothing may be submitted; None where nothing failed often.

    Preemption never counts: ``Pace`` holds failures only.
    """
    surplus = pace.failed_starts - limits.most_failed_starts
    if surplus < 0:
        return None
    doubled_s = limits.pause_s * 2.0 ** min(surplus, 30)
    return pace.last_failed_s + min(doubled_s, limits.most_pause_s)


def failed_to_start(lease: Lease, limits: Limits) -> bool:
    """Tell whether *lease* is over because it failed, and failed too soon.

    One that was preempted or cancelled did not fail, however short its life.
    """
    if lease.ended is not LeaseEnd.FAILED:
        return False
    if lease.start_s is None or lease.end_s is None:
        return True
    return lease.end_s - lease.start_s < limits.failed_start_s
