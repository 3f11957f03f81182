"""A simulated scheduler in the loop: the broker ticks while jobs come and go."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from functools import cached_property, partial
from heapq import merge
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.delay_protection import NONE_KEPT_FREE, DelayProtection, keep_free
from freetrain.broker.yielding import find_claims
from freetrain.lookahead.promises import Promise, Promises, departures_per_s
from freetrain.planning.settings import HORIZON_S, POLICIES
from freetrain.replay.engine import Engine
from freetrain.replay.loop_settings import (
    LoopSettings,
    Mode,
    check_policy,
)
from freetrain.replay.policies.base import Change
from freetrain.replay.policies.planned import SolverUse
from freetrain.replay.policies.registry import (
    forecaster_for,
    lookahead_by,
    policy_for,
)
from freetrain.replay.run import (
    Played,
    accountant_for,
    forecasts_of,
    result_of,
    with_costs,
)
from freetrain.replay.timeline import DAY_S, PoolEvent
from logs.schedule.placers import SlurmParameters
from logs.schedule.simulation import idle_nodes, prepare
from logs.timeline import (
    members,
    unit_set,
)
from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, JobState, Node, NodeState

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
    from collections.abc import (
        Set as AbstractSet,
    )

    from numpy.typing import NDArray

    from freetrain.broker.delay_protection import KeptFree, PendingDemand
    from freetrain.lookahead.base import Forecaster, Prospect
    from freetrain.lookahead.promises import DelayInterval
    from freetrain.replay.engine import Pool
    from freetrain.replay.policies.base import Policy, View
    from freetrain.replay.result import ReplayResult
    from freetrain.replay.run import Caller
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import TrainerSpec
    from logs.schedule import Method
    from logs.schedule.machine import (
        Guests,
        Layout,
        Machine,
        PlannedJob,
    )
    from logs.schedule.simulation import Moment, Simulation
    from logs.timeline import UnitSet
    from logs.trace import JobTrace


# ----------------------------------------------------------------------
# Care as a tick takes it, asked for again only where something has changed.

ANEW_S = 300.0
"""Where nothing has changed it is asked for again in each stretch of this length."""


class Careful:
    """Says what to keep leases off; all jobs are tried, as no cycle waits for a replay.

    Args:
        longest_s: The longest lease, seconds.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._asked: object = None
        self._care = NONE_KEPT_FREE

    def __call__(
        self, demand: PendingDemand, *, running: Sequence[frozenset[str]]
    ) -> KeptFree:
        """Return what to keep leases off.

        Args:
            demand: What is so.
            running: Nodes of each job that runs.
        """
        ground = demand.state
        asked = (
            [job.job_id for job in demand.requests],
            running,
            {hole.node for hole in ground.holes},
            ground.spans,
            demand.given,
            demand.booked_s,
            demand.now_s // ANEW_S,
        )
        if asked != self._asked:
            again_s = SlurmParameters().bf_interval_s
            caution = DelayProtection(
                running, again_s, self._longest_s, most_ends=len(running)
            )
            self._asked, self._care = asked, keep_free(demand, caution)
        return self._care


# ----------------------------------------------------------------------
# Trainers as guests of a simulated machine: they go when a job is placed on them.


