"""From pyslurm's objects to our records; pure, and no pyslurm is needed to test it.

The protocols say what is read of its Node, Job and Partition, as 22.5 to 25.11 have
them. Numbers are minutes where Slurm counts minutes, and times are Unix seconds; None
is pyslurm's word for 0, for unset and for unknown alike.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Protocol

from slurm.batch import Submitted, sbatch_argv, scancel_argv
from slurm.command_line import CommandLine
from slurm.records import (
    ENDED,
    Gres,
    JobRecord,
    Node,
    Partition,
    RequestsSpentError,
    SlurmRefusedError,
    SlurmUnavailableError,
    UnreadableOutputError,
    job_states,
    node_states,
)
from slurm.snapshot import Snapshot
from slurm.text import (
    parse_reservations,
    parse_sdiag,
    reservations_argv,
    sdiag_argv,
    text_or_empty,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from slurm.batch import LeaseRequest
    from slurm.command_line import Runner
    from slurm.config import ClusterConfig, Leaf, Release
    from slurm.records import JobKey, Sdiag


# ----------------------------------------------------------------------
# From pyslurm's objects to our records; pure, and no pyslurm is needed to test it.

_MINUTE_S = 60.0
_UNLIMITED = "UNLIMITED"
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_MOST_TASKS = 100_000


class NodeLike(Protocol):
    """What is read of a ``pyslurm.Node``."""

    name: str
    state: str
    active_features: Sequence[str] | None
    configured_gres: Mapping[str, int] | None
    total_cpus: int | None
    real_memory: int | None
    partitions: Sequence[str] | None
    reason: str | None
    comment: str | None
    allocated_cpus: int | None


class PartitionLike(Protocol):
    """What is read of a ``pyslurm.Partition``."""

    name: str
    nodes: str | None
    state: str
    max_time: int | str | None
    priority_tier: int | None
    preempt_mode: str | None
    preemption_grace_time: int | None
    over_time_limit: int | str | None
    is_default: bool
    is_hidden: bool
    oversubscribe: str | None


class JobLike(Protocol):
    """What is read of a ``pyslurm.Job``."""

    id: int
    array_id: int | None
    array_task_id: int | None
    array_tasks_waiting: str | None
    user_id: int | None
    user_name: str | None
    name: str | None
    comment: str | None
    partition: str | None
    state: str
    state_reason: str | None
    priority: int | None
    nice: int | None
    submit_time: int | None
    eligible_time: int | None
    start_time: int | None
    end_time: int | None
    time_limit: int | str | None
    scheduled_nodes: str | None
    allocated_nodes: str | None
    required_nodes: str | Sequence[str] | None
    num_nodes: int | None
    cpus: int | None
    constraints: Sequence[str] | None
    gres_per_node: Mapping[str, int] | None
    dependencies: object
    reservation: str | None
    qos: str | None


def read_node(told: NodeLike) -> Node:
    """Return the node that pyslurm *told* of."""
    known, unknown = node_states(told.state.split("+"))
    return Node(
        name=told.name,
        states=known,
        unknown_states=unknown,
        features=frozenset(told.active_features or ()),
        gres=tuple(_gres(told.configured_gres)),
        cpus=told.total_cpus or 0,
        memory_mib=told.real_memory or 0,
        partitions=tuple(told.partitions or ()),
        reason=(told.reason or "").strip(),
        comment=(told.comment or "").strip(),
        allocated_cpus=told.allocated_cpus or 0,
    )


def read_partition(told: PartitionLike) -> Partition:
    """Return the partition that pyslurm *told* of."""
    max_time_s = _minutes_s(told.max_time)
    return Partition(
        name=told.name,
        nodes=text_or_empty(told.nodes or ""),
        is_up=told.state == "UP",
        max_time_s=math.inf if max_time_s is None else max_time_s,
        priority_tier=told.priority_tier or 0,
        preempt_mode=told.preempt_mode or "",
        grace_time_s=float(told.preemption_grace_time or 0),
        over_time_limit_s=_minutes_s(told.over_time_limit),
        is_default=told.is_default,
        is_hidden=told.is_hidden,
        oversubscribe=told.oversubscribe or "",
    )


def read_job(told: JobLike, *, user_of: Callable[[JobLike], str]) -> JobRecord:
    """Return the job, or the tasks that wait together, that pyslurm *told* of.

    What it does not tell stays empty: generic resources per job.

    Args:
        told: The job.
        user_of: Returns its user's name; asking each job would ask the system
            for each.
    """
    known, unknown = job_states([told.state])
    task, tasks = _task(told, has_ended=bool(known & ENDED))
    return JobRecord(
        job_id=told.id,
        display_id=_display_id(told, task, tasks),
        states=known,
        unknown_states=unknown,
        array_job_id=told.array_id,
        array_task_id=task,
        array_tasks=tasks,
        user=user_of(told),
        uid=told.user_id or 0,
        name=told.name or "",
        comment=told.comment or "",
        partitions=words(told.partition or ""),
        reason=text_or_empty(told.state_reason or ""),
        priority=told.priority or 0,
        nice=told.nice or 0,
        submit_s=told.submit_time,
        eligible_s=told.eligible_time,
        start_s=told.start_time,
        end_s=told.end_time,
        limit_s=_minutes_s(told.time_limit),
        planned_nodes=told.scheduled_nodes or "",
        nodes=told.allocated_nodes or "",
        requested_nodes=_joined(told.required_nodes),
        node_count=told.num_nodes or 0,
        cpu_count=told.cpus or 0,
        features=",".join(told.constraints or ()),
        gres_per_node=",".join(_per_node(told.gres_per_node)),
        dependency=_dependency(told.dependencies),
        reservation=told.reservation or "",
        qos=told.qos or "",
    )


def each_task(job: JobRecord) -> Iterator[JobRecord]:
    """Yield *job*, or each of the tasks that wait together in it, by itself.

    Raises:
        UnreadableOutputError: The tasks are written in no known form.
    """
    from dataclasses import replace  # noqa: PLC0415 -- shadows nothing up there

    if not job.array_tasks:
        yield job
        return
    for task in _numbers(job.array_tasks):
        display_id = f"{job.array_job_id}_{task}"
        yield replace(job, display_id=display_id, array_task_id=task, array_tasks="")


def _task(told: JobLike, *, has_ended: bool) -> tuple[int | None, str]:
    """Return a task's index, or those that wait; pyslurm's None may mean 0.

    Tasks that were cancelled before any of them started leave the array's own
    record behind, which has ended and is no task.
    """
    if told.array_id is None:
        return None, ""
    if told.array_tasks_waiting:
        return None, told.array_tasks_waiting
    if told.array_task_id is None and told.id == told.array_id and has_ended:
        return None, ""
    return told.array_task_id or 0, ""


def _display_id(told: JobLike, task: int | None, tasks: str) -> str:
    if tasks:
        return f"{told.array_id}_[{tasks}]"
    return str(told.id) if task is None else f"{told.array_id}_{task}"


def _numbers(tasks: str) -> Iterator[int]:
    for item in tasks.split(","):
        found = _TASKS.fullmatch(item)
        first = int(found[1]) if found else 0
        last = int(found[2] or found[1]) if found else -1
        if not first <= last < first + _MOST_TASKS or found is None:
            why = "no list of array tasks"
            raise UnreadableOutputError("pyslurm", 0, tasks, why)
        yield from range(first, last + 1, int(found[3] or 1))


def _minutes_s(minutes: int | str | None) -> float | None:
    if minutes is None:
        return None
    return math.inf if minutes == _UNLIMITED else float(minutes) * _MINUTE_S


def _gres(told: Mapping[str, int] | None) -> Iterator[Gres]:
    for key, count in (told or {}).items():
        name, _, kind = key.partition(":")
        yield Gres(name=name, kind=kind, count=int(count))


def _per_node(told: Mapping[str, int] | None) -> Iterator[str]:
    return (f"gres:{key}:{count}" for key, count in (told or {}).items())


def _joined(told: str | Sequence[str] | None) -> str:
    return told if isinstance(told, str) else ",".join(told or ())


def _dependency(told: object) -> str:
    """Return what it waits for in words of our own; only being there matters."""
    if not isinstance(told, dict):
        return ""
    kinds = (f"{kind}:{jobs}" for kind, jobs in told.items() if isinstance(jobs, list))
    return ",".join(word for word in kinds if not word.endswith(":[]")) or "singleton"


# ----------------------------------------------------------------------
# Counting requests, whoever makes them: one allowance for pyslurm and programs.


class Requests:
    """How many requests were made, and whether more are allowed."""

    def __init__(self, most: int | None, *, made: int = 0) -> None:
        """Allow *most* requests, None for no cap, of which some were *made*."""
        self._most = most
        self._made = made

    @property
    def made(self) -> int:
        """Requests made so far, those that failed included."""
        return self._made

    def make(self, what: str) -> None:
        """Count one request, just before it is made.

        Raises:
            RequestsSpentError: No more are allowed; it must not be made.
        """
        if self._most is not None and self._made >= self._most:
            raise RequestsSpentError(
                f"`{what}` was not run: {self._made} requests were made, and no more "
                f"are allowed at a time. It is tried again next time."
            )
        self._made += 1


class CountedRunner:
    """A ``slurm.runner.Runner`` that counts what it runs."""

    def __init__(self, inner: Runner, requests: Requests) -> None:
        """Run with *inner*, counted by *requests*."""
        self._inner = inner
        self._requests = requests

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Run *argv* without a shell and return its standard output."""
        self._requests.make(argv[0])
        return self._inner.run(argv, timeout_s=timeout_s)


