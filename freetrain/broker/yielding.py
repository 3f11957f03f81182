"""Who would start if a job ended, without leases and beside them.

What ``freetrain.broker.caution`` goes by.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.broker.backfill import (
    by_slurm_order,
    could_start,
    idle_first,
    is_lease,
    share,
)
from slurm.holes import Hole, HoleEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from freetrain.broker.backfill import Allocation, BackfillState, NodeRequest, Rank
    from slurm.config import ClusterConfig
    from slurm.records import JobRecord, Sdiag


# ----------------------------------------------------------------------
# Who would start if a job ended, without leases and beside them.


class TimeIsOverError(Exception):
    """No more may be planned; what is being tried stays undecided."""


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """What would be so if one job ended now.

    Attributes:
        freed: Its nodes; none for how it is now.
        ground: Where others might start then, were there no leases.
        alone: Who would.
    """

    freed: frozenset[str]
    ground: BackfillState
    alone: Allocation


class Trial:
    """Tries who would start if jobs ended, without leases and beside them.

    Args:
        scene: What is so.
        caution: When the next cycles are, and how long leases last.
    """

    def __init__(self, scene: Scene, caution: DelayProtection) -> None:
        ground = scene.ground
        self._waiting, self._ground, self._now_s = scene.waiting, ground, scene.now_s
        self._again_s, self._is_late = caution.again_s, caution.is_late
        self._rank: Rank = by_slurm_order(ground)
        ranked = sorted(ground.holes, key=idle_first(ground))
        self._places = {hole.node: place for place, hole in enumerate(ranked)}
        self._alone = replace(ground, leased=frozenset(), spans={})
        self._smallest = min(wish.nodes for wish in scene.waiting)
        self._over_s = {
            one.job_id: scene.now_s + one.most_s for one in scene.waiting
        }  # of those who start now
        end_s = scene.now_s + caution.longest_s
        # New leases end in time for who is booked by the claims.
        self._ends_s = {
            hole.node: min(end_s, scene.booked_s.get(hole.node, end_s))
            for hole in ground.holes
        }

    def end(self, freed: frozenset[str]) -> End | None:
        """Return what would be so if the job on *freed* ended; None if nobody starts.

        Args:
            freed: Its nodes; none for how it is now.

        Raises:
            TimeIsOverError: It was not found out.
        """
        ground = self._ended(self._alone, freed)
        if len(ground.holes) + len(ground.partly) < self._smallest:
            return None
        alone = self._share(self._waiting, ground)
        return End(freed, ground, alone) if alone.started else None

    def needed(self, end: End, given: Mapping[str, int]) -> dict[str, int]:
        """Return what must go besides *given*, so that nobody waits for long.

        Args:
            end: What is so.
            given: Nodes that are not leased anyway.

        Raises:
            TimeIsOverError: It was not found out.
        """
        late = self._late(end, given)
        if not late:
            return {}
        taken, first = end.alone.taken, min(late)
        theirs = {name: by for name, by in taken.items() if by in late}
        # Where nothing stays on what anybody takes or is booked on, all is as alone.
        everything = {**dict.fromkeys(end.alone.booked_s, first), **taken}
        holes = {hole.node for hole in self._ground.holes}
        more: dict[str, int] = {}
        for way in (theirs, everything):
            more = {n: by for n, by in way.items() if n in holes and n not in given}
            if more and not self._late(end, {**given, **more}):
                return self._fewest(end, given, more)
        return more

    def _fewest(
        self, end: End, given: Mapping[str, int], enough: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the first of *enough* that suffice, by halves; idle nodes first.

        When time is over those are returned that are known to suffice by then.

        Args:
            end: What is so.
            given: Nodes that are not leased anyway.
            enough: Nodes that suffice.
        """
        ordered = sorted(enough.items(), key=lambda item: self._places[item[0]])
        few, many = 0, len(ordered)  # the first many suffice
        while many - few > 1:
            half = (few + many) // 2
            try:
                late = self._late(end, {**given, **dict(ordered[:half])})
            except TimeIsOverError:
                break
            few, many = (half, many) if late else (few, half)
        return dict(ordered[:many])

    def _late(self, end: End, given: Mapping[str, int]) -> frozenset[int]:
        """Return who would start in the next cycle without leases, but for long not so.

        Args:
            end: What is so.
            given: Nodes that are not leased.
        """
        beside = self._ended(self._ground.beside(given, self._ends_s), end.freed)
        alone = end.alone.started
        late = alone - self._share(self._waiting, beside, until=alone).started
        if not late or not end.freed:
            return late
        shared = self._share(self._waiting, beside)
        return late - self._a_cycle_later(late, end, shared)

    def _a_cycle_later(
        self, late: frozenset[int], end: End, shared: Allocation
    ) -> frozenset[int]:
        """Return who starts once leases are given up, a cycle after others have.

        Args:
            late: Who is asked about.
            end: What is so.
            shared: Who started beside leases.
        """
        busy_s = {name: self._over_s[by] for name, by in shared.taken.items()}
        ground = replace(
            end.ground,
            holes=[
                _open(hole) if _is_planned_for(hole, shared.started) else hole
                for hole in end.ground.holes
                if hole.node not in busy_s
            ],
            busy_until_s={**end.ground.busy_until_s, **busy_s},
        )
        rest = [one for one in self._waiting if one.job_id not in shared.started]
        then_s = self._now_s + self._again_s
        return self._share(rest, ground, at_s=then_s, until=late).started

    def _share(
        self,
        waiting: Sequence[NodeRequest],
        ground: BackfillState,
        *,
        at_s: float | None = None,
        until: frozenset[int] | None = None,
    ) -> Allocation:
        """Return who gets what, now unless another time is told.

        Raises:
            TimeIsOverError: Nothing was planned.
        """
        if self._is_late():
            raise TimeIsOverError
        now_s = self._now_s if at_s is None else at_s
        return share(waiting, ground, now_s, rank=self._rank, until=until)

    def _ended(self, ground: BackfillState, freed: frozenset[str]) -> BackfillState:
        """Return *ground* with the nodes *freed* as holes without end."""
        new = (
            Hole(name, self._now_s, math.inf, HoleEnd.OPEN)
            for name in self._ground.nodes
            if name in freed
        )
        busy_s = ground.busy_until_s
        return replace(
            ground,
            holes=[*ground.holes, *new],
            partly=ground.partly - freed,
            busy_until_s={n: s for n, s in busy_s.items() if n not in freed},
        )


