"""How leases give way to waiting jobs, where Slurm cannot preempt leases.

``find_claims`` names the nodes that other users' jobs could start on now, or are booked
for. ``keep_free`` adds, on a site that asks for it, the nodes that a job would need if
a running job ended early. ``Cycles`` and ``QueueDigest`` say when to poll the queue
again between two ticks. ``overdue_leases`` names the leases that Slurm should have
preempted.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.broker.backfill import (
    allocate,
    by_slurm_order,
    could_start,
    every_hole,
    idle_first,
)
from freetrain.broker.job_limits import NONE_BLOCKED, BlockedJobs
from freetrain.broker.lease import is_lease
from freetrain.broker.reasons import EndReason
from slurm.holes import Hole, HoleEnd

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from freetrain.broker.backfill import (
        Allocation,
        BackfillState,
        NodeRequest,
        Rank,
        SoonerEnd,
    )
    from slurm.records import ClusterConfig, JobRecord, Sdiag


@dataclass(frozen=True, slots=True)
class PendingDemand:
    """Waiting jobs, and the nodes they get without protection; times are Unix seconds.

    Attributes:
        requests: Nodes that others' waiting jobs need, in order of priority.
        state: Where they might start.
        given: Nodes that are given up or left idle anyway, each with a job's number.
        booked_s: By node: when a job that must wait has it.
        now_s: Time of the snapshot.
        kept: By given node of which only a part is given up: the leases that stay.
    """

    requests: Sequence[NodeRequest]
    state: BackfillState
    given: Mapping[str, int]
    booked_s: Mapping[str, float]
    now_s: float
    kept: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptFree:
    """Nodes to keep free of leases in case a running job ends early.

    Attributes:
        nodes: By node, the number of the job that would need it.
        untried: How many running jobs were not considered, or not in full: there were
            too many, or there was no time.
    """

    nodes: Mapping[str, int]
    untried: int


NONE_KEPT_FREE = KeptFree({}, 0)


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that leases must leave to waiting jobs of others.

    Attributes:
        leased: Leased nodes to give up, or a part of them (``spared``), each with the
            job's number.
        idle: Idle nodes to leave alone, each with the job's number, and nodes beside
            whose leases a job fits into what is free: no new lease may go there.
        booked_s: By node: when a job that must wait has it if leases are away,
            Unix time. A lease that begins now should be over by then: backfill's last
            plan may be older than its next.
        kept_free: Those of the leased and idle nodes that no job could start on now,
            but would need if a running job ended; none where the site does not ask for
            that.
        limited: Those of the leased nodes that go only as their leases count against a
            limit that blocks a job.
        blocked: Jobs that wait for such limits, or did a moment ago.
        overdue: Those of the leased nodes that Slurm should have preempted.
        sooner_ends: By leased node: the sooner end of leases that would put off a job
            that must wait, of those that do not go now.
        spared: By node of which jobs get a part alone: the leases there that need not
            go, by their jobs' raw numbers.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]
    booked_s: Mapping[str, float] = field(default_factory=dict)
    kept_free: KeptFree = NONE_KEPT_FREE
    limited: Mapping[str, int] = field(default_factory=dict)
    blocked: BlockedJobs = NONE_BLOCKED
    overdue: Mapping[str, int] = field(default_factory=dict)
    sooner_ends: Mapping[str, SoonerEnd] = field(default_factory=dict)
    spared: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def takes(self, node: str, job_id: int | None) -> bool:
        """Tell whether a lease must leave *node*, of which others need all or a part.

        Args:
            node: The lease's.
            job_id: The lease's raw number; None where it is not known yet, so that it
                was in no snapshot, and nothing was planned beside it.
        """
        return node in self.leased and job_id not in self.spared.get(node, ())

    def ends_sooner(self, node: str, job_id: int | None) -> SoonerEnd | None:
        """Return the sooner end of a lease that stays on *node*; None for none."""
        return None if self.takes(node, job_id) else self.sooner_ends.get(node)

    @property
    def startable(self) -> frozenset[str]:
        """Leased nodes on which a job could start now."""
        others = self.kept_free.nodes.keys() | self.limited.keys()
        return frozenset(self.leased.keys() - others)

    @property
    def bars_leases(self) -> bool:
        """Whether no lease may wait now: it would take what is given up."""
        return bool(self.startable or self.blocked.reasons)

    def with_limits(self, blocked: BlockedJobs, nodes: Mapping[str, str]) -> Claims:
        """Return the claims with these leases that count against limits, and no others.

        Args:
            blocked: Jobs that wait for limits, and the leases that count there.
            nodes: The node of each lease that runs, by display id.
        """
        others = {
            node: job for node, job in self.leased.items() if node not in self.limited
        }
        limited = {
            nodes[lease]: job
            for lease, job in blocked.leases.items()
            if lease in nodes and nodes[lease] not in others
        }
        leased = {**others, **limited}
        return replace(self, leased=leased, limited=limited, blocked=blocked)

    def without_spared(self, job_ids: Collection[int]) -> Claims:
        """Return the claims with these leases going, too, where their nodes do."""
        spared = {node: kept.difference(job_ids) for node, kept in self.spared.items()}
        return replace(self, spared=spared)

    def without_sooner_ends(self, nodes: Iterable[str]) -> Claims:
        """Return the claims where leases on *nodes* cannot end sooner: they go."""
        gone = self.sooner_ends.keys() & set(nodes)
        sooner = {name: self.sooner_ends[name].job for name in gone}
        stay = {name: end for name, end in self.sooner_ends.items() if name not in gone}
        spared = {name: jobs for name, jobs in self.spared.items() if name not in gone}
        leased = {**sooner, **self.leased}
        return replace(self, leased=leased, sooner_ends=stay, spared=spared)

    def with_overdue(self, nodes: Mapping[str, int], by: Claims) -> Claims:
        """Return the claims with *nodes* that Slurm should have preempted.

        Args:
            nodes: Each with the job.
            by: The claims that name them, and the leases there that need not go.
        """
        spared = {n: jobs for n, jobs in by.spared.items() if n in nodes}
        spared = {n: jobs for n, jobs in spared.items() if n not in self.leased}
        return replace(
            self,
            leased={**nodes, **self.leased},
            overdue=nodes,
            spared={**self.spared, **spared},
        )

    def with_blocked_before(self, jobs: Iterable[int]) -> Claims:
        """Return the claims with *jobs* that limits blocked a moment ago."""
        reasons = {**dict.fromkeys(jobs, ""), **self.blocked.reasons}
        return replace(self, blocked=replace(self.blocked, reasons=reasons))

    def end_reason(self, node: str) -> EndReason:
        """Return why the lease on *node*, one of ``leased``, is ended."""
        if node in self.kept_free.nodes:
            return EndReason.KEPT_FREE
        if node in self.limited:
            return EndReason.LIMITED
        return EndReason.OVERDUE if node in self.overdue else EndReason.CLAIMED

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that leases must leave."""
        return frozenset((*self.leased, *self.idle))


