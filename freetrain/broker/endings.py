"""Which leases end: those that others wait for, and those that nobody wants."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.actions import Cancel, Why
from freetrain.broker.lease import LeaseState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.broker.actual import Actual
    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Ending:
    """One job to end.

    Attributes:
        display_id: What scancel calls the job.
        lease: The lease it stands for, None for a second job.
        why: Why.
        is_gentle: Whether it is only told to leave.
    """

    display_id: str
    lease: LeaseKey | None
    why: Why
    is_gentle: bool = False


def due(wanted: Wanted, actual: Actual, limits: Limits) -> tuple[Ending, ...]:
    """Return what must end, whatever the churn: leases that wait come first.

    A job that is second to another, a lease on a node that somebody's job could
    start on or whose hole has closed, leases that did not leave when told or when
    their time was up, and those whose agents are not there.
    """
    return (
        *_making_room(actual, limits),
        *_claimed(actual, limits),
        *(Ending(x.display_id, None, Why.SECOND_JOB) for x in actual.extras),
        *_stayed(actual, limits),
        *_unheard(actual, limits),
        *_closed(wanted, actual),
    )


def chosen(
    wanted: Wanted, actual: Actual, waiting: Iterable[Lease]
) -> tuple[Ending, ...]:
    """Return what may end because no trainer wants it; *waiting* leases first.

    Nothing where Slurm's plan is not known: then what runs is kept.
    """
    if not actual.is_plan_known:
        return ()
    kept = wanted.kept
    surplus = (
        _ending(lease, Why.SURPLUS, is_gentle=lease.key not in actual.absent)
        for lease in actual.leases
        if lease.is_usable and lease.key not in kept and lease.node in actual.pool_nodes
    )
    room = [] if actual.claims.awaited else waiting  # else they are due already
    return (*(_ending(lease, Why.SURPLUS) for lease in room), *surplus)


def grouped(endings: Iterable[Ending]) -> tuple[Cancel, ...]:
    """Return one command for each reason, in the order met.

    One for each submission would let the cap on commands keep nodes from others.
    """
    groups: dict[tuple[Why, bool], list[Ending]] = defaultdict(list)
    for one in endings:
        groups[one.why, one.is_gentle].append(one)
    return tuple(
        Cancel(
            display_ids=tuple(one.display_id for one in group),
            leases=tuple(one.lease for one in group if one.lease is not None),
            why=why,
            is_gentle=is_gentle,
        )
        for (why, is_gentle), group in groups.items()
    )


def _ending(lease: Lease, why: Why, *, is_gentle: bool = False) -> Ending:
    return Ending(lease.display_id, lease.key, why, is_gentle)


def _making_room(actual: Actual, limits: Limits) -> Iterator[Ending]:
    awaited = actual.claims.awaited
    for lease in actual.leases:
        waits = lease.state is LeaseState.PENDING
        if waits and awaited and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, Why.MAKES_ROOM)


def _claimed(actual: Actual, limits: Limits) -> Iterator[Ending]:
    """Yield leases that others wait for: told first, for they commit in a moment.

    Ended at once, a lease loses its work: scancel reaches mpirun under its batch
    script, which ends the world there and then. One without an agent has none.
    """
    for lease in actual.leases:
        is_claimed = lease.node in actual.claims.leased
        if not is_claimed or lease.state is not LeaseState.RUNNING:
            continue
        if lease.is_usable and lease.key not in actual.absent:
            is_kept = lease.node in actual.claims.care.kept
            why = Why.KEPT_FREE if is_kept else Why.CLAIMED
            yield _ending(lease, why, is_gentle=True)
            continue
        told_s = 0.0 if lease.notice_s is None else lease.notice_s
        has_stayed = actual.now_s - told_s >= limits.claim_patience_s
        if has_stayed and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, Why.CLAIMED)


def _stayed(actual: Actual, limits: Limits) -> Iterator[Ending]:
    """Yield leases that were told or cancelled long ago, or must be over by now.

    Slurm itself may let a job overrun its limit, by OverTimeLimit without end.
    """
    for lease in _not_due_yet(actual):
        since_s = lease.notice_s
        patience_s = limits.notice_patience_s
        is_over = since_s is not None and actual.now_s - since_s >= patience_s
        end_s = math.inf if lease.end_s is None else lease.end_s
        has_overrun = actual.now_s - end_s >= limits.claim_patience_s
        if not _is_due(lease, actual.now_s, limits):
            continue
        if is_over or lease.cancel_s is not None:
            yield _ending(lease, Why.STAYED)
        elif has_overrun:
            yield _ending(lease, Why.OVERRAN)


def _unheard(actual: Actual, limits: Limits) -> Iterator[Ending]:
    """Yield leases that hold a node for nothing: nobody is there to use it.

    Those of a generation are left to the other agents of it: where only the files
    cannot be reached, their worlds train on.
    """
    training = {key for one in actual.assignments for key in one.leases}
    for lease in _not_due_yet(actual):
        unheard_s = actual.unheard_s.get(lease.key, 0.0)
        is_held_in_vain = lease.is_usable and lease.key not in training
        if is_held_in_vain and unheard_s >= limits.unheard_s:
            yield _ending(lease, Why.UNHEARD)


def _not_due_yet(actual: Actual) -> Iterator[Lease]:
    """Yield the leases there are but for those that others wait for."""
    claimed, awaited = actual.claims.leased, actual.claims.awaited
    for lease in actual.leases:
        waits = lease.state is LeaseState.PENDING
        if lease.node in claimed or (waits and awaited):
            continue
        if waits or lease.state is LeaseState.RUNNING:
            yield lease


def _is_due(lease: Lease, now_s: float, limits: Limits) -> bool:
    """Tell whether no cancel of *lease* is still on its way."""
    if lease.cancel_s is None:
        return True
    return now_s - lease.cancel_s >= limits.cancel_retry_s


def _closed(wanted: Wanted, actual: Actual) -> Iterator[Ending]:
    """Yield leases whose node is no hole any more, planned or reserved as it is.

    One that started after the look was taken could not be seen in it.
    """
    kept = wanted.kept
    gone = actual.claims.leased.keys() | actual.pool_nodes
    for lease in actual.leases:
        was_seen = lease.start_s is not None and lease.start_s < actual.now_s
        is_closed = was_seen and lease.node not in gone
        if lease.is_usable and is_closed and lease.key not in kept:
            is_heard = lease.key not in actual.absent
            yield _ending(lease, Why.HOLE_CLOSED, is_gentle=is_heard)
