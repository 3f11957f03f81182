"""A model of Slurm, small enough to be obviously right, and a broker's disk.

One-node jobs, arrays, limits, deadlines, other people's jobs; it starts, preempts,
loses sight of jobs, and takes submissions whose answer never comes. Where nodes have
several GPUs, ours take one of them each.
"""

import math
from dataclasses import dataclass, field, replace

from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, JobState

UID = 1000
OTHER_UID = 2000


@dataclass(slots=True)
class ModelJob:
    job_id: int
    array_id: int | None
    task: int
    name: str
    uid: int
    limit_s: float
    deadline_s: float
    state: JobState = JobState.PENDING
    node: str = ""
    start_s: float | None = None
    end_s: float | None = None
    was_told: bool = False
    requested: str = ""
    gpus: int = 1

    @property
    def is_live(self) -> bool:
        return self.state in {JobState.PENDING, JobState.RUNNING}

    @property
    def display_id(self) -> str:
        if self.array_id is None:
            return str(self.job_id)
        return f"{self.array_id}_{self.task}"

    def record(self) -> JobRecord:
        return JobRecord(
            job_id=self.job_id,
            display_id=self.display_id,
            states=frozenset({self.state}),
            array_job_id=self.array_id,
            array_task_id=None if self.array_id is None else self.task,
            uid=self.uid,
            name=self.name,
            priority=1,
            partitions=("p",),
            reason="Resources" if self.state is JobState.PENDING else "",
            start_s=self.start_s,
            end_s=self.end_s,
            limit_s=self.limit_s,
            nodes=self.node,
            requested_nodes=self.requested,
            node_count=1,
        )


