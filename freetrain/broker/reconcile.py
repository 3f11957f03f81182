"""From wanted and actual leases to actions: assign, end, submit.

``reconcile`` is pure and keeps no memory. Called again on the result of its actions it
does nothing; called again after only some of them were carried out, it does the rest.
Actions are data; ``freetrain.tick.act`` carries them out in the order given.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from freetrain.broker.lease import Assignment, Intent, IntentState, Lease, LeaseState
from freetrain.broker.limits import paused_until_s
from freetrain.broker.pool import given_leases
from freetrain.broker.reasons import Brake, EndReason
from freetrain.config.job import size_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from freetrain.broker.lease import LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.pool import Situation

    Waiting: TypeAlias = Intent | Lease


@dataclass(frozen=True, slots=True)
class WantedTrainer:
    """The leases and nodes that one trainer is to have.

    Attributes:
        name: The trainer's name.
        sizes: Node counts that it can use, ascending.
        leases: Running leases that the plan gives it.
        awaited_nodes: Nodes beyond those for which leases are yet to come.
    """

    name: str
    sizes: tuple[int, ...]
    leases: frozenset[LeaseKey]
    awaited_nodes: int = 0

    @property
    def planned_nodes(self) -> int:
        """How many nodes the plan gives it."""
        return len(self.leases) + self.awaited_nodes


@dataclass(frozen=True, slots=True)
class WantedLeases:
    """Equal leases that the plan needs beyond those that run.

    Attributes:
        shape: Requirement to ask with.
        limit_min: Time limit to ask for, whole minutes.
        most_limit_min: The longest limit that still fits into the holes.
        deadline_s: Unix time by which they must have ended.
        end_s: When the first of their holes ends, Unix time.
        nodes: Holes they are meant for; Slurm chooses.
    """

    shape: str
    limit_min: int
    most_limit_min: float
    deadline_s: float
    end_s: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The leases that a plan asks for.

    Attributes:
        trainers: In the order of the request.
        requests: Leases that must wait in Slurm's queue, longest first.
    """

    trainers: tuple[WantedTrainer, ...]
    requests: tuple[WantedLeases, ...]

    @property
    def leases(self) -> frozenset[LeaseKey]:
        """The running leases that some trainer is to have."""
        return frozenset(key for trainer in self.trainers for key in trainer.leases)


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit leases: commit its intent (``intent_of``), then call sbatch.

    Attributes:
        shape: Name of the node requirement.
        limit_min: Time limit, whole minutes.
        deadline_s: Unix time by which they must have ended.
        tasks: Number of leases; several are one job array.
    """

    shape: str
    limit_min: int
    deadline_s: float
    tasks: int


@dataclass(frozen=True, slots=True)
class EndLeases:
    """The broker ends leases for one reason, with one command.

    Agents end leases by actions of their own (``freetrain.agent.rules``): they give
    back the lease they run in, and cancel silent ones.

    Attributes:
        display_ids: Their names for scancel; never empty.
        leases: The leases among them; none for duplicate jobs.
        why: The reason.
        by_notice: Send the notice to commit and leave; otherwise scancel, with
            Slurm's KillWait.
    """

    display_ids: tuple[str, ...]
    leases: tuple[LeaseKey, ...]
    why: EndReason
    by_notice: bool = False


Action: TypeAlias = Assignment | EndLeases | Submit
"""An assignment is carried out by creating the file of its generation, unless an agent
was faster; then later assignments of the same tick wait for the next, since they may
need leases that this one gives up."""


def intent_of(submit: Submit, uuid: str, now_s: float) -> Intent:
    """Return the intent to commit before the sbatch of *submit*."""
    return Intent(
        uuid=uuid,
        shape=submit.shape,
        limit_min=submit.limit_min,
        deadline_s=submit.deadline_s,
        tasks=submit.tasks,
        created_s=now_s,
    )


def marked_ending(lease: Lease, end: EndLeases, now_s: float) -> Lease:
    """Return *lease* with the time at which *end* was sent to it."""
    if end.by_notice:
        return replace(lease, notice_s=now_s)
    return replace(lease, cancel_s=now_s)


_NONE: frozenset[LeaseKey] = frozenset()


def reconcile(
    wanted: Wanted, situation: Situation, limits: Limits, *, pool_nodes: Collection[str]
) -> tuple[tuple[Action, ...], Brake | None]:
    """Return the actions in order, and why no more leases may be asked for.

    New generations come first, so that survivors know before a lease leaves, but for
    those that were asked to leave to make room; then the ends that others wait for;
    then the leases that no trainer wants; submissions last.
    Where the caps cut the list short, the next tick goes on. A lease on which a world
    trains until its successor is ready is ended by a later tick, if no other needs it.

    Args:
        wanted: The leases that the plan asks for.
        situation: Leases, agents and claims as they are.
        limits: Caps and time-outs.
        pool_nodes: Nodes that can be planned with; a lease elsewhere has lost its hole.
    """
    generations = _generations(wanted, situation, limits)
    training = _training_on(generations, situation, limits)
    missing, unused = _match(wanted.requests, situation, limits)
    churn = max(0, limits.most_churn - situation.pace.churned)
    given = given_leases(situation, limits)
    shared = list(_shared(given, situation, unused))
    going = {job.lease for job in shared}
    by_choice = [
        *shared,
        *(
            job
            for job in _by_choice(wanted, situation, pool_nodes, unused)
            if job.lease not in going | training
        ),
    ][:churn]
    most_new, brake = _allowance(situation, limits, churn=churn - len(by_choice))
    known = {*pool_nodes, *(lease.node for lease in given)}
    calls: tuple[EndLeases | Submit, ...] = (
        *_grouped(_due(wanted, situation, known, limits)),
        *_grouped(by_choice),
        *_submits(missing, most_new, limits),
        *_without_hole(missing, most_new, situation, limits),
    )
    actions = (*generations, *calls[: limits.most_calls])
    return actions, brake if most_new == 0 else None


# Submissions: what waits already, what is missing, how much may be asked for.


def _under_way(situation: Situation) -> list[Intent]:
    """Return the intents of which it is unknown whether Slurm has them."""
    intents = situation.belief.intents
    return [intent for intent in intents if intent.state is IntentState.OPEN]


def _match(
    requests: Sequence[WantedLeases], situation: Situation, limits: Limits
) -> tuple[list[tuple[WantedLeases, int]], list[Lease]]:
    """Return requests with the number of leases they lack, and leases that serve none.

    A submission under way counts like leases that wait, once for each task: whether
    Slurm took it is unknown, and asking again would ask twice.
    """
    now_s = situation.now_s
    waiting: list[Waiting] = [
        intent for intent in _under_way(situation) for _ in range(intent.tasks)
    ]
    waiting += [
        lease
        for lease in situation.belief.leases
        if lease.state is LeaseState.PENDING and lease.cancel_s is None
    ]
    lacking = []
    for request in requests:
        missing = len(request.nodes)
        for earlier in sorted(waiting, key=_longest_first):
            if missing and _serves(earlier, request, now_s=now_s, limits=limits):
                waiting.remove(earlier)
                missing -= 1
        if missing:
            lacking.append((request, missing))
    unused = [w for w in waiting if isinstance(w, Lease) and _can_start(w, now_s)]
    return lacking, unused


def _longest_first(waiting: Waiting) -> tuple[bool, int]:
    return (isinstance(waiting, Lease), -waiting.limit_min)


def _serves(
    earlier: Waiting, request: WantedLeases, *, now_s: float, limits: Limits
) -> bool:
    """Tell whether an *earlier* submission is as good as a new lease of *request*.

    It must be over before the hole is, but for the time by which Slurm itself shifts
    plans, and long enough not to waste the hole.
    """
    return (
        earlier.shape == request.shape
        and request.limit_min <= 2 * earlier.limit_min
        and earlier.limit_min <= request.most_limit_min
        and earlier.deadline_s <= request.end_s + limits.start_slack_s
        and _can_start(earlier, now_s)
    )


def _can_start(waiting: Waiting, now_s: float) -> bool:
    """Tell whether it can still end by its deadline; if not, Slurm removes it."""
    return now_s + 60.0 * waiting.limit_min <= waiting.deadline_s


def _allowance(
    situation: Situation, limits: Limits, *, churn: int
) -> tuple[int, Brake]:
    """Return how many leases may be submitted now, and what allows no more.

    Args:
        situation: Leases, agents and claims as they are.
        limits: Caps and time-outs.
        churn: How many leases may still come and go.
    """
    if not situation.is_plan_known:
        return 0, Brake.PLAN_UNKNOWN
    until_s = paused_until_s(situation.pace, limits)
    if until_s is not None and situation.now_s < until_s:
        return 0, Brake.PAUSED
    if situation.claims.startable:
        return 0, Brake.YIELDING
    if situation.claims.blocked.reasons:
        return 0, Brake.LIMIT_BLOCKS
    live = sum(lease.is_live for lease in situation.belief.leases)
    live += sum(intent.tasks for intent in _under_way(situation))
    may_ask, under_way = limits.most_new_leases, _under_way(situation)
    if situation.share is not None and situation.share.binds:
        may_ask = situation.share.may_ask - sum(intent.tasks for intent in under_way)
    return min(
        (max(0, may_ask), Brake.SHARE),
        (max(0, limits.most_leases - live), Brake.LEASE_CAP),
        *_allowed(limits, live),
        (limits.most_new_leases, Brake.TICK_CAP),
        (max(0, churn), Brake.CHURN_CAP),
    )


def _allowed(limits: Limits, live: int) -> Iterator[tuple[int, Brake]]:
    """Yield how many more leases Slurm's own limits allow, where one is known."""
    if limits.most_allowed is not None:
        yield max(0, limits.most_allowed - live), Brake.SUBMIT_LIMIT


