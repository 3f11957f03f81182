"""The leases of a broker in the loop, and how the simulated scheduler sees them.

The broker holds one lease a slot, which is a node or some of a node's GPUs; to the
policies of a replay each slot is a node. The broker decides at ticks only, by the
policy of the replay, over slots whose holes are worth a lease; leases end by
themselves in between. With preemption the scheduler does not see leases: it places jobs
as if there were none, and trainers go when a job is placed on them. Without it leases
are jobs of the scheduler, and at each tick the broker yields the slots to which
waiting jobs have a claim.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.parts import (
    NO_SHARED_NODES,
    SharedNode,
    SharedNodes,
    YieldingLease,
)
from freetrain.broker.yielding import (
    NONE_KEPT_FREE,
    DelayProtection,
    find_claims,
    keep_free,
)
from freetrain.lookahead.base import Cohort
from freetrain.lookahead.promises import Promise, Promises, departures_per_s
from freetrain.replay.policies.base import Change
from freetrain.replay.pool import Nodes
from logs.schedule import idle_nodes, lease_slots
from logs.simulation import SlurmParameters
from logs.timeline import UnitRanges, members
from slurm.holes import Hole, HoleEnd
from slurm.pieces import GPU
from slurm.records import (
    Grain,
    Gres,
    JobRecord,
    JobState,
    Node,
    NodeSharing,
    NodeState,
    Requirement,
)

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        KeysView,
        Mapping,
        Sequence,
    )
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from freetrain.broker.yielding import KeptFree, PendingDemand
    from freetrain.lookahead.base import Forecaster, Prospect
    from freetrain.lookahead.promises import DelayInterval
    from freetrain.replay.loop import HoleUse
    from freetrain.replay.policies.base import ReplayPolicy, View
    from freetrain.replay.pool import NodePool
    from freetrain.replay.settings import LoopSettings
    from logs.gpus import GpuNodes
    from logs.simulation import Layout, Machine, ScheduleMoment, Simulation
    from logs.timeline import UnitSet


class LeaseSlots:
    """The slots of a machine that can be leased: its nodes, or parts of them.

    Where leases are of some of a node's GPUs, a node has as many slots as such leases
    fit there. Which GPUs a slot has makes no difference: a lease takes any.

    Args:
        source: The log's name.
        layout: The machine.
        lease_gpus: GPUs of a lease; None for whole nodes.

    Raises:
        UnusableLogError: The log counts no GPUs, or leases do not divide a node.

    Attributes:
        layout: The machine.
        names: The slots' names.
        per_node: Places of a node.
        width: Units of a slot.
    """

    def __init__(
        self, source: str, layout: Layout, lease_gpus: int | None = None
    ) -> None:
        self.layout = layout
        self._as_nodes = lease_slots(source, layout, lease_gpus)
        self.names = self._as_nodes.names
        self.per_node = len(self.names) // len(layout.names)
        self.width = self._as_nodes.per_node
        self._every = (1 << layout.units) - 1

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.names)

    @property
    def gpus(self) -> int | None:
        """GPUs of a lease; None where the log counts none."""
        return None if self.layout.gpus is None else self.width

    def room(self, free: UnitSet) -> NDArray[np.bool_]:
        """Return, per slot, whether *free* has room for it and those before it."""
        if self.layout.gpus is not None:
            free = self.layout.gpus.stacked(free)
        return idle_nodes(free, self._as_nodes)

    def on(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Return the slots on *nodes*, which ascend."""
        many = self.per_node
        return tuple([node * many + k for node in nodes for k in range(many)])

    def touched(self, units: UnitSet) -> NDArray[np.bool_]:
        """Return, per slot, whether its node has any of *units*."""
        nodes = ~idle_nodes(self._every & ~units, self.layout)
        return np.repeat(nodes, self.per_node) if self.per_node > 1 else nodes

    def pick(self, slot: int, free: UnitSet) -> UnitSet:
        """Return the units of *free* that a lease of *slot* takes."""
        first = slot // self.per_node * self.layout.per_node
        own, taken = free >> first & (1 << self.layout.per_node) - 1, 0
        for _ in range(self.width):
            lowest = own & -own
            taken |= lowest
            own ^= lowest
        return taken << first


