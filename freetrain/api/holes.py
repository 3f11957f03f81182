"""The nodes that Slurm leaves idle now, and until when."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from freetrain.broker.lease import uuid_in
from freetrain.config.job import NodeSettings, read_job
from freetrain.config.site import requirement_on
from freetrain.tick.environment import slurm_connector
from freetrain.tick.leases import margin_s
from slurm.backend import SNAPSHOT_REQUESTS
from slurm.holes import find_holes, why_no_hole
from slurm.records import choose_partition

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.api.context import UserContext
    from freetrain.config.site import Site
    from slurm.backend import SlurmBackend
    from slurm.holes import Hole, Snapshot
    from slurm.pieces import Lack
    from slurm.records import ClusterConfig, JobRecord

SNAPSHOTS = 3
"""A snapshot that a backfill cycle overlaps is taken again; on a busy site all are."""

MOST_REQUESTS = 1 + SNAPSHOT_REQUESTS * SNAPSHOTS
WAIT_S = 1.0


def holes_now(
    context: UserContext,
    config: Path | None = None,
    *,
    partition: str = "",
    job: Path | None = None,
) -> PartitionHoles:
    """Return the holes for leases in *partition*, or where *config* submits them.

    Those for the trainer of the file *job*, and why other nodes have none, if given.

    Raises:
        FreeTrainError, SlurmError: Nothing is known; the message says why.
    """
    site = context.site(config)
    nodes = None
    if job is not None:
        path = context.folder / job
        nodes = read_job(path, named=str(job), home=context.home).nodes
    settings, snapshot = slurm_now(context)
    return holes_for_leases(
        snapshot,
        settings,
        site,
        uid=context.uid,
        partition=partition,
        nodes=nodes,
    )


def slurm_now(
    context: UserContext, backend: SlurmBackend | None = None
) -> tuple[ClusterConfig, Snapshot]:
    """Return how the cluster is set up, and a snapshot of it.

    No backfill cycle overlapped the snapshot, or it is the last of a few. A *backend*
    that is given must take ``MOST_REQUESTS``.

    Raises:
        SlurmError: Slurm did not answer.
    """
    backend = backend or slurm_connector(context.environ)(MOST_REQUESTS)
    config, snapshot = backend.config(), backend.snapshot()
    for _ in range(SNAPSHOTS - 1):
        if not snapshot.is_torn:
            break
        context.sleep(WAIT_S)
        snapshot = backend.snapshot()
    return config, snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHoles:
    """The holes of one snapshot that leases in a partition could use.

    Attributes:
        now_s: When the snapshot was taken, by slurmctld's clock, Unix time.
        margin_s: How long before a planned start a hole ends.
        nodes: How many nodes the cluster has.
        holes: By node, in Slurm's order.
        is_torn: Whether a backfill cycle overlapped the snapshot.
        why_not: By node of the partition that has none: the reason; only where holes
            for a trainer were asked for.
        of_pieces: Whether a lease takes a piece of a node, so that several may fit.
    """

    now_s: float
    partition: str
    margin_s: float
    nodes: int
    holes: tuple[Hole, ...]
    is_torn: bool
    why_not: dict[str, Lack | str] = field(default_factory=dict)
    of_pieces: bool = False


def holes_for_leases(  # noqa: PLR0913 -- each from elsewhere
    snapshot: Snapshot,
    config: ClusterConfig,
    site: Site,
    *,
    uid: int,
    partition: str = "",
    nodes: NodeSettings | None = None,
) -> PartitionHoles:
    """Return the holes that leases of *site* could use, in its partition or another.

    Args:
        snapshot: The cluster.
        config: Its settings.
        site: How leases are submitted.
        uid: Whose leases are ours.
        partition: Another one than theirs.
        nodes: What a trainer asks of its nodes; None for any.

    Raises:
        SlurmRefusedError: There is no such partition.
        UnreadableOutputError: The nodes of a planned job cannot be read.
    """
    named = "" if nodes is None else nodes.partition or ""
    chosen = choose_partition(
        snapshot.partitions,
        partition or named or site.lease.partition,
        where="with --partition, or under [lease] in freetrain.toml",
    )
    settings = NodeSettings(max_nodes=1) if nodes is None else nodes
    asked = requirement_on(
        structs.replace(settings, partition=chosen.name),
        site.lease,
        default_partition=chosen.name,
        nodes=snapshot.nodes,
        sharing=config.sharing,
    )

    def is_ours(job: JobRecord) -> bool:
        return job.uid == uid and uuid_in(job.name) is not None

    margin = margin_s(site, config, chosen)
    found = find_holes(
        snapshot,
        asked,
        is_ours=is_ours,
        margin_s=margin,
        window_s=config.bf_window_s,
        sharing=config.sharing,
    )
    why_not: dict[str, Lack | str] = {}
    if nodes is not None:
        why_not = why_no_hole(snapshot, asked, is_ours=is_ours, sharing=config.sharing)
    return PartitionHoles(
        now_s=snapshot.time_s,
        partition=chosen.name,
        margin_s=margin,
        nodes=len(snapshot.nodes),
        holes=found,
        is_torn=snapshot.is_torn,
        why_not=why_not,
        of_pieces=not asked.exclusive,
    )


def end_s(hole: Hole) -> float:
    """Return when *hole* ends; minus infinity where that is not known."""
    return -math.inf if hole.end_s is None else hole.end_s


def hole_record(hole: Hole) -> dict[str, Any]:
    """Return the record of *hole*; its end is null where it is open or unknown."""
    return {
        "node": hole.node,
        "start_s": hole.start_s,
        "end_s": hole.end_s if math.isfinite(end_s(hole)) else None,
        "ends_by": str(hole.ends_by),
        "blocker": hole.blocker,
        "held_by": list(hole.held_by),
        "room": hole.room,
    }
