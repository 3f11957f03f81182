"""The cluster of the fake Slurm: its state, and what happens as time goes by.

The state is one JSON file. ``advance`` is pure: it changes the state and returns orders
to start and signal processes, which ``processes`` carries out.
"""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


NODES = tuple(f"n{number}" for number in range(1, 9))


class FakeJobState(StrEnum):
    """A job's base state, in Slurm's own words."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    DEADLINE = "DEADLINE"
    PREEMPTED = "PREEMPTED"


@dataclass(frozen=True, slots=True)
class Process:
    """A process; its start tells it from a later one of the same number.

    Attributes:
        pid: Its number; that of its process group too.
        started: When it started, in clock ticks since the machine did.
    """

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """A partition.

    Attributes:
        name: Its name.
        tier: PriorityTier; what is higher preempts.
        grace_s: GraceTime: between a preempted job's notice and its end.
        max_time_s: The longest time limit.
        is_default: Whether jobs that name none go there.
        is_preemptable: Whether higher tiers may take its nodes.
    """

    name: str
    tier: int
    grace_s: int = 0
    max_time_s: int = 14_400
    is_default: bool = False
    is_preemptable: bool = True


ACCOUNTS = {"physics": "science", "chemistry": "science", "science": "root"}
"""The account above each."""

MAIN = ClusterPart("main", tier=10, max_time_s=86_400, is_default=True)
FREETRAIN = ClusterPart("freetrain", tier=1, grace_s=10)


@dataclass(slots=True, kw_only=True)
class FakeJob:
    """A job, or one task of an array; another user's where ``run_s`` is given.

    Attributes:
        job_id: Raw number; of a waiting task its array's.
        array_id: Number of its array, 0 outside of arrays.
        task: Index in the array, -1 outside of arrays.
        name: Job name. Hostile text, like all that users type.
        comment: Remark.
        user: Whose.
        account: What it is charged to.
        partition: Where.
        nice: How much its priority is lowered.
        limit_s: Its time limit.
        deadline_s: Unix time by which it must have ended, None for none.
        script: What runs; empty for a job that only holds its nodes.
        arguments: The script's.
        output: Where its output goes, with ``%`` patterns.
        directory: Where it starts.
        environment: Variables passed on.
        submit_s: When it is seen first, Unix time.
        due_s: When it starts on ``wanted``, and not before; None for as soon as
            there is room anywhere.
        wanted: The nodes that it must get; empty for any one node.
        excluded: Nodes that it must not get.
        features: What it asks of its nodes, shown and otherwise not minded.
        run_s: How long it holds them; None for as long as its script runs.
        state: Base state.
        is_completing: Whether it ended and processes of it may be left.
        reason: Why it waits.
        nodes: Nodes it holds, or held.
        start_s: When it started, Unix time.
        end_s: When it ended, Unix time.
        notice_s: When it got notice of its preemption or limit, Unix time.
        term_s: When all of it got TERM, Unix time; KILL comes KillWait later.
        ends_as: What it ends as, where that was decided before its end.
        supervisor: The process that runs its script.
        batch: The process of its script.
        steps: The processes of its steps.
        has_preempted: Whether a lease had to leave for it.
        signals: Every signal that it was sent by scancel.
    """

    job_id: int
    array_id: int = 0
    task: int = -1
    name: str
    comment: str = ""
    user: str
    account: str = "physics"
    partition: str
    nice: int = 0
    limit_s: float
    deadline_s: float | None = None
    script: str = ""
    arguments: list[str] = field(default_factory=list)
    output: str = "/dev/null"
    directory: str = "/"
    environment: dict[str, str] = field(default_factory=dict)
    submit_s: float
    due_s: float | None = None
    wanted: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    features: str = ""
    run_s: float | None = None
    state: FakeJobState = FakeJobState.PENDING
    is_completing: bool = False
    reason: str = "Priority"
    nodes: list[str] = field(default_factory=list)
    start_s: float | None = None
    end_s: float | None = None
    notice_s: float | None = None
    term_s: float | None = None
    ends_as: FakeJobState | None = None
    supervisor: Process | None = None
    batch: Process | None = None
    steps: list[Process] = field(default_factory=list)
    has_preempted: bool = False
    signals: list[str] = field(default_factory=list)

    @property
    def display_id(self) -> str:
        """Its number for scancel."""
        return f"{self.array_id}_{self.task}" if self.array_id else str(self.job_id)

    @property
    def is_pending(self) -> bool:
        """Whether it waits."""
        return self.state is FakeJobState.PENDING

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.state is FakeJobState.RUNNING

    @property
    def holds_nodes(self) -> bool:
        """Whether no other job can have its nodes."""
        return self.is_running or self.is_completing


@dataclass(slots=True, kw_only=True)
class FakeCluster:
    """The whole state of the fake Slurm.

    Attributes:
        user: Whose jobs sbatch submits.
        uid: That user's number.
        nodes: NodeNames, in order.
        parts: Partitions.
        leaves: Nodes below each leaf switch, by its name; none for no topology.
        parents: The account above each; all are below root. Our user is of the first.
        node_limits: GrpTRES=node by account.
        submit_limit: MaxSubmit of the user, None for none.
        shows_limits: Whether users may see limits.
        admin_level: What our user may do: "None", "Operator" or "Administrator".
        default_qos: The QOS of our user's jobs that name none; empty for "normal".
        runs_jobs: Whether scripts are run; where not, a job lasts until it is
            ended.
        keeper: The process without which nothing here may go on.
        kill_wait_s: KillWait: between TERM and KILL.
        since_s: When the cluster came up, Unix time.
        planned_s: When what backfill plans last changed, Unix time.
        next_id: The next raw number.
        cycles: How often backfill planned something else.
        jobs: Jobs, ended ones and those not yet submitted included.
    """

    user: str
    uid: int
    nodes: list[str] = field(default_factory=lambda: list(NODES))
    parts: list[ClusterPart] = field(default_factory=lambda: [MAIN, FREETRAIN])
    leaves: dict[str, list[str]] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=lambda: dict(ACCOUNTS))
    node_limits: dict[str, int] = field(default_factory=dict)
    submit_limit: int | None = None
    shows_limits: bool = True
    admin_level: str = "None"
    default_qos: str = ""
    runs_jobs: bool = True
    keeper: Process | None = None
    kill_wait_s: float = 5.0
    since_s: float
    planned_s: float
    next_id: int = 1
    cycles: int = 0
    jobs: list[FakeJob] = field(default_factory=list)

    def part(self, name: str) -> ClusterPart | None:
        """Return the partition *name*; None where there is none."""
        return next((part for part in self.parts if part.name == name), None)

    def holder(self, node: str) -> FakeJob | None:
        """Return the job that holds *node*; None where it is idle."""
        return next((j for j in self.jobs if j.holds_nodes and node in j.nodes), None)

    def chain(self, account: str) -> list[str]:
        """Return *account* and those above it."""
        chain = [account]
        while chain[-1] in self.parents:
            chain.append(self.parents[chain[-1]])
        return chain

    def nodes_held(self, account: str) -> int:
        """Return how many nodes jobs of *account*, or below it, hold."""
        return sum(
            len(job.nodes)
            for job in self.jobs
            if job.holds_nodes and account in self.chain(job.account)
        )

    @property
    def has_limits(self) -> bool:
        """Whether there is accounting that enforces limits."""
        return bool(self.node_limits) or self.submit_limit is not None

    def take_id(self) -> int:
        """Return a raw number that no job has had."""
        self.next_id += 1
        return self.next_id - 1


# ----------------------------------------------------------------------
# The state between calls: one JSON file, one program at a time

_STATE = "cluster.json"
_LOCK = "lock"


@contextmanager
def opened(folder: Path) -> Iterator[FakeCluster]:
    """Read the state, and write it back when the block ends; one at a time.

    Where the block raises, nothing of it is kept.

    Raises:
        OSError: There is none, or it cannot be kept.
    """
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster = read(folder)
        yield cluster
        write(folder, cluster)


def read(folder: Path) -> FakeCluster:
    """Return the state as it was last written; without the lock, for looking only.

    Raises:
        OSError: There is none.
    """
    return from_json((folder / _STATE).read_text(encoding="utf-8"))


def write(folder: Path, cluster: FakeCluster) -> None:
    """Replace the state, whole.

    Raises:
        OSError: It cannot be written.
    """
    path = folder / f".{_STATE}"
    path.write_text(to_json(cluster), encoding="utf-8")
    path.replace(folder / _STATE)


def to_json(cluster: FakeCluster) -> str:
    """Return *cluster* as text; ``asdict`` would take three times as long."""
    return json.dumps(cluster, default=_fields)


def from_json(text: str) -> FakeCluster:
    """Return the cluster that ``to_json`` wrote."""
    kept = json.loads(text)
    kept["jobs"] = [_job(fields) for fields in kept["jobs"]]
    kept["parts"] = [ClusterPart(**fields) for fields in kept["parts"]]
    kept["keeper"] = _process(kept["keeper"])
    return FakeCluster(**kept)


def _fields(record: object) -> dict[str, Any]:
    names: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined] # ours only
    return {name: getattr(record, name) for name in names}


def _job(fields: dict[str, Any]) -> FakeJob:
    fields["state"] = FakeJobState(fields["state"])
    fields["ends_as"] = FakeJobState(fields["ends_as"]) if fields["ends_as"] else None
    fields["supervisor"] = _process(fields["supervisor"])
    fields["batch"] = _process(fields["batch"])
    fields["steps"] = [Process(**step) for step in fields["steps"]]
    return FakeJob(**fields)


def _process(fields: dict[str, int] | None) -> Process | None:
    return None if fields is None else Process(**fields)


# ----------------------------------------------------------------------
# What happens as time goes by: decisions, and orders for processes


class Deed(StrEnum):
    """An action on a job's processes."""

    START = "start"
    SIGNAL_STEPS = "signal steps"
    SIGNAL_ALL = "signal all"


