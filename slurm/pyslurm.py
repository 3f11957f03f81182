"""pyslurm as a back end: nodes, jobs and partitions without starting a program.

pyslurm binds libslurm and must match the installed Slurm, hence the first part:
``find_pyslurm`` imports it only where both agree. Calls that pyslurm lacks, or answers
otherwise than Slurm's programs, go through those. Then come the back end, the reading
of pyslurm's objects, and the writing of a lease request as pyslurm's.

pyslurm counts minutes where Slurm does, times are Unix seconds, and its None stands
for 0, for unset and for unknown alike.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from slurm.batch import SubmittedJob, sbatch_argv, scancel_argv
from slurm.errors import SlurmRefusedError, SlurmUnavailableError, UnreadableOutputError
from slurm.holes import Snapshot
from slurm.records import (
    ENDED,
    MINUTE_S,
    Gres,
    JobRecord,
    Node,
    Partition,
    cpu_groups,
    gres_in_use,
    job_states,
    node_states,
)
from slurm.text import text_or_empty, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from slurm.associations import AccountingLimits
    from slurm.backend import CommandLine
    from slurm.batch import LeaseRequest
    from slurm.records import ClusterConfig, JobKey, Leaf, Release


PyslurmObject: TypeAlias = Any
"""A node, partition or job of pyslurm, which has no types."""


def matching_backend(programs: CommandLine) -> Pyslurm | None:
    """Return the back end for the Slurm of *programs*; None where no pyslurm fits."""
    module, _ = find_pyslurm(programs.release())
    return None if module is None else Pyslurm(module, programs)


def find_pyslurm(
    release: Release, *, is_allowed: bool = True
) -> tuple[ModuleType | None, str]:
    """Return the pyslurm that suits a Slurm of *release*, if any, and the reason.

    Args:
        release: Slurm's own release.
        is_allowed: False where the user wants the command line in any case.
    """
    if not is_allowed:
        return None, "pyslurm is switched off"
    if importlib.util.find_spec("pyslurm") is None:
        return None, "pyslurm is not installed, and not needed"
    try:
        module = importlib.import_module("pyslurm")
    except Exception as error:  # noqa: BLE001 -- a broken build raises anything
        return None, f"pyslurm cannot be imported: {error}"
    is_fit, reason = fits(str(getattr(module, "__version__", "")), release)
    return (module if is_fit else None), reason


_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_OLDEST = (22, 5, 2)
"""Before it there were no Jobs, Nodes and JobSubmitDescription."""


def fits(version: str, release: Release) -> tuple[bool, str]:
    """Return whether a pyslurm of *version* fits *release*, and the reason."""
    found = _VERSION.match(version)
    if found is None:
        return False, f"pyslurm does not tell a version ({version[:20]!r})"
    built = tuple(map(int, found.groups()))
    if built[:2] != release.series:
        why = f"pyslurm {version} is not for Slurm {release}: both must agree in X.Y"
        return False, why
    if built < _OLDEST:
        return False, f"pyslurm {version} is older than 22.5.2"
    return True, f"pyslurm {version} matches Slurm {release}"


_GONE = frozenset({2017, 2021})
"""Slurm's numbers for a job that it does not know, and one that has ended."""

_REFUSALS = range(2000, 5000)
"""Slurm's own answers; below and above are the system's and the network's."""