# ----------------------------------------------------------------------
# From a lease request to what pyslurm submits; pure.

_GRES = re.compile(r"[A-Za-z0-9_]+:(?:[A-Za-z0-9_.-]+:)?[0-9]+", re.ASCII)


def can_express(request: LeaseRequest) -> bool:
    """Tell whether pyslurm can submit *request* as sbatch would.

    It takes a memory of 0 for none given, so that whole nodes would come with the
    default memory; it reads a list of nodes in its own way; and it cuts comments and
    arguments that are not ASCII.
    """
    texts = (request.comment, request.output, request.features, *request.arguments)
    return (
        not request.exclusive
        and not request.excluded
        and all(text.isascii() for text in texts)
        and all(map(_GRES.fullmatch, filter(None, request.gres.split(","))))
    )


def description(request: LeaseRequest) -> dict[str, object]:
    """Return the attributes of a ``pyslurm.JobSubmitDescription``.

    Only what was asked for is named; the rest is Slurm's default.
    """
    given: dict[str, object] = {
        "account": request.account,
        "array": f"0-{request.tasks - 1}" if request.tasks > 1 else "",
        "comment": request.comment,
        "constraints": request.features,
        "cpus_per_task": request.cpus,
        "deadline": int(request.deadline_s) if request.deadline_s else 0,
        "gres_per_node": request.gres,
        "memory_per_node": f"{request.memory_mib}M" if request.memory_mib else "",
        "qos": request.qos,
        "script_args": list(request.arguments),
    }
    always: dict[str, object] = {
        "environment": "NONE",
        "is_requeueable": False,
        "name": request.name,
        "nice": request.nice,
        "nodes": 1,
        "ntasks": 1,
        "partitions": [request.partition],
        "script": request.script,
        "standard_output": request.output,
        "time_limit": request.limit_min,
    }
    return always | {name: value for name, value in given.items() if value}