NO_CLAIMS = Claims({}, {})


def find_claims(
    jobs: Iterable[JobRecord],
    state: BackfillState,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
    protect: Callable[[PendingDemand], KeptFree] | None = None,
) -> Claims:
    """Return the nodes that leases must leave to waiting jobs of others.

    Jobs are served in order of priority, as backfill does:

    * A job that can start now claims the nodes for it, idle ones before leased ones.
      Other or more leases go where a job that Slurm would start could not start beside
      those that stay.
    * A job that must wait books the earliest nodes, which jobs behind it must leave to
      it. It claims none of them yet; leases that put its planned start off are to end
      before it could start.
    * Leases that overlap a booking are to end before it, too, where a job could start
      on nodes that backfill plans another for: without them it would plan anew.

    Leases claim nothing from each other: two users' would take turns for ever.

    Args:
        jobs: All jobs of a snapshot.
        state: Where they might start.
        is_ours: Whether a job is a lease that gives way, so that it claims nothing.
        now_s: Time of the snapshot, Unix time.
        protect: Returns the nodes to keep free of leases as well, in case a running job
            ends early; None for no such protection.
    """
    waiting = [
        job
        for job in jobs
        if not is_ours(job) and not is_lease(job) and could_start(job, now_s)
    ]
    if not waiting or not (state.holes or state.shared.nodes):
        return NO_CLAIMS
    waiting.sort(key=lambda job: (-(job.priority or 0), job.job_id))
    requests = [state.eligibility.request(job) for job in waiting]
    allocation = allocate(requests, state, now_s, rank=idle_first(state))
    if allocation.started:
        allocation = _letting_jobs_start(requests, state, now_s, allocation)
    state = state.with_sooner_ends(allocation.sooner_ends)
    kept_free = NONE_KEPT_FREE
    if protect is not None:
        given, booked_s = allocation.taken, allocation.booked_s
        kept_free = protect(
            PendingDemand(requests, state, given, booked_s, now_s, allocation.kept)
        )
    taken = {**allocation.taken, **kept_free.nodes}
    spared = {name: kept for name, kept in allocation.kept.items() if kept}
    leased = {n for n in taken if n in state.leased and state.goes(n, spared.get(n))}
    return Claims(
        leased={name: by for name, by in taken.items() if name in leased},
        idle={name: by for name, by in taken.items() if name not in leased},
        booked_s=allocation.booked_s,
        kept_free=kept_free,
        sooner_ends={
            name: end
            for name, end in allocation.sooner_ends.items()
            if name not in taken or name in spared
        },
        spared=spared,
    )


