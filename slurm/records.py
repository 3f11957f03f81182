"""Records of Slurm's answers: nodes, jobs, partitions, reservations, configuration.

Times are Unix seconds, None where Slurm does not know; durations are seconds,
``math.inf`` where unlimited. Lists of nodes stay hostlist expressions as Slurm
wrote them: written out, the plans of a busy machine would be millions of names.
``expand`` and ``collapse``, at the end, translate them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from slurm.errors import SlurmRefusedError, UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping


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
"""Base states of jobs that do not run any more; with COMPLETING, not cleaned up yet."""

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
    """Generic resources, for example two ``gpu`` of kind ``a100``.

    The kind is empty where the site names no types.
    """

    name: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Node:
    """A compute node.

    Attributes:
        states: Base state and flags.
        unknown_states: Words in its state that this version does not know.
        features: Active features.
        gres: As configured.
        cpus, memory_mib: What jobs can have, without what is kept for the system; CPUs
            as Slurm counts them.
        reason: Why it is drained or down, empty otherwise. Hostile text.
        comment: An administrator's remark. Hostile text.
        allocated_cpus, allocated_memory_mib, allocated_gres: What jobs hold.
        cpus_per_core, cpus_per_socket: In which Slurm may give CPUs to jobs.
        owner: The user whose jobs alone may run there now, as Slurm wrote it, or the
            label of a site's security policy; empty for everybody's.
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
    allocated_memory_mib: int = 0
    allocated_gres: tuple[Gres, ...] = ()
    cpus_per_core: int = 1
    cpus_per_socket: int = 1
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A lease's demands on its node.

    Attributes:
        gres: An empty ``kind`` takes any.
        memory_mib: 0 for any.
        cpus: 0 for any.
        exclusive: Whether it takes the whole node, and not a piece that leaves the rest
            to other jobs.
    """

    partition: str
    features: frozenset[str] = frozenset()
    gres: tuple[Gres, ...] = ()
    memory_mib: int = 0
    cpus: int = 0
    exclusive: bool = True

    def is_met_by(self, node: Node) -> bool:
        """Tell whether *node*, were it free, could take the lease."""
        return (
            self.partition in node.partitions
            and self.features <= node.features
            and self.memory_mib <= node.memory_mib
            and self.cpus <= node.cpus
            and all(
                wanted.count <= gres_count(node.gres, wanted) for wanted in self.gres
            )
        )


def cpu_groups(cpus: int, *, sockets: int, cores_per_socket: int) -> tuple[int, int]:
    """Return the CPUs of a core and of a socket of a node that has *cpus*, 1 at least.

    Where Slurm tells no sockets or cores (0), the node counts as one of them.
    """
    sockets = max(1, sockets)
    return max(1, cpus // (sockets * max(1, cores_per_socket))), max(1, cpus // sockets)


def gres_in_use(
    present: tuple[Gres, ...],
    reported: tuple[Gres, ...] | None,
    *,
    allocated_cpus: int,
) -> tuple[Gres, ...]:
    """Return what jobs have of the resources *present* on a node, as Slurm *reported*.

    Where it does not say (None), all of them if jobs have any CPU there.
    """
    if reported is not None:
        return reported
    return present if allocated_cpus else ()


def gres_count(present: Iterable[Gres], wanted: Gres) -> int:
    """Return how many resources of the name and kind of *wanted* are *present*."""
    return sum(
        gres.count
        for gres in present
        if gres.name == wanted.name and wanted.kind in {"", gres.kind}
    )


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Both names of a job; commands need one or the other.

    Attributes:
        job_id: The raw number, for ``srun --jobid``.
        display_id: ``18_0`` for an array task, else the number, for ``scancel``. On
            22.05 ``scancel <raw number of a task>`` does nothing and says nothing, and
            one task's number is its array's, so that cancelling it ends every task.
    """

    job_id: int
    display_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job, or the tasks of a job array that still wait together.

    Attributes:
        job_id: The raw number, unique to each array task.
        display_id: ``18_0`` for a task, ``18_[1-3]`` for tasks that wait, else
            the number.
        array_job_id: Raw number of the whole array, None outside of arrays.
        array_task_id: Index in the array, None where tasks wait together.
        array_tasks: The waiting tasks as Slurm wrote them, perhaps shortened.
        name, comment: Hostile text, perhaps cut.
        partitions: One, or while pending the several it asked for.
        states: Base state and flags.
        unknown_states: Words in its state that this version does not know.
        reason: Why it waits, in Slurm's word, perhaps cut.
        priority: Slurm's number; 0 is held.
        eligible_s: From when on it may start; ``--begin`` shows here.
        start_s: When it started; while pending an expectation, or ``--begin``.
        end_s: When it ended or must end.
        planned_nodes: Nodes that backfill has planned for it, a hostlist, empty
            for no plan; None where this source does not have them.
        nodes: Nodes that it holds, a hostlist.
        requested_nodes: Nodes that it insists on, a hostlist.
        excluded_nodes: Nodes that it must not have, a hostlist; of running jobs some
            sources leave it out.
        oversubscribe: While pending, Slurm's word for how it shares nodes: ``NO`` for
            ``--exclusive``, ``USER``, ``OK``; empty where this source does not have it.
            Releases from 26.05 on say it in another field and other words.
        node_count, cpu_count: Held, or asked for at least.
        task_count: Tasks that it starts, 0 where unknown.
        least_cpus: CPUs that each of its nodes must give at least.
        least_memory_mib: Memory that each node must give at least, perhaps for each
            of its CPUs: squeue does not tell which.
        features: Feature expression it asks for. Hostile text, perhaps cut.
        gres_per_node, gres_per_job, gres_per_task, gres_per_socket: Generic resources
            asked for, as Slurm wrote.
        dependency: On other jobs, empty for none. Perhaps cut.
        reservation: Reservation it runs in, empty for none.
        qos: Quality of service, empty where none is configured.
        account: What it is charged to, empty for none.
        het_job_id: Number of the heterogeneous job that it is a component of; 0 for
            none. Components start together.
        cut: Names of the fields above that are perhaps cut: the text fills its column.
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
    excluded_nodes: str = ""
    oversubscribe: str = ""
    node_count: int = 0
    cpu_count: int = 0
    task_count: int = 0
    least_cpus: int = 0
    least_memory_mib: int = 0
    features: str = ""
    gres_per_node: str = ""
    gres_per_job: str = ""
    gres_per_task: str = ""
    gres_per_socket: str = ""
    dependency: str = ""
    reservation: str = ""
    qos: str = ""
    account: str = ""
    het_job_id: int = 0
    cut: frozenset[str] = frozenset()

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
        start_s: First second; where it floats, as if it began now.
        end_s: First second after, None where Slurm does not say.
        nodes: A hostlist, empty where it reserves licences only.
        flags: Slurm's words, for example ``MAINT``, ``DAILY``, ``TIME_FLOAT``.
        users: Users that may use it, as written.
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
        qos: The QOS whose limits bind all its jobs, empty for none.
        most_cpus_per_node: CPUs of a node that its jobs together can have; None for
            any number.
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
    qos: str = ""
    most_cpus_per_node: int | None = None


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


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Slurm, ordered by age.

    Attributes:
        major: For example 22.
        minor: For example 5.
        micro: For example ``8``, or ``0rc1``.
    """

    major: int
    minor: int
    micro: str

    @property
    def series(self) -> tuple[int, int]:
        """Major and minor number, on which back ends and formats depend."""
        return self.major, self.minor

    def __str__(self) -> str:
        """Write it as Slurm does, for example ``22.05.8``."""
        return f"{self.major}.{self.minor:02d}.{self.micro}"


class Grain(StrEnum):
    """The least part of a node that Slurm gives to a job."""

    CPU = "cpu"
    CORE = "core"
    SOCKET = "socket"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class NodeSharing:
    """How Slurm shares nodes among jobs.

    Attributes:
        grain: The least part of a node that a job gets.
        counts_memory: Whether memory is given to jobs, and no more than there is.
    """

    grain: Grain
    counts_memory: bool


WHOLE_NODES = NodeSharing(Grain.NODE, counts_memory=False)


MINUTE_S = 60.0
_DEFAULT_WINDOW_MIN = 1440
_DEFAULT_RESOLUTION_S = 60
_DEFAULT_INTERVAL_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The settings of Slurm that FreeTrain needs.

    Attributes:
        select_type: For example ``select/cons_tres``.
        select_type_parameters: For example ``CR_CPU_MEMORY``.
        scheduler_type: For example ``sched/backfill``.
        scheduler_parameters: SchedulerParameters by name; empty for a bare word.
        priority_type: For example ``priority/multifactor``.
        preempt_type: For example ``preempt/partition_prio``.
        preempt_mode: For example ``CANCEL``.
        private_data: Kinds of records of which users see only their own.
        kill_wait_s: Between a job's TERM and its KILL.
        complete_wait_s: How long ending jobs hold up the schedulers.
        over_time_limit_s: How long jobs may overrun their limit.
        has_epilog: Whether an epilog runs on the nodes.
        max_array_size: One more than the largest index of a job array.
        topology_plugin: For example ``topology/tree``; empty where Slurm omits it.
        enforces_limits: Whether limits of accounts, users and QOS bind jobs.
        confines: To their part of which resources Slurm keeps jobs: ``cpus``,
            ``memory``, ``devices``.
        slurm_uid: The user as whom slurmctld runs, SlurmUser; None where not shown.
    """

    cluster: str
    release: Release
    select_type: str
    select_type_parameters: str
    scheduler_type: str
    scheduler_parameters: Mapping[str, str] = field(hash=False)
    priority_type: str
    preempt_type: str
    preempt_mode: str
    private_data: tuple[str, ...]
    kill_wait_s: float
    complete_wait_s: float
    over_time_limit_s: float
    has_epilog: bool
    max_array_size: int
    topology_plugin: str = ""
    enforces_limits: bool = False
    confines: frozenset[str] = frozenset()
    slurm_uid: int | None = None

    @property
    def bf_window_s(self) -> float:
        """How far ahead backfill plans; infinite where it does not."""
        if self.scheduler_type != "sched/backfill":
            return math.inf
        return MINUTE_S * self._number("bf_window", _DEFAULT_WINDOW_MIN)

    @property
    def sharing(self) -> NodeSharing:
        """How nodes are shared among jobs."""
        return NodeSharing(self._grain, "MEMORY" in self.select_type_parameters.upper())

    @property
    def _grain(self) -> Grain:
        """The least part of a node that a job gets.

        Source: SelectTypeParameters, slurm.conf(5): CR_CPU, CR_Core, CR_Socket, each
        perhaps with memory; CR_Memory alone counts as CR_CPU.
        """
        if self.select_type not in {"select/cons_tres", "select/cons_res"}:
            return Grain.NODE
        parameters = self.select_type_parameters.upper().replace(",", "_").split("_")
        if "SOCKET" in parameters:
            return Grain.SOCKET
        return Grain.CORE if "CORE" in parameters else Grain.CPU

    @property
    def bf_resolution_s(self) -> float:
        """The grain of planned starts."""
        return float(self._number("bf_resolution", _DEFAULT_RESOLUTION_S))

    @property
    def bf_interval_s(self) -> float:
        """The pause between two backfill cycles."""
        return float(self._number("bf_interval", _DEFAULT_INTERVAL_S))

    def overrun_s(self, partition: Partition, *, epilog_s: float) -> float:
        """Return how long after its limit a job may still hold its node.

        Args:
            partition: The job's partition.
            epilog_s: How long the epilog takes, where there is one.
        """
        allowed_s = partition.over_time_limit_s
        if allowed_s is None:
            allowed_s = self.over_time_limit_s
        return allowed_s + self.kill_wait_s + (epilog_s if self.has_epilog else 0.0)

    def _number(self, name: str, default: int) -> int:
        text = self.scheduler_parameters.get(name, "")
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else default


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf switch, or a block: the smallest group of nodes that the site names.

    Attributes:
        name: The switch's or the block's.
        nodes: Its nodes, as a hostlist expression.
    """

    name: str
    nodes: str


_WITH_LEAVES = frozenset({"topology/tree", "topology/block"})

_FIRST_WITH_YAML = (25, 5)
"""From it on topology.yaml counts, and the configuration says topology/flat all the
same (seen on 26.05.5)."""


def must_have_leaves(config: ClusterConfig) -> bool:
    """Tell whether an answer without leaves is a failed query."""
    return config.topology_plugin in _WITH_LEAVES


def may_have_leaves(config: ClusterConfig) -> bool:
    """Tell whether it is worth asking for the topology."""
    return must_have_leaves(config) or config.release.series >= _FIRST_WITH_YAML


def leaf_by_node(leaves: Iterable[Leaf]) -> dict[str, str]:
    """Return the name of each node's leaf; the first where there are several.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    found: dict[str, str] = {}
    for leaf in leaves:
        for node in expand(leaf.nodes):
            found.setdefault(node, leaf.name)
    return found


