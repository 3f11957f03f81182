"""What the leases of a trainer ask of their nodes: the job file over the site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm.requirement import Requirement

if TYPE_CHECKING:
    from freetrain.jobfile.job import Nodes
    from freetrain.site.settings import LeaseSettings


def requirement_of(
    nodes: Nodes, lease: LeaseSettings, *, default_partition: str
) -> Requirement:
    """Return what a lease for a trainer asks of its node.

    The trainer's word counts before the site's; features are those of both.

    Args:
        nodes: What the trainer says.
        lease: What the site says.
        default_partition: The cluster's, where neither names one.
    """
    gres = lease.gres if nodes.gres is None else nodes.gres
    return Requirement(
        partition=nodes.partition or lease.partition or default_partition,
        features=frozenset(lease.features) | frozenset(nodes.features),
        gres=gres,
        memory_mib=nodes.memory_mib or lease.memory_mib or 0,
        cpus=nodes.cpus or lease.cpus or 0,
    )