@dataclass(frozen=True, slots=True)
class Order:
    """An action on the processes of a job; ``signal`` is ``TERM``, ``KILL``, …."""

    deed: Deed
    job: FakeJob
    signal: str = ""


def advance(
    cluster: FakeCluster, now_s: float, *, exits: Mapping[int, int]
) -> tuple[Order, ...]:
    """Bring *cluster* to *now_s*; return the orders for processes.

    Args:
        cluster: Changed in place.
        now_s: Unix time.
        exits: Exit status of scripts that are over, all of their processes gone,
            by raw number.
    """
    before = _plans(cluster, now_s)
    orders: list[Order] = []
    for job in cluster.jobs:
        orders += _end_or_warn(cluster, job, now_s, exits)
    for job in _others_due(cluster, now_s):
        orders += _start_or_preempt(cluster, job, now_s)
    for job in _waiting_leases(cluster, now_s):
        orders += _start_or_drop(cluster, job, now_s)
    if _plans(cluster, now_s) != before or cluster.planned_s == cluster.since_s:
        cluster.planned_s, cluster.cycles = now_s, cluster.cycles + 1
    return tuple(orders)


def is_planned(job: FakeJob, now_s: float) -> bool:
    """Tell whether backfill has a planned start for *job*."""
    return job.is_pending and job.due_s is not None and job.submit_s <= now_s