def _submits(
    lacking: Iterable[tuple[WantedLeases, int]], most: int, limits: Limits
) -> Iterator[Submit]:
    """Yield one job array, or a few, for each request that lacks leases."""
    for request, missing in lacking:
        tasks = min(missing, most)
        most -= tasks
        while tasks > 0:
            size = min(tasks, limits.most_array_tasks)
            tasks -= size
            yield Submit(request.shape, request.limit_min, request.deadline_s, size)


WAITING_LIMIT_MIN = 60
"""Of leases that wait for nodes that others give: what comes free has no known end."""

WAITING_S = 180.0
"""How long they wait for a start before Slurm removes them: six cycles of backfill."""


def _without_hole(
    lacking: Iterable[tuple[WantedLeases, int]],
    most: int,
    situation: Situation,
    limits: Limits,
) -> Iterator[Submit]:
    """Yield leases that wait where nothing is idle, so that others give us our share.

    They are of the shape of the trainer that lacks most of those that could start.
    """
    share = situation.share
    if share is None or not share.is_full:
        return
    tasks = min(most, share.may_ask) - sum(missing for _, missing in lacking)
    hungry = [
        (trainer.curve.sizes[-1] - len(trainer.leases), trainer)
        for trainer in situation.trainers
        if trainer.curve.sizes[0] <= share.nodes
    ]
    if tasks <= 0 or not hungry:
        return
    lacks, trainer = max(hungry, key=lambda found: found[0])
    tasks = min(tasks, sum(max(0, own) for own, _ in hungry), limits.most_array_tasks)
    if lacks > 0 and tasks > 0:
        limit_min = min(WAITING_LIMIT_MIN, limits.most_limit_min)
        deadline_s = situation.now_s + 60.0 * limit_min + WAITING_S
        yield Submit(trainer.shape, limit_min, deadline_s, tasks)