class Pyslurm:
    """A ``slurm.backend.SlurmBackend`` over pyslurm 22.5.2 or later.

    Calls of pyslurm end by Slurm's own MessageTimeout.

    Args:
        module: The pyslurm that matches this Slurm. It has read SLURM_CONF when it
            was imported; the programs' environment must lead to the same cluster.
        programs: Slurm's programs; requests of both count against their limit.
    """

    def __init__(self, module: ModuleType, programs: CommandLine) -> None:
        self._pyslurm: Any = module
        self._programs = programs
        self._users: dict[int, str] = {}

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "pyslurm"

    @property
    def requests(self) -> int:
        """Requests made so far, pyslurm's and commands."""
        return self._programs.requests

    def release(self) -> Release:
        """Return the release of the installed programs."""
        return self._programs.release()

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        return self._programs.config()

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below; a command."""
        return self._programs.topology()

    def sees_all_jobs(self, user: str) -> bool:
        """Tell whether *user* sees all jobs; a command."""
        return self._programs.sees_all_jobs(user)

    def limits(self, user: str, *, cluster: str) -> AccountingLimits:
        """Return the limits of accounts, of *user* and of QOS; commands."""
        return self._programs.limits(user, cluster=cluster)

    def snapshot(self) -> Snapshot:
        """Return one snapshot, in six requests: three of pyslurm, three commands."""
        before = self._programs.statistics()
        nodes = self._ask("nodes", self._pyslurm.Nodes.load)
        jobs = self.jobs()
        reservations = self._programs.reservations()
        partitions = self._ask("partitions", self._pyslurm.Partitions.load)
        return Snapshot(
            before=before,
            nodes=tuple(map(read_node, nodes.values())),
            jobs=jobs,
            reservations=reservations,
            partitions=tuple(map(read_partition, partitions.values())),
            after=self._programs.statistics(),
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

    def submit(self, request: LeaseRequest) -> SubmittedJob:
        """Submit one job, or one array of jobs; through sbatch where it must."""
        sbatch_argv(request)  # refuses values that Slurm would misread
        if not can_express(request):
            return self._programs.submit(request)
        submission = self._pyslurm.JobSubmitDescription(**description(request))
        return SubmittedJob(
            job_id=int(self._ask("submit", submission.submit)), cluster=""
        )

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*, through scancel.

        pyslurm sends SIGKILL at once, where a lease may still commit; and it knows
        jobs by their raw numbers only, of which one ends a whole array.
        """
        self._programs.cancel(jobs)

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

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replace the comment of a job or a whole array, through scontrol.

        pyslurm would change one task of an array at a time.
        """
        self._programs.set_comment(job_id, comment)

    def end_by(self, jobs: Sequence[JobKey], end_s: float) -> None:
        """Let *jobs* end by then, through scontrol: one request names many."""
        self._programs.end_by(jobs, end_s)

    def _signal_one(self, job: JobKey, signal: str) -> None:
        target = self._pyslurm.Job(job.job_id)
        self._programs.count_request("signal")
        try:
            target.send_signal(f"SIG{signal}", steps="children")
        except self._pyslurm.RPCError as error:
            if error.errno not in _GONE:
                raise _failed("signal", error.errno, str(error)) from error

    def _jobs(self) -> list[JobRecord]:
        loaded = self._ask("jobs", self._pyslurm.Jobs.load)
        return [read_job(job, user_of=self._user_of) for job in loaded.values()]

    def _user_of(self, job: PyslurmObject) -> str:
        uid = job.user_id or 0
        if uid not in self._users:
            self._users[uid] = job.user_name or str(uid)
        return self._users[uid]

    def _ask(self, request: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 -- untyped
        self._programs.count_request(request)
        try:
            return call()
        except self._pyslurm.RPCError as error:
            raise _failed(request, error.errno, str(error)) from error


def _failed(
    request: str, number: int, said: str
) -> SlurmRefusedError | SlurmUnavailableError:
    """Return the error for Slurm's *number*, by what to do next."""
    message = f"pyslurm ({request}): {said} ({number})"
    if number in _REFUSALS:
        lower = said[:1].lower() + said[1:]
        return SlurmRefusedError(f"{message}. Nothing else was tried.", said=lower)
    return SlurmUnavailableError(
        f"{message}; whether it had an effect is unknown. Try again later."
    )


# From pyslurm's objects to our records; pyslurm 22.5 to 25.11 has these attributes. A
# limit is minutes, "UNLIMITED" or None.

_UNLIMITED = "UNLIMITED"
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_MOST_TASKS = 100_000


def read_node(node: PyslurmObject) -> Node:
    """Return pyslurm's *node* as our record."""
    known, unknown = node_states(node.state.split("+"))
    cpus = node.total_cpus or 0
    cpus_per_core, cpus_per_socket = cpu_groups(
        cpus, sockets=node.sockets or 0, cores_per_socket=node.cores_per_socket or 0
    )
    gres, allocated_cpus = tuple(_gres(node.configured_gres)), node.allocated_cpus or 0
    return Node(
        name=node.name,
        states=known,
        unknown_states=unknown,
        features=frozenset(node.active_features or ()),
        gres=gres,
        cpus=node.effective_cpus or cpus,
        memory_mib=(node.real_memory or 0) - (node.memory_reserved_for_system or 0),
        partitions=tuple(node.partitions or ()),
        reason=(node.reason or "").strip(),
        comment=(node.comment or "").strip(),
        allocated_cpus=allocated_cpus,
        allocated_memory_mib=node.allocated_memory or 0,
        # pyslurm tells what Slurm accounts for, which may be no GPU at all.
        allocated_gres=gres_in_use(gres, None, allocated_cpus=allocated_cpus),
        cpus_per_core=cpus_per_core,
        cpus_per_socket=cpus_per_socket,
        owner=node.owner or node.mcs_label or "",
    )


def read_partition(partition: PyslurmObject) -> Partition:
    """Return pyslurm's *partition* as our record."""
    max_time_s = _minutes_s(partition.max_time)
    bounds = partition.max_cpus_per_node, partition.max_cpus_per_socket
    most_cpus = [int(b) for b in bounds if b is not None and b != _UNLIMITED]
    return Partition(
        name=partition.name,
        nodes=text_or_empty(partition.nodes or ""),
        is_up=partition.state == "UP",
        max_time_s=math.inf if max_time_s is None else max_time_s,
        priority_tier=partition.priority_tier or 0,
        preempt_mode=partition.preempt_mode or "",
        grace_time_s=float(partition.preemption_grace_time or 0),
        over_time_limit_s=_minutes_s(partition.over_time_limit),
        is_default=partition.is_default,
        is_hidden=partition.is_hidden,
        oversubscribe=partition.oversubscribe or "",
        most_cpus_per_node=min(most_cpus, default=None),
        qos=partition.qos or "",
    )