class IdleSlots:
    """Which slots are idle: of each node as many as it has room for.

    Where room goes, a node's slots without a lease go first, then the last ones.

    Args:
        slots: All there are.
        free: Units that no job holds.
        leases: The broker's.

    Attributes:
        idle: One boolean a slot.
        gone: Those that were idle and have gone, since ``take_gone``.
    """

    def __init__(self, slots: LeaseSlots, free: UnitSet, leases: Leases) -> None:
        self.idle = slots.room(free)
        self.gone = np.zeros(slots.count, np.bool_)
        self._slots = slots
        self._leases = leases

    def fit(self, free: UnitSet) -> None:
        """Let as many slots be idle as *free* has room for."""
        room = self._slots.room(free)
        if self._slots.per_node > 1:
            room = self._kept(room)
        self.gone |= self.idle & ~room
        self.idle = room

    def gone_from(self, units: UnitSet) -> list[int]:
        """Return the slots that have gone from nodes with any of *units*."""
        return _numbers(self.gone & self._slots.touched(units))

    def take_gone(self) -> NDArray[np.bool_]:
        """Return ``gone``, and forget it."""
        gone, self.gone = self.gone, np.zeros_like(self.gone)
        return gone

    def _kept(self, room: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return as many slots a node as *room* has, the idle ones first."""
        many = self._slots.per_node
        kept, leased = self.idle.copy(), self._leases.nodes
        wanted, has = (each.reshape(-1, many).sum(axis=1) for each in (room, kept))
        for node in np.flatnonzero(wanted != has).tolist():
            own = range(node * many, (node + 1) * many)
            ranked = sorted(own, key=lambda k: (not kept[k], k not in leased, k))
            kept[own] = False
            kept[ranked[: wanted[node]]] = True
        return kept


def _numbers(slots: NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(slots).tolist()


class Leases:
    """One lease a node, each with the time at which it ends by itself.

    A lease ends with its time limit, or the margin before the start that was planned
    on its node when the broker polled last: each poll updates the agents.

    Attributes:
        settings: When the broker polls, and how it holds nodes.
        claimed: Nodes that waiting jobs could start on now; they are not leased.
        booked_s: By node: when it is booked for a job that must wait for others,
            seconds of the replay; a lease that begins now ends before that.
    """

    def __init__(self, nodes: int, settings: LoopSettings) -> None:
        self.claimed: frozenset[int] = frozenset()
        self.booked_s: Mapping[int, float] = {}
        self.settings = settings
        self._planned_s = [math.inf] * nodes
        self._planned_by = [0] * nodes
        self._latest_s = [math.inf] * nodes
        self._limit_s: dict[int, float] = {}
        self._next_end_s = math.inf

    @property
    def nodes(self) -> KeysView[int]:
        """The nodes that are leased."""
        return self._limit_s.keys()

    @property
    def next_end_s(self) -> float:
        """When the next lease ends by itself, ``inf`` for never."""
        return self._next_end_s

    def see(self, planned: Iterable[tuple[float, int, NDArray[np.bool_]]]) -> None:
        """Take note of the planned starts; leases end sooner where they must.

        Args:
            planned: Of each job that the scheduler plans: its start in seconds of the
                replay, in the past if it is overdue; the job; and which nodes it takes,
                one boolean a node.
        """
        nodes = len(self._planned_s)
        start_s, by = np.full(nodes, math.inf), np.zeros(nodes, np.int64)
        for planned_s, job, taken in planned:
            sooner = taken & (start_s > planned_s)
            start_s[sooner] = planned_s
            by[sooner] = job
        self._planned_s, self._planned_by = start_s.tolist(), by.tolist()
        if self.settings.margin_s is not None:
            self._latest_s = (start_s - self.settings.margin_s).tolist()
        self._find_next_end()

    def planned(self, nodes: Iterable[int]) -> dict[int, tuple[float, int]]:
        """Return when which job is planned to take each of *nodes*, if any is."""
        return {
            node: (self._planned_s[node], self._planned_by[node])
            for node in nodes
            if self._planned_s[node] < math.inf
        }

    def usable_until_s(self, node: int) -> float:
        """Return when the lease of *node* ends, or would if it were taken now."""
        limit_s = self._limit_s.get(node)
        end_s = self._booked_s(node) if limit_s is None else limit_s
        return min(end_s, self._latest_s[node])

    def open(self, nodes: Iterable[int], now_s: float) -> list[int]:
        """Return those of *nodes* whose hole is worth a lease."""
        least_s = now_s + self.settings.shortest_s
        return [
            node
            for node in nodes
            if self.usable_until_s(node) >= least_s and node not in self.claimed
        ]

    def limit(self, nodes: Iterable[int], until_s: float) -> None:
        """Let the leases of *nodes* end at *until_s*, whatever is planned later."""
        self._limit_s.update(dict.fromkeys(nodes, until_s))
        self._find_next_end()

    def keep(self, held: Iterable[int], now_s: float) -> None:
        """Lease the nodes *held*, and no others, from now on."""
        longest_s, before = now_s + self.settings.longest_s, self._limit_s
        self._limit_s = {
            node: before.get(node, min(longest_s, self._booked_s(node)))
            for node in held
        }
        self._find_next_end()

    def drop(self, nodes: Sequence[int]) -> None:
        """Let the leases of *nodes* end now."""
        if self._limit_s.keys().isdisjoint(nodes):
            return
        for node in nodes:
            self._limit_s.pop(node, None)
        self._find_next_end()

    def due(self, now_s: float) -> set[int]:
        """Return the nodes whose leases end by *now_s*."""
        if now_s < self._next_end_s:
            return set()
        return {node for node in self._limit_s if self.usable_until_s(node) <= now_s}

    def _booked_s(self, node: int) -> float:
        """Return when a lease of *node* that begins now should have ended."""
        return self.booked_s.get(node, math.inf) - (self.settings.margin_s or 0.0)

    def _find_next_end(self) -> None:
        self._next_end_s = min(
            map(self.usable_until_s, self._limit_s), default=math.inf
        )


class TickedPolicy:
    """Lets a policy decide at ticks, over nodes whose holes are worth a lease.

    In between, trainers keep their nodes: they shrink where nodes are taken or leases
    end, and none grows.

    Attributes:
        name: The policy's.
        tick_s: The time of the tick that is due.
    """

    def __init__(self, policy: ReplayPolicy, leases: Leases, use: HoleUse) -> None:
        self.name = policy.name
        self.tick_s = -math.inf
        self._policy = policy
        self._leases = leases
        self._use = use
        self._joined: set[int] = set()
        self._left: set[int] = set()

    def decide(self, view: View) -> Sequence[Change]:
        """Return the policy's changes at a tick, and else nodes of leases that end."""
        self._use.until(view.now_s)
        self._use.moved(view.joined, view.left)
        self._use.free(view.free)
        self._note(view)
        is_tick = view.now_s == self.tick_s
        changes = self._tick(view) if is_tick else self._end_due(view)
        for change in changes:
            self._use.given_up(change.drop)
        for change in changes:
            self._use.held(change.take)
        return changes

    def _note(self, view: View) -> None:
        """Collect the nodes that will have joined and left by the next tick."""
        unseen = self._joined.intersection(view.left)
        self._joined -= unseen
        self._left.update(set(view.left) - unseen)
        self._joined.update(view.joined)

    def _tick(self, view: View) -> Sequence[Change]:
        self.tick_s = -math.inf  # one decision a tick
        free = self._leases.open(view.free, view.now_s)
        closed = len(view.free) - len(free)
        at_tick = replace(
            view,
            free=UnitRanges.of(free),
            idle_nodes=view.idle_nodes - closed,
            joined=Nodes.of(sorted(self._joined)),
            left=Nodes.of(sorted(self._left)),
        )
        self._joined, self._left = set(), set()
        changes = self._policy.decide(at_tick)
        self._leases.keep(_held_after(view, changes), view.now_s)
        return changes

    def _end_due(self, view: View) -> Sequence[Change]:
        due = self._leases.due(view.now_s)
        if not due:
            return ()
        self._leases.drop(tuple(due))
        return _drops(view, due)


def _drops(view: View, nodes: AbstractSet[int]) -> list[Change]:
    """Return the changes by which trainers give up those of *nodes* that they hold."""
    lost = (sorted(trainer.held & nodes) for trainer in view.trainers)
    return [Change(place, drop=tuple(own)) for place, own in enumerate(lost) if own]


def _held_after(view: View, changes: Sequence[Change]) -> set[int]:
    held = {node for trainer in view.trainers for node in trainer.held}
    held.difference_update(node for change in changes for node in change.drop)
    held.update(node for change in changes for node in change.take)
    return held


class PromisedForecaster:
    """Groups nodes by the end that is known of them, and the others by their past.

    A node whose lease ends, or would end, within the horizon is in the group of all
    that end then; one that is planned for a job within the hour in that job's; any
    other in the cluster in which it is likely to leave.

    Args:
        learned: Learns from the past.
        leases: The broker's, with the planned starts that it knows.
        horizon_s: Horizon of prospects, that of *learned*.
    """

    def __init__(
        self, learned: Forecaster, leases: Leases, *, horizon_s: float
    ) -> None:
        self._learned = learned
        self._leases = leases
        self._horizon_s = horizon_s
        self._promises = Promises()
        self._promised: dict[int, Promise] = {}
        self._now_s = 0.0
        self._group_of: dict[int, int] = {}
        self._groups: dict[int, set[int]] = {}
        self._cohorts: dict[int, Cohort] = {}
        self._numbers = 0

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by the past."""
        return self._learned.is_learning

    def intervals(self) -> tuple[DelayInterval, ...]:
        """Return delays of planned starts, by lead."""
        return self._promises.intervals()

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Learn from the nodes that changed, and from the planned starts."""
        self._now_s = now_s
        self._learned.see(now_s, joined=joined, left=left)
        planned = self._leases.planned(self._learned.idle())
        self._promised = {
            node: Promise(end_s, str(job)) for node, (end_s, job) in planned.items()
        }
        self._promises.see(now_s, left=left, promised=self._promised)
        self._regroup()

    def cluster(self, node: int) -> int:
        """Return the group of an idle node."""
        return self._group_of[node]

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of a group."""
        return self._groups[cluster]

    def cohorts(self) -> Collection[Cohort]:
        """Return all groups by cohort: each is one, as promises are made by node."""
        return self._cohorts.values()

    def cohort(self, cluster: int) -> Cohort:
        """Return the cohort of a group."""
        return self._cohorts[cluster]

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of a group until the horizon."""
        node = min(self._groups[cluster])
        plain = self._learned.prospect(self._learned.cluster(node))
        return self._promises.expected(
            plain,
            self._near(node),
            now_s=self._now_s,
            usable_s=self._leases.usable_until_s(node) - self._now_s,
            horizon_s=self._horizon_s,
        )

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more."""
        plain = self._learned.prospect(self._learned.cluster(node))
        promise = self._near(node)
        if promise is None:
            return self._learned.survival(node, horizon_s)
        rate = departures_per_s(plain, self._horizon_s)
        lead_s = promise.end_s - self._now_s
        return self._promises.survival(rate, lead_s=lead_s, after_s=horizon_s)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together, from the past alone."""
        return self._learned.affinity(nodes)

    def _near(self, node: int) -> Promise | None:
        promise = self._promised.get(node)
        is_near = promise is not None and promise.is_near(self._now_s)
        return promise if is_near else None

    def _regroup(self) -> None:
        numbers: dict[tuple[str, float | str], int] = {}
        self._group_of, self._groups = {}, {}
        for node in sorted(self._learned.idle()):
            key = self._key(node)
            if key not in numbers:
                numbers[key] = self._numbers
                self._groups[self._numbers] = set()
                self._numbers += 1
            self._group_of[node] = numbers[key]
            self._groups[numbers[key]].add(node)
        self._cohorts = {k: Cohort(len(own), [k]) for k, own in self._groups.items()}

    def _key(self, node: int) -> tuple[str, float | str]:
        usable_until_s = self._leases.usable_until_s(node)
        if usable_until_s - self._now_s < self._horizon_s:
            return "ends", usable_until_s
        promise = self._near(node)
        if promise is not None:
            return "promised", promise.by
        return "learned", self._learned.cluster(node)


# The scheduler's view


PROTECT_AGAIN_S = 300.0
"""While nothing changes, protection is worked out once in each span of this length."""

_PENDING = frozenset({JobState.PENDING})
_PARTITIONS = ("all",)
_SHARING = NodeSharing(Grain.CPU, counts_memory=False)
"""Of GPUs alone: each has a CPU of its own."""
_BACKFILL = Backfill(
    SlurmParameters().bf_resolution_s, 60.0 * SlurmParameters().bf_window_min
)


class TrainerGuests:
    """Trainers as guests of the machine: they go when a job is placed on them.

    Attributes:
        pool: Which trainer holds which node; None before the replay and after it.
        waited_s: How long each job that met a trainer waited for it to go.
    """

    def __init__(
        self, idle: IdleSlots, settings: LoopSettings, *, start_s: float
    ) -> None:
        self.pool: NodePool | None = None
        self.waited_s: dict[int, float] = {}
        self._idle = idle
        self._settings = settings
        self._start_s = start_s

    def leave(self, job: int, units: UnitSet, left: UnitSet, now_s: float) -> float:
        """Go from *units*; a trainer that has finished by now has nothing to commit."""
        if self.pool is None:
            return 0.0
        self._idle.fit(left)
        holders = self.pool.holders(self._idle.gone_from(units))
        passed_s = now_s - self._start_s
        if not any(run.finish_s > passed_s for run in holders):
            return 0.0
        self.waited_s[job] = self._settings.used_notice_s
        return self._settings.used_notice_s


class UnseenLeases:
    """Mode ``preempt``: the scheduler places jobs as if there were no leases.

    Attributes:
        units: Units that the scheduler holds for leases: none.
    """

    def __init__(self) -> None:
        self.units: UnitSet = 0

    def watch(self, moment: ScheduleMoment) -> None:
        """Do nothing."""

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Name no job: `TrainerGuests` notes which jobs wait for a notice."""
        del starts_s
        return {}

    def yield_claimed(
        self, now_s: float
    ) -> tuple[Sequence[int], Sequence[ScheduleMoment]]:
        """Give up nothing: jobs take what they need."""
        del now_s
        return (), ()

    def hand_over(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Do nothing."""
        del now_s
        return ()

    def give_all_back(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Do nothing: no lease is a job."""
        del now_s
        return ()


class LeaseJobs:
    """Mode ``yield``: leases are jobs, and others wait until they are given up.

    The scheduler knows a lease's time limit from its begin. At each tick the broker
    gives up the leases that make room for others.

    Attributes:
        units: Units that the scheduler holds for leases, and so are not free.
    """

    def __init__(
        self,
        simulation: Simulation,
        slots: LeaseSlots,
        leases: Leases,
        claims: QueueClaims,
        *,
        start_s: float,
    ) -> None:
        self.units: UnitSet = 0
        self._simulation = simulation
        self._slots = slots
        self._leases = leases
        self._claims = claims
        self._start_s = start_s
        self._could_s: dict[int, float] = {}
        self._spans: dict[int, LeaseSpan] = {}
        self._units_of: dict[int, UnitSet] = {}

    def watch(self, moment: ScheduleMoment) -> None:
        """Note which jobs would have started but for leases."""
        for job in moment.put_off:
            self._could_s.setdefault(job, moment.time_s)

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Return how long each job waited for leases to go, if it met any.

        It waits from when the scheduler would have started it but for leases.

        Args:
            starts_s: When each job started, by job.
        """
        waits = ((job, starts_s[job] - s) for job, s in self._could_s.items())
        return {job: wait_s for job, wait_s in waits if wait_s > 0}

    def yield_claimed(
        self, now_s: float
    ) -> tuple[Sequence[int], Sequence[ScheduleMoment]]:
        """Give up the nodes to which waiting jobs have a claim, and lease none of them.

        Leases that would put a job off are made to end sooner.

        Returns:
            The nodes that were given up, and the scheduler's steps with them.
        """
        claim = self._claims.find(self._spans, now_s)
        self._leases.claimed = claim.slots
        self._leases.booked_s = {
            node: start_s - self._start_s for node, start_s in claim.booked_s.items()
        }
        for node, end_s in claim.ends_s.items():
            self._spans[node] = replace(self._spans[node], end_s=end_s)
            self._leases.limit((node,), end_s - self._start_s)
            self._simulation.shorten(self._units_of[node], until_s=end_s)
        given = sorted(self._leases.claimed.intersection(self._leases.nodes))
        self._leases.drop(given)
        self._forget()
        return given, self._release(given, now_s)

    def hand_over(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Give back nodes that are not leased any more, and let new leases be jobs.

        Returns:
            The scheduler's steps.
        """
        held = self._leases.nodes
        self._forget()
        back = self._release([*(self._units_of.keys() - held)], now_s)
        by_end: dict[float, list[int]] = {}
        for node in held - self._spans.keys():
            by_end.setdefault(self._leases.usable_until_s(node), []).append(node)
        begun = [
            self._lease(until_s, nodes, now_s)
            for until_s, nodes in sorted(by_end.items())
        ]
        return [*back, *begun]

    def _forget(self) -> None:
        held = self._leases.nodes
        self._spans = {node: span for node, span in self._spans.items() if node in held}

    def _lease(
        self, until_s: float, nodes: Sequence[int], now_s: float
    ) -> ScheduleMoment:
        """Let new leases of *nodes* be jobs with a limit."""
        self._leases.limit(nodes, until_s)
        end_s = until_s + self._start_s
        self._spans |= dict.fromkeys(nodes, LeaseSpan(now_s, end_s))
        units, free = 0, self._simulation.machine.free
        for node in nodes:
            self._units_of[node] = self._slots.pick(node, free & ~units)
            units |= self._units_of[node]
        self.units |= units
        return self._simulation.lease(units, until_s=end_s, now_s=now_s)

    def give_all_back(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Let all leases end; return the scheduler's steps."""
        return self._release([*self._units_of], now_s)

    def _release(self, nodes: Iterable[int], now_s: float) -> Sequence[ScheduleMoment]:
        units = 0
        for node in nodes:
            units |= self._units_of.pop(node, 0)
        if not units:
            return ()
        self.units &= ~units
        return (self._simulation.release(units, now_s=now_s),)


class QueueClaim(NamedTuple):
    """What waiting jobs claim; times are seconds of the log.

    Attributes:
        slots: Those that we must not hold.
        booked_s: By slot: when others are booked for jobs.
        ends_s: By leased slot: the sooner end of a lease that would put a job off.
    """

    slots: frozenset[int]
    booked_s: Mapping[int, float]
    ends_s: Mapping[int, float]


class QueueClaims:
    """Finds the slots that waiting jobs have a claim to, with the live broker's rules.

    Every allocation unit stands for a node of Slurm's; or every node, where units are
    GPUs of nodes that jobs share.

    Args:
        simulation: The machine and its scheduler.
        slots: Where leases can be.
        knows_plans: Whether the scheduler's planned starts are known.
        margin_s: How long before a job could start leases are to end that put it off.
        careful_s: The longest lease, if nodes are left alone that some job would need
            if one other job ended; None if they are not.
    """

    def __init__(
        self,
        simulation: Simulation,
        slots: LeaseSlots,
        *,
        knows_plans: bool,
        margin_s: float = 0.0,
        careful_s: float | None = None,
    ) -> None:
        self._simulation = simulation
        self._slots = slots
        self._knows_plans = knows_plans
        self._margin_s = margin_s
        self._protection = None if careful_s is None else CachedProtection(careful_s)
        layout = slots.layout
        self._gpus = layout.gpus
        self._grain = 1 if layout.gpus is None else layout.per_node
        self._names = [f"{node:08}" for node in range(layout.units // self._grain)]
        self._records = {
            name: Node(
                name,
                frozenset({NodeState.IDLE}),
                partitions=_PARTITIONS,
                gres=() if layout.gpus is None else _gpus(self._grain),
                cpus=self._grain,
            )
            for name in self._names
        }

    def find(self, leases: Mapping[int, LeaseSpan], now_s: float) -> QueueClaim:
        """Return what waiting jobs claim now.

        Args:
            leases: By slot: since when and until when it is leased, seconds of the
                log.
            now_s: When the broker polls, likewise.
        """
        machine = self._simulation.machine
        if not machine.waiting:
            return QueueClaim(frozenset(), {}, {})
        leased = self._leased(leases)
        spans = {
            name: LeaseSpan(
                min(leases[slot].start_s for slot in own),
                max(leases[slot].end_s for slot in own),
            )
            for name, own in leased.items()
        }
        idle = [self._names[node] for node in self._within(machine.free)]
        busy_s = self._busy(machine)
        holes = self._holes(now_s)
        state = BackfillState(
            holes=[
                holes(name) for name in (*idle, *(n for n in spans if n not in busy_s))
            ],
            nodes=self._records,
            leased=frozenset(spans),
            shared=self._shared(busy_s.keys() | spans.keys(), leased, holes),
            spans=spans,
            busy_until_s=busy_s,
            margin_s=self._margin_s,
            backfill=_BACKFILL,
        )
        found = find_claims(
            self._waiting(machine),
            state,
            is_ours=lambda _: False,
            now_s=now_s,
            protect=self._protect(machine),
        )
        return QueueClaim(
            frozenset(
                slot
                for name in found.nodes
                for slot in self._on(name)
                if slot not in leases or found.takes(name, slot)
            ),
            _earliest(
                (slot, start_s)
                for name, start_s in found.booked_s.items()
                for slot in self._on(name)
            ),
            _earliest(
                (slot, end.end_s)
                for name, end in found.sooner_ends.items()
                for slot in leased[name]
                if not found.takes(name, slot)
            ),
        )

    def _leased(self, leases: Iterable[int]) -> dict[str, list[int]]:
        """Return the leased slots of each node of Slurm's."""
        leased: dict[str, list[int]] = {}
        layout, many = self._slots.layout, self._slots.per_node
        for slot in leases:
            first = slot // many * layout.per_node
            end = min(first + layout.per_node, layout.units)
            for node in range(first // self._grain, end // self._grain):
                leased.setdefault(self._names[node], []).append(slot)
        return leased

    def _on(self, name: str) -> tuple[int, ...]:
        """Return the slots on a node of Slurm's, or the one that it is a part of."""
        unit = int(name) * self._grain
        return self._slots.on((unit // self._slots.layout.per_node,))

    def _within(self, units: UnitSet) -> Sequence[int]:
        """Return the nodes of Slurm's that have all of their units in *units*."""
        if self._grain == 1:
            return members(units)
        firsts = self._slots.layout.first_units_within(units)
        return [unit // self._grain for unit in members(firsts)]

    def _touched(self, units: UnitSet) -> Sequence[int]:
        """Return the nodes of Slurm's that have any of *units*, ascending."""
        if self._grain == 1:
            return members(units)
        return sorted({unit // self._grain for unit in members(units)})

    def _protect(self, machine: Machine) -> Callable[[PendingDemand], KeptFree] | None:
        if self._protection is None:
            return None
        runs = (job for number, job in machine.running.items() if number >= 0)
        names = [
            frozenset(self._names[k] for k in self._touched(job.units)) for job in runs
        ]
        return partial(self._protection, running=names)

    def _holes(self, now_s: float) -> Callable[[str], Hole]:
        """Return what makes the hole of a node, with the job planned there."""
        ends: dict[str, Hole] = {}
        plan = self._simulation.plan if self._knows_plans else ()
        for planned in sorted(plan, key=lambda job: job.start_s, reverse=True):
            by, start_s = str(planned.job + 1), planned.start_s
            for node in self._touched(planned.units):
                name = self._names[node]
                ends[name] = Hole(name, now_s, start_s, HoleEnd.PLANNED_JOB, by)
        return lambda name: ends.get(name) or Hole(name, now_s, math.inf, HoleEnd.OPEN)

    def _busy(self, machine: Machine) -> dict[str, float]:
        """Return, of each node that jobs are on, when their requests end."""
        busy_s: dict[str, float] = {}
        for number, running in machine.running.items():
            if number >= 0:
                end_s = max(running.expected_end_s, machine.now_s)
                for node in self._touched(running.units):
                    name = self._names[node]
                    busy_s[name] = max(end_s, busy_s.get(name, end_s))
        return busy_s

    def _shared(
        self,
        names: AbstractSet[str],
        leased: Mapping[str, Sequence[int]],
        holes: Callable[[str], Hole],
    ) -> SharedNodes:
        """Return the nodes *names*, parts of which are held; none without GPUs."""
        if self._gpus is None:
            return NO_SHARED_NODES
        free, width = self._simulation.machine.free, self._slots.width
        held = Requirement(partition="", cpus=width, gres=_gpus(width), exclusive=False)
        shared = {}
        for name in sorted(names):
            own = free >> int(name) * self._grain & (1 << self._grain) - 1
            used = self._grain - own.bit_count()
            node = replace(
                self._records[name], allocated_cpus=used, allocated_gres=_gpus(used)
            )
            pieces = [
                YieldingLease(slot, -slot, held)
                for slot in sorted(leased.get(name, ()), reverse=True)
            ]
            shared[name] = SharedNode(node, holes(name), tuple(pieces))
        return SharedNodes(shared, _SHARING)

    def _waiting(self, machine: Machine) -> Iterator[JobRecord]:
        """Yield the queue, first in line first."""
        plan = self._simulation.plan if self._knows_plans else ()
        planned_s = {job.job: job.start_s for job in plan}
        for place, job in enumerate(machine.waiting):
            record = JobRecord(
                job_id=job + 1,
                display_id=str(job + 1),
                states=_PENDING,
                partitions=_PARTITIONS,
                priority=len(machine.waiting) - place,
                node_count=machine.size[job],
                limit_s=machine.request_s[job],
                submit_s=machine.jobs[job].submit_s,
                start_s=planned_s.get(job),
                planned_nodes=self._names[0] if job in planned_s else "",
            )
            yield record if self._gpus is None else self._of_gpus(record, self._gpus)

    def _of_gpus(self, record: JobRecord, gpus: GpuNodes) -> JobRecord:
        """Return *record* where it counts GPUs: the largest part on each node."""
        size = record.node_count
        job = self._simulation.machine.jobs[record.job_id - 1]
        nodes = gpus.nodes_of(size, job.node_count)
        each = -(-size // nodes)
        return replace(
            record,
            node_count=nodes,
            task_count=nodes,
            cpu_count=nodes * each,
            gres_per_node=f"gres:{GPU}:{each}",
            oversubscribe="OK",
        )


def _earliest(times_s: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return the earliest time of each slot."""
    earliest: dict[int, float] = {}
    for slot, at_s in times_s:
        earliest[slot] = min(at_s, earliest.get(slot, math.inf))
    return earliest


def _gpus(count: int) -> tuple[Gres, ...]:
    return (Gres(GPU, "", count),)


class CachedProtection:
    """Finds the nodes to keep leases off, again only when something has changed.

    All jobs are tried, as no scheduling cycle waits for a replay.

    Args:
        longest_s: The longest lease.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._asked: object = None
        self._kept_free = NONE_KEPT_FREE

    def __call__(
        self, demand: PendingDemand, *, running: Sequence[frozenset[str]]
    ) -> KeptFree:
        """Return the nodes to keep leases off.

        Args:
            demand: The waiting jobs, and the nodes they wait for.
            running: Nodes of each job that runs.
        """
        state = demand.state
        asked = (
            [job.job_id for job in demand.requests],
            running,
            {hole.node for hole in state.holes},
            state.spans,
            demand.given,
            demand.booked_s,
            state.shared.nodes,
            demand.now_s // PROTECT_AGAIN_S,
        )
        if asked != self._asked:
            again_s = SlurmParameters().bf_interval_s
            protection = DelayProtection(
                running, again_s, self._longest_s, most_ends=len(running)
            )
            self._asked = asked
            self._kept_free = keep_free(demand, protection)
        return self._kept_free
