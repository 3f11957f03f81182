"""Whom the broker makes room for where Slurm cannot preempt leases.

A pending job of anybody that could start now, were our leases away, gets its nodes:
idle ones first, then leased ones. When in doubt it could start: a node given up in
vain costs training, one kept in vain costs somebody's waiting.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError
from slurm.holes import HoleEnd
from slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm.holes import Hole
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


@dataclass(frozen=True, slots=True)
class Claims:
    """Nodes that pending jobs could start on now.

    Attributes:
        leased: Leased nodes that must be given up, each with the job's number.
        idle: Idle nodes that must be left alone, each with the job's number.
    """

    leased: Mapping[str, int]
    idle: Mapping[str, int]

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that are not ours to plan with."""
        return frozenset((*self.leased, *self.idle))


NO_CLAIMS = Claims({}, {})


@dataclass(frozen=True, slots=True)
class Ground:
    """Where jobs might start.

    Attributes:
        holes: Every hole, those under our leases included; into one that ends
            with a planned start or a reservation only jobs are let that are over
            by then, as Slurm does it.
        nodes: Every node by name.
        leased: Nodes that our leases hold.
        margin_s: What was taken off the holes' ends; it does not bind others.
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    margin_s: float = 0.0


def find_claims(
    jobs: Iterable[JobRecord],
    ground: Ground,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
) -> Claims:
    """Return which nodes the pending jobs of others could start on.

    Jobs come in order of priority. One that finds too few nodes claims none.

    Args:
        jobs: All jobs of a snapshot.
        ground: Where they might start.
        is_ours: Tells our own leases.
        now_s: When the snapshot was taken, Unix time.
    """
    holes = {hole.node for hole in ground.holes}
    taken: dict[str, int] = {}
    fitting: dict[tuple[object, ...], tuple[str, ...]] = {}
    waiting = (j for j in jobs if not is_ours(j) and could_start(j, now_s))
    for job in sorted(waiting, key=lambda j: (-(j.priority or 0), j.job_id)):
        if len(taken) == len(holes):
            break
        kind = _kind(job)
        if kind not in fitting:
            fitting[kind] = _fitting(job, ground, now_s)
        _claim(job, fitting[kind], taken)
    leased = ground.leased
    return Claims(
        leased={name: by for name, by in taken.items() if name in leased},
        idle={name: by for name, by in taken.items() if name not in leased},
    )


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether nothing but nodes keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def _kind(job: JobRecord) -> tuple[object, ...]:
    """Return what decides which nodes fit, so that it is worked out once."""
    plan = (job.job_id, job.planned_nodes) if job.is_planned else ()
    asked = (job.features, job.gres_per_node, job.requested_nodes)
    return (job.partitions, *asked, job.limit_s, plan)


def _fitting(job: JobRecord, ground: Ground, now_s: float) -> tuple[str, ...]:
    """Return the nodes that *job* could start on, idle ones first."""
    until_s = now_s - ground.margin_s
    fitting = [
        hole
        for hole in ground.holes
        if hole.node in ground.nodes
        and _suits(job, ground.nodes[hole.node])
        and _lasts(job, hole, until_s)
    ]
    # Given up first is what would have ended soonest.
    fitting.sort(key=lambda h: (h.node in ground.leased, _life_end_s(h), h.node))
    return tuple(hole.node for hole in fitting)


def _suits(job: JobRecord, node: Node) -> bool:
    if job.partitions and not set(job.partitions) & set(node.partitions):
        return False
    if _WORD.fullmatch(job.features) and job.features not in node.features:
        return False
    names = {gres.name for gres in node.gres}
    if job.gres_per_node and not any(name in job.gres_per_node for name in names):
        return False
    requested = _names(job.requested_nodes)
    return not requested or node.name in requested


def _names(expression: str) -> frozenset[str]:
    try:
        return frozenset(expand(expression))
    except UnreadableOutputError:
        return frozenset()


def _lasts(job: JobRecord, hole: Hole, now_s: float) -> bool:
    """Tell whether *job* would be over before somebody else's planned start."""
    if hole.ends_by is HoleEnd.PLANNED_JOB and hole.blocker == str(job.job_id):
        return True
    limit_s = 0.0 if job.limit_s is None else job.limit_s
    return now_s + limit_s <= _life_end_s(hole)


def _life_end_s(hole: Hole) -> float:
    """Return when others must be gone; limits of our partition do not bind them."""
    if hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}:
        return math.inf if hole.end_s is None else hole.end_s
    return math.inf


def _claim(job: JobRecord, fitting: tuple[str, ...], taken: dict[str, int]) -> None:
    """Write down in *taken* what *job* gets, if it is enough."""
    needed = max(job.node_count, 1)
    if needed > len(fitting):
        return
    left = [name for name in fitting if name not in taken]
    if len(left) >= needed:
        taken.update(dict.fromkeys(left[:needed], job.job_id))
