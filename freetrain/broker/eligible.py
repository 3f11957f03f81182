"""What waiting jobs ask for, and which nodes they could use.

Where Slurm does not say what a job needs, or says it in a form we cannot read, the job
counts as one that could use the node: others must not wait because we misread them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import uuid_in
from slurm.errors import UnreadableOutputError
from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from logs.timeline import UnitSet
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
"""Prefixes of the reasons for which a job waits whatever nodes are free.

Any other reason does not hold a job back.
Source: job_reason_string of Slurm 21.08 to 26.05.
"""

_WORD = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_UUID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)


def could_start(job: JobRecord, now_s: float) -> bool:
    """Tell whether a lack of nodes is all that keeps *job* from starting."""
    if not job.is_pending or job.priority == 0:
        return False
    if job.eligible_s is not None and job.eligible_s > now_s:
        return False
    return not job.reason.startswith(_HELD_BACK)


def is_lease(job: JobRecord) -> bool:
    """Tell whether *job* is a lease of any user's FreeTrain."""
    return _UUID.fullmatch(uuid_in(job.name) or "") is not None


def has_what_is_asked(node: Node, job: JobRecord) -> bool:
    """Tell whether *node* has the partition, features and GRES that *job* asks for.

    Node names that the job requires are not considered here.
    """
    if job.partitions and not set(job.partitions) & set(node.partitions):
        return False
    if _WORD.fullmatch(job.features) and job.features not in node.features:
        return False
    asked = _gres_per_node(job)
    return not asked or any(gres.name in asked for gres in node.gres)


def required_nodes(job: JobRecord) -> frozenset[str]:
    """Return the nodes of ``--nodelist``; none where the list cannot be read."""
    try:
        return frozenset(expand(job.requested_nodes))
    except UnreadableOutputError:
        return frozenset()


def node_count(job: JobRecord) -> int:
    """Return how many nodes *job* takes, those of ``--nodelist`` included."""
    return max(job.node_count, 1)


def startable_tasks(job: JobRecord, *, most: int) -> int:
    """Return how many tasks of *job* could start together; *most* where unclear.

    Source: squeue's form of waiting tasks, ``1-9,12%2``; it cuts long lists.
    """
    if not job.array_tasks:
        return 1
    listed, _, together = job.array_tasks.partition("%")
    parts = [_RANGE.fullmatch(part) for part in listed.split(",")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return most
    count = sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in known)
    allowed = int(together) if together.isdecimal() else count
    return max(1, min(count, allowed))


def _gres_per_node(job: JobRecord) -> str:
    """Return the GRES that *job* needs on each node, in Slurm's notation.

    The GRES of a job of several nodes as a whole may all be on one of them.
    """
    per_job = job.gres_per_job if node_count(job) == 1 else ""
    return ",".join(filter(None, (job.gres_per_node, per_job)))


@dataclass(frozen=True, slots=True, eq=False)
class EligibleNodes:
    """The nodes that jobs of one kind can use; one object for each kind.

    Attributes:
        units: These nodes, whoever holds them.
        required: Those that each of the jobs must have. Where one of them is not
            known, no node is eligible.
    """

    units: UnitSet
    required: UnitSet


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a waiting job needs.

    Attributes:
        job_id: Its number.
        eligible: The nodes it can use.
        nodes: How many of them each task needs.
        least_s: Run time to count with where a short one is the cautious guess.
        most_s: Run time where a long one is; math.inf without a limit.
        planned_s: Start that backfill planned, Unix time; None without a plan.
        tasks: How many tasks could start together; the number of nodes where unclear.
    """

    job_id: int
    eligible: EligibleNodes
    nodes: int
    least_s: float
    most_s: float
    planned_s: float | None
    tasks: int


class Eligibility:
    """Which nodes can be used by which jobs, worked out once for each kind of job.

    Sets of nodes are bits of an integer, the first node in Slurm's order the lowest.

    Args:
        nodes: Nodes by name, in Slurm's order.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.names = tuple(nodes)
        self._bits: dict[str, UnitSet] = {}
        self._profiles: list[tuple[Node, UnitSet]] = []
        self._by_request: dict[tuple[object, ...], EligibleNodes] = {}
        self._by_nodes: dict[tuple[UnitSet, UnitSet], EligibleNodes] = {}

    def bit(self, name: str) -> UnitSet:
        """Return the set of one node; the empty set where it is unknown."""
        if not self._bits:  # filled when the first job waits
            self._bits = {name: 1 << k for k, name in enumerate(self.names)}
        return self._bits.get(name, 0)

    def units(self, names: Iterable[str]) -> UnitSet:
        """Return the set of the nodes *names*."""
        units = 0
        for name in names:
            units |= self.bit(name)
        return units

    def request(self, job: JobRecord) -> NodeRequest:
        """Return what *job* needs."""
        return NodeRequest(
            job.job_id,
            self.eligible(job),
            node_count(job),
            least_s=job.limit_s or 0.0,
            most_s=math.inf if job.limit_s is None else job.limit_s,
            planned_s=job.start_s if job.is_planned else None,
            tasks=startable_tasks(job, most=len(self.names)),
        )

    def eligible(self, job: JobRecord) -> EligibleNodes:
        """Return the nodes that *job* can use."""
        asked: tuple[object, ...] = (job.partitions, job.features, _gres_per_node(job))
        if job.requested_nodes:
            asked = (*asked, job.requested_nodes, job.node_count)
        if asked not in self._by_request:
            required = required_nodes(job)
            nodes = self._usable(job, required), self.units(required)
            one = self._by_nodes.setdefault(nodes, EligibleNodes(*nodes))
            self._by_request[asked] = one
        return self._by_request[asked]

    def _usable(self, job: JobRecord, required: frozenset[str]) -> UnitSet:
        usable = 0
        for node, units in self._each_profile():
            usable |= units if has_what_is_asked(node, job) else 0
        if not required <= self.nodes.keys():
            return 0
        is_all = len(required) >= node_count(job)
        return usable & self.units(required) if is_all else usable

    def _each_profile(self) -> list[tuple[Node, UnitSet]]:
        """Return one node of each profile with the set of all that are like it.

        Nodes are many and mostly differ in their names alone.
        """
        if not self._profiles:
            alike: dict[tuple[object, ...], list[Node]] = {}
            for node in self.nodes.values():
                gres = frozenset(gres.name for gres in node.gres)
                profile = (node.partitions, node.features, gres)
                alike.setdefault(profile, []).append(node)
            self._profiles = [
                (nodes[0], self.units(node.name for node in nodes))
                for nodes in alike.values()
            ]
        return self._profiles