class Trainees:
    """Leaves the nodes of whoever trains on them, and notes who waited how long.

    Attributes:
        pool: Who holds which node; None before the replay and after it.
        waited_s: How long each job waited for us to go, by job that met us.
    """

    def __init__(self, nodes: Nodes, settings: LoopSettings, *, start_s: float) -> None:
        self.pool: Pool | None = None
        self.waited_s: dict[int, float] = {}
        self._nodes = nodes
        self._settings = settings
        self._start_s = start_s

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Go from *units*; a trainer that has finished by now has nothing to commit."""
        if self.pool is None:
            return 0.0
        holders = {self.pool.holder(node) for node in self._nodes.touched(units)}
        passed_s = now_s - self._start_s
        if not any(run is not None and run.finish_s > passed_s for run in holders):
            return 0.0
        self.waited_s[job] = self._settings.used_notice_s
        return self._settings.used_notice_s


# ----------------------------------------------------------------------
# What the broker did to everybody else's jobs.


@dataclass(frozen=True, slots=True)
class Harm:
    """Start times with us, less start times without us, over the jobs compared.

    Attributes:
        jobs: Jobs compared.
        later: Jobs that started later.
        sooner: Jobs that started sooner: what delays one lets another in.
        mean_s: Mean difference, those that started sooner counted negative.
        median_s: Median difference.
        most_s: Largest difference.
        met: Jobs that were placed on nodes we held.
        waited_mean_s: How long these waited for us to go, mean.
        waited_median_s: The same, median.
        waited_most_s: The same, at most.
        waited_longer: How many waited longer than the notice, or one tick.
        met_later_mean_s: Mean difference of these.
        met_later_most_s: Largest difference of these.
    """

    jobs: int
    later: int
    sooner: int
    mean_s: float
    median_s: float
    most_s: float
    met: int
    waited_mean_s: float
    waited_median_s: float
    waited_most_s: float
    waited_longer: int
    met_later_mean_s: float
    met_later_most_s: float


def harm_of(
    with_us_s: Mapping[int, float],
    without_us_s: Mapping[int, float],
    waited_s: Mapping[int, float],
    *,
    bound_s: float,
) -> Harm:
    """Hold two runs of the same jobs against each other.

    Args:
        with_us_s: When each job started, by job.
        without_us_s: The same where we were never there; the same jobs.
        waited_s: How long each job waited for our leases, by job that met one.
        bound_s: How long one should wait at most.
    """
    later_s = {job: with_us_s[job] - s for job, s in without_us_s.items()}
    differences = sorted(later_s.values())
    waits_s = list(waited_s.values())
    met_s = [later_s[job] for job in waited_s if job in later_s]
    return Harm(
        jobs=len(differences),
        later=sum(s > 0 for s in differences),
        sooner=sum(s < 0 for s in differences),
        mean_s=_mean(differences),
        median_s=_median(differences),
        most_s=max(differences, default=0.0),
        met=len(waited_s),
        waited_mean_s=_mean(waits_s),
        waited_median_s=_median(waits_s),
        waited_most_s=max(waits_s, default=0.0),
        waited_longer=sum(s > bound_s for s in waits_s),
        met_later_mean_s=_mean(met_s),
        met_later_most_s=max(met_s, default=0.0),
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


# ----------------------------------------------------------------------
# How leases stand with the scheduler: invisible where it preempts, jobs where not.


class Hold(Protocol):
    """Tells the scheduler of leases, as far as it may know of them.

    Times are seconds of the log.
    """

    @property
    def units(self) -> UnitSet:
        """Units that the scheduler holds for leases, and so are not free."""
        ...

    def watch(self, moment: Moment) -> None:
        """Take note of what happened to jobs."""
        ...

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Return how long each job waited for leases to go, by job that met any.

        Args:
            starts_s: When each job started, by job.
        """
        ...

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up what waiting jobs could start on.

        Returns:
            The nodes that were given up, and what the scheduler did with them.
        """
        ...

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Tell the scheduler what is leased now; return what it did then."""
        ...

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Let all leases end; return what the scheduler did then."""
        ...


class Unseen:
    """Mode ``preempt``: the scheduler places jobs as if there were no leases.

    Attributes:
        units: None.
    """

    def __init__(self) -> None:
        self.units: UnitSet = 0

    def watch(self, moment: Moment) -> None:
        """Take note of nothing."""

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Name nobody: `Trainees` notes who waits for a notice."""
        del starts_s
        return {}

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up nothing: jobs take what they need."""
        del now_s
        return (), ()

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Tell nothing."""
        del now_s
        return ()

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Have nothing to give back."""
        del now_s
        return ()


class AsJobs:
    """Mode ``yield``: leases are jobs, for which others wait until they are given up.

    A lease tells its limit when it begins, and ends then at the latest. At each tick
    those go that the broker makes room by for others.
    """

    def __init__(
        self,
        simulation: Simulation,
        nodes: Nodes,
        leases: Leases,
        queue: Queue,
        *,
        start_s: float,
    ) -> None:
        self.units: UnitSet = 0
        self._simulation = simulation
        self._nodes = nodes
        self._leases = leases
        self._queue = queue
        self._start_s = start_s
        self._could_s: dict[int, float] = {}
        self._spans: dict[int, LeaseSpan] = {}

    def watch(self, moment: Moment) -> None:
        """Note who would have started but for us."""
        for job in moment.put_off:
            self._could_s.setdefault(job, moment.time_s)

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Count from when the scheduler would have started a job but for leases."""
        waits = ((job, starts_s[job] - s) for job, s in self._could_s.items())
        return {job: wait_s for job, wait_s in waits if wait_s > 0}

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up what waiting jobs have a claim to, and lease none of it."""
        claimed = self._queue.claimed(self._spans, now_s)
        self._leases.claimed = frozenset(self._nodes.touched(claimed.units))
        self._leases.booked_s = {
            node: start_s - self._start_s for node, start_s in claimed.booked_s.items()
        }
        given = sorted(self._leases.claimed.intersection(self._leases.nodes))
        self._leases.drop(given)
        self._forget()
        return given, self._release(self._nodes.units(given) & self.units, now_s)

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Give back what is not leased any more, and let what is new be jobs."""
        held = self._leases.nodes
        self._forget()
        back = self._release(self.units & ~self._nodes.units(held), now_s)
        by_end: dict[float, list[int]] = {}
        for node in held - self._spans.keys():
            by_end.setdefault(self._leases.usable_until_s(node), []).append(node)
        begun = (self._lease(*one, now_s) for one in sorted(by_end.items()))
        return [*back, *begun]

    def _forget(self) -> None:
        held = self._leases.nodes
        self._spans = {node: span for node, span in self._spans.items() if node in held}

    def _lease(self, until_s: float, nodes: Sequence[int], now_s: float) -> Moment:
        """Let new leases of *nodes* be jobs with a limit."""
        self._leases.limit(nodes, until_s)
        end_s = until_s + self._start_s
        self._spans |= dict.fromkeys(nodes, LeaseSpan(now_s, end_s))
        units = self._nodes.units(nodes)
        self.units |= units
        return self._simulation.lease(units, until_s=end_s, now_s=now_s)

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Let all leases end."""
        return self._release(self.units, now_s)

    def _release(self, units: UnitSet, now_s: float) -> Sequence[Moment]:
        if not units:
            return ()
        self.units &= ~units
        return (self._simulation.release(units, now_s=now_s),)


# ----------------------------------------------------------------------
# How much of each hole was used, and of the long ones together.

LONG_S = 600.0
"""Holes of ten minutes and more are looked at apart."""


@dataclass(frozen=True, slots=True)
class HoleFigures:
    """Holes and their use; docs/replay.md defines each.

    Attributes:
        holes: How many there were.
        node_s: Their node-seconds.
        long_holes: Those of 600 s and more.
        long_node_s: Their node-seconds.
        long_used_node_s: Node-seconds of these that a trainer held.
    """

    holes: int
    node_s: float
    long_holes: int
    long_node_s: float
    long_used_node_s: float

    @property
    def long_use(self) -> float | None:
        """The share of long holes that was used; None where there were none."""
        return self.long_used_node_s / self.long_node_s if self.long_node_s else None


class HoleUse:
    """Counts, node by node, how long it is idle and how long a trainer holds it."""

    def __init__(self, nodes: int) -> None:
        self._since_s = np.zeros(nodes)
        self._used_s = np.zeros(nodes)
        self._idle = np.zeros(nodes, np.bool_)
        self._used = np.zeros(nodes, np.bool_)
        self._at_s = 0.0
        self._holes = 0
        self._long_holes = 0
        self._node_s = 0.0
        self._long_node_s = 0.0
        self._long_used_node_s = 0.0

    def until(self, now_s: float) -> None:
        """Count the time until *now_s*."""
        if now_s > self._at_s:
            self._used_s[self._used] += now_s - self._at_s
            self._at_s = now_s

    def moved(self, joined: Sequence[int], left: Sequence[int]) -> None:
        """Close the holes of *left* and open those of *joined*, now."""
        if left:
            self._close(np.asarray(left))
        if joined:
            opened = np.asarray(joined)
            self._since_s[opened] = self._at_s
            self._used_s[opened] = 0.0
            self._idle[opened] = True

    def free(self, nodes: Sequence[int]) -> None:
        """Let all idle nodes but *nodes* be used from now on."""
        self._used = self._idle.copy()
        self._used[np.asarray(nodes, np.intp)] = False

    def held(self, nodes: Sequence[int]) -> None:
        """Let *nodes* be used from now on."""
        self._used[np.asarray(nodes, np.intp)] = True

    def given_up(self, nodes: Sequence[int]) -> None:
        """Let *nodes* be idle and unused from now on."""
        self._used[np.asarray(nodes, np.intp)] = False

    def figures(self, end_s: float) -> HoleFigures:
        """Close every hole at *end_s* and return the sums."""
        self.until(end_s)
        self._close(np.flatnonzero(self._idle))
        return HoleFigures(
            self._holes,
            self._node_s,
            self._long_holes,
            self._long_node_s,
            self._long_used_node_s,
        )

    def _close(self, nodes: NDArray[np.intp]) -> None:
        length_s = self._at_s - self._since_s[nodes]
        is_long = length_s >= LONG_S
        self._holes += int((length_s > 0).sum())
        self._node_s += float(length_s.sum())
        self._long_holes += int(is_long.sum())
        self._long_node_s += float(length_s[is_long].sum())
        self._long_used_node_s += float(self._used_s[nodes][is_long].sum())
        self._idle[nodes] = False
        self._used[nodes] = False


# ----------------------------------------------------------------------
# The leases that the broker holds, and what it may lease.


class PlannedStart(NamedTuple):
    """A start that the scheduler plans, as the broker sees it.

    Attributes:
        start_s: When, seconds of the replay; in the past where it is overdue.
        job: Whose.
        nodes: On which nodes, one boolean a node.
    """

    start_s: float
    job: int
    nodes: NDArray[np.bool_]


class Leases:
    """One lease a node, each with the time at which it ends by itself.

    A lease ends with its time limit, or the margin before the start that was planned
    on its node when the broker looked last: each look tells the agents anew.

    Attributes:
        claimed: Nodes that waiting jobs could start on now; nothing for us.
        booked_s: When nodes are booked for jobs that must wait for others, by node,
            seconds of the replay; a lease that begins now ends before that.
    """

    def __init__(self, nodes: int, settings: LoopSettings) -> None:
        self.claimed: frozenset[int] = frozenset()
        self.booked_s: Mapping[int, float] = {}
        self._settings = settings
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

    def see(self, planned: Iterable[PlannedStart]) -> None:
        """Take note of what is planned now; leases end sooner where they must."""
        nodes = len(self._planned_s)
        start_s, by = np.full(nodes, math.inf), np.zeros(nodes, np.int64)
        for one in planned:
            sooner = one.nodes & (start_s > one.start_s)
            start_s[sooner] = one.start_s
            by[sooner] = one.job
        self._planned_s, self._planned_by = start_s.tolist(), by.tolist()
        if self._settings.margin_s is not None:
            self._latest_s = (start_s - self._settings.margin_s).tolist()
        self._look()

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
        least_s = now_s + self._settings.shortest_s
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
        longest_s, before = now_s + self._settings.longest_s, self._limit_s
        self._limit_s = {
            node: before.get(node, min(longest_s, self._booked_s(node)))
            for node in held
        }
        self._look()

    def drop(self, nodes: Sequence[int]) -> None:
        """Let the leases of *nodes* end now."""
        if self._limit_s.keys().isdisjoint(nodes):
            return
        for node in nodes:
            self._limit_s.pop(node, None)
        self._look()

    def due(self, now_s: float) -> set[int]:
        """Return the nodes whose leases end by *now_s*."""
        if now_s < self._next_end_s:
            return set()
        return {node for node in self._limit_s if self.usable_until_s(node) <= now_s}

    def _booked_s(self, node: int) -> float:
        """Return when a lease of *node* that begins now should have ended."""
        return self.booked_s.get(node, math.inf) - (self._settings.margin_s or 0.0)

    def _look(self) -> None:
        self._next_end_s = min(
            map(self.usable_until_s, self._limit_s), default=math.inf
        )


# ----------------------------------------------------------------------
# From a machine's allocation units to its nodes, and back.


class Nodes:
    """The nodes of a machine, as sets of units.

    Attributes:
        count: How many there are.
        unit_count: How many allocation units they have together.
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