def _is_planned_for(hole: Hole, jobs: frozenset[int]) -> bool:
    is_planned = hole.ends_by is HoleEnd.PLANNED_JOB
    return is_planned and hole.blocker.isdecimal() and int(hole.blocker) in jobs


def _open(hole: Hole) -> Hole:
    return replace(hole, end_s=math.inf, ends_by=HoleEnd.OPEN, blocker="")


# ----------------------------------------------------------------------
# What is not leased, so that no single end of a job makes somebody wait for long.

MOST_ENDS = 100
"""Jobs that are supposed to have ended at one look; each costs a plan, or several."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DelayProtection:
    """What there is to be careful about, and how long that may take.

    Attributes:
        running: Nodes of each job of others that runs, one entry a job.
        again_s: Seconds from one cycle of backfill's to the next.
        longest_s: The longest lease, seconds.
        most_ends: How many of the jobs that run are tried at most: those on the most
            nodes.
        is_late: Tells when no more may be planned; asked before each plan.
    """

    running: Sequence[frozenset[str]]
    again_s: float
    longest_s: float
    most_ends: int = MOST_ENDS
    is_late: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True)
class KeptFree:
    """What came of it.

    Attributes:
        kept: Nodes to keep leases off, each with the number of who would need it.
        untried: Jobs that run whose end could still make somebody wait: there were
            too many, or there was no time.
    """

    kept: Mapping[str, int]
    untried: int


NONE_KEPT_FREE = KeptFree({}, 0)


@dataclass(frozen=True, slots=True)
class Scene:
    """What is so at a look.

    Attributes:
        waiting: What others' jobs need that nothing but nodes keeps waiting, in their
            order.
        ground: Where they might start.
        given: Nodes that are given up or left alone anyway, each with a job's number.
        booked_s: When nodes are booked for jobs, by node, Unix time.
        now_s: When the snapshot was taken, Unix time.
    """

    waiting: Sequence[NodeRequest]
    ground: BackfillState
    given: Mapping[str, int]
    booked_s: Mapping[str, float]
    now_s: float


def keep_free(scene: Scene, caution: DelayProtection) -> KeptFree:
    """Return what not to lease, besides what is given up anyway.

    Args:
        scene: What is so; somebody waits.
        caution: What runs, and how long this may take.
    """
    if all(hole.node in scene.given for hole in scene.ground.holes):
        return NONE_KEPT_FREE
    trial = Trial(scene, caution)
    freed = sorted(_freed(caution.running), key=len, reverse=True)
    untried = [frozenset[str](), *freed[: caution.most_ends]]  # first how it is now
    ends: list[End] = []
    unsure: list[End] = []
    kept: dict[str, int] = {}
    with suppress(TimeIsOverError):
        while untried or unsure:
            end = trial.end(untried[0]) if untried else unsure[0]
            more = trial.needed(end, {**scene.given, **kept}) if end else {}
            (untried or unsure).pop(0)
            if more:  # whoever has been asked before may come out otherwise now
                kept |= more
                unsure += [one for one in ends if one is not end and one not in unsure]
            if end and end not in ends:
                ends.append(end)
    beyond = freed[caution.most_ends :]
    left = [*beyond, *filter(None, untried), *(end for end in unsure if end.freed)]
    return KeptFree(kept, len(left))


def _freed(running: Sequence[frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yield the nodes that nobody would hold any more, were one job to end."""
    holders = Counter(name for nodes in running for name in nodes)
    for nodes in running:
        freed = frozenset(name for name in nodes if holders[name] == 1)
        if freed:
            yield freed


