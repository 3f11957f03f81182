"""The holes that leases may go into, and the nodes that others' jobs could start on.

A *shape* is what leases ask of their nodes, under a name that never changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.delay_protection import DelayProtection, keep_free
from freetrain.broker.limits import Mode
from freetrain.broker.yielding import NO_CLAIMS, find_claims
from freetrain.tick.observe import margin_s
from slurm.batch import gres_argument
from slurm.errors import SlurmRefusedError
from slurm.holes import HoleEnd, find_holes
from slurm.records import (
    JobState,
    NodeState,
    Requirement,
    expand,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.broker.decide import HoleExplanation
    from freetrain.broker.delay_protection import KeptFree, PendingDemand
    from freetrain.broker.yielding import Claims
    from freetrain.config.site import Site
    from freetrain.tick.observe import Observed
    from slurm.holes import Hole
    from slurm.records import JobRecord, Node


def shape_name(requirement: Requirement) -> str:
    """Return the name of this requirement: always the same, and of no other.

    Features, resources and partitions are checked words without these signs.
    """
    parts = [
        requirement.partition,
        *(f"feature={name}" for name in sorted(requirement.features)),
        *(f"gres={gres}" for gres in sorted(map(gres_argument, requirement.gres))),
    ]
    if requirement.memory_mib:
        parts.append(f"memory={requirement.memory_mib}MiB")
    if requirement.cpus:
        parts.append(f"cpus={requirement.cpus}")
    return " ".join(parts)


_SHARED = {NodeState.MIXED, NodeState.ALLOCATED, NodeState.PLANNED}


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds holes and claims in what a tick observed.

    Attributes:
        site: The site's settings.
        observed: What the tick observed, and what was known before.
        is_ours: Tells our own leases.
        clock: Seconds from any moment on.
    """

    site: Site
    observed: Observed
    is_ours: Callable[[JobRecord], bool]
    clock: Callable[[], float]

    def holes(
        self, shapes: Mapping[str, Requirement]
    ) -> tuple[dict[str, tuple[Hole, ...]], tuple[str, ...]]:
        """Return the holes of each shape, and the problems of shapes that have none.

        Raises:
            UnreadableOutputError: Slurm's lists of nodes cannot be read.
        """
        holes: dict[str, tuple[Hole, ...]] = {}
        problems = []
        for shape, requirement in shapes.items():
            try:
                holes[shape] = self._holes_of(requirement)
            except SlurmRefusedError as error:
                problems.append(str(error))
        return holes, tuple(problems)

    def claims(self, shapes: Mapping[str, Requirement]) -> Claims:
        """Return which nodes others could start on, where they cannot take them.

        Raises:
            UnreadableOutputError: Slurm's lists of nodes cannot be read.
        """
        observed = self.observed
        if observed.limits.mode is Mode.PREEMPT:
            return NO_CLAIMS
        held = [one for one in observed.belief.leases if one.is_live and one.node]
        jobs, nodes = observed.snapshot.jobs, observed.snapshot.nodes
        ground = BackfillState(
            holes=self._every_hole(shapes),
            nodes={node.name: node for node in nodes},
            leased=frozenset(one.node for one in held),
            partly=frozenset(_partly(nodes)),
            spans={
                one.node: LeaseSpan(one.start_s, one.end_s)
                for one in held
                if one.start_s is not None and one.end_s is not None
            },
            busy_until_s=_busy_until_s(jobs, self.is_ours),
            backfill=Backfill(
                grain_s=observed.config.bf_resolution_s,
                window_s=observed.config.bf_window_s,
            ),
        )
        return find_claims(
            jobs,
            ground,
            is_ours=self.is_ours,
            now_s=observed.now_s,
            protect=careful_of(
                self.site, observed, is_ours=self.is_ours, clock=self.clock
            ),
        )

    def before_bookings(
        self,
        holes: Mapping[str, Iterable[Hole]],
        claims: Claims,
        shapes: Mapping[str, Requirement],
    ) -> dict[str, tuple[Hole, ...]]:
        """Let holes end in time for jobs that are booked there, by shape.

        Backfill's own plan may be older, or lie around our leases. A hole that we
        hold stays: backfill knows when its lease ends, and claims say whether the lease
        must go.
        """
        early_s = {shape: self._early_s(asked) for shape, asked in shapes.items()}
        return {
            shape: tuple(_before(one, claims.booked_s, early_s[shape]) for one in found)
            for shape, found in holes.items()
        }

    def _every_hole(self, shapes: Mapping[str, Requirement]) -> tuple[Hole, ...]:
        """Return the holes of every partition that leases go to, whatever is asked."""
        observed = self.observed
        wanted = {one.partition for one in shapes.values()} | {observed.partition.name}
        there = {partition.name for partition in observed.snapshot.partitions}
        found = {
            hole.node: hole
            for name in sorted(wanted & there)
            for hole in self._holes_of(Requirement(partition=name), is_left_early=False)
        }
        return tuple(found.values())

    def _holes_of(
        self, requirement: Requirement, *, is_left_early: bool = True
    ) -> tuple[Hole, ...]:
        return find_holes(
            self.observed.snapshot,
            requirement,
            is_ours=self.is_ours,
            margin_s=self._early_s(requirement) if is_left_early else 0.0,
            window_s=self.observed.config.bf_window_s,
        )

    def _early_s(self, requirement: Requirement) -> float:
        """Return how long before their end holes of that partition are left."""
        observed, name = self.observed, requirement.partition
        named = (one for one in observed.snapshot.partitions if one.name == name)
        partition = next(named, observed.partition)
        return margin_s(self.site, observed.config, partition)