def end(job: FakeJob, state: FakeJobState, now_s: float) -> tuple[Order, ...]:
    """End *job* as *state*, at once; return the orders for its processes."""
    has_processes = job.supervisor is not None and not job.is_completing
    job.is_completing = has_processes or job.is_completing
    job.state, job.end_s, job.reason = state, now_s, "None"
    return (Order(Deed.SIGNAL_ALL, job, "KILL"),) if has_processes else ()


def terminate(job: FakeJob, state: FakeJobState, now_s: float) -> tuple[Order, ...]:
    """Ask *job* to end as *state*, KILL coming later; at once where nothing runs."""
    if job.supervisor is None:
        return end(job, state, now_s)
    job.ends_as, job.term_s = state, now_s
    cont, term = (Order(Deed.SIGNAL_ALL, job, name) for name in ("CONT", "TERM"))
    return (cont, term)


def _plans(cluster: FakeCluster, now_s: float) -> frozenset[int]:
    return frozenset(j.job_id for j in cluster.jobs if is_planned(j, now_s))


def _end_or_warn(
    cluster: FakeCluster, job: FakeJob, now_s: float, exits: Mapping[int, int]
) -> tuple[Order, ...]:
    if job.supervisor is not None and job.job_id in exits:
        _finish(job, exits[job.job_id], now_s)
    if not job.is_running:
        return ()
    started_s = job.start_s or 0.0
    if job.run_s is not None and now_s >= started_s + job.run_s:
        return end(job, FakeJobState.COMPLETED, started_s + job.run_s)
    if job.term_s is not None:
        is_over = now_s >= job.term_s + cluster.kill_wait_s
        return end(job, job.ends_as or FakeJobState.CANCELLED, now_s) if is_over else ()
    if now_s >= started_s + job.limit_s:
        return terminate(job, FakeJobState.TIMEOUT, now_s)
    if job.notice_s is not None and now_s >= job.notice_s + _grace_s(cluster, job):
        return terminate(job, FakeJobState.PREEMPTED, now_s)
    return ()


