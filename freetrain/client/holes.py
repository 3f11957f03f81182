"""The holes of one Slurm snapshot: when they end, and how many nodes stay idle."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import uuid_in
from freetrain.config.job import NodeSettings
from freetrain.config.site import requirement_of
from freetrain.tick.leases import margin_s
from slurm.holes import HoleEnd, find_holes
from slurm.records import choose_partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.config.site import Site
    from slurm.holes import Hole, Snapshot
    from slurm.records import ClusterConfig, JobRecord


LENGTHS_S = (120.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
"""Lengths of time for which idle nodes are counted."""

WHERE_NAMED = "with --partition, or under [lease] in freetrain.toml"
"""Where users name the partition, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNodes:
    """The nodes that Slurm leaves idle, in one snapshot.

    Attributes:
        now_s: When it was taken, by slurmctld's clock, Unix time.
        partition: Where leases would be submitted.
        margin_s: How long before a planned start a hole ends.
        nodes: How many nodes the partition's cluster has.
        holes: By node, in Slurm's order.
        is_torn: Whether a backfill cycle overlapped the snapshot.
    """

    now_s: float
    partition: str
    margin_s: float
    nodes: int
    holes: tuple[Hole, ...]
    is_torn: bool


@dataclass(frozen=True, slots=True)
class IdleStep:
    """How many nodes stay idle for the next ``length_s`` seconds."""

    length_s: float
    nodes: int

    @property
    def node_s(self) -> float:
        """The largest rectangle of that length, in node-seconds."""
        return self.nodes * self.length_s


def idle_of(
    snapshot: Snapshot,
    config: ClusterConfig,
    site: Site,
    *,
    uid: int,
    partition: str = "",
) -> IdleNodes:
    """Return the holes that leases of *site* could use.

    Args:
        snapshot: Slurm's nodes, jobs and reservations.
        config: How the cluster is set up.
        site: What leases ask of their nodes.
        uid: Our own user number.
        partition: Another partition than the site's; empty for the site's.

    Raises:
        SlurmRefusedError: There is no such partition.
        UnreadableOutputError: The nodes of a planned job cannot be read.
    """
    name = partition or site.lease.partition
    found = choose_partition(snapshot.partitions, name, where=WHERE_NAMED)
    asked = requirement_of(
        NodeSettings(max_nodes=1, partition=found.name),
        site.lease,
        default_partition=found.name,
    )
    margin = margin_s(site, config, found)

    def is_ours(job: JobRecord) -> bool:
        return job.uid == uid and uuid_in(job.name) is not None

    return IdleNodes(
        now_s=snapshot.time_s,
        partition=found.name,
        margin_s=margin,
        nodes=len(snapshot.nodes),
        holes=find_holes(
            snapshot,
            asked,
            is_ours=is_ours,
            margin_s=margin,
            window_s=config.bf_window_s,
        ),
        is_torn=snapshot.is_torn,
    )


def groups(idle: IdleNodes) -> tuple[tuple[Hole, ...], ...]:
    """Return the holes that end together and for one reason, the longest first."""
    together: dict[tuple[object, ...], list[Hole]] = defaultdict(list)
    for hole in idle.holes:
        together[hole.end_s, hole.ends_by, hole.blocker].append(hole)
    found = map(tuple, together.values())
    return tuple(sorted(found, key=lambda holes: (-_end_s(holes[0]), holes[0].node)))


def steps(
    idle: IdleNodes, *, lengths_s: Iterable[float] = LENGTHS_S
) -> tuple[IdleStep, ...]:
    """Return how many nodes stay idle for *lengths_s*, which ascend.

    Of lengths with equally many nodes only the longest is returned. A hole whose end
    is not known counts for no length.
    """
    lives = [_end_s(hole) - idle.now_s for hole in idle.holes]
    found = [
        IdleStep(length_s, sum(life >= length_s for life in lives))
        for length_s in lengths_s
    ]
    longer = [*found[1:], IdleStep(math.inf, 0)]
    return tuple(a for a, b in zip(found, longer, strict=True) if a.nodes > b.nodes)


def _end_s(hole: Hole) -> float:
    """Return when *hole* ends; minus infinity where that is not known."""
    return -math.inf if hole.end_s is None else hole.end_s


def why_it_ends(hole: Hole) -> str:
    """Return why *hole* ends when it does, for people."""
    match hole.ends_by:
        case HoleEnd.PLANNED_JOB:
            return f"job {hole.blocker} is planned there"
        case HoleEnd.RESERVATION:
            return f"reservation {hole.blocker}"
        case HoleEnd.PARTITION_LIMIT:
            return "the partition's time limit"
        case HoleEnd.BACKFILL_WINDOW:
            return "backfill plans no further"
        case HoleEnd.UNKNOWN_PLANNER:
            return "a job that is hidden from you"
        case HoleEnd.OPEN:
            return "nobody waits for it"
