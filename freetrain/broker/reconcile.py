"""Wanted against actual: what to do about the difference.

Pure, and without memory: called again on what its actions lead to, it does nothing;
called again after only some of them, or none, were carried out, it does the rest.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.actions import Assign, EndLeases, EndReason, Submit
from freetrain.broker.lease import Assignment, IntentOutcome, Lease, LeaseState
from freetrain.broker.limits import NOTHING_LATELY, Pace, paused_until_s
from freetrain.broker.yielding import NO_CLAIMS, Claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from freetrain.broker.actions import Action
    from freetrain.broker.belief import DuplicateJob
    from freetrain.broker.lease import Intent, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.pool import Wanted, WantedLeases, WantedTrainer


# ----------------------------------------------------------------------
# What is so, as reconciling takes it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What is so.

    Attributes:
        leases: What is believed of our leases.
        assignments: The newest generation of every trainer that has one, those
            that want no more nodes included.
        now_s: When the look was taken, by slurmctld's clock.
        pool_nodes: Nodes that can be planned with; a lease elsewhere has lost its
            hole.
        extras: Jobs that stand for no lease.
        claims: Nodes that others' jobs could start on; none where Slurm preempts.
        pace: What happened lately.
        silent: Leases that no new generation may be formed of, because their agents
            have not come up, are leaving, or are not heard any more.
        absent: Leases of which no agent was ever heard.
        unheard_s: For how long running leases have not been heard; since they
            started where nobody ever was.
        is_plan_known: Whether Slurm's plan is known well enough to take new holes.
    """

    leases: tuple[Lease, ...]
    assignments: tuple[Assignment, ...]
    now_s: float
    pool_nodes: frozenset[str]
    extras: tuple[DuplicateJob, ...] = ()
    claims: Claims = NO_CLAIMS
    pace: Pace = NOTHING_LATELY
    silent: frozenset[LeaseKey] = frozenset()
    absent: frozenset[LeaseKey] = frozenset()
    unheard_s: Mapping[LeaseKey, float] = field(default_factory=dict)
    is_plan_known: bool = True


# ----------------------------------------------------------------------
# Which waiting leases serve what is wanted, what is missing, and what is too much.

if TYPE_CHECKING:
    Waiting: TypeAlias = Intent | Lease


@dataclass(frozen=True, slots=True)
class Supply:
    """How what waits compares with what is wanted.

    Attributes:
        deficits: Requests, each with how many leases it still lacks; the longest
            first.
        surplus: Waiting leases that serve no request.
    """

    deficits: tuple[tuple[WantedLeases, int], ...]
    surplus: tuple[Lease, ...]


