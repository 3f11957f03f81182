"""From pyslurm's objects to our records; pure, and no pyslurm is needed to test it.

The protocols say what is read of its Node, Job and Partition, as 22.5 to 25.11 have
them. Numbers are minutes where Slurm counts minutes, and times are Unix seconds; None
is pyslurm's word for 0, for unset and for unknown alike.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Protocol

from slurm.errors import UnreadableOutputError
from slurm.records import Gres, JobRecord, Node, Partition
from slurm.states import ENDED, job_states, node_states
from slurm.values import text_or_empty, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