@dataclass(slots=True)
class ModelSlurm:
    """The cluster.

    Attributes:
        nodes: Names of all nodes.
        now_s: Time.
        jobs: All jobs there ever were.
        ends_s: When holes end, by node; nodes that are missing end never.
        late: Submissions on their way: when they arrive, and what arrives.
        unseen: Numbers of jobs that no answer mentions now.
        next_id: Number of the next job.
        preempts: Whether others' jobs take nodes from ours.
        gpus: How many each node has; a lease takes one.
    """

    nodes: tuple[str, ...]
    now_s: float = 100_000.0
    jobs: list[ModelJob] = field(default_factory=list)
    ends_s: dict[str, float] = field(default_factory=dict)
    late: list[tuple[float, tuple[str, int, float, float]]] = field(
        default_factory=list
    )
    unseen: set[int] = field(default_factory=set)
    next_id: int = 1
    preempts: bool = True
    gpus: int = 1

    def submit(self, name: str, tasks: int, limit_s: float, deadline_s: float) -> int:
        first = self.next_id
        for task in range(tasks):
            array_id = first if tasks > 1 else None
            self._add(ModelJob(0, array_id, task, name, UID, limit_s, deadline_s))
        return first

    def _add(self, job: ModelJob) -> ModelJob:
        job.job_id = self.next_id
        self.next_id += 1
        self.jobs.append(job)
        return job

    def submit_late(
        self, after_s: float, name: str, tasks: int, limit_s: float, deadline_s: float
    ) -> None:
        self.late.append((self.now_s + after_s, (name, tasks, limit_s, deadline_s)))

    def other(
        self, node: str, *, is_waiting: bool = False, gpus: int | None = None
    ) -> ModelJob:
        """Somebody else's job takes *node*, or some GPUs of it, or waits for them."""
        job = self._add(
            ModelJob(
                0,
                None,
                0,
                "theirs",
                OTHER_UID,
                60.0,
                math.inf,
                requested=node,
                gpus=gpus or self.gpus,
            )
        )
        if not is_waiting:
            self._start(job, node)
        return job

    def _start(self, job: ModelJob, node: str) -> None:
        job.state, job.node = JobState.RUNNING, node
        job.start_s, job.end_s = self.now_s, self.now_s + job.limit_s

    def preempt(self, node: str) -> None:
        """Somebody else's job takes *node*, whoever of ours was there."""
        for job in self.holding(node):
            if job.uid == UID:
                self._end(job, JobState.PREEMPTED)
        if not self.holding(node):
            self.other(node)

    def cancel(self, display_ids: tuple[str, ...], *, gentle: bool) -> None:
        for job in self.jobs:
            is_mine = job.uid == UID
            if is_mine and job.is_live and job.display_id in display_ids:
                if gentle:
                    job.was_told = True
                else:
                    self._end(job, JobState.CANCELLED)

    def _end(self, job: ModelJob, state: JobState) -> None:
        job.state, job.end_s = state, self.now_s

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for arrival in [one for one in self.late if one[0] <= self.now_s]:
            self.late.remove(arrival)
            self.submit(*arrival[1])
        for job in self.jobs:
            self._age(job)
        for job in sorted(self.jobs, key=lambda j: (j.uid == UID, j.job_id)):
            if job.state is JobState.PENDING:
                self._try_to_start(job)

    def _age(self, job: ModelJob) -> None:
        if job.state is JobState.PENDING:
            if self.now_s + job.limit_s > job.deadline_s:
                self._end(job, JobState.DEADLINE)
        elif job.state is JobState.RUNNING and self._is_over(job):
            self._end(job, JobState.COMPLETED)

    def _is_over(self, job: ModelJob) -> bool:
        return job.was_told or (job.end_s is not None and job.end_s <= self.now_s)

    def _try_to_start(self, job: ModelJob) -> None:
        if self.preempts and job.requested:
            ours = [one for one in self.holding(job.requested) if one.uid == UID]
            while ours and self.free(job.requested) < job.gpus:
                self._end(ours.pop(), JobState.PREEMPTED)
        for node in self.nodes:
            asked = not job.requested or job.requested == node
            lasts = self.now_s + job.limit_s <= self.ends_s.get(node, math.inf)
            if asked and self.free(node) >= job.gpus and (lasts or job.uid != UID):
                self._start(job, node)
                return

    def free(self, node: str) -> int:
        """How many GPUs of *node* no job has."""
        return self.gpus - sum(job.gpus for job in self.holding(node))

    def holding(self, node: str) -> list[ModelJob]:
        return [
            job
            for job in self.jobs
            if job.state is JobState.RUNNING and job.node == node
        ]

    def ours(self) -> list[ModelJob]:
        return [job for job in self.jobs if job.uid == UID and job.is_live]

    def queue(self) -> tuple[JobRecord, ...]:
        return tuple(j.record() for j in self.jobs if j.is_live and self._shows(j))

    def lookup(self) -> tuple[JobRecord, ...]:
        """Return our jobs, ended ones too; what never ran of an array is one job."""
        rests: dict[int, JobRecord] = {}
        shown = []
        for job in self.jobs:
            if job.uid != UID or not self._shows(job):
                continue
            if job.array_id is None or job.is_live or job.start_s is not None:
                shown.append(job.record())
            else:
                rests[job.array_id] = replace(
                    job.record(),
                    job_id=job.array_id,
                    display_id=str(job.array_id),
                    array_job_id=None,
                    array_task_id=None,
                )
        return (*rests.values(), *shown)

    def _shows(self, job: ModelJob) -> bool:
        return job.job_id not in self.unseen

    def holes(self) -> tuple[Hole, ...]:
        found = []
        for node in self.nodes:
            holders, room = self.holding(node), self.free(node)
            ours = tuple(job.job_id for job in holders if job.uid == UID)
            end_s = self.ends_s.get(node, math.inf)
            if (ours or room) and end_s > self.now_s:
                ends_by = HoleEnd.OPEN if math.isinf(end_s) else HoleEnd.RESERVATION
                found.append(
                    Hole(
                        node,
                        self.now_s,
                        end_s,
                        ends_by,
                        held_by=ours,
                        room=room,
                        is_in_use=bool(holders),
                    )
                )
        return tuple(found)
