"""What Slurm says about nodes, jobs, reservations, partitions and itself, typed.

Times are Unix seconds, None where Slurm does not know; durations are seconds,
``math.inf`` where unlimited. Lists of nodes stay hostlist expressions as Slurm
wrote them: spelled out, the plans of a busy machine would be millions of names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slurm.errors import SlurmRefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class NodeState(StrEnum):
    """One of a node's base states, or one of the flags beside it."""

    ALLOCATED = "ALLOCATED"
    DOWN = "DOWN"
    ERROR = "ERROR"
    FUTURE = "FUTURE"
    IDLE = "IDLE"
    MIXED = "MIXED"
    UNKNOWN = "UNKNOWN"

    BLOCKED = "BLOCKED"
    CLOUD = "CLOUD"
    COMPLETING = "COMPLETING"
    DRAIN = "DRAIN"
    DYNAMIC_FUTURE = "DYNAMIC_FUTURE"
    DYNAMIC_NORM = "DYNAMIC_NORM"
    EXTERNAL = "EXTERNAL"
    FAIL = "FAIL"
    INVALID_REG = "INVALID_REG"
    MAINTENANCE = "MAINTENANCE"
    NOT_RESPONDING = "NOT_RESPONDING"
    PLANNED = "PLANNED"
    POWER_DOWN = "POWER_DOWN"
    POWER_UP = "POWER_UP"
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_DOWN = "POWERING_DOWN"
    POWERING_UP = "POWERING_UP"
    REBOOT_ISSUED = "REBOOT_ISSUED"
    REBOOT_REQUESTED = "REBOOT_REQUESTED"
    RESERVED = "RESERVED"
    RESUME = "RESUME"


class JobState(StrEnum):
    """One of a job's base states, or one of the flags beside it."""

    BOOT_FAIL = "BOOT_FAIL"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    DEADLINE = "DEADLINE"
    FAILED = "FAILED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PENDING = "PENDING"
    PREEMPTED = "PREEMPTED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    TIMEOUT = "TIMEOUT"

    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    EXPEDITING = "EXPEDITING"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    POWER_UP_NODE = "POWER_UP_NODE"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    RESIZING = "RESIZING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"


ENDED = frozenset(
    {
        JobState.BOOT_FAIL,
        JobState.CANCELLED,
        JobState.COMPLETED,
        JobState.DEADLINE,
        JobState.FAILED,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.PREEMPTED,
        JobState.TIMEOUT,
    }
)
"""Base states of jobs that do not run any more, but for what COMPLETING cleans up."""

_NODE_STATES = {str(state): state for state in NodeState}
_JOB_STATES = {str(state): state for state in JobState}


def node_states(names: list[str]) -> tuple[frozenset[NodeState], frozenset[str]]:
    """Sort *names*, in any case, into the known states and the unknown words.

    A trailing ``*``, as older releases write it, means ``NOT_RESPONDING``.
    """
    known: set[NodeState] = set()
    unknown: set[str] = set()
    for name in names:
        word = name.strip().upper()
        if word.endswith("*"):
            word = word[:-1]
            known.add(NodeState.NOT_RESPONDING)
        if word in _NODE_STATES:
            known.add(_NODE_STATES[word])
        elif word:
            unknown.add(word)
    return frozenset(known), frozenset(unknown)


def job_states(names: list[str]) -> tuple[frozenset[JobState], frozenset[str]]:
    """Sort *names*, in any case, into the known states and the unknown words."""
    upper = {name.strip().upper() for name in names} - {""}
    known = frozenset(_JOB_STATES[word] for word in upper if word in _JOB_STATES)
    return known, frozenset(upper - _JOB_STATES.keys())


