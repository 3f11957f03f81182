"""Which nodes suit whom: what waiting jobs ask for, worked out once for each look."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.waiting import gres_on_each, insisted, needed, suits, tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from logs.schedule.unitset import UnitSet
    from slurm.records import JobRecord, Node


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Jobs that the same nodes suit; no two kinds are alike.

    Attributes:
        suits: These nodes, whoever holds them.
        insists: Those that each of the jobs insists on. Where one of them is not known
            no node suits.
    """

    suits: UnitSet
    insists: UnitSet


@dataclass(frozen=True, slots=True)
class Wish:
    """What a waiting job needs.

    Attributes:
        job_id: Its number.
        kind: Which nodes suit it.
        nodes: How many of them each of its tasks needs.
        least_s: For how long, where in doubt it is soon over.
        most_s: For how long it could hold them; math.inf in doubt.
        planned_s: When backfill means to start it; None for no plan.
        tasks: How many tasks could start together; as many as there are nodes where
            that is unclear.
    """

    job_id: int
    kind: Kind
    nodes: int
    least_s: float
    most_s: float
    planned_s: float | None
    tasks: int


class Suiting:
    """Which of some nodes suit whom, worked out once for each kind of job.

    Sets of nodes are bits of a number, the first node in Slurm's order the lowest.

    Args:
        nodes: Nodes by name, in Slurm's order.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.names = tuple(nodes)
        self._bit: dict[str, UnitSet] = {}
        self._alike: list[tuple[Node, UnitSet]] = []
        self._known: dict[tuple[object, ...], Kind] = {}
        self._kinds: dict[tuple[UnitSet, UnitSet], Kind] = {}

    def bit(self, name: str) -> UnitSet:
        """Return the set of one node; of none where it is not known."""
        if not self._bit:  # not before somebody waits
            self._bit = {name: 1 << k for k, name in enumerate(self.names)}
        return self._bit.get(name, 0)

    def units(self, names: Iterable[str]) -> UnitSet:
        """Return the set of the nodes *names*."""
        units = 0
        for name in names:
            units |= self.bit(name)
        return units

    def wish(self, job: JobRecord) -> Wish:
        """Return what *job* needs."""
        return Wish(
            job.job_id,
            self.kind(job),
            needed(job),
            least_s=job.limit_s or 0.0,
            most_s=math.inf if job.limit_s is None else job.limit_s,
            planned_s=job.start_s if job.is_planned else None,
            tasks=tasks(job, most=len(self.names)),
        )

    def kind(self, job: JobRecord) -> Kind:
        """Return which nodes suit *job*."""
        asked: tuple[object, ...] = (job.partitions, job.features, gres_on_each(job))
        if job.requested_nodes:
            asked = (*asked, job.requested_nodes, job.node_count)
        if asked not in self._known:
            found = self._suits(job), self.units(insisted(job))
            self._known[asked] = self._kinds.setdefault(found, Kind(*found))
        return self._known[asked]

    def _suits(self, job: JobRecord) -> UnitSet:
        there = 0
        for one, units in self._profiles():
            there |= units if suits(job, one) else 0
        insists = insisted(job)
        if not insists <= self.nodes.keys():
            return 0
        return there & self.units(insists) if len(insists) >= needed(job) else there

    def _profiles(self) -> list[tuple[Node, UnitSet]]:
        """Return one node of each profile, with all that are like it.

        Nodes are many, and differ in little but their names.
        """
        if not self._alike:
            alike: dict[tuple[object, ...], list[Node]] = {}
            for node in self.nodes.values():
                gres = frozenset(gres.name for gres in node.gres)
                profile = (node.partitions, node.features, gres)
                alike.setdefault(profile, []).append(node)
            self._alike = [
                (nodes[0], self.units(node.name for node in nodes))
                for nodes in alike.values()
            ]
        return self._alike
