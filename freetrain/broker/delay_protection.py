"""Which nodes not to lease, so that no job's early end makes another wait for long.

When a job ends before its limit, backfill may start a waiting job on what comes free.
Beside our leases it may choose a job further back, which then keeps the first one
waiting longer than a lease takes to go. A careful site asks for this protection:
``keep_free`` tries the end of each running job, once as if there were no leases and
once beside them, and returns the nodes that must stay free of leases so that the same
jobs start.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.backfill import allocate, by_slurm_order, idle_first
from slurm.holes import Hole, HoleEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.broker.backfill import Allocation, BackfillState, Rank
    from freetrain.broker.eligible import NodeRequest

MOST_ENDS = 100
"""Running jobs whose end is tried; each takes a plan or several."""


@dataclass(frozen=True, slots=True)
class PendingDemand:
    """Waiting jobs, and what is given up for them anyway; times are Unix seconds.

    Attributes:
        requests: What others' jobs need that only a lack of nodes keeps waiting, in
            order of priority.
        state: Where they might start.
        given: Nodes that are given up or left idle anyway, each with a job's number.
        booked_s: By node: when a job that must wait has it.
        now_s: Time of the snapshot.
    """

    requests: Sequence[NodeRequest]
    state: BackfillState
    given: Mapping[str, int]
    booked_s: Mapping[str, float]
    now_s: float


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DelayProtection:
    """What to protect waiting jobs from, and how much work that may take.

    Attributes:
        running: Nodes of each running job of others.
        cycle_s: Seconds between two cycles of backfill.
        longest_s: Length of the longest lease, seconds.
        most_ends: How many running jobs are tried: those on the most nodes.
        is_out_of_time: Tells when to stop planning; asked before each plan.
    """

    running: Sequence[frozenset[str]]
    cycle_s: float
    longest_s: float
    most_ends: int = MOST_ENDS
    is_out_of_time: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True)
class KeptFree:
    """What protection comes to.

    Attributes:
        nodes: Nodes to keep free of leases, each with the number of the job that
            would need it.
        untried: Running jobs whose end could still delay a job: there were too many,
            or there was no time.
    """

    nodes: Mapping[str, int]
    untried: int


NONE_KEPT_FREE = KeptFree({}, 0)


def keep_free(demand: PendingDemand, protection: DelayProtection) -> KeptFree:
    """Return the nodes not to lease, besides those that are given up anyway."""
    if all(hole.node in demand.given for hole in demand.state.holes):
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
    """No further plan may be made; what is being tried stays undecided."""


@dataclass(frozen=True, slots=True, eq=False)
class _JobEnd:
    """The end of one job, now.

    Attributes:
        freed: Its nodes; none for the present, without any end.
        state: Where others might start then, were there no leases.
        alone: Which of them would.
    """

    freed: frozenset[str]
    state: BackfillState
    alone: Allocation


class _EndTrials:
    """Plans who would start if jobs ended, without leases and beside them."""

    def __init__(self, demand: PendingDemand, protection: DelayProtection) -> None:
        self._demand, self._protection = demand, protection
        state = demand.state
        self._rank: Rank = by_slurm_order(state)
        ranked = sorted(state.holes, key=idle_first(state))
        self._places = {hole.node: place for place, hole in enumerate(ranked)}
        self._without_leases = replace(state, leased=frozenset(), spans={})
        self._fewest_nodes = min(request.nodes for request in demand.requests)
        # New leases end in time for jobs that are booked after the claims.
        end_s = demand.now_s + protection.longest_s
        self._lease_end_s = {
            hole.node: min(end_s, demand.booked_s.get(hole.node, end_s))
            for hole in state.holes
        }

    def of(self, freed: frozenset[str]) -> _JobEnd | None:
        """Return the end of the job on *freed*; None if no job would start.

        Raises:
            _OutOfTimeError: It was not found out.
        """
        state = self._after_end(self._without_leases, freed)
        if len(state.holes) + len(state.partly) < self._fewest_nodes:
            return None
        alone = self._allocate(self._demand.requests, state)
        return _JobEnd(freed, state, alone) if alone.started else None

    def needed(self, end: _JobEnd, given: Mapping[str, int]) -> dict[str, int]:
        """Return the nodes to keep free besides *given*, so that no job waits for long.

        Raises:
            _OutOfTimeError: It was not found out.
        """
        late = self._late(end, given)
        if not late:
            return {}
        taken, first = end.alone.taken, min(late)
        theirs = {name: by for name, by in taken.items() if by in late}
        # With no lease on any node that is taken or booked, all starts as without any.
        everything = {**dict.fromkeys(end.alone.booked_s, first), **taken}
        holes = {hole.node for hole in self._demand.state.holes}
        more: dict[str, int] = {}
        for way in (theirs, everything):
            more = {n: by for n, by in way.items() if n in holes and n not in given}
            if more and not self._late(end, {**given, **more}):
                return self._fewest(end, given, more)
        return more

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
        """Return the jobs that would start now without leases, but much later beside.

        Jobs that start a cycle later, once leases have gone, are not late.
        """
        requests, state = self._demand.requests, self._demand.state
        beside = self._after_end(state.beside(given, self._lease_end_s), end.freed)
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
            allocation: What started beside leases.
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
        return replace(
            state,
            holes=[*state.holes, *new],
            partly=state.partly - freed,
            busy_until_s={n: s for n, s in busy_s.items() if n not in freed},
        )


def _is_planned_for(hole: Hole, jobs: frozenset[int]) -> bool:
    is_planned = hole.ends_by is HoleEnd.PLANNED_JOB
    return is_planned and hole.blocker.isdecimal() and int(hole.blocker) in jobs


def _without_end(hole: Hole) -> Hole:
    return replace(hole, end_s=math.inf, ends_by=HoleEnd.OPEN, blocker="")