# Ends: leases that others wait for, and leases that no trainer wants.


class _JobToEnd(NamedTuple):
    """One job to end.

    Attributes:
        display_id: Its name for scancel.
        lease: The lease it stands for, None for a duplicate job.
        why: The reason.
        by_notice: Whether to send the notice to leave instead of scancel.
    """

    display_id: str
    lease: LeaseKey | None
    why: EndReason
    by_notice: bool = False


def _job_of(lease: Lease, why: EndReason, *, by_notice: bool = False) -> _JobToEnd:
    return _JobToEnd(lease.display_id, lease.key, why, by_notice)


def _due(
    wanted: Wanted, situation: Situation, pool_nodes: Collection[str], limits: Limits
) -> Iterator[_JobToEnd]:
    """Yield what must end whatever the churn, waiting leases first."""
    yield from _making_room(situation, limits)
    yield from _claimed(situation, limits)
    for display_id in situation.belief.duplicates:
        yield _JobToEnd(display_id, None, EndReason.SECOND_JOB)
    yield from _stayed(situation, limits)
    yield from _unheard(situation, limits)
    yield from _closed(wanted, situation, pool_nodes)


def _shared(
    given: Iterable[Lease], situation: Situation, unused: Sequence[Lease]
) -> Iterator[_JobToEnd]:
    """Yield what other users' FreeTrain gets; waiting leases go before running ones.

    Waiting ones go where they would take more than our share.
    """
    if situation.share is None or situation.claims.startable:
        return
    waiting = [
        lease
        for lease in situation.belief.leases
        if lease.state is LeaseState.PENDING and lease.cancel_s is None
    ]
    waiting.sort(key=lambda lease: (lease not in unused, lease.key))
    too_many = max(0, len(waiting) - situation.share.may_wait)
    for lease in waiting[:too_many]:
        yield _job_of(lease, EndReason.SHARED)
    for lease in given:
        is_heard = lease.key not in situation.never_heard
        yield _job_of(lease, EndReason.SHARED, by_notice=is_heard)


