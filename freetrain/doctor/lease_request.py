"""A job like a lease, of one minute, as the site's configuration asks for leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.tick.shapes import written
from slurm.batch import LeaseRequest
from slurm.requirement import Requirement

if TYPE_CHECKING:
    from freetrain.site.settings import Site

LIMIT_MIN = 1


def lease_request(
    site: Site, partition: str, *, name: str, script: str
) -> LeaseRequest:
    """Return the request for one node of *partition* and one minute.

    Args:
        site: Says what leases ask for.
        partition: Where.
        name: Name of the job.
        script: Absolute path of the batch script.
    """
    lease = site.lease
    return LeaseRequest(
        name=name,
        comment="one-step run of freetrain doctor",
        partition=partition,
        limit_min=LIMIT_MIN,
        nice=lease.nice,
        script=script,
        exclusive=lease.exclusive,
        memory_mib=lease.memory_mib or 0,
        cpus=lease.cpus or 0,
        qos=lease.qos,
        account=lease.account,
        features="&".join(lease.features),
        gres=",".join(written(gres) for gres in lease.gres),
    )


def requirement(site: Site, partition: str) -> Requirement:
    """Return what such a job asks of its node."""
    lease = site.lease
    return Requirement(
        partition=partition,
        features=frozenset(lease.features),
        gres=lease.gres,
        memory_mib=lease.memory_mib or 0,
        cpus=lease.cpus or 0,
    )
