"""How a broker's leases and a simulated scheduler meet.

With preemption the scheduler does not see leases: it places jobs as if there were none,
and trainers go when a job is placed on them. Without it leases are jobs of the
scheduler, and at each tick the broker yields what waiting jobs have a claim to.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.yielding import (
    NONE_KEPT_FREE,
    DelayProtection,
    find_claims,
    keep_free,
)
from logs.simulation import SlurmParameters
from logs.timeline import members, unit_set
from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, JobState, Node, NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.broker.yielding import KeptFree, PendingDemand
    from freetrain.replay.engine import NodePool
    from freetrain.replay.loop_leases import Leases, NodeUnits
    from freetrain.replay.loop_settings import LoopSettings
    from logs.simulation import Machine, ScheduleMoment, Simulation
    from logs.timeline import UnitSet

PROTECT_AGAIN_S = 300.0
"""While nothing changes, protection is worked out once in each span of this length."""

_PENDING = frozenset({JobState.PENDING})
_PARTITIONS = ("all",)
_BACKFILL = Backfill(
    SlurmParameters().bf_resolution_s, 60.0 * SlurmParameters().bf_window_min
)


# With preemption.


class TrainerGuests:
    """Trainers as guests of the machine: they go when a job is placed on them.

    Attributes:
        pool: Which trainer holds which node; None before the replay and after it.
        waited_s: How long each job that met a trainer waited for it to go.
    """

    def __init__(
        self, nodes: NodeUnits, settings: LoopSettings, *, start_s: float
    ) -> None:
        self.pool: NodePool | None = None
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


class UnseenLeases:
    """Mode ``preempt``: the scheduler places jobs as if there were no leases.

    Attributes:
        units: Units that the scheduler holds for leases: none.
    """

    def __init__(self) -> None:
        self.units: UnitSet = 0

    def watch(self, moment: ScheduleMoment) -> None:
        """Take note of nothing."""

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
        """Tell nothing."""
        del now_s
        return ()

    def give_all_back(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Have nothing to give back."""
        del now_s
        return ()


# Without preemption.


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
        nodes: NodeUnits,
        leases: Leases,
        claims: QueueClaims,
        *,
        start_s: float,
    ) -> None:
        self.units: UnitSet = 0
        self._simulation = simulation
        self._nodes = nodes
        self._leases = leases
        self._claims = claims
        self._start_s = start_s
        self._could_s: dict[int, float] = {}
        self._spans: dict[int, LeaseSpan] = {}

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
        """Give up what waiting jobs have a claim to, and lease none of it.

        Returns:
            The nodes that were given up, and what the scheduler did with them.
        """
        units, booked_s = self._claims.find(self._spans, now_s)
        self._leases.claimed = frozenset(self._nodes.touched(units))
        self._leases.booked_s = {
            node: start_s - self._start_s for node, start_s in booked_s.items()
        }
        given = sorted(self._leases.claimed.intersection(self._leases.nodes))
        self._leases.drop(given)
        self._forget()
        return given, self._release(self._nodes.units(given) & self.units, now_s)

    def hand_over(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Give back what is not leased any more, and let new leases be jobs.

        Returns:
            What the scheduler did then.
        """
        held = self._leases.nodes
        self._forget()
        back = self._release(self.units & ~self._nodes.units(held), now_s)
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
        units = self._nodes.units(nodes)
        self.units |= units
        return self._simulation.lease(units, until_s=end_s, now_s=now_s)

    def give_all_back(self, now_s: float) -> Sequence[ScheduleMoment]:
        """Let all leases end; return what the scheduler did then."""
        return self._release(self.units, now_s)

    def _release(self, units: UnitSet, now_s: float) -> Sequence[ScheduleMoment]:
        if not units:
            return ()
        self.units &= ~units
        return (self._simulation.release(units, now_s=now_s),)


class QueueClaims:
    """Finds the nodes that waiting jobs have a claim to, with the live broker's rules.

    Every allocation unit stands for a node of Slurm's.

    Args:
        simulation: The machine and its scheduler.
        nodes: Its nodes.
        knows_plans: Whether the scheduler's planned starts are known.
        careful_s: The longest lease, if nodes are left alone that some job would need
            if one other job ended; None if they are not.
    """

    def __init__(
        self,
        simulation: Simulation,
        nodes: NodeUnits,
        *,
        knows_plans: bool,
        careful_s: float | None = None,
    ) -> None:
        self._simulation = simulation
        self._nodes = nodes
        self._knows_plans = knows_plans
        self._protection = None if careful_s is None else CachedProtection(careful_s)
        self._names = [f"{unit:08}" for unit in range(nodes.unit_count)]
        self._records = {
            name: Node(name, frozenset({NodeState.IDLE}), partitions=_PARTITIONS)
            for name in self._names
        }

    def find(
        self, leases: Mapping[int, LeaseSpan], now_s: float
    ) -> tuple[UnitSet, Mapping[int, float]]:
        """Return what is not ours to hold now, and what is not for long.

        Args:
            leases: By node: since when and until when it is leased, seconds of the log.
            now_s: When the broker polls, likewise.

        Returns:
            The units that are not ours to hold; and by node, when others are booked
            for jobs, seconds of the log.
        """
        machine = self._simulation.machine
        if not machine.waiting:
            return 0, {}
        spans = {
            self._names[unit]: span
            for node, span in leases.items()
            for unit in members(self._nodes.units((node,)))
        }
        idle = [self._names[unit] for unit in members(machine.free)]
        state = BackfillState(
            holes=self._holes((*idle, *spans), now_s),
            nodes=self._records,
            leased=frozenset(spans),
            spans=spans,
            busy_until_s=dict(self._busy(machine)),
            backfill=_BACKFILL,
        )
        found = find_claims(
            self._waiting(machine),
            state,
            is_ours=lambda _: False,
            now_s=now_s,
            protect=self._protect(machine),
        )
        booked_s: dict[int, float] = {}
        for name, start_s in found.booked_s.items():
            (node,) = self._nodes.touched(1 << int(name))
            booked_s[node] = min(start_s, booked_s.get(node, math.inf))
        return unit_set(int(name) for name in found.nodes), booked_s

    def _protect(self, machine: Machine) -> Callable[[PendingDemand], KeptFree] | None:
        if self._protection is None:
            return None
        runs = (job for number, job in machine.running.items() if number >= 0)
        names = [frozenset(self._names[k] for k in members(job.units)) for job in runs]
        return partial(self._protection, running=names)

    def _holes(self, names: Sequence[str], now_s: float) -> list[Hole]:
        """Return the holes of the units *names*, with what is planned there."""
        ends = {name: Hole(name, now_s, math.inf, HoleEnd.OPEN) for name in names}
        plan = self._simulation.plan if self._knows_plans else ()
        for planned in sorted(plan, key=lambda job: job.start_s, reverse=True):
            by, start_s = str(planned.job + 1), planned.start_s
            for unit in members(planned.units):
                name = self._names[unit]
                if name in ends:
                    ends[name] = Hole(name, now_s, start_s, HoleEnd.PLANNED_JOB, by)
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
            demand: The waiting jobs, and what they wait for.
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