def _letting_jobs_start(
    requests: Sequence[NodeRequest],
    state: BackfillState,
    now_s: float,
    sparing: Allocation,
) -> Allocation:
    """Return an allocation that lets Slurm start every job it would start alone.

    Slurm takes nodes in its own order, idle or given up. So three allocations are
    tried, each by planning once more in that order beside the leases that it lets
    stay: *sparing*, which takes idle nodes first; the one in Slurm's order; and
    *sparing* with leases ending before bookings they overlap.
    """
    rank = by_slurm_order(state)
    as_slurm = allocate(requests, state, now_s, rank=rank)

    def ending_by(allocation: Allocation) -> Allocation:
        first = next(r.job_id for r in requests if r.job_id in allocation.started)
        return allocation.ending_before(allocation.overlapped, first, state, now_s)

    for tried in (sparing, as_slurm, ending_by(sparing)):
        sooner = state.with_sooner_ends(tried.sooner_ends)
        beside = sooner.beside(tried.taken, tried.booked_s, tried.kept)
        if as_slurm.started <= allocate(requests, beside, now_s, rank=rank).started:
            return tried
    # Then no lease that stays is in a job's way.
    return ending_by(as_slurm)


# Delay protection. When a job ends before its limit, backfill may start a waiting job
# on its nodes. Beside leases it may choose a job further back, which then keeps the
# first one waiting longer than a lease takes to go. So the end of each running job is
# tried, once without leases and once beside them, and nodes are kept free until the
# same jobs start.

MOST_ENDS = 100
"""Running jobs whose end is tried; each takes a plan or several."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DelayProtection:
    """The running jobs whose end is tried, and how much work that may take.

    Attributes:
        running: Nodes of each running job of others.
        cycle_s: Seconds between two cycles of backfill.
        longest_s: Length of the longest lease, seconds.
        most_ends: How many running jobs are tried: those on the most nodes.
        is_out_of_time: Whether to stop planning; called before each plan.
    """

    running: Sequence[frozenset[str]]
    cycle_s: float
    longest_s: float
    most_ends: int = MOST_ENDS
    is_out_of_time: Callable[[], bool] = _never


def keep_free(demand: PendingDemand, protection: DelayProtection) -> KeptFree:
    """Return the nodes not to lease, besides those that are given up anyway."""
    if demand.state.keepable <= demand.given.keys():
        return NONE_KEPT_FREE
    trials = _EndTrials(demand, protection)
    freed = sorted(_freed(protection.running), key=len, reverse=True)
    # The first trial is of the present, without any end.
    untried = [frozenset[str](), *freed[: protection.most_ends]]
    tried: list[_JobEnd] = []
    unsure: list[_JobEnd] = []
    kept: dict[str, int] = {}
    with suppress(_OutOfTimeError):
        while untried or unsure:
            end = trials.of(untried[0]) if untried else unsure[0]
            more = trials.needed(end, {**demand.given, **kept}) if end else {}
            (untried or unsure).pop(0)
            if more:  # ends that were tried before may come out otherwise now
                kept |= more
                unsure += [e for e in tried if e is not end and e not in unsure]
            if end and end not in tried:
                tried.append(end)
    beyond = freed[protection.most_ends :]
    left = [*beyond, *filter(None, untried), *(end for end in unsure if end.freed)]
    return KeptFree(kept, len(left))


def _freed(running: Sequence[frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yield the nodes that no job would hold any more if one job ended."""
    holders = Counter(name for nodes in running for name in nodes)
    for nodes in running:
        freed = frozenset(name for name in nodes if holders[name] == 1)
        if freed:
            yield freed


