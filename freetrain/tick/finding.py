"""What a look shows of nodes: holes for leases, and what others could start on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.claims import NO_CLAIMS, find_claims
from freetrain.broker.ground import Backfill, Ground, Span
from freetrain.broker.limits import Mode
from freetrain.tick.caring import careful_of
from freetrain.tick.limits import margin_s
from slurm.errors import SlurmRefusedError
from slurm.holes import HoleEnd, find_holes
from slurm.hostlist import expand
from slurm.requirement import Requirement
from slurm.states import JobState, NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.broker.claims import Claims
    from freetrain.site.settings import Site
    from freetrain.tick.observe import Observed
    from slurm.holes import Hole
    from slurm.records import JobRecord, Node

_SHARED = {NodeState.MIXED, NodeState.ALLOCATED, NodeState.PLANNED}


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds holes and claims in one look.

    Attributes:
        site: The site's settings.
        observed: The look, and what was known before.
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
        """Return the holes of each shape, and for people what there are none for.

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
        ground = Ground(
            holes=self._every_hole(shapes),
            nodes={node.name: node for node in nodes},
            leased=frozenset(one.node for one in held),
            partly=frozenset(_partly(nodes)),
            spans={
                one.node: Span(one.start_s, one.end_s)
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
            careful=careful_of(
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

        What backfill has planned may be older than that, or be around our leases.
        Where we hold a lease its end is known to backfill, and claims say whether it
        must go.
        """
        early_s = {shape: self._early_s(asked) for shape, asked in shapes.items()}
        return {
            shape: tuple(_before(one, claims.booked_s, early_s[shape]) for one in found)
            for shape, found in holes.items()
        }

    def _every_hole(self, shapes: Mapping[str, Requirement]) -> tuple[Hole, ...]:
        """Return the holes of every partition that leases are in, whatever is asked."""
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

    Nodes of our leases that are just ending are nobody's to start on either; but who
    waits for them gets them in a moment.
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
