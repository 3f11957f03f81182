"""What the stand-in knows: a cluster, its jobs, and the processes they run as."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

NODES = tuple(f"n{number}" for number in range(1, 9))
MINUTE_S = 60.0


class JobState(StrEnum):
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
    """A process, told from a later one of the same number.

    Attributes:
        pid: Its number; that of its process group too.
        started: When it started, in clock ticks since the machine did.
    """

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class Part:
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


MAIN = Part("main", tier=10, max_time_s=86_400, is_default=True)
FREETRAIN = Part("freetrain", tier=1, grace_s=10)


@dataclass(slots=True, kw_only=True)
class Job:
    """A job, or one task of an array; somebody else's where ``run_s`` is given.

    Attributes:
        job_id: Raw number; of a waiting task its array's.
        array_id: Number of its array, 0 outside of arrays.
        task: Index in the array, -1 outside of arrays.
        name: Job name. Hostile text, like all that users type.
        comment: Remark.
        user: Whose.
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
        wanted: The very nodes it gets; empty for any one.
        excluded: Nodes that it must not get.
        run_s: How long it holds them; None for as long as its script runs.
        state: Base state.
        is_completing: Whether it ended and processes of it may be left.
        reason: Why it waits.
        nodes: Nodes it holds, or held.
        start_s: When it started, Unix time.
        end_s: When it ended, Unix time.
        notice_s: When it was told of its preemption or limit, Unix time.
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
    run_s: float | None = None
    state: JobState = JobState.PENDING
    is_completing: bool = False
    reason: str = "Priority"
    nodes: list[str] = field(default_factory=list)
    start_s: float | None = None
    end_s: float | None = None
    notice_s: float | None = None
    term_s: float | None = None
    ends_as: JobState | None = None
    supervisor: Process | None = None
    batch: Process | None = None
    steps: list[Process] = field(default_factory=list)
    has_preempted: bool = False
    signals: list[str] = field(default_factory=list)

    @property
    def display_id(self) -> str:
        """What scancel calls it."""
        return f"{self.array_id}_{self.task}" if self.array_id else str(self.job_id)

    @property
    def is_pending(self) -> bool:
        """Whether it waits."""
        return self.state is JobState.PENDING

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.state is JobState.RUNNING

    @property
    def holds_nodes(self) -> bool:
        """Whether nobody else can have its nodes."""
        return self.is_running or self.is_completing


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Everything that the programs know.

    Attributes:
        user: Whose jobs sbatch submits.
        uid: That user's number.
        nodes: NodeNames, in order.
        parts: Partitions.
        leaves: Nodes below each leaf switch, by its name; none for no topology.
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
    parts: list[Part] = field(default_factory=lambda: [MAIN, FREETRAIN])
    leaves: dict[str, list[str]] = field(default_factory=dict)
    runs_jobs: bool = True
    keeper: Process | None = None
    kill_wait_s: float = 5.0
    since_s: float
    planned_s: float
    next_id: int = 1
    cycles: int = 0
    jobs: list[Job] = field(default_factory=list)

    def part(self, name: str) -> Part | None:
        """Return the partition *name*; None where there is none."""
        return next((part for part in self.parts if part.name == name), None)

    def holder(self, node: str) -> Job | None:
        """Return the job that holds *node*; None where it is idle."""
        return next((j for j in self.jobs if j.holds_nodes and node in j.nodes), None)

    def take_id(self) -> int:
        """Return a raw number that no job has had."""
        self.next_id += 1
        return self.next_id - 1