def _by_choice(
    wanted: Wanted,
    situation: Situation,
    pool_nodes: Collection[str],
    waiting: Iterable[Lease],
) -> list[_JobToEnd]:
    """Return what may end because no trainer wants it; *waiting* leases first.

    Nothing where Slurm's plan is not known: then what runs is kept.
    """
    if not situation.is_plan_known:
        return []
    # Where room is made, waiting leases are due already; where nothing is idle, they
    # wait for what other users' FreeTrain gives.
    share = situation.share
    is_kept = situation.claims.bars_leases or (share is not None and share.is_full)
    unused = [] if is_kept else waiting
    return [
        *(_job_of(lease, EndReason.SURPLUS) for lease in unused),
        *(
            _job_of(
                lease,
                EndReason.SURPLUS,
                by_notice=lease.key not in situation.never_heard,
            )
            for lease in situation.belief.leases
            if lease.is_usable
            and lease.key not in wanted.leases
            and lease.node in pool_nodes
        ),
    ]


def _training_on(
    generations: Iterable[Assignment], situation: Situation, limits: Limits
) -> set[LeaseKey]:
    """Return the leases that the worlds of trainers that shrink still train on.

    Such a world goes on until the next one, without these leases, is ready: with the
    notice to leave it would stop at once. It is over long before a lease that was sent
    the notice would count as one that stays.
    """
    newest = {assignment.trainer: assignment for assignment in situation.assignments}
    dropped = {
        key
        for made in generations
        if made.leases and made.trainer in newest
        for key in newest[made.trainer].leases - made.leases
    }
    young = {
        trainer
        for trainer, assignment in newest.items()
        if assignment.leases
        # An agent's clock may be ahead by any amount: hence abs().
        and abs(situation.now_s - assignment.created_s) < limits.notice_patience_s
    }
    return dropped | {key for key, name in situation.training.items() if name in young}


def _grouped(jobs: Iterable[_JobToEnd]) -> tuple[EndLeases, ...]:
    """Return one command for each reason, in the order met.

    With one for each submission the cap on commands would keep nodes from others.
    """
    groups: dict[tuple[EndReason, bool], list[_JobToEnd]] = defaultdict(list)
    for job in jobs:
        groups[job.why, job.by_notice].append(job)
    return tuple(
        EndLeases(
            display_ids=tuple(job.display_id for job in group),
            leases=tuple(e.lease for e in group if e.lease is not None),
            why=why,
            by_notice=by_notice,
        )
        for (why, by_notice), group in groups.items()
    )


