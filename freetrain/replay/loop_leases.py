"""The leases of a broker in the loop: which nodes it holds, and until when.

The broker holds one lease a node. It decides at ticks only, by the policy that it is
given, over nodes whose holes are worth a lease; leases end by themselves in between.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.lookahead.promises import Promise, Promises, departures_per_s
from freetrain.replay.policies.base import Change
from logs.schedule import idle_nodes
from logs.timeline import members

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from freetrain.lookahead.base import Forecaster, Prospect
    from freetrain.lookahead.promises import DelayInterval
    from freetrain.replay.loop_result import HoleUse
    from freetrain.replay.loop_settings import LoopSettings
    from freetrain.replay.policies.base import ReplayPolicy, View
    from logs.simulation import Layout
    from logs.timeline import UnitSet


class NodeUnits:
    """Maps the nodes of a machine to sets of its allocation units, and back.

    Attributes:
        count: Nodes.
        unit_count: Allocation units of all nodes together.
    """

    def __init__(self, layout: Layout) -> None:
        self.count = len(layout.names)
        self.unit_count = layout.units
        self._layout = layout
        self._every = (1 << layout.units) - 1

    def idle(self, free: UnitSet) -> NDArray[np.bool_]:
        """Return, per node, whether all of its units are in *free*."""
        return idle_nodes(free, self._layout)

    def touched(self, units: UnitSet) -> tuple[int, ...]:
        """Return the nodes that have any of *units*, ascending."""
        per_node = self._layout.per_node
        if per_node == 1:
            return members(units)
        return tuple(sorted({unit // per_node for unit in members(units)}))

    def units(self, nodes: Iterable[int]) -> UnitSet:
        """Return all units of *nodes*."""
        per_node, made = self._layout.per_node, 0
        whole = (1 << per_node) - 1
        for node in nodes:
            made |= whole << node * per_node
        return made & self._every

    def mask(self, units: UnitSet) -> NDArray[np.bool_]:
        """Return, per node, whether it has any of *units*."""
        return ~self.idle(self._every & ~units)


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
        """Take note of what is planned now; leases end sooner where they must.

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

    def keep(self, held: Iterable[int], now_s: float) -> None:
        """Lease what is *held*, and nothing else, from now on."""
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

    In between, trainers keep what they have: they shrink where nodes are taken or
    leases end, and none grows.

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
        """Return the policy's changes at a tick, and what must be given up else."""
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
        """Remember what will have changed by the next tick."""
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
            free=free,
            idle_nodes=view.idle_nodes - closed,
            joined=tuple(sorted(self._joined)),
            left=tuple(sorted(self._left)),
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
    """Return the changes by which trainers give up what they hold of *nodes*."""
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
        self._numbers = 0

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by the past."""
        return self._learned.is_learning

    def intervals(self) -> tuple[DelayInterval, ...]:
        """Return what came against what was planned, by lead."""
        return self._promises.intervals()

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Learn from what changed, and from what is planned now."""
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

    def prospect(self, cluster: int) -> Prospect:
        """Return what is expected of a group until the horizon."""
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

    def _key(self, node: int) -> tuple[str, float | str]:
        usable_until_s = self._leases.usable_until_s(node)
        if usable_until_s - self._now_s < self._horizon_s:
            return "ends", usable_until_s
        promise = self._near(node)
        if promise is not None:
            return "promised", promise.by
        return "learned", self._learned.cluster(node)