def read_job(
    job: PyslurmObject, *, user_of: Callable[[PyslurmObject], str]
) -> JobRecord:
    """Return pyslurm's *job*, or tasks that wait together, as our record.

    pyslurm has generic resources per node alone; others stay empty, and so do CPUs per
    node that do not come from CPUs per task.

    Args:
        job: The job.
        user_of: Returns its user's name. ``job.user_name`` would ask the system
            again for each job.
    """
    known, unknown = job_states([job.state])
    task, tasks = _task(job, has_ended=bool(known & ENDED))
    return JobRecord(
        job_id=job.id,
        display_id=_display_id(job, task, tasks),
        states=known,
        unknown_states=unknown,
        array_job_id=job.array_id,
        array_task_id=task,
        array_tasks=tasks,
        user=user_of(job),
        uid=job.user_id or 0,
        name=job.name or "",
        comment=job.comment or "",
        partitions=words(job.partition or ""),
        reason=text_or_empty(job.state_reason or ""),
        priority=job.priority or 0,
        nice=job.nice or 0,
        submit_s=job.submit_time,
        eligible_s=job.eligible_time,
        start_s=job.start_time,
        end_s=job.end_time,
        limit_s=_minutes_s(job.time_limit),
        planned_nodes=job.scheduled_nodes or "",
        nodes=job.allocated_nodes or "",
        requested_nodes=_joined(job.required_nodes),
        excluded_nodes=_joined(job.excluded_nodes) if "PENDING" in known else "",
        oversubscribe=job.resource_sharing or "" if "PENDING" in known else "",
        node_count=job.num_nodes or 0,
        cpu_count=job.cpus or 0,
        task_count=job.ntasks or 0,
        least_cpus=job.cpus_per_task or 0,
        least_memory_mib=job.memory_per_node or job.memory_per_cpu or 0,
        features=",".join(job.constraints or ()),
        gres_per_node=",".join(_per_node(job.gres_per_node)),
        dependency=_dependency(job.dependencies),
        reservation=job.reservation or "",
        qos=job.qos or "",
        account=job.account or "",
        het_job_id=job.heterogeneous_id or 0,
    )


def each_task(job: JobRecord) -> Iterator[JobRecord]:
    """Yield *job*, or each of the tasks that wait together in it, by itself.

    Raises:
        UnreadableOutputError: The tasks are written in no known form.
    """
    if not job.array_tasks:
        yield job
        return
    for task in _numbers(job.array_tasks):
        display_id = f"{job.array_job_id}_{task}"
        yield replace(job, display_id=display_id, array_task_id=task, array_tasks="")


def _task(job: PyslurmObject, *, has_ended: bool) -> tuple[int | None, str]:
    """Return a task's index, or those that wait; pyslurm's None may mean 0.

    Tasks that were cancelled before any of them started leave the array's own
    record behind, which has ended and is no task.
    """
    if job.array_id is None:
        return None, ""
    if job.array_tasks_waiting:
        return None, job.array_tasks_waiting
    if job.array_task_id is None and job.id == job.array_id and has_ended:
        return None, ""
    return job.array_task_id or 0, ""


def _display_id(job: PyslurmObject, task: int | None, tasks: str) -> str:
    if tasks:
        return f"{job.array_id}_[{tasks}]"
    return str(job.id) if task is None else f"{job.array_id}_{task}"


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
    return math.inf if minutes == _UNLIMITED else float(minutes) * MINUTE_S


def _gres(configured: Mapping[str, int] | None) -> Iterator[Gres]:
    for key, count in (configured or {}).items():
        name, _, kind = key.partition(":")
        yield Gres(name=name, kind=kind, count=int(count))


def _per_node(gres: Mapping[str, int] | None) -> Iterator[str]:
    return (f"gres:{key}:{count}" for key, count in (gres or {}).items())


def _joined(nodes: str | Sequence[str] | None) -> str:
    return nodes if isinstance(nodes, str) else ",".join(nodes or ())


def _dependency(dependencies: object) -> str:
    """Return dependencies in words of our own; only whether there are any matters."""
    if not isinstance(dependencies, dict):
        return ""
    kinds = (
        f"{kind}:{jobs}"
        for kind, jobs in dependencies.items()
        if isinstance(jobs, list)
    )
    return ",".join(word for word in kinds if not word.endswith(":[]")) or "singleton"


# From a lease request to a submission of pyslurm.

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

    Only the given values are named; the rest is Slurm's default.
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