def _making_room(situation: Situation, limits: Limits) -> Iterator[_JobToEnd]:
    """Yield waiting leases, which would take nodes that are being given up."""
    for lease in situation.belief.leases:
        waits = lease.state is LeaseState.PENDING
        if (
            waits
            and situation.claims.bars_leases
            and _may_cancel(lease, situation, limits)
        ):
            yield _job_of(lease, EndReason.MAKES_ROOM)


def _claimed(situation: Situation, limits: Limits) -> Iterator[_JobToEnd]:
    """Yield running leases that others wait for."""
    for lease in situation.belief.leases:
        is_claimed = situation.claims.takes(lease.node, lease.job_id)
        if is_claimed and lease.state is LeaseState.RUNNING:
            why = situation.claims.end_reason(lease.node), EndReason.CLAIMED
            is_heard = lease.key not in situation.never_heard
            yield from _notice_first(lease, why, situation, limits, waits=is_heard)


def _notice_first(
    lease: Lease,
    why: tuple[EndReason, EndReason],
    situation: Situation,
    limits: Limits,
    *,
    waits: bool = True,
) -> Iterator[_JobToEnd]:
    """Yield the notice to *lease*, or its cancel once it has stayed in spite of it.

    Cancelled at once, a lease loses its work: scancel reaches mpirun under its batch
    script, which ends the world there and then. A lease whose agent was never heard has
    no work, and gets no notice.

    Args:
        lease: A running one.
        why: Reasons of a notice, and of a cancel.
        situation: Leases, agents and claims as they are.
        limits: Caps and time-outs.
        waits: Whether one that got the notice has the time to leave; an unheard one
            that others wait for has not.
    """
    why_notice, why_cancel = why
    if lease.is_usable and lease.key not in situation.never_heard:
        yield _job_of(lease, why_notice, by_notice=True)
        return
    asked_s = -math.inf if lease.notice_s is None else lease.notice_s
    has_stayed = situation.now_s - asked_s >= limits.claim_patience_s
    if (has_stayed or not waits) and _may_cancel(lease, situation, limits):
        yield _job_of(lease, why_cancel)


def _stayed(situation: Situation, limits: Limits) -> Iterator[_JobToEnd]:
    """Yield leases that did not leave after a notice or cancel, or ran out of time.

    Slurm itself may let a job overrun its limit, by OverTimeLimit without end.
    """
    overran = EndReason.OVERRAN, EndReason.OVERRAN
    for lease in _unclaimed(situation):
        notice_s = math.inf if lease.notice_s is None else lease.notice_s
        has_stayed = situation.now_s - notice_s >= limits.notice_patience_s
        end_s = math.inf if lease.end_s is None else lease.end_s
        if has_stayed or lease.cancel_s is not None:
            if _may_cancel(lease, situation, limits):
                yield _job_of(lease, EndReason.STAYED)
        elif situation.now_s - end_s >= limits.claim_patience_s:
            # Its agent need not know of this end: a tick may have lowered the limit.
            yield from _notice_first(lease, overran, situation, limits)


def _unheard(situation: Situation, limits: Limits) -> Iterator[_JobToEnd]:
    """Yield leases that hold a node for nothing, as no agent is heard there.

    Those of a generation are left to the other agents of it: where only the files
    cannot be reached, their worlds train on.
    """
    training = situation.assigned
    for lease in _unclaimed(situation):
        unheard_s = situation.unheard_s.get(lease.key, 0.0)
        is_held_in_vain = lease.is_usable and lease.key not in training
        if is_held_in_vain and unheard_s >= limits.unheard_s:
            yield _job_of(lease, EndReason.UNHEARD)


def _unclaimed(situation: Situation) -> Iterator[Lease]:
    """Yield waiting and running leases but for those that others wait for."""
    for lease in situation.belief.leases:
        waits = lease.state is LeaseState.PENDING
        if situation.claims.takes(lease.node, lease.job_id) or (
            waits and situation.claims.bars_leases
        ):
            continue
        if waits or lease.state is LeaseState.RUNNING:
            yield lease