# ----------------------------------------------------------------------
# Whom the broker makes room for where Slurm cannot preempt leases.


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that pending jobs could start on now, and those that they wait for.

    Attributes:
        leased: Leased nodes that must be given up, each with the job's number.
        idle: Idle nodes that must be left alone, each with the job's number.
        booked_s: When nodes are booked for jobs that must wait for others, were our
            leases away, by node, Unix time. A lease that begins now should be gone by
            then: what backfill planned last may be older than what it will plan next.
        care: Which of these nodes nobody could start on yet, but would need if a job
            that runs ended; nothing where the site does not ask for that.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]
    booked_s: Mapping[str, float] = field(default_factory=dict)
    kept_free: KeptFree = NONE_KEPT_FREE

    @property
    def awaited(self) -> frozenset[str]:
        """Leased nodes that somebody could start on now."""
        return frozenset(self.leased.keys() - self.kept_free.kept.keys())

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that are not ours to plan with."""
        return frozenset((*self.leased, *self.idle))


NO_CLAIMS = Claims({}, {})


def find_claims(
    jobs: Iterable[JobRecord],
    ground: BackfillState,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
    careful: Callable[[Scene], KeptFree] | None = None,
) -> Claims:
    """Return which nodes the pending jobs of others could start on.

    Jobs come in order of priority. One that finds too few nodes claims none, but for
    those of leases that put its planned start off; who comes after it must leave it
    the nodes that it could have first. One that finds nodes on which backfill has
    planned another claims also those of leases that move plans of jobs before it.
    Idle nodes are claimed before leased ones, unless that keeps anybody from starting
    whom Slurm, which takes the first in its order, would start. Leases that stay may
    keep somebody from starting, too: then others go, or more.
    Leases of other users' FreeTrain claim none: they would take ours, we theirs, and
    so on.

    Args:
        jobs: All jobs of a snapshot.
        ground: Where they might start.
        is_ours: Tells our own leases.
        now_s: When the snapshot was taken, Unix time.
        careful: Says what to leave alone, too, lest somebody needs it when a job that
            runs ends; None to be as careless as that.
    """
    waiting = sorted(
        (
            job
            for job in jobs
            if not is_ours(job) and not is_lease(job) and could_start(job, now_s)
        ),
        key=lambda job: (-(job.priority or 0), job.job_id),
    )
    if not waiting or not ground.holes:
        return NO_CLAIMS
    wishes = [ground.eligibility.wish(job) for job in waiting]
    shared = share(wishes, ground, now_s, rank=idle_first(ground))
    if shared.started:
        shared = _with_all_started(wishes, ground, now_s, shared)
    kept_free = NONE_KEPT_FREE
    if careful is not None:
        given, booked_s = shared.taken, shared.booked_s
        kept_free = careful(Scene(wishes, ground, given, booked_s, now_s))
    taken, leased = {**shared.taken, **kept_free.kept}, ground.leased
    return Claims(
        leased={name: by for name, by in taken.items() if name in leased},
        idle={name: by for name, by in taken.items() if name not in leased},
        booked_s=shared.booked_s,
        kept_free=kept_free,
    )


def _with_all_started(
    waiting: Sequence[NodeRequest],
    ground: BackfillState,
    now_s: float,
    idle_first: Allocation,
) -> Allocation:
    """Return who gets what, so that all start whom Slurm would start without leases.

    Args:
        waiting: What jobs need, in order of priority.
        ground: Where they might start.
        now_s: When the snapshot was taken, Unix time.
        idle_first: Who gets what where idle nodes are given first.
    """
    rank = by_slurm_order(ground)
    as_slurm = share(waiting, ground, now_s, rank=rank)
    for way in (idle_first, as_slurm, _unmoved(idle_first, waiting)):
        beside = ground.beside(way.taken, way.booked_s)
        if as_slurm.started <= share(waiting, beside, now_s, rank=rank).started:
            return way
    # Nothing that stays is in anybody's way: all come out as without leases.
    return _unmoved(as_slurm, waiting)


def _unmoved(shared: Allocation, waiting: Sequence[NodeRequest]) -> Allocation:
    """Return *shared* where leases go, too, that outlast the start of who is booked."""
    first = next(one.job_id for one in waiting if one.job_id in shared.started)
    moving = dict.fromkeys(shared.moving, first)
    return replace(shared, taken={**moving, **shared.taken})


# ----------------------------------------------------------------------
# Who else is there, as far as one question tells: what a last look goes by.


@dataclass(frozen=True, slots=True)
class QueueDigest:
    """Others' jobs at one time; leases, of anybody's FreeTrain, are none of them.

    Attributes:
        waiting: Those that nothing but nodes keeps from starting, as Slurm names them.
        holding: Those that hold nodes, likewise.
    """

    waiting: frozenset[str]
    holding: frozenset[str]

    def needs_tick_after(self, before: QueueDigest) -> bool:
        """Tell whether there may be somebody to make room for who was not *before*.

        That needs somebody who waits, and that somebody came, began, ended or gave up.
        """
        return bool(self.waiting) and self != before


EMPTY_DIGEST = QueueDigest(frozenset(), frozenset())


def digest_of(jobs: Iterable[JobRecord], *, now_s: float) -> QueueDigest:
    """Return who is there.

    Args:
        jobs: Every job that waits or holds nodes.
        now_s: Unix time.
    """
    others = [job for job in jobs if not is_lease(job)]
    return QueueDigest(
        waiting=frozenset(job.display_id for job in others if could_start(job, now_s)),
        holding=frozenset(job.display_id for job in others if job.holds_nodes),
    )


# ----------------------------------------------------------------------
# When to look again, so that nobody is overtaken between two ticks.

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