# Hostlist expressions, both ways: ``n[1-3,07],m05`` and the names it means. A name may
# hold several brackets (``r[1-2]c[01-04]``) and text after the last one; the width of a
# range's first number is kept (``[08-11]`` is 08, 09, 10, 11). Source: scontrol(1),
# "show hostlist" and "show hostnames".

MAX_NAMES = 200_000
"""Names that one expression may mean; the largest machines have 160,000 nodes."""

_LONGEST = 300
"""Characters of a name, a range counting as one; DNS takes 253."""

_NOTHING = frozenset({"", "(null)", "None assigned"})
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)
_PLAIN = re.compile(r"[^\[\],\s]+")
_TERM = re.compile(r"(?:[^\[\],\s]+|\[[^\[\]\s]*\])+")
_PART = re.compile(r"[^\[\]]+|\[([^\[\]]*)\]")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})([^0-9]*)", re.ASCII | re.DOTALL)


def expand(expression: str, *, limit: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the names that *expression* means, in its order, repeats included.

    Args:
        expression: For example ``n[1-3,7],m05``; empty and ``(null)`` mean none.
        limit: Names to give at most; counted before any is made, so that a
            hostile range costs nothing.

    Raises:
        UnreadableOutputError: Not a hostlist expression, or above *limit*.
    """
    text = expression.strip()
    if text in _NOTHING:
        return ()
    if _PLAIN.fullmatch(text):
        return (text,)
    names: list[str] = []
    for term in _terms(text):
        names.extend(_expand_term(term, text, limit - len(names)))
    return tuple(names)


def collapse(names: Iterable[str]) -> str:
    """Return one expression for *names*, each once, runs of numbers as ranges.

    Raises:
        ValueError: A name is empty or holds a character that hostlists use.
    """
    terms: list[str] = []
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set(names)):
        _check_name(name)
        found = _NUMBERED.fullmatch(name)
        if found:
            groups.setdefault((found[1], found[3]), []).append(found[2])
        else:
            terms.append(name)
    terms += (
        before + _ranges(group) + after for (before, after), group in groups.items()
    )
    return ",".join(terms)


def _terms(text: str) -> Iterator[str]:
    """Cut *text* at the commas outside of brackets."""
    at = 0
    while True:
        found = _TERM.match(text, at)
        if found is None:
            raise _unreadable(text, f"no host name at character {at + 1}")
        yield found.group()
        at = found.end()
        if at == len(text):
            return
        if text[at] != ",":
            raise _unreadable(text, f"unexpected character at {at + 1}")
        at += 1


def _expand_term(term: str, text: str, limit: int) -> Iterator[str]:
    """Return the names of one comma-free term, of which *limit* are allowed."""
    if "[" not in term:
        parts = [[(term, term)]]
    else:
        found_parts = list(_PART.finditer(term))
        if sum(1 if f[1] is not None else len(f[0]) for f in found_parts) > _LONGEST:
            raise _unreadable(text, f"a name of more than {_LONGEST} characters")
        parts = [_bounds(found, text) for found in found_parts]
    count = prod(sum(_length(bound) for bound in part) for part in parts)
    if count > limit:
        raise _unreadable(text, f"more than {MAX_NAMES} names are not believed")
    choices = [[word for bound in part for word in _words(bound)] for part in parts]
    return ("".join(words) for words in product(*choices))


def _bounds(found: re.Match[str], text: str) -> list[tuple[str, str]]:
    """Return the ranges, first and last number as written, of one part."""
    inside = found.group(1)
    if inside is None:
        return [(found.group(), found.group())]
    bounds = []
    for item in inside.split(","):
        numbers = _RANGE.fullmatch(item)
        if numbers is None:
            raise _unreadable(text, f"[{item}] is not a number or a range")
        first, last = numbers.group(1), numbers.group(2) or numbers.group(1)
        if int(last) < int(first):
            raise _unreadable(text, f"[{item}] counts down")
        bounds.append((first, last))
    return bounds


def _length(bound: tuple[str, str]) -> int:
    first, last = bound
    return 1 if first == last else int(last) - int(first) + 1


def _words(bound: tuple[str, str]) -> Iterator[str]:
    first, last = bound
    if first == last:
        return iter((first,))
    width = len(first)
    return (f"{number:0{width}d}" for number in range(int(first), int(last) + 1))


def _check_name(name: str) -> None:
    if not name or name in _NOTHING or any(c in "[]," or c.isspace() for c in name):
        raise ValueError(f"{name!r} is not a host name")


def _ranges(numbers: list[str]) -> str:
    """Write *numbers*, digits each, as ``[1-3,7]``; a single one stays as it is."""
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda text: (int(text), len(text))):
        if runs and _follows(runs[-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    if len(numbers) == 1:
        return numbers[0]
    return (
        "["
        + ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        + "]"
    )


def _follows(run: list[str], number: str) -> bool:
    """Tell whether a range that starts as *run* does would write *number* next."""
    return number == f"{int(run[-1]) + 1:0{len(run[0])}d}"


def _unreadable(text: str, why: str) -> UnreadableOutputError:
    return UnreadableOutputError("hostlist", 1, text, why)