class _OutOfTimeError(Exception):
    """No further plan may be made; the end that is being tried stays undecided."""


@dataclass(frozen=True, slots=True, eq=False)
class _JobEnd:
    """The end of one job, now.

    Attributes:
        freed: Its nodes; none for the present, without any end.
        state: Where others might start then if there were no leases.
        alone: The jobs that would start there.
    """

    freed: frozenset[str]
    state: BackfillState
    alone: Allocation


class _EndTrials:
    """Plans which jobs would start if a job ended, without leases and beside them."""

    def __init__(self, demand: PendingDemand, protection: DelayProtection) -> None:
        self._demand, self._protection = demand, protection
        state = demand.state
        self._rank: Rank = by_slurm_order(state)
        ranked = sorted(every_hole(state), key=idle_first(state))
        self._places = {hole.node: place for place, hole in enumerate(ranked)}
        # Pieces of shared nodes give way there in any case.
        self._without_leases = replace(state, leased=frozenset(), spans={})
        self._keepable = state.keepable
        self._fewest_nodes = min(request.nodes for request in demand.requests)
        # New leases end in time for jobs that are booked after the claims.
        end_s = demand.now_s + protection.longest_s
        self._lease_end_s = {
            hole.node: min(end_s, demand.booked_s.get(hole.node, end_s))
            for hole in state.holes
        }
        shared = state.shared.nodes
        whole = {hole.node for hole in state.holes}
        self._pieces = {n for n in state.leased if n in shared and n not in whole}

    def of(self, freed: frozenset[str]) -> _JobEnd | None:
        """Return the end of the job on *freed*; None if no job would start.

        Raises:
            _OutOfTimeError: There was no time to plan it.
        """
        state = self._after_end(self._without_leases, freed)
        shared = len(state.partly) + len(state.shared.nodes)
        if len(state.holes) + shared < self._fewest_nodes:
            return None
        alone = self._allocate(self._demand.requests, state)
        return _JobEnd(freed, state, alone) if alone.started else None

    def needed(self, end: _JobEnd, given: Mapping[str, int]) -> dict[str, int]:
        """Return the nodes to keep free besides *given*, so that no job waits for long.

        Raises:
            _OutOfTimeError: There was no time to plan them.
        """
        late = self._late(end, given)
        if not late:
            return {}
        taken, first = end.alone.taken, min(late)
        theirs = {name: by for name, by in taken.items() if by in late}
        # With no lease on a node that is taken or booked, jobs start as without leases.
        everything = {**dict.fromkeys(end.alone.booked_s, first), **taken}
        # A lease that is asked for beside the job that ends keeps others off its node.
        keepable = self._keepable - (end.freed - self._demand.state.leased)
        more, still = dict[str, int](), late
        for way in (theirs, everything):
            more = {
                name: by
                for name, by in way.items()
                if name in keepable and name not in given
            }
            still = self._late(end, {**given, **more}) if more else late
            if not still:
                return self._fewest(end, given, more)
        # Beside leases that stay with a job's part of a node, all may be in vain.
        return more if min(late ^ still, default=first) in late - still else {}

    def _fewest(
        self, end: _JobEnd, given: Mapping[str, int], enough: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the first nodes of *enough* that suffice, found by bisection.

        Idle nodes come first. When time is over, those known to suffice are returned.
        """
        ordered = sorted(enough.items(), key=lambda item: self._places[item[0]])
        few, many = 0, len(ordered)  # the first many suffice
        while many - few > 1:
            half = (few + many) // 2
            try:
                late = self._late(end, {**given, **dict(ordered[:half])})
            except _OutOfTimeError:
                break
            few, many = (half, many) if late else (few, half)
        return dict(ordered[:many])

    def _late(self, end: _JobEnd, given: Mapping[str, int]) -> frozenset[int]:
        """Return the jobs that would start now, but much later beside leases.

        Jobs that start a cycle later, once leases have gone, are not late.
        """
        requests, state = self._demand.requests, self._demand.state
        kept = self._demand.kept
        held = {n for n in self._pieces if n not in given or kept.get(n)}
        beside = self._after_end(
            state.beside(given, self._lease_end_s, kept), end.freed - held
        )
        alone = end.alone.started
        late = alone - self._allocate(requests, beside, asked=alone).started
        if not late or not end.freed:
            return late
        allocation = self._allocate(requests, beside)
        return late - self._a_cycle_later(late, end, allocation)

    def _a_cycle_later(
        self, late: frozenset[int], end: _JobEnd, allocation: Allocation
    ) -> frozenset[int]:
        """Return which of *late* start once leases have gone, a cycle after *end*.

        Args:
            late: Numbers of jobs.
            end: The end that lets jobs start.
            allocation: The jobs that started beside leases.
        """
        now_s = self._demand.now_s
        over_s = {r.job_id: now_s + r.most_s for r in self._demand.requests}
        busy_s = {name: over_s[by] for name, by in allocation.taken.items()}
        started = allocation.started
        state = replace(
            end.state,
            holes=[
                _without_end(hole) if _is_planned_for(hole, started) else hole
                for hole in end.state.holes
                if hole.node not in busy_s
            ],
            busy_until_s={**end.state.busy_until_s, **busy_s},
        )
        rest = [r for r in self._demand.requests if r.job_id not in started]
        then_s = now_s + self._protection.cycle_s
        return self._allocate(rest, state, at_s=then_s, asked=late).started

    def _allocate(
        self,
        requests: Sequence[NodeRequest],
        state: BackfillState,
        *,
        at_s: float | None = None,
        asked: frozenset[int] | None = None,
    ) -> Allocation:
        """Return which jobs get what at *at_s*, by default now.

        Raises:
            _OutOfTimeError: Nothing was planned.
        """
        if self._protection.is_out_of_time():
            raise _OutOfTimeError
        now_s = self._demand.now_s if at_s is None else at_s
        return allocate(requests, state, now_s, rank=self._rank, asked=asked)

    def _after_end(self, state: BackfillState, freed: frozenset[str]) -> BackfillState:
        """Return *state* with the nodes *freed* as holes without end."""
        new = (
            Hole(name, self._demand.now_s, math.inf, HoleEnd.OPEN)
            for name in self._demand.state.nodes
            if name in freed
        )
        busy_s = state.busy_until_s
        state = replace(
            state,
            holes=[*state.holes, *new],
            partly=state.partly - freed,
            busy_until_s={n: s for n, s in busy_s.items() if n not in freed},
        )
        shared = state.shared.nodes
        if shared.keys().isdisjoint(freed):
            return state
        return state.with_shared({n: s for n, s in shared.items() if n not in freed})


def _is_planned_for(hole: Hole, jobs: frozenset[int]) -> bool:
    is_planned = hole.ends_by is HoleEnd.PLANNED_JOB
    return is_planned and hole.blocker.isdecimal() and int(hole.blocker) in jobs


def _without_end(hole: Hole) -> Hole:
    return replace(hole, end_s=math.inf, ends_by=HoleEnd.OPEN, blocker="")


# When to poll the queue again between two ticks.

LEAD_S = 5.0
"""How long before a cycle to poll. A tick, the commit and the end of a lease take 1 to
2 s together, by Slurm's logs; every second more lets more happen unseen, which the last
poll then sees."""

LEAST_LEAD_S = 2.0
"""No poll is closer to a cycle than this, however quick the last one was."""

LEASE_LEAVES_S = 1.0
"""A commit takes 0.1 s at most, and a lease is gone 0.4 to 0.8 s after its signal."""

SECOND_S = 1.0
"""sdiag reports whole seconds: a cycle may begin by so much sooner than it says."""

APART_S = 5.0
"""Least time between polls before cycles, however often backfill runs, and between
last polls."""


@dataclass(frozen=True, slots=True)
class QueueDigest:
    """Other users' jobs from one squeue call; leases of any FreeTrain are left out.

    Attributes:
        waiting: Display ids of jobs that only a lack of nodes keeps from starting.
        holding: Display ids of jobs that hold nodes.
    """

    waiting: frozenset[str]
    holding: frozenset[str]

    def needs_tick_after(self, before: QueueDigest) -> bool:
        """Tell whether a job may need room that did not need it *before*.

        So it is where a job waits and any job came, started, ended or was withdrawn.
        """
        return bool(self.waiting) and self != before


def digest_of(jobs: Iterable[JobRecord], *, now_s: float) -> QueueDigest:
    """Return the digest of all jobs that wait or hold nodes at *now_s*, Unix time."""
    others = [job for job in jobs if not is_lease(job)]
    return QueueDigest(
        waiting=frozenset(job.display_id for job in others if could_start(job, now_s)),
        holding=frozenset(job.display_id for job in others if job.holds_nodes),
    )


@dataclass(frozen=True, slots=True)
class Cycles:
    """When backfill is due, by slurmctld's clock.

    Attributes:
        seen_s: Time of the answer, Unix time.
        due_s: Earliest start of the next cycle, Unix time; long past where nothing has
            changed since the last.
        interval_s: Seconds between two cycles, above 0.
    """

    seen_s: float
    due_s: float
    interval_s: float

    def next_poll_s(self, *, rest_s: float, lead_s: float = LEAD_S) -> float:
        """Return when to poll again, in seconds after ``seen_s``.

        Args:
            rest_s: Not sooner than this.
            lead_s: How long before a cycle.
        """
        due_s = self.due_s - self.seen_s
        if due_s <= 0.0:  # the next job that arrives, unseen, starts a cycle
            due_s = self.interval_s
        first_s = due_s - lead_s
        missed = math.ceil((rest_s - first_s) / self.interval_s)
        return first_s + missed * self.interval_s


def cycles_of(sdiag: Sdiag, config: ClusterConfig) -> Cycles | None:
    """Return when backfill is due; None without backfill or before its first cycle."""
    if config.scheduler_type != "sched/backfill" or sdiag.bf_last_cycle_s is None:
        return None
    interval_s = max(1.0, config.bf_interval_s)
    ended_s = sdiag.bf_last_cycle_s + sdiag.bf_last_took_s
    return Cycles(sdiag.taken_s, ended_s + interval_s, interval_s)


def last_lead_s(took_s: float) -> float | None:
    """Return how long before a cycle a last poll is still in time, seconds.

    Args:
        took_s: How long a poll and a tick take here.

    Returns:
        None where that is no later than the usual poll.
    """
    lead_s = max(LEAST_LEAD_S, took_s + LEASE_LEAVES_S + SECOND_S)
    return lead_s if lead_s < LEAD_S else None


# Leases that Slurm should have preempted for a job, and has not. Where Slurm preempts
# leases, ticks leave that to it; a job that could start on leases and still waits after
# the grace time and two cycles of backfill gets them from the broker. That happens once
# for each job: where it does not start then, it waits for something that is not seen
# from here.


@dataclass(frozen=True, slots=True)
class AwaitedPreemption:
    """Since when a job could start on leases; times are Unix seconds.

    Attributes:
        since_s: When that was first seen.
        given_s: When leases were given up for it; None while they were not.
    """

    since_s: float
    given_s: float | None = None


def overdue_leases(
    claimed: Mapping[str, int],
    awaited: Mapping[int, AwaitedPreemption],
    waiting: Collection[int],
    *,
    patience_s: Mapping[int, float],
    now_s: float,
) -> tuple[dict[str, int], dict[int, AwaitedPreemption]]:
    """Return the nodes of leases to give up, each with the job, and what to remember.

    Args:
        claimed: Leased nodes that Slurm should preempt, each with the job.
        awaited: What the last tick remembered.
        waiting: All jobs that wait.
        patience_s: How long Slurm may take for each of these jobs.
        now_s: Time of the snapshot, Unix time.
    """
    jobs = set(claimed.values())
    kept = {
        job: seen
        for job, seen in awaited.items()
        if (job in jobs or (seen.given_s is not None and job in waiting))
        and seen.since_s <= now_s
    }
    for job in sorted(jobs):
        seen = kept.setdefault(job, AwaitedPreemption(now_s))
        if seen.given_s is None and now_s - seen.since_s >= patience_s[job]:
            kept[job] = replace(seen, given_s=now_s)
    due = {
        job
        for job in jobs
        if (given_s := kept[job].given_s) is not None
        and now_s - given_s < patience_s[job]
    }
    return {node: job for node, job in claimed.items() if job in due}, kept