def under_way(intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """Return the intents of which nobody knows yet whether Slurm has them."""
    return tuple(i for i in intents if i.outcome is IntentOutcome.OPEN)


def match(
    requests: Sequence[WantedLeases],
    leases: Iterable[Lease],
    intents: Iterable[Intent],
    *,
    now_s: float,
    limits: Limits,
) -> Supply:
    """Compare what waits with what is wanted.

    Submissions under way count like leases that wait, once for each task: whether
    Slurm took them is unknown, and asking again would ask twice.
    """
    waiting: list[Waiting] = [i for i in under_way(intents) for _ in range(i.tasks)]
    waiting += [lease for lease in leases if _waits(lease)]
    deficits = []
    for request in requests:
        missing = len(request.nodes)
        for one in sorted(waiting, key=_longest_first):
            if missing and _serves(one, request, now_s=now_s, limits=limits):
                waiting.remove(one)
                missing -= 1
        if missing:
            deficits.append((request, missing))
    surplus = [w for w in waiting if isinstance(w, Lease) and _can_start(w, now_s)]
    return Supply(tuple(deficits), tuple(surplus))


def _waits(lease: Lease) -> bool:
    return lease.state is LeaseState.PENDING and lease.cancel_s is None


def _longest_first(one: Waiting) -> tuple[bool, int]:
    return (isinstance(one, Lease), -one.limit_min)


def _serves(
    one: Waiting, request: WantedLeases, *, now_s: float, limits: Limits
) -> bool:
    """Tell whether *one*, which was asked for earlier, is what *request* asks.

    It must be over before the hole is, but for what Slurm itself shifts plans by,
    and long enough not to waste the hole.
    """
    return (
        one.shape == request.shape
        and request.limit_min <= 2 * one.limit_min
        and one.limit_min <= request.most_limit_min
        and one.deadline_s <= request.end_s + limits.start_slack_s
        and _can_start(one, now_s)
    )


def _can_start(one: Waiting, now_s: float) -> bool:
    """Tell whether there is time left; where there is none, Slurm removes it."""
    return now_s + 60.0 * one.limit_min <= one.deadline_s


# ----------------------------------------------------------------------
# What keeps the broker from asking for leases.


class Brake(StrEnum):
    """Why no more leases are asked for."""

    PLAN_UNKNOWN = "Slurm's plan could not be read whole"
    PAUSED = "leases failed to start repeatedly"
    YIELDING = "nodes are being given up to others"
    LEASE_CAP = "as many leases as the site allows"
    TICK_CAP = "as many new leases as one tick may ask for"
    CHURN_CAP = "as many leases as may come and go"


@dataclass(frozen=True, slots=True, order=True)
class Allowance:
    """How many leases may be asked for.

    Attributes:
        leases: How many.
        brake: What does not let it be more.
    """

    leases: int
    brake: Brake


def allowance(
    actual: Actual, intents: Iterable[Intent], limits: Limits, *, churn: int
) -> Allowance:
    """Return how many leases may be asked for now.

    Args:
        actual: What is so.
        intents: Every intent that may still have jobs.
        limits: The caps.
        churn: How many leases may still come and go.
    """
    stop = _stop(actual, limits)
    if stop is not None:
        return Allowance(0, stop)
    live = sum(lease.is_live for lease in actual.leases)
    live += sum(intent.tasks for intent in under_way(intents))
    return min(
        Allowance(max(0, limits.most_leases - live), Brake.LEASE_CAP),
        Allowance(limits.most_new_leases, Brake.TICK_CAP),
        Allowance(max(0, churn), Brake.CHURN_CAP),
    )


def _stop(actual: Actual, limits: Limits) -> Brake | None:
    if not actual.is_plan_known:
        return Brake.PLAN_UNKNOWN
    until_s = paused_until_s(actual.pace, limits)
    if until_s is not None and actual.now_s < until_s:
        return Brake.PAUSED
    return Brake.YIELDING if actual.claims.startable else None


# ----------------------------------------------------------------------
# Which leases end: those that others wait for, and those that nobody wants.


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
    why: EndReason
    by_notice: bool = False


def due(wanted: Wanted, actual: Actual, limits: Limits) -> tuple[Ending, ...]:
    """Return what must end, whatever the churn: leases that wait come first.

    A job that is second to another, a lease on a node that somebody's job could
    start on or whose hole has closed, leases that did not leave when told or when
    their time was up, and those whose agents are not there.
    """
    return (
        *_making_room(actual, limits),
        *_claimed(actual, limits),
        *(Ending(x.display_id, None, EndReason.SECOND_JOB) for x in actual.extras),
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
        _ending(lease, EndReason.SURPLUS, by_notice=lease.key not in actual.absent)
        for lease in actual.leases
        if lease.is_usable and lease.key not in kept and lease.node in actual.pool_nodes
    )
    room = [] if actual.claims.startable else waiting  # else they are due already
    return (*(_ending(lease, EndReason.SURPLUS) for lease in room), *surplus)


def grouped(endings: Iterable[Ending]) -> tuple[EndLeases, ...]:
    """Return one command for each reason, in the order met.

    One for each submission would let the cap on commands keep nodes from others.
    """
    groups: dict[tuple[EndReason, bool], list[Ending]] = defaultdict(list)
    for one in endings:
        groups[one.why, one.by_notice].append(one)
    return tuple(
        EndLeases(
            display_ids=tuple(one.display_id for one in group),
            leases=tuple(one.lease for one in group if one.lease is not None),
            why=why,
            by_notice=by_notice,
        )
        for (why, by_notice), group in groups.items()
    )


def _ending(lease: Lease, why: EndReason, *, by_notice: bool = False) -> Ending:
    return Ending(lease.display_id, lease.key, why, by_notice)


def _making_room(actual: Actual, limits: Limits) -> Iterator[Ending]:
    awaited = actual.claims.startable
    for lease in actual.leases:
        waits = lease.state is LeaseState.PENDING
        if waits and awaited and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, EndReason.MAKES_ROOM)


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
            is_kept = lease.node in actual.claims.kept_free.nodes
            why = EndReason.KEPT_FREE if is_kept else EndReason.CLAIMED
            yield _ending(lease, why, by_notice=True)
            continue
        told_s = 0.0 if lease.notice_s is None else lease.notice_s
        has_stayed = actual.now_s - told_s >= limits.claim_patience_s
        if has_stayed and _is_due(lease, actual.now_s, limits):
            yield _ending(lease, EndReason.CLAIMED)


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
            yield _ending(lease, EndReason.STAYED)
        elif has_overrun:
            yield _ending(lease, EndReason.OVERRAN)


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
            yield _ending(lease, EndReason.UNHEARD)


def _not_due_yet(actual: Actual) -> Iterator[Lease]:
    """Yield the leases there are but for those that others wait for."""
    claimed, awaited = actual.claims.leased, actual.claims.startable
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
            yield _ending(lease, EndReason.HOLE_CLOSED, by_notice=is_heard)


# ----------------------------------------------------------------------
# New generations: which trainers re-form now, and on which leases.

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


# ----------------------------------------------------------------------
# Wanted against actual: what to do about the difference.


def reconcile(
    wanted: Wanted, actual: Actual, intents: Iterable[Intent], limits: Limits
) -> tuple[Action, ...]:
    """Return what to do, in the order in which to do it.

    New generations come first, so that survivors know before anybody leaves; then
    what others wait for; then what nobody wants; submissions last. Where the caps
    cut the list short, the next tick goes on.

    Args:
        wanted: What the plan asks for.
        actual: What is so.
        intents: Every intent that may still have jobs.
        limits: Caps and patience.
    """
    intents = tuple(intents)
    supply = match(
        wanted.requests, actual.leases, intents, now_s=actual.now_s, limits=limits
    )
    churn = max(0, limits.most_churn - actual.pace.churned)
    by_choice = chosen(wanted, actual, supply.surplus)[:churn]
    may = allowance(actual, intents, limits, churn=churn - len(by_choice))
    calls: tuple[EndLeases | Submit, ...] = (
        *grouped(due(wanted, actual, limits)),
        *grouped(by_choice),
        *_submits(supply, may.leases, limits),
    )
    new = (Assign(one) for one in generations(wanted, actual, limits))
    return (*new, *calls[: limits.most_calls])


def _submits(supply: Supply, most: int, limits: Limits) -> Iterator[Submit]:
    """Yield one job array, or a few, for each request that lacks leases."""
    for request, missing in supply.deficits:
        tasks = min(missing, most)
        most -= tasks
        while tasks > 0:
            size = min(tasks, limits.most_array_tasks)
            tasks -= size
            yield Submit(request.shape, request.limit_min, request.deadline_s, size)