def _may_cancel(lease: Lease, situation: Situation, limits: Limits) -> bool:
    """Tell whether no cancel of *lease* is still on its way."""
    if lease.cancel_s is None:
        return True
    return situation.now_s - lease.cancel_s >= limits.cancel_retry_s


def _closed(
    wanted: Wanted, situation: Situation, pool_nodes: Collection[str]
) -> Iterator[_JobToEnd]:
    """Yield leases whose node is no hole any more, planned or reserved as it is.

    A lease that started after the snapshot was taken could not be seen in it.
    """
    known = {*situation.claims.leased, *pool_nodes}
    for lease in situation.belief.leases:
        was_seen = lease.start_s is not None and lease.start_s < situation.now_s
        is_closed = was_seen and lease.node not in known
        if lease.is_usable and is_closed and lease.key not in wanted.leases:
            is_heard = lease.key not in situation.never_heard
            yield _job_of(lease, EndReason.HOLE_CLOSED, by_notice=is_heard)


# New generations: which trainers re-form now, and on which leases.


def _generations(
    wanted: Wanted, situation: Situation, limits: Limits
) -> list[Assignment]:
    """Return the assignments to create.

    Losing leases cannot wait, and neither can starting. Growing by some of the
    leases that a trainer is to have waits for the others, for a while: each
    rescale costs the trainer work. Growing waits for a world that has only just been
    made, too: survivors that re-formed seconds ago would throw their start away.
    """
    ready = {
        lease.key: lease
        for lease in situation.belief.leases
        if lease.is_usable
        and not situation.claims.takes(lease.node, lease.job_id)
        and lease.key not in situation.not_ready
    }
    newest = {assignment.trainer: assignment for assignment in situation.assignments}
    new = [
        _generation(trainer, newest.get(trainer.name), ready, situation, limits)
        for trainer in wanted.trainers
    ]
    wanting = {trainer.name for trainer in wanted.trainers}
    new += [
        _next(name, assignment, _NONE, situation.now_s)
        for name, assignment in newest.items()
        if name not in wanting
    ]

    def gains(assignment: Assignment) -> bool:
        before = newest.get(assignment.trainer)
        return not assignment.leases <= (_NONE if before is None else before.leases)

    # A lease leaves one trainer before it joins another, wherever a tick is cut off.
    return sorted((made for made in new if made is not None), key=gains)


def _generation(
    trainer: WantedTrainer,
    newest: Assignment | None,
    ready: Mapping[LeaseKey, Lease],
    situation: Situation,
    limits: Limits,
) -> Assignment | None:
    """Return the next generation of *trainer* on *ready* leases; None for none."""
    before = _NONE if newest is None else newest.leases
    # Where Slurm's plan is unknown no lease changes hands, but for those lost.
    planned = trainer.leases if situation.is_plan_known else before
    usable = [ready[key] for key in planned if key in ready]
    leases = _formed(usable, before, trainer.sizes)
    if newest is not None and before and before < leases:
        is_complete = not trainer.awaited_nodes and len(usable) == len(planned)
        # Survivors may have made it since the snapshot. An agent's clock may be ahead
        # by any amount, too, and would hold growth back for as long: hence abs().
        age_s = situation.now_s - newest.created_s
        wait_s = limits.grow_after_s if is_complete else limits.grow_every_s
        if abs(age_s) < wait_s:
            return None
    return _next(trainer.name, newest, leases, situation.now_s)


def _formed(
    usable: Iterable[Lease], before: frozenset[LeaseKey], sizes: tuple[int, ...]
) -> frozenset[LeaseKey]:
    """Return as many leases as make up a size: those held, then those that end last."""
    ranked = sorted(
        usable,
        key=lambda lease: (lease.key not in before, -(lease.end_s or 0.0), lease.key),
    )
    return frozenset(lease.key for lease in ranked[: size_within(sizes, len(ranked))])


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