# ----------------------------------------------------------------------
# A policy that is asked at ticks only, and holds nodes by leases.


class TickedPolicy:
    """Lets a policy decide at ticks, over nodes whose holes are worth a lease.

    In between, trainers go on with what they have: they shrink where nodes are taken
    or leases end, and nobody grows.

    Attributes:
        name: The policy's.
        tick_s: When the tick is that is due.
    """

    def __init__(self, policy: Policy, leases: Leases, use: HoleUse) -> None:
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
        """Remember what a look at the next tick will show to have changed."""
        unseen = self._joined.intersection(view.left)
        self._joined -= unseen
        self._left.update(set(view.left) - unseen)
        self._joined.update(view.joined)

    def _tick(self, view: View) -> Sequence[Change]:
        self.tick_s = -math.inf  # one decision a tick
        free = self._leases.open(view.free, view.now_s)
        closed = len(view.free) - len(free)
        seen = replace(
            view,
            free=free,
            idle_nodes=view.idle_nodes - closed,
            joined=tuple(sorted(self._joined)),
            left=tuple(sorted(self._left)),
        )
        self._joined, self._left = set(), set()
        changes = self._policy.decide(seen)
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


# ----------------------------------------------------------------------
# What the past of the pool says of idle nodes, together with what is planned.


