"""The simulated queue as a tick sees it, and the nodes that are others' by it.

The broker's own code says whom it makes room for, from the records that Slurm tells;
so what is measured in a loop is what a tick would do.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from freetrain.broker.claims import find_claims
from freetrain.broker.ground import Backfill, Ground
from freetrain.replay.loop.careful import Careful
from logs.schedule.slurm import SlurmParameters
from logs.schedule.unitset import members, unit_set
from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, Node
from slurm.states import JobState, NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.broker.caution import Care, Scene
    from freetrain.broker.ground import Span
    from freetrain.replay.loop.nodes import Nodes
    from logs.schedule.machine import Machine
    from logs.schedule.simulation import Simulation
    from logs.schedule.unitset import UnitSet

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

    def claimed(self, leases: Mapping[int, Span], now_s: float) -> Claimed:
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
        ground = Ground(
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
            careful=self._care(machine),
        )
        booked_s: dict[int, float] = {}
        for name, start_s in found.booked_s.items():
            (node,) = self._nodes.touched(1 << int(name))
            booked_s[node] = min(start_s, booked_s.get(node, math.inf))
        return Claimed(unit_set(int(name) for name in found.nodes), booked_s)

    def _care(self, machine: Machine) -> Callable[[Scene], Care] | None:
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