def _before(hole: Hole, booked_s: Mapping[str, float], early_s: float) -> Hole:
    if hole.held_by or hole.end_s is None or hole.node not in booked_s:
        return hole
    end_s = booked_s[hole.node] - early_s
    if end_s >= hole.end_s:
        return hole
    return replace(hole, end_s=end_s, ends_by=HoleEnd.PLANNED_JOB, blocker="")


def _busy_until_s(
    jobs: Iterable[JobRecord], is_ours: Callable[[JobRecord], bool]
) -> dict[str, float]:
    """Return when nodes that others hold come free, by the limits of their jobs.

    No job can start on the nodes of our leases that are just ending, either; the job
    that waits for them gets them in a moment.
    """
    until_s: dict[str, float] = {}
    for job in jobs:
        is_leaving = JobState.COMPLETING in job.states
        if job.holds_nodes and (is_leaving or not is_ours(job)):
            end_s = math.inf if job.end_s is None else job.end_s
            for name in expand(job.nodes):
                until_s[name] = max(end_s, until_s.get(name, 0.0))
    return until_s


def _partly(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the nodes that jobs hold a part of, so that others may start beside."""
    for node in nodes:
        is_up = node.states <= _SHARED and not node.unknown_states
        if is_up and 0 < node.allocated_cpus < node.cpus:
            yield node.name


LIMIT_S = 1.0
"""The last tick before a backfill cycle must be quick: what happens while it works is
not seen."""


def careful_of(
    site: Site,
    observed: Observed,
    *,
    is_ours: Callable[[JobRecord], bool],
    clock: Callable[[], float],
) -> Callable[[PendingDemand], KeptFree] | None:
    """Return delay protection; None where the site does not want it.

    Args:
        site: The site's settings.
        observed: What the tick observed.
        is_ours: Tells our own leases.
        clock: Seconds from any moment on.
    """
    if not site.lease.careful:
        return None
    until_s = clock() + LIMIT_S

    def kept_free(demand: PendingDemand) -> KeptFree:
        # Node lists are read here, as this is called only where jobs wait.
        running = [
            frozenset(expand(job.nodes))
            for job in observed.snapshot.jobs
            if job.holds_nodes and not is_ours(job)
        ]
        caution = DelayProtection(
            running,
            cycle_s=observed.config.bf_interval_s,
            longest_s=60.0 * observed.limits.most_limit_min,
            is_out_of_time=lambda: clock() > until_s,
        )
        return keep_free(demand, caution)

    return kept_free


def refusal_of(why: HoleExplanation, claims: Claims) -> str:
    """Return why a hole cannot be planned with, for people; empty where it can."""
    if why.node in claims.kept_free.nodes:
        return f"{why.refusal}: {claims.kept_free.nodes[why.node]}"
    return str(why.refusal or "")


def not_tried(claims: Claims) -> tuple[str, ...]:
    """Return a line about running jobs that there was no time to consider."""
    untried = claims.kept_free.untried
    if not untried:
        return ()
    line = (
        f"careful: the ends of {untried} running jobs could not be tried, "
        f"or not in full; where one ends early, a job may wait longer than a tick"
    )
    return (line,)
