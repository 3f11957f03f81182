"""Which leases end: those that others wait for, and those that nobody wants."""

from __future__ import annotations

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
        uuid: The intent's.
        display_id: What scancel calls the job.
        lease: The lease it stands for, None for a second job.
        why: Why.
        is_gentle: Whether it is only told to leave.
    """

    uuid: str
    display_id: str
    lease: LeaseKey | None
    why: Why
    is_gentle: bool = False


def due(wanted: Wanted, actual: Actual, limits: Limits) -> tuple[Ending, ...]:
    """Return what must end, whatever the churn: leases that wait come first.

    A job that is second to another, a lease on a node that somebody's job could
    start on or whose hole has closed, and leases that did not leave when told.
    """
    return (
        *_making_room(actual, limits),
        *_claimed(actual, limits),
        *(Ending(x.uuid, x.display_id, None, Why.SECOND_JOB) for x in actual.extras),
        *_stayed(actual, limits),
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
        _ending(lease, Why.SURPLUS, is_gentle=True)
        for lease in actual.leases
        if lease.is_usable and lease.key not in kept and lease.node in actual.pool_nodes
    )
    room = [] if actual.claims.leased else waiting  # else they are due already
    return (*(_ending(lease, Why.SURPLUS) for lease in room), *surplus)


def grouped(endings: Iterable[Ending]) -> tuple[Cancel, ...]:
    """Return one command for each intent and reason, in the order met."""
    groups: dict[tuple[str, Why, bool], list[Ending]] = defaultdict(list)
    for one in endings:
        groups[one.uuid, one.why, one.is_gentle].append(one)
    return tuple(
        Cancel(
            uuid=uuid,
            display_ids=tuple(one.display_id for one in group),
            leases=tuple(one.lease for one in group if one.lease is not None),
            why=why,
            is_gentle=is_gentle,
        )
        for (uuid, why, is_gentle), group in groups.items()
    )


def _ending(lease: Lease, why: Why, *, is_gentle: bool = False) -> Ending:
    return Ending(lease.key.uuid, lease.display_id, lease.key, why, is_gentle)


def _making_room(actual: Actual, limits: Limits) -> Iterator[Ending]:
    for lease in actual.leases:
        waits = lease.state is LeaseState.PENDING
        if waits and actual.claims.leased and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, Why.MAKES_ROOM)


def _claimed(actual: Actual, limits: Limits) -> Iterator[Ending]:
    """Yield leases that others wait for: told first, for they commit in a moment.

    Ended at once, a lease loses its work: scancel reaches the srun of its batch
    script, which kills the agent's step there and then.
    """
    for lease in actual.leases:
        is_claimed = lease.node in actual.claims.leased
        if not is_claimed or lease.state is not LeaseState.RUNNING:
            continue
        if lease.is_usable:
            yield _ending(lease, Why.CLAIMED, is_gentle=True)
            continue
        told_s = 0.0 if lease.notice_s is None else lease.notice_s
        has_stayed = actual.now_s - told_s >= limits.claim_patience_s
        if has_stayed and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, Why.CLAIMED)


def _stayed(actual: Actual, limits: Limits) -> Iterator[Ending]:
    """Yield leases that were told or cancelled long ago, and are still there."""
    claimed = actual.claims.leased
    for lease in actual.leases:
        waits = lease.state is LeaseState.PENDING
        if lease.node in claimed or (waits and claimed):
            continue  # due already
        if lease.state not in {LeaseState.PENDING, LeaseState.RUNNING}:
            continue
        patience_s = limits.notice_patience_s
        was_told = lease.notice_s is not None
        is_over = was_told and actual.now_s - (lease.notice_s or 0.0) >= patience_s
        was_cancelled = lease.cancel_s is not None
        if (is_over or was_cancelled) and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, Why.STAYED)


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
            yield _ending(lease, Why.HOLE_CLOSED, is_gentle=True)
