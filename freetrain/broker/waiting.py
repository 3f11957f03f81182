"""What waiting jobs ask for, as far as Slurm tells it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from freetrain.broker.lease import uuid_in
from slurm.errors import UnreadableOutputError
from slurm.hostlist import expand

if TYPE_CHECKING:
    from slurm.records import JobRecord, Node

_HELD_BACK = (
    "Assoc",
    "BeginTime",
    "BurstBuffer",
    "DeadLine",
    "Dependency",
    "Federation",
    "InvalidAccount",
    "InvalidQOS",
    "JobArrayTaskLimit",
    "JobHeld",
    "Licenses",
    "MaxBillingPerAccount",
    "MaxCpuPerAccount",
    "MaxGRESPerAccount",
    "MaxJobsPerAccount",
    "MaxMemPerAccount",
    "MaxNodePerAccount",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOS",
    "Reservation",
    "Cleaning",
)
"""Beginnings of the reasons for which a job waits whatever nodes are free.

Source: job_reason_string of Slurm 21.08 to 26.05. A reason that is not among them
does not hold a job back.
"""

_WORD = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_UUID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether nothing but nodes keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def is_lease(job: JobRecord) -> bool:
    """Tell whether *job* is a lease, of anybody's FreeTrain."""
    return _UUID.fullmatch(uuid_in(job.name) or "") is not None


def suits(job: JobRecord, node: Node) -> bool:
    """Tell whether *node* is and has what *job* asks for, whatever its name.

    What is not told, or cannot be read, it has.
    """
    if job.partitions and not set(job.partitions) & set(node.partitions):
        return False
    if _WORD.fullmatch(job.features) and job.features not in node.features:
        return False
    names = {gres.name for gres in node.gres}
    gres = gres_on_each(job)
    return not gres or any(name in gres for name in names)


def gres_on_each(job: JobRecord) -> str:
    """Return what *job* asks of each of its nodes, as Slurm writes it.

    What a job of several nodes asks for as a whole may all be on one of them.
    """
    of_whole = job.gres_per_job if needed(job) == 1 else ""
    return ",".join(filter(None, (job.gres_per_node, of_whole)))


def insisted(job: JobRecord) -> frozenset[str]:
    """Return the nodes that *job* insists on; none where they cannot be read."""
    try:
        return frozenset(expand(job.requested_nodes))
    except UnreadableOutputError:
        return frozenset()


def needed(job: JobRecord) -> int:
    """Return how many nodes *job* takes; those that it insists on are part of them."""
    return max(job.node_count, 1)


def tasks(job: JobRecord, *, most: int) -> int:
    """Return how many tasks of *job* could start together; *most* where unclear.

    Source: what squeue prints of waiting tasks, ``1-9,12%2``; it cuts long lists.
    """
    if not job.array_tasks:
        return 1
    told, _, together = job.array_tasks.partition("%")
    parts = [_RANGE.fullmatch(part) for part in told.split(",")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return most
    count = sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in known)
    allowed = int(together) if together.isdecimal() else count
    return max(1, min(count, allowed))