def _grace_s(cluster: FakeCluster, job: FakeJob) -> float:
    part = cluster.part(job.partition)
    return 0.0 if part is None else float(part.grace_s)


def _finish(job: FakeJob, status: int, now_s: float) -> None:
    """Note that no process of *job* is left."""
    job.is_completing = False
    job.supervisor, job.steps = None, []
    if job.is_running:
        by_itself = FakeJobState.FAILED if status else FakeJobState.COMPLETED
        job.state, job.end_s, job.reason = job.ends_as or by_itself, now_s, "None"


def _others_due(cluster: FakeCluster, now_s: float) -> Iterator[FakeJob]:
    due = (j for j in cluster.jobs if is_planned(j, now_s) and (j.due_s or 0) <= now_s)
    return iter(sorted(due, key=lambda job: (job.due_s or 0.0, job.job_id)))


def _start_or_preempt(cluster: FakeCluster, job: FakeJob, now_s: float) -> list[Order]:
    """Start a job on the nodes it was planned on, or take them from leases."""
    holders = [cluster.holder(node) for node in job.wanted]
    if not any(holders):
        _start(cluster, job, job.wanted, now_s)
        return [Order(Deed.START, job)] if job.script and cluster.runs_jobs else []
    job.reason = "Resources"
    orders: list[Order] = []
    for holder in holders:
        if holder is not None and _may_preempt(cluster, job, holder):
            holder.notice_s, holder.ends_as = now_s, FakeJobState.PREEMPTED
            job.has_preempted = True
            orders += _notice(holder, now_s)
    return orders


def _may_preempt(cluster: FakeCluster, job: FakeJob, holder: FakeJob) -> bool:
    mine, theirs = cluster.part(job.partition), cluster.part(holder.partition)
    if mine is None or theirs is None or not holder.is_running:
        return False
    return holder.notice_s is None and theirs.is_preemptable and mine.tier > theirs.tier


def _notice(holder: FakeJob, now_s: float) -> tuple[Order, ...]:
    """Signal the steps; the batch script gets its signal only at the end."""
    if holder.supervisor is None:
        return end(holder, FakeJobState.PREEMPTED, now_s)
    return (Order(Deed.SIGNAL_STEPS, holder, "TERM"),)


def _waiting_leases(cluster: FakeCluster, now_s: float) -> list[FakeJob]:
    waiting = (
        j
        for j in cluster.jobs
        if j.is_pending and j.due_s is None and j.submit_s <= now_s
    )
    return sorted(waiting, key=lambda job: (job.nice, job.submit_s))


def _start_or_drop(
    cluster: FakeCluster, job: FakeJob, now_s: float
) -> tuple[Order, ...]:
    if job.deadline_s is not None and now_s + job.limit_s > job.deadline_s:
        job.state, job.end_s = FakeJobState.DEADLINE, now_s
        job.reason = "DeadLine"
        return ()
    part = cluster.part(job.partition)
    if part is not None and job.limit_s > part.max_time_s:
        job.reason = "PartitionTimeLimit"
        return ()
    if any(
        cluster.nodes_held(account) >= most
        for account, most in cluster.node_limits.items()
        if account in cluster.chain(job.account)
    ):
        job.reason = "AssocGrpNodeLimit"
        return ()
    node = next((n for n in cluster.nodes if _fits(cluster, job, n, now_s)), None)
    if node is None:
        job.reason = "Resources"
        return ()
    _start(cluster, job, [node], now_s)
    return (Order(Deed.START, job),) if cluster.runs_jobs else ()


def _fits(cluster: FakeCluster, job: FakeJob, node: str, now_s: float) -> bool:
    """Tell whether *job* can be on *node* until its limit without delaying others."""
    planned_s = (
        other.due_s or 0.0
        for other in cluster.jobs
        if is_planned(other, now_s) and node in other.wanted
    )
    is_free = cluster.holder(node) is None and node not in job.excluded
    return is_free and all(now_s + job.limit_s <= start_s for start_s in planned_s)


def _start(cluster: FakeCluster, job: FakeJob, nodes: list[str], now_s: float) -> None:
    is_last = not any(
        j.is_pending and j.array_id == job.array_id and j is not job
        for j in cluster.jobs
    )
    if job.array_id and not is_last:  # the last one keeps the array's number
        job.job_id = cluster.take_id()
    job.state, job.start_s, job.reason = FakeJobState.RUNNING, now_s, "None"
    job.nodes = list(nodes)