# ----------------------------------------------------------------------
# pyslurm as a back end: nodes, jobs and partitions without starting a program.

_GONE = frozenset({2017, 2021})
"""Slurm's numbers for a job that it does not know, and one that has ended."""

_OURS = range(2000, 5000)
"""Slurm's own answers; below and above are the system's and the network's."""


class Pyslurm:
    """A ``slurm.backend.SlurmBackend`` over pyslurm 22.5.2 or later."""

    def __init__(
        self,
        module: ModuleType,
        runner: Runner,
        *,
        user: str,
        timeout_s: float = 30.0,
        requests: Requests | None = None,
    ) -> None:
        """Take the *module* that matches this Slurm, and a runner for the rest.

        pyslurm has read SLURM_CONF when it was imported; the runner's environment
        must lead to the same cluster.

        Args:
            module: What ``slurm.choose`` chose.
            runner: Runs Slurm's programs.
            user: Our own user name.
            timeout_s: How long each command may take. Calls of pyslurm end by
                Slurm's own MessageTimeout instead.
            requests: Counts requests, and may allow no more; by default there is no
                cap.
        """
        self._pyslurm: Any = module
        self._requests = requests or Requests(None)
        self._runner = CountedRunner(runner, self._requests)
        self._programs = CommandLine(self._runner, user=user, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._users: dict[int, str] = {}

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "pyslurm"

    @property
    def requests(self) -> int:
        """Requests made so far, pyslurm's and commands."""
        return self._requests.made

    def release(self) -> Release:
        """Return the release of the installed programs."""
        return self._programs.release()

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        return self._programs.config()

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below; a command."""
        return self._programs.topology()

    def snapshot(self) -> Snapshot:
        """Return one look, in six requests: three of pyslurm, three commands."""
        before = self._statistics()
        nodes = self._ask("nodes", self._pyslurm.Nodes.load)
        jobs = self.jobs()
        return Snapshot(
            before=before,
            nodes=tuple(read_node(node) for node in nodes.values()),
            jobs=jobs,
            reservations=parse_reservations(self._run(reservations_argv())),
            partitions=tuple(
                read_partition(partition)
                for partition in self._ask(
                    "partitions", self._pyslurm.Partitions.load
                ).values()
            ),
            after=self._statistics(),
        )

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes."""
        return tuple(job for job in self._jobs() if not job.has_ended)

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, each task by itself."""
        if not names or any(not name or "\0" in name for name in names):
            raise ValueError("no name to look for")
        found = (job for job in self._jobs() if job.name in names)
        return tuple(task for job in found for task in each_task(job))

    def submit(self, request: LeaseRequest) -> Submitted:
        """Submit one job, or one array of jobs.

        What pyslurm cannot say goes through sbatch: whole nodes with all their
        memory, above all (it takes a memory of 0 for none given).
        """
        sbatch_argv(request)  # refuses what Slurm would misread
        if not can_express(request):
            return self._programs.submit(request)
        submission = self._pyslurm.JobSubmitDescription(**description(request))
        return Submitted(job_id=int(self._ask("submit", submission.submit)), cluster="")

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*, through scancel.

        pyslurm sends SIGKILL at once, where a lease may still commit; and it knows
        jobs by their raw numbers only, of which one ends a whole array.
        """
        self._programs.cancel(jobs)

    def cancel_waiting(self, name: str) -> None:
        """End those of our jobs named *name* that still wait, through scancel."""
        self._programs.cancel_waiting(name)

    def signal(self, jobs: Sequence[JobKey], signal: str) -> None:
        """Send *signal* to the steps of *jobs*, as scancel does; not to batch scripts.

        Tasks of arrays get theirs through scancel: see ``cancel``.
        """
        if not signal:
            raise ValueError("no signal named: scancel would end the jobs")
        scancel_argv([job.display_id for job in jobs], signal=signal)  # refuses
        tasks = [job for job in jobs if job.display_id != str(job.job_id)]
        for job in jobs:
            if job not in tasks:
                self._signal_one(job, signal)
        if tasks:
            self._programs.signal(tasks, signal)

    def _signal_one(self, job: JobKey, signal: str) -> None:
        target = self._pyslurm.Job(job.job_id)
        self._requests.make("signal")
        try:
            target.send_signal(f"SIG{signal}", steps="children")
        except self._pyslurm.RPCError as error:
            if error.errno not in _GONE:
                raise _failed("signal", error.errno, str(error)) from error

    def _jobs(self) -> list[JobRecord]:
        loaded = self._ask("jobs", self._pyslurm.Jobs.load)
        return [read_job(job, user_of=self._user_of) for job in loaded.values()]

    def _user_of(self, job: JobLike) -> str:
        uid = job.user_id or 0
        if uid not in self._users:
            self._users[uid] = job.user_name or str(uid)
        return self._users[uid]

    def _statistics(self) -> Sdiag:
        return parse_sdiag(self._run(sdiag_argv()))

    def _run(self, argv: Sequence[str]) -> str:
        return self._runner.run(argv, timeout_s=self._timeout_s)

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 -- untyped
        self._requests.make(what)
        try:
            return call()
        except self._pyslurm.RPCError as error:
            raise _failed(what, error.errno, str(error)) from error


def _failed(
    what: str, number: int, said: str
) -> SlurmRefusedError | SlurmUnavailableError:
    """Return the error for Slurm's *number*, by what to do next."""
    message = f"pyslurm ({what}): {said} ({number})"
    if number in _OURS:
        lower = said[:1].lower() + said[1:]
        return SlurmRefusedError(f"{message}. Nothing else was tried.", said=lower)
    return SlurmUnavailableError(
        f"{message}; whether it had an effect is unknown. Try again later."
    )