class PromisedForecaster:
    """Groups nodes by the end that is known of them, and the others by their past.

    A node whose lease ends, or would end, within the horizon is in the group of all
    that end then; one that is planned for a job within the hour in that job's; any
    other in the cluster in which it is likely to leave.

    Args:
        learned: What learns from the past.
        leases: What the broker holds, and sees planned.
        horizon_s: Of prospects, seconds; that of *learned*.
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


# ----------------------------------------------------------------------
# The simulated queue as a tick sees it, and the nodes that are others' by it.

_PENDING = frozenset({JobState.PENDING})
_PARTITIONS = ("all",)
_BACKFILL = Backfill(
    SlurmParameters().bf_resolution_s, 60.0 * SlurmParameters().bf_window_min
)


class Claimed(NamedTuple):
    """What waiting jobs have a claim to.

    Attributes:
        units: Those that are not ours to hold.
        booked_s: When others are booked for jobs, by node, seconds of the log.
    """

    units: UnitSet
    booked_s: Mapping[int, float]


class Queue:
    """Tells which nodes waiting jobs have a claim to.

    Every allocation unit stands for a node of Slurm's.

    Args:
        simulation: The machine and its scheduler.
        nodes: Its nodes.
        knows_plans: Whether planned starts are told.
        careful_s: The longest lease, where nodes are left alone that somebody would
            need if one job ended; None where they are not.
    """

    def __init__(
        self,
        simulation: Simulation,
        nodes: Nodes,
        *,
        knows_plans: bool,
        careful_s: float | None = None,
    ) -> None:
        self._simulation = simulation
        self._nodes = nodes
        self._knows_plans = knows_plans
        self._careful = None if careful_s is None else Careful(careful_s)
        self._names = [f"{unit:08}" for unit in range(nodes.unit_count)]
        self._records = {
            name: Node(name, frozenset({NodeState.IDLE}), partitions=_PARTITIONS)
            for name in self._names
        }

    def claimed(self, leases: Mapping[int, LeaseSpan], now_s: float) -> Claimed:
        """Return what is not ours to hold, and what is not for long.

        Args:
            leases: By node: since when and until when it is leased, seconds of the log.
            now_s: When the broker looks, likewise.
        """
        machine = self._simulation.machine
        if not machine.waiting:
            return Claimed(0, {})
        spans = {
            self._names[unit]: span
            for node, span in leases.items()
            for unit in members(self._nodes.units((node,)))
        }
        idle = [self._names[unit] for unit in members(machine.free)]
        ground = BackfillState(
            holes=self._holes((*idle, *spans), now_s),
            nodes=self._records,
            leased=frozenset(spans),
            spans=spans,
            busy_until_s=dict(self._busy(machine)),
            backfill=_BACKFILL,
        )
        found = find_claims(
            self._waiting(machine),
            ground,
            is_ours=lambda _: False,
            now_s=now_s,
            protect=self._care(machine),
        )
        booked_s: dict[int, float] = {}
        for name, start_s in found.booked_s.items():
            (node,) = self._nodes.touched(1 << int(name))
            booked_s[node] = min(start_s, booked_s.get(node, math.inf))
        return Claimed(unit_set(int(name) for name in found.nodes), booked_s)

    def _care(self, machine: Machine) -> Callable[[PendingDemand], KeptFree] | None:
        if self._careful is None:
            return None
        runs = (job for number, job in machine.running.items() if number >= 0)
        names = [frozenset(self._names[k] for k in members(job.units)) for job in runs]
        return partial(self._careful, running=names)

    def _holes(self, names: Sequence[str], now_s: float) -> list[Hole]:
        """Return the holes of the units *names*, with what is planned there."""
        ends = {name: Hole(name, now_s, math.inf, HoleEnd.OPEN) for name in names}
        plan = self._simulation.plan if self._knows_plans else ()
        for one in sorted(plan, key=lambda job: job.start_s, reverse=True):
            by = str(one.job + 1)
            for unit in members(one.units):
                name = self._names[unit]
                if name in ends:
                    end = Hole(name, now_s, one.start_s, HoleEnd.PLANNED_JOB, by)
                    ends[name] = end
        return list(ends.values())

    def _busy(self, machine: Machine) -> Iterator[tuple[str, float]]:
        for number, running in machine.running.items():
            if number >= 0:
                end_s = max(running.expected_end_s, machine.now_s)
                for unit in members(running.units):
                    yield self._names[unit], end_s

    def _waiting(self, machine: Machine) -> Iterator[JobRecord]:
        """Yield the queue, first in line first."""
        plan = self._simulation.plan if self._knows_plans else ()
        planned_s = {job.job: job.start_s for job in plan}
        for place, job in enumerate(machine.waiting):
            yield JobRecord(
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


# ----------------------------------------------------------------------
# Pool events out of a scheduler that is simulated while the broker ticks.


class Broker(NamedTuple):
    """What stands for the broker.

    Attributes:
        leases: What it holds.
        policy: What it decides by.
        hold: How the scheduler sees its leases.
    """

    leases: Leases
    policy: TickedPolicy
    hold: Hold


class Look(NamedTuple):
    """When the broker looks.

    Attributes:
        time_s: Seconds of the replay.
        is_last: Whether it ticks only where something has happened since it did.
    """

    time_s: float
    is_last: bool = False


class LoopSource:
    """Plays jobs, ends of leases and ticks in order of time.

    At one time leases end first, so that a job that is planned for then finds its
    nodes empty; then jobs end, come and start; then the broker ticks.

    Attributes:
        node_names: The nodes.
        horizon_s: When the replay ends, seconds from its start.
        starts_s: When each job started, by job, seconds of the log.
    """

    def __init__(
        self,
        stage: Stage,
        simulation: Simulation,
        broker: Broker,
        settings: LoopSettings,
    ) -> None:
        self.node_names = stage.names
        self.horizon_s = stage.end_s - stage.start_s
        self.starts_s: dict[int, float] = {}
        self._start_s = stage.start_s
        self._nodes = stage.nodes
        self._simulation = simulation
        self._leases, self._policy, self._hold = broker
        self._settings = settings
        self._moment = stage.moment
        self._idle = _idle_at(stage)
        self._taken: UnitSet = 0
        self._happened = False

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events, each played by the engine before the next one is made."""
        self._look()
        yield self._tick(PoolEvent(0.0, _indices(self._idle), ()))
        yield from self._hand_over(0.0)
        looks = self._looks()
        look = next(looks)
        while True:
            jobs_s = self._simulation.next_s - self._start_s
            ends_s = self._leases.next_end_s
            now_s = min(jobs_s, ends_s, look.time_s)
            if now_s >= self.horizon_s:
                break
            if ends_s <= now_s:
                yield from self._end_leases(now_s)
            if jobs_s <= now_s:
                yield self._jobs(now_s)
            if look.time_s <= now_s:
                if not look.is_last or self._is_stirred():
                    yield from self._ticks(now_s)
                look = next(looks)
        yield PoolEvent(self.horizon_s, (), ())

    def _looks(self) -> Iterator[Look]:
        """Yield when the broker looks after the first time, at 0; in order of time."""
        wanted = self._settings
        if wanted.lead_s is None:
            return (Look(number * wanted.tick_s) for number in count(1))
        looks = [self._before_cycles(wanted.lead_s)]
        if wanted.last_lead_s is not None:
            looks.append(self._before_cycles(wanted.last_lead_s, is_last=True))
        return merge(*looks)

    def _before_cycles(self, lead_s: float, *, is_last: bool = False) -> Iterator[Look]:
        every_s = self._settings.tick_s
        for number in count(math.floor(self._start_s / every_s)):
            time_s = number * every_s - self._start_s - lead_s
            if time_s > 0.0:
                yield Look(time_s, is_last)

    def _is_stirred(self) -> bool:
        """Tell whether somebody waits, and something happened since the last tick."""
        return self._happened and bool(self._simulation.machine.waiting)

    def finish(self, now_s: float) -> None:
        """Let the broker go, and with it its leases."""
        self._moments(self._hold.give_all_back(now_s + self._start_s))

    def _jobs(self, now_s: float) -> PoolEvent:
        """Let everything happen to jobs that happens now."""
        while self._simulation.next_s <= now_s + self._start_s:
            moment = self._simulation.step()
            if moment is not None:
                self._happened |= bool(moment.ended or moment.arrived)
                self._moments([moment])
        return self._changed(now_s)

    def _end_leases(self, now_s: float) -> Iterator[PoolEvent]:
        yield PoolEvent(now_s, (), ())
        yield from self._hand_over(now_s)

    def _ticks(self, now_s: float) -> Iterator[PoolEvent]:
        self._happened = False
        self._look()
        if self._leases.next_end_s <= now_s:
            yield from self._end_leases(now_s)
        given, moments = self._hold.yield_claimed(now_s + self._start_s)
        self._moments(moments)
        yield self._tick(self._changed(now_s, given))
        yield from self._hand_over(now_s)

    def _hand_over(self, now_s: float) -> Iterator[PoolEvent]:
        """Let the scheduler see what leases there are now, and what it does then."""
        moments = self._hold.hand_over(now_s + self._start_s)
        if moments:
            self._moments(moments)
            event = self._changed(now_s)
            if event.joined or event.left:
                yield event

    def _moments(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            for started in moment.started:
                self.starts_s[started.job] = started.start_s
                self._taken |= started.units
            self._moment = moment
            self._hold.watch(moment)

    def _changed(self, now_s: float, given: Sequence[int] = ()) -> PoolEvent:
        """Return what has changed for the pool, besides that *given* were given up."""
        idle, self._taken, taken = self._idle, 0, self._taken
        if self._moment is not None:
            self._idle = self._nodes.idle(self._moment.free | self._hold.units)
        left = self._nodes.mask(taken) & idle
        left[list(given)] = True
        joined = self._idle & (~idle | left)
        gone = _indices(left)
        self._leases.drop(gone)
        return PoolEvent(now_s, _indices(joined), gone)

    def _tick(self, event: PoolEvent) -> PoolEvent:
        self._policy.tick_s = event.time_s
        return event

    def _look(self) -> None:
        """See what is planned, as of the last thing that happened."""
        if self._moment is None or not self._settings.knows_plans:
            return
        self._leases.see(map(self._seen, self._moment.plan))

    def _seen(self, planned: PlannedJob) -> PlannedStart:
        start_s = planned.start_s - self._start_s
        return PlannedStart(start_s, planned.job, self._nodes.mask(planned.units))


def _idle_at(stage: Stage) -> NDArray[np.bool_]:
    if stage.moment is None:
        return np.ones(stage.nodes.count, np.bool_)
    return stage.nodes.idle(stage.moment.free)


def _indices(nodes: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(nodes).tolist())


# ----------------------------------------------------------------------
# Replays a log of jobs with the broker in the loop.


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What came of one policy in the loop.

    Attributes:
        replay: Its figures as a replay of the holes that it met.
        holes: Those holes, and their use.
        harm: What it did to jobs.
    """

    replay: ReplayResult
    holes: HoleFigures
    harm: Harm


def run_in_the_loop(
    stage: Stage,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    loop: LoopSettings,
    caller: Caller,
) -> LoopResult:
    """Go on from *stage* with the broker, and hold it against going on without.

    Args:
        stage: The jobs, and from when until when the broker is there.
        trainers: Who is to be trained.
        settings: Policy, accounting and the rest.
        loop: How the broker looks, holds and leaves nodes.
        caller: What is needed from outside.

    Raises:
        UsageError: The policy cannot be asked at ticks only.
        BrokenPolicyError: The policy has a defect.
    """
    check_policy(settings.policy)
    use, accountant = SolverUse(), accountant_for(settings.accounting)
    leases = Leases(stage.nodes.count, loop)
    holes = HoleUse(stage.nodes.count)
    policy = _policy(settings, caller.clock, use, leases if loop.knows_plans else None)
    ticked = TickedPolicy(policy, leases, holes)
    trainees = Trainees(stage.nodes, loop, start_s=stage.start_s)
    simulation, hold = _on_stage(stage, trainees, leases, loop)
    source = LoopSource(stage, simulation, Broker(leases, ticked, hold), loop)
    engine = Engine(
        source,
        [_paying(trainer, settings, loop) for trainer in trainers],
        policy=ticked,
        accountant=accountant,
        settings=replace(settings, look_every_s=None),
    )
    trainees.pool = engine.pool
    engine.run(caller.on_progress)
    trainees.pool = None
    source.finish(accountant.tally.end_s)
    with_us_s = stage.play_out(simulation, source.starts_s)
    played = Played(
        tally=accountant.tally,
        use=use,
        runs=engine.queue.runs,
        steps=engine.steps,
        forecasts=forecasts_of(policy, stage.names),
    )
    return LoopResult(
        replay=result_of(settings, played, efficiency=None),
        holes=holes.figures(accountant.tally.end_s),
        harm=harm_of(
            with_us_s,
            stage.alone_s,
            trainees.waited_s | hold.waited_s(with_us_s),
            bound_s=loop.longest_wait_s,
        ),
    )


def _on_stage(
    stage: Stage, trainees: Trainees, leases: Leases, loop: LoopSettings
) -> tuple[Simulation, Unseen | AsJobs]:
    """Return the jobs from now on, and how leases stand with their scheduler."""
    if loop.mode is Mode.PREEMPT:
        return stage.branch(trainees), Unseen()
    simulation = stage.branch()
    queue = Queue(
        simulation,
        stage.nodes,
        knows_plans=loop.knows_plans,
        careful_s=loop.longest_s if loop.is_careful else None,
    )
    hold = AsJobs(simulation, stage.nodes, leases, queue, start_s=stage.start_s)
    return simulation, hold


def _paying(
    trainer: TrainerSpec, settings: ReplaySettings, loop: LoopSettings
) -> TrainerSpec:
    """Return *trainer* with its costs; who commits on notice loses nothing more."""
    paying = with_costs(trainer, settings)
    if not loop.commits_in_time:
        return paying
    return replace(paying, costs=replace(paying.costs, checkpoint_every_s=0.0))


def _policy(
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    leases: Leases | None,
) -> Policy:
    """Return the policy; ``lookahead`` goes by plans where *leases* knows of them."""
    if leases is None or not POLICIES[settings.policy].looks_ahead:
        return policy_for(settings, clock, use)
    learned = forecaster_for(settings)
    forecaster = PromisedForecaster(learned, leases, horizon_s=HORIZON_S)
    return lookahead_by(forecaster, settings, clock, use, regroups=True)


# ----------------------------------------------------------------------
# A log of jobs on its machine, from where the broker begins.


class Stage:
    """Jobs played up to the start of a replay; each run goes its own way from there.

    Args:
        trace: The jobs.
        method: Who starts them: ``easy`` or ``slurm``.
        start_s: Second of the log at which the broker begins.
        days: How long it stays; None until the last job is submitted.
        on_progress: Told now and then how much of the time before that is over.

    Attributes:
        start_s: As above.
        end_s: Second of the log at which the broker stops.
        nodes: The machine's nodes.
        names: What they are called.
        moment: The last thing that happened; None where nothing has.
    """

    def __init__(
        self,
        trace: JobTrace,
        method: Method,
        *,
        start_s: float = 0.0,
        days: float | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        prepared = prepare(trace, method)
        last_s = max((trace.jobs[job].submit_s for job in prepared.admitted), default=0)
        self.start_s = start_s
        self.end_s = last_s if days is None else start_s + days * DAY_S
        self.nodes = Nodes(prepared.layout)
        self.names = prepared.layout.names
        self.moment: Moment | None = None
        self._simulation = prepared.simulation
        self._begun: set[int] = set()
        self._submitted = {
            job for job in prepared.admitted if trace.jobs[job].submit_s <= self.end_s
        }
        self._play_up(on_progress)

    def branch(self, guests: Guests | None = None) -> Simulation:
        """Return a simulation that goes on from here, with *guests* on the machine."""
        return self._simulation.branch(guests)

    @cached_property
    def alone_s(self) -> Mapping[int, float]:
        """When each job starts that is submitted by the end, without the broker."""
        return self.play_out(self.branch(), {})

    def play_out(
        self, simulation: Simulation, starts_s: Mapping[int, float]
    ) -> dict[int, float]:
        """Play on until all have started that are submitted while the broker is there.

        Args:
            simulation: A branch.
            starts_s: When jobs have started in it so far.

        Returns:
            Their starts, of those that had not begun before the broker came.
        """
        starts = dict(starts_s)
        missing = self._submitted.difference(starts, self._begun)
        while missing and (moment := simulation.step()) is not None:
            for started in moment.started:
                starts[started.job] = started.start_s
                missing.discard(started.job)
        return {job: s for job, s in starts.items() if job in self._submitted}

    def _play_up(self, on_progress: Callable[[float], None] | None) -> None:
        while self._simulation.next_s <= self.start_s:
            self.moment = self._simulation.step()
            if self.moment is not None:
                self._begun.update(job.job for job in self.moment.started)
                if on_progress is not None and self.start_s > 0:
                    on_progress(max(0.0, self.moment.time_s / self.start_s))
