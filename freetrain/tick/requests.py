"""From a decision to submit, to what sbatch is asked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import job_name
from freetrain.tick.limits import grace_s
from freetrain.tick.shapes import written
from slurm.batch import LeaseRequest

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import Intent
    from freetrain.exchange.layout import StateDir
    from freetrain.site.settings import Site
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from slurm.requirement import Requirement

OUTPUT = "lease-%j.out"
"""Name of what batch scripts print, with sbatch's pattern of the job's number."""


def lease_request(
    run: Run,
    observed: Observed,
    intent: Intent,
    requirement: Requirement,
    *,
    excluded: str = "",
) -> LeaseRequest:
    """Return the request that carries out *intent*, kept off the nodes *excluded*."""
    grace = grace_s(observed.config, observed.partition, observed.limits.mode)
    made = request_for(run.site, run.folder, intent, requirement, grace_s=grace)
    return replace(made, excluded=excluded)


def request_for(
    site: Site,
    folder: StateDir,
    intent: Intent,
    requirement: Requirement,
    *,
    grace_s: float,
) -> LeaseRequest:
    """Return what sbatch is asked for *intent* at *site*, whoever decided it.

    Args:
        site: How leases are submitted there.
        folder: The state directory.
        intent: How many, how long, until when.
        requirement: What they ask of their nodes.
        grace_s: How long a lease that must go has, from the first signal it hears.
    """
    lease = site.lease
    return LeaseRequest(
        name=job_name(intent.uuid),
        comment=f"freetrain {intent.uuid}",
        partition=requirement.partition,
        limit_min=intent.limit_min,
        nice=lease.nice,
        script=str(folder.lease_script),
        arguments=(intent.uuid, str(intent.limit_min), str(math.ceil(grace_s))),
        tasks=intent.tasks,
        deadline_s=intent.deadline_s,
        output=_output(str(folder.outputs)),
        exclusive=lease.exclusive,
        memory_mib=requirement.memory_mib,
        cpus=requirement.cpus,
        qos=lease.qos,
        account=lease.account,
        features="&".join(sorted(requirement.features)),
        gres=",".join(written(one) for one in requirement.gres),
    )


def output_of(folder: StateDir, job_id: int) -> Path:
    """Return the file of what the batch script of a job printed."""
    return folder.outputs / OUTPUT.replace("%j", str(job_id))


def _output(folder: str) -> str:
    """Return where batch scripts print; sbatch reads ``%`` and a backslash as signs."""
    if "\\" in folder:
        return "/dev/null"
    return f"{folder.replace('%', '%%')}/{OUTPUT}"
