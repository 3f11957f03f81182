"""Who gets which nodes, written a second time: node by node, second by second.

For times that are whole seconds and plans to the second; no job has a planned start.
Shares no code with ``freetrain.broker`` but for what is told of a job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.broker.backfill import (
    has_what_is_asked,
    node_count,
    required_nodes,
    startable_tasks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.broker.backfill import BackfillState
    from slurm.holes import Hole
    from slurm.records import JobRecord

MOST_BOOKINGS = 50
NO_LIMIT_S = 1e9


@dataclass
class Naive:
    """Who gets what.

    Attributes:
        ground: Where jobs might start.
        ranked: Its holes, those first that are given first.
        now_s: The moment.
        held: When others have nodes, by node.
    """

    ground: BackfillState
    ranked: list[Hole]
    now_s: float
    held: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    booked_s: dict[str, float] = field(default_factory=dict)
    made: int = 0

    def allocate(self, queue: list[JobRecord]) -> None:
        asked = {str(job.job_id) for job in queue}
        holes = {hole.node: hole for hole in self.ranked}
        for name in self.ground.nodes:
            until_s = self.ground.busy_until_s.get(name, math.inf)
            if name not in holes:
                self.hold(name, self.now_s, max(until_s, self.now_s + 1))
            elif holes[name].blocker and holes[name].blocker not in asked:
                self.hold(name, holes[name].end_s or 0.0, math.inf)
        for job in queue:
            if len(self.taken) == len(holes):
                return
            if not self.starts(job):
                self.book(job)

    def hold(self, name: str, from_s: float, to_s: float) -> None:
        self.held.setdefault(name, []).append((from_s, to_s))

    def is_free(self, name: str, from_s: float, limit_s: float) -> bool:
        to_s = max(from_s + limit_s, from_s + 1)
        return all(a >= to_s or b <= from_s for a, b in self.held.get(name, ()))

    def eligibility(self, job: JobRecord) -> Iterator[str]:
        insists = required_nodes(job)
        for name, node in self.ground.nodes.items():
            if has_what_is_asked(node, job) and (
                name in insists or len(insists) < node_count(job)
            ):
                yield name

    def starts(self, job: JobRecord) -> bool:
        eligibility, insists = set(self.eligibility(job)), required_nodes(job)
        limit_s = job.limit_s or 0.0
        there = [hole.node for hole in self.ranked if hole.node in eligibility]
        if not insists <= {*there, *self.ground.partly}:
            return False
        free = [name for name in there if self.is_free(name, self.now_s, limit_s)]
        beside, nodes = len(eligibility & self.ground.partly), node_count(job)
        must = insists & set(there)
        if len(free) < nodes - beside or not must <= set(free):
            return False
        free.sort(key=lambda name: name not in insists)
        most = 1 if must else startable_tasks(job, most=len(self.ground.nodes))
        got: list[str] = []
        for _ in range(most):
            task = free[len(got) : len(got) + nodes]
            if not task or len(task) < nodes - beside:
                break
            got += task
        for name in got:
            self.hold(name, self.now_s, max(self.now_s + limit_s, self.now_s + 1))
            self.taken[name] = job.job_id
        self.started.add(job.job_id)
        return True

    def book(self, job: JobRecord) -> None:
        self.made += 1
        eligibility, insists = list(self.eligibility(job)), required_nodes(job)
        if self.made > MOST_BOOKINGS or not insists <= set(eligibility):
            return
        limit_s = NO_LIMIT_S if job.limit_s is None else job.limit_s
        ends = {end for spans in self.held.values() for _, end in spans}
        for from_s in sorted({self.now_s, *ends} - {math.inf}):
            free = [name for name in eligibility if self.is_free(name, from_s, limit_s)]
            if len(free) >= node_count(job) and insists <= set(free):
                free.sort(key=lambda name: name not in insists)
                for name in free[: node_count(job)]:
                    self.hold(name, from_s, max(from_s + limit_s, from_s + 1))
                    before_s = self.booked_s.get(name, math.inf)
                    self.booked_s[name] = min(from_s, before_s)
                return