@dataclass(frozen=True, slots=True)
class Gres:
    """Generic resources of one kind, for example two ``gpu:a100``.

    Attributes:
        name: For example ``gpu``.
        kind: For example ``a100``; empty where the site names no types.
        count: How many.
    """

    name: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Node:
    """A compute node.

    Attributes:
        name: NodeName.
        states: Base state and flags.
        unknown_states: Words in its state that this version does not know.
        features: Active features.
        gres: Configured generic resources.
        cpus: CPUs as Slurm counts them.
        memory_mib: Configured memory.
        partitions: Names of the partitions it is in.
        reason: Why it is drained or down, empty otherwise. Hostile text.
        comment: An administrator's remark. Hostile text.
        allocated_cpus: CPUs that jobs hold.
    """

    name: str
    states: frozenset[NodeState]
    unknown_states: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    gres: tuple[Gres, ...] = ()
    cpus: int = 1
    memory_mib: int = 0
    partitions: tuple[str, ...] = ()
    reason: str = ""
    comment: str = ""
    allocated_cpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a lease asks of its node.

    Attributes:
        partition: Name of the partition that leases are submitted to.
        features: Features that the node must have, all of them.
        gres: Generic resources it must have; an empty ``kind`` takes any.
        memory_mib: Memory it must have at least.
        cpus: CPUs it must have at least.
    """

    partition: str
    features: frozenset[str] = frozenset()
    gres: tuple[Gres, ...] = ()
    memory_mib: int = 0
    cpus: int = 0

    def is_met_by(self, node: Node) -> bool:
        """Tell whether *node*, were it free, could take the lease."""
        return (
            self.partition in node.partitions
            and self.features <= node.features
            and self.memory_mib <= node.memory_mib
            and self.cpus <= node.cpus
            and all(wanted.count <= _count(node, wanted) for wanted in self.gres)
        )


def _count(node: Node, wanted: Gres) -> int:
    return sum(
        gres.count
        for gres in node.gres
        if gres.name == wanted.name and wanted.kind in {"", gres.kind}
    )


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Both names of a job; commands need one or the other.

    Attributes:
        job_id: The raw number: what ``srun --jobid`` takes.
        display_id: ``18_0`` for an array task, else the number: what ``scancel``
            takes. On 22.05 ``scancel <raw number of a task>`` does nothing and
            says nothing, and one task's number is its array's, so that cancelling
            it ends every task.
    """

    job_id: int
    display_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job, or the tasks of a job array that still wait together.

    Attributes:
        job_id: The raw number, unique to each array task; what ``srun --jobid``
            takes.
        display_id: ``18_0`` for a task, ``18_[1-3]`` for tasks that wait, else
            the number; what ``scancel`` takes for array tasks.
        array_job_id: Raw number of the whole array, None outside of arrays.
        array_task_id: Index in the array, None where tasks wait together.
        array_tasks: The waiting tasks as Slurm wrote them, perhaps shortened.
        name: Job name. Hostile text, perhaps cut.
        comment: Remark given at submission. Hostile text, perhaps cut.
        partitions: One, or while pending the several it asked for.
        states: Base state and flags.
        unknown_states: Words in its state that this version does not know.
        reason: Why it waits, in Slurm's word, perhaps cut.
        priority: Slurm's number; 0 is held.
        nice: How much it was asked to be lowered.
        eligible_s: From when on it may start; ``--begin`` shows here.
        start_s: When it started; while pending an expectation, or ``--begin``.
        end_s: When it ended or must end.
        limit_s: Its time limit.
        planned_nodes: Nodes that backfill has planned for it, a hostlist, empty
            for no plan; None where this source does not have them.
        nodes: Nodes that it holds, a hostlist.
        requested_nodes: Nodes that it insists on, a hostlist.
        node_count: Nodes that it holds or asks for at least.
        cpu_count: CPUs that it holds or asks for at least.
        features: Feature expression it asks for. Hostile text, perhaps cut.
        gres_per_node: Generic resources asked for on each node, as Slurm wrote.
        gres_per_job: The same for the whole job.
        dependency: What it waits for, empty for nothing. Perhaps cut.
        reservation: Reservation it runs in, empty for none.
        qos: Quality of service, empty where none is configured.
    """

    job_id: int
    display_id: str
    states: frozenset[JobState]
    unknown_states: frozenset[str] = frozenset()
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_tasks: str = ""
    user: str = ""
    uid: int | None = None
    name: str = ""
    comment: str = ""
    partitions: tuple[str, ...] = ()
    reason: str = ""
    priority: int | None = None
    nice: int = 0
    submit_s: float | None = None
    eligible_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    limit_s: float | None = None
    planned_nodes: str | None = ""
    nodes: str = ""
    requested_nodes: str = ""
    node_count: int = 0
    cpu_count: int = 0
    features: str = ""
    gres_per_node: str = ""
    gres_per_job: str = ""
    dependency: str = ""
    reservation: str = ""
    qos: str = ""

    @property
    def key(self) -> JobKey:
        """Both its names."""
        return JobKey(self.job_id, self.display_id)

    @property
    def is_pending(self) -> bool:
        """Whether it still waits for nodes."""
        return JobState.PENDING in self.states

    @property
    def has_ended(self) -> bool:
        """Whether it is over and has given all its nodes back.

        A state that this version does not know is taken for one that has not.
        """
        return bool(self.states & ENDED) and JobState.COMPLETING not in self.states

    @property
    def holds_nodes(self) -> bool:
        """Whether ``nodes`` are its own now; ended jobs still list theirs."""
        return bool(self.nodes) and not self.is_pending and not self.has_ended

    @property
    def is_planned(self) -> bool:
        """Whether backfill has planned a start *and* nodes for it.

        A start alone is no plan: ``--begin`` shows as one too.
        """
        return self.is_pending and self.start_s is not None and bool(self.planned_nodes)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are set aside for a while.

    Attributes:
        name: ReservationName.
        start_s: First second; where it floats, as if it began now.
        end_s: First second after, None where Slurm does not say.
        nodes: A hostlist, empty where it reserves licences only.
        flags: Slurm's words, for example ``MAINT``, ``DAILY``, ``TIME_FLOAT``.
        users: Who may use it, as written.
        accounts: Accounts that may use it, as written.
        partition: Partition that it is made from, empty for none.
    """

    name: str
    start_s: float
    end_s: float | None
    nodes: str = ""
    flags: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition.

    Attributes:
        name: PartitionName.
        nodes: A hostlist.
        is_up: Whether it takes and starts jobs.
        max_time_s: The longest time limit, ``math.inf`` for any.
        priority_tier: Partitions of a higher tier are served first.
        preempt_mode: Slurm's words, for example ``CANCEL``, ``OFF``.
        grace_time_s: Between the notice and the end of a preempted job.
        over_time_limit_s: How long jobs may overrun, None where the cluster's
            setting counts.
        is_default: Whether jobs go there that name none.
        is_hidden: Whether Slurm shows it only when asked for all.
        oversubscribe: Slurm's words, for example ``NO``, ``EXCLUSIVE``.
    """

    name: str
    nodes: str
    is_up: bool
    max_time_s: float
    priority_tier: int = 1
    preempt_mode: str = ""
    grace_time_s: float = 0.0
    over_time_limit_s: float | None = None
    is_default: bool = False
    is_hidden: bool = False
    oversubscribe: str = ""


def named_or_default(partitions: Iterable[Partition], name: str) -> Partition | None:
    """Return the partition *name*, the cluster's default for an empty name.

    None where we may see no such partition.
    """
    fitting = (p for p in partitions if (p.name == name if name else p.is_default))
    return next(fitting, None)


def choose_partition(
    partitions: Collection[Partition], name: str, *, where: str = ""
) -> Partition:
    """Return the partition *name*, the cluster's default for an empty name.

    Args:
        partitions: Those that we may see.
        name: Which; empty for the default one.
        where: Where people name another, for the message: ``"with --partition"``.

    Raises:
        SlurmRefusedError: There is no such partition.
    """
    found = named_or_default(partitions, name)
    if found is not None:
        return found
    known = ", ".join(sorted(partition.name for partition in partitions))
    asked = f"no partition {name!r}" if name else "no default partition"
    raise SlurmRefusedError(
        f"Slurm has {asked} that we may see; nothing was done. Name one of "
        f"{' '.join(filter(None, (known, where)))}."
    )


@dataclass(frozen=True, slots=True)
class Sdiag:
    """slurmctld's statistics, as far as they show whether backfill was at work.

    Attributes:
        taken_s: When slurmctld answered, by its own clock.
        since_s: Since when it counts; changes when it restarts or resets.
        bf_active: Whether a backfill cycle was under way.
        bf_cycles: Backfill cycles counted.
        bf_last_cycle_s: When the last one began, None before the first.
        bf_last_took_s: How long it worked, seconds; pauses in between not counted.
    """

    taken_s: float
    since_s: float
    bf_active: bool
    bf_cycles: int
    bf_last_cycle_s: float | None
    bf_last_took_s: float
