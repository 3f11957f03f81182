"""New generations: which trainers re-form now, and on which leases."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from freetrain.broker.lease import Assignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.broker.actual import Actual
    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.wanted import Wanted, WantedTrainer

_NONE: frozenset[LeaseKey] = frozenset()


def generations(
    wanted: Wanted, actual: Actual, limits: Limits
) -> tuple[Assignment, ...]:
    """Return the assignments to create.

    Losing leases cannot wait, and neither can starting. Growing by some of the
    leases that a trainer is to have waits for the others, for a while: each
    rescale costs the trainer work. Growing waits for a world that has only just been
    made, too: survivors that re-formed seconds ago would throw their start away.
    """
    ready = _ready(actual)
    newest = {assignment.trainer: assignment for assignment in actual.assignments}
    new = [
        _generation(one, newest.get(one.name), ready, actual=actual, limits=limits)
        for one in wanted.trainers
    ]
    wanting = {one.name for one in wanted.trainers}
    new += [
        _next(name, assignment, _NONE, actual.now_s)
        for name, assignment in newest.items()
        if name not in wanting
    ]
    changes = [assignment for assignment in new if assignment is not None]
    # A lease leaves one trainer before it joins another, wherever a tick is cut off.
    return tuple(sorted(changes, key=lambda one: _gains(one, newest.get(one.trainer))))


def _gains(one: Assignment, newest: Assignment | None) -> bool:
    return not one.leases <= (_NONE if newest is None else newest.leases)


def _ready(actual: Actual) -> dict[LeaseKey, Lease]:
    """Return the leases that a generation may be formed of."""
    return {
        lease.key: lease
        for lease in actual.leases
        if lease.is_usable
        and lease.node not in actual.claims.leased
        and lease.key not in actual.silent
    }


def _generation(
    one: WantedTrainer,
    newest: Assignment | None,
    ready: Mapping[LeaseKey, Lease],
    *,
    actual: Actual,
    limits: Limits,
) -> Assignment | None:
    before = _NONE if newest is None else newest.leases
    # Where Slurm's plan is unknown nothing changes hands, but for what is lost.
    given = one.leases if actual.is_plan_known else before
    usable = [ready[key] for key in given if key in ready]
    leases = _formed(usable, before, one.sizes)
    if newest is not None and before and before < leases:
        is_complete = not one.awaited_nodes and len(usable) == len(given)
        # Survivors may have made it since the look was taken. An agent's clock may be
        # ahead by anything, too, and would hold growth back for as long.
        age_s = actual.now_s - newest.created_s
        wait_s = limits.grow_after_s if is_complete else limits.grow_every_s
        if abs(age_s) < wait_s:
            return None
    return _next(one.name, newest, leases, actual.now_s)


def _formed(
    usable: Iterable[Lease], before: frozenset[LeaseKey], sizes: tuple[int, ...]
) -> frozenset[LeaseKey]:
    """Return as many leases as make up a size: those held, then the longest."""
    ranked = sorted(usable, key=lambda lease: (lease.key not in before, _ends(lease)))
    fitting = bisect_right(sizes, len(ranked))
    size = sizes[fitting - 1] if fitting else 0
    return frozenset(lease.key for lease in ranked[:size])


def _ends(lease: Lease) -> tuple[float, LeaseKey]:
    return (0.0 if lease.end_s is None else -lease.end_s, lease.key)


def _next(
    name: str,
    newest: Assignment | None,
    leases: frozenset[LeaseKey],
    now_s: float,
) -> Assignment | None:
    if leases == (_NONE if newest is None else newest.leases):
        return None
    generation = 1 if newest is None else newest.generation + 1
    return Assignment(
        trainer=name, generation=generation, leases=leases, created_s=now_s
    )
