"""Reading Slurm's JSON: ``--json`` or slurmrestd, every release since 21.08.

Until 22.05 numbers are plain; from 23.02 on many are ``{"set", "infinite",
"number"}``, and which ones changes with every release. So each value is read in
any form, whatever the release says it is.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, TypeVar

from slurm.backend import Dialect, Question
from slurm.errors import SlurmRefusedError, UnreadableOutputError
from slurm.records import (
    JobRecord,
    JobState,
    Node,
    Partition,
    Reservation,
    cpu_groups,
    gres_in_use,
    job_states,
    node_states,
)
from slurm.text import read_gres

if TYPE_CHECKING:
    from collections.abc import Callable


_INFINITE = frozenset({"infinity", "infinite", "unlimited"})


def number(value: object) -> float | None:
    """Return a number, ``math.inf`` for infinite, None for none.

    Infinite is tested before set: an infinite number says that it is not set.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    match value:
        case {"infinite": True}:
            return math.inf
        case {"set": False}:
            return None
        case {"number": inner}:
            return _plain(inner)
        case _:
            return _plain(value)


def _plain(value: object) -> float | None:
    match value:
        case None | "":
            return None
        case str() if value.lower() in _INFINITE:
            return math.inf
        case str() | int() | float() if not isinstance(value, bool):
            found = float(value)
            if math.isnan(found):
                raise ValueError(f"{value!r} is not a number")
            return found
        case _:
            raise ValueError(f"{value!r} is not a number")


def whole(value: object) -> int | None:
    """Return a whole number, None for none or infinite.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    found = number(value)
    return None if found is None or math.isinf(found) else int(found)


def amount(value: object) -> int | None:
    """Return a whole number, 0 or more, None for none or infinite.

    Raises:
        ValueError: None of the forms that Slurm uses, or below 0.
    """
    found = whole(value)
    if found is not None and found < 0:
        raise ValueError(f"{value!r} is below 0")
    return found


def time_s(value: object) -> float | None:
    """Return Unix time; 0, which is how an unknown time is set, is None.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    found = number(value)
    return None if found is None or found <= 0 or math.isinf(found) else found


def minutes_s(value: object) -> float | None:
    """Return seconds of a number of minutes; below 0 is unlimited, as 22.05 says.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    found = number(value)
    if found is None:
        return None
    return math.inf if found < 0 else 60.0 * found


def text(value: object) -> str:
    """Return a string, empty for none.

    Raises:
        ValueError: Something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004 -- data, not a bug
    return value


def words(value: object) -> list[str]:
    """Return a list of words from a list, or from one comma-separated string.

    Raises:
        ValueError: Something else.
    """
    if isinstance(value, list):
        return [text(word) for word in value]
    return [word for word in text(value).split(",") if word]


def at(record: object, *path: str) -> object:
    """Return the value at *path* in nested objects, None where there is none."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


T = TypeVar("T")


def parse_jobs_json(answer: str) -> tuple[JobRecord, ...]:
    """Return the jobs of an answer.

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
        SlurmRefusedError: It carries an error instead.
    """
    return _read(answer, "jobs", _job)


def parse_nodes_json(answer: str) -> tuple[Node, ...]:
    """Return the nodes of an answer; raises like ``parse_jobs_json``.

    An answer without a node is a failed query too.
    """
    nodes = _read(answer, "nodes", _node)
    if not nodes:
        raise _unreadable("nodes", 0, answer, "there is no node in it")
    return nodes


def parse_partitions_json(answer: str) -> tuple[Partition, ...]:
    """Return the partitions of an answer; raises like ``parse_jobs_json``."""
    return _read(answer, "partitions", _partition)


def parse_reservations_json(answer: str) -> tuple[Reservation, ...]:
    """Return the reservations of an answer; raises like ``parse_jobs_json``."""
    return _read(answer, "reservations", _reservation)


def _read(answer: str, kind: str, read: Callable[[object], T]) -> tuple[T, ...]:
    """Return the result of *read* for each record under the key *kind*."""
    whole_answer = _load(answer, kind)
    errors = at(whole_answer, "errors")
    if errors:
        said = json.dumps(errors)[:500]
        raise SlurmRefusedError(f"Slurm answered with an error about {kind}: {said}")
    records = at(whole_answer, kind)
    if not isinstance(records, list):
        raise _unreadable(kind, 0, answer, f"there is no list of {kind} in it")
    found = []
    for place, record in enumerate(records, start=1):
        try:
            found.append(read(record))
        except (ValueError, OverflowError) as error:
            shown = json.dumps(record)
            raise _unreadable(kind, place, shown, str(error)) from error
    return tuple(found)


def _load(answer: str, kind: str) -> object:
    try:
        loaded: object = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise _unreadable(kind, 0, answer, f"not JSON: {error}") from error
    return loaded


def _job(record: object) -> JobRecord:
    known, unknown = job_states(words(at(record, "job_state")))
    array_job_id = amount(at(record, "array_job_id")) or None
    task = amount(at(record, "array_task_id")) if array_job_id else None
    tasks = text(at(record, "array_task_string"))
    job_id = _present(amount(at(record, "job_id")), "job_id")
    return JobRecord(
        job_id=job_id,
        display_id=_display_id(job_id, array_job_id, task, tasks),
        states=known,
        unknown_states=unknown,
        array_job_id=array_job_id,
        array_task_id=task,
        array_tasks=tasks,
        user=text(at(record, "user_name")),
        uid=amount(at(record, "user_id")),
        name=text(at(record, "name")),
        comment=text(at(record, "comment")),
        partitions=tuple(words(at(record, "partition"))),
        reason=_reason(record),
        priority=amount(at(record, "priority")),
        nice=whole(at(record, "nice")) or 0,
        submit_s=time_s(at(record, "submit_time")),
        eligible_s=time_s(at(record, "eligible_time")),
        start_s=time_s(at(record, "start_time")),
        end_s=time_s(at(record, "end_time")),
        limit_s=minutes_s(at(record, "time_limit")),
        planned_nodes=_planned_nodes(record),
        nodes=text(at(record, "nodes")),
        requested_nodes=text(at(record, "required_nodes")),
        excluded_nodes=",".join(words(at(record, "excluded_nodes"))),
        oversubscribe=_sharing(record) if JobState.PENDING in known else "",
        node_count=amount(at(record, "node_count")) or 0,
        cpu_count=amount(at(record, "cpus")) or 0,
        task_count=amount(at(record, "tasks")) or 0,
        least_cpus=amount(at(record, "minimum_cpus_per_node")) or 0,
        least_memory_mib=_least_memory_mib(record),
        features=text(at(record, "features")),
        gres_per_node=text(at(record, "tres_per_node")),
        gres_per_job=text(at(record, "tres_per_job")),
        gres_per_task=text(at(record, "tres_per_task")),
        gres_per_socket=text(at(record, "tres_per_socket")),
        dependency=text(at(record, "dependency")),
        reservation=text(at(record, "resv_name")),
        qos=text(at(record, "qos")),
        account=text(at(record, "account")),
        het_job_id=amount(at(record, "het_job_id")) or 0,
    )


_SHARING = {
    "none": "NO",
    "user": "USER",
    "mcs": "MCS",
    "topo": "TOPO",
    "oversubscribe": "YES",
    "shared": "YES",  # 22.05
}
"""How jobs share nodes, in JSON and in text."""


def _sharing(record: object) -> str:
    """Return how a job shares nodes, as in the text; empty where that is not known.

    26.05 lists no word for any job, unless an older data parser is asked for; earlier
    ones list none for jobs that share nodes in the usual way.
    """
    return ",".join(_SHARING.get(word, word) for word in words(at(record, "shared")))


def _least_memory_mib(record: object) -> int:
    per_node = amount(at(record, "memory_per_node")) or 0
    return per_node or amount(at(record, "memory_per_cpu")) or 0


def _display_id(
    job_id: int, array_job_id: int | None, task: int | None, tasks: str
) -> str:
    if array_job_id is None:
        return str(job_id)
    return f"{array_job_id}_[{tasks}]" if task is None else f"{array_job_id}_{task}"


def _planned_nodes(record: object) -> str | None:
    if not isinstance(record, dict) or "scheduled_nodes" not in record:
        return None
    return text(record["scheduled_nodes"])


def _reason(record: object) -> str:
    reason = text(at(record, "state_reason"))
    return "" if reason == "None" else reason


def _node(record: object) -> Node:
    state_words = words(at(record, "state")) + words(at(record, "state_flags"))
    known, unknown = node_states(state_words)
    cpus, effective, sockets, cores, reserved_mib = (
        amount(at(record, name)) or 0
        for name in ("cpus", "effective_cpus", "sockets", "cores", "specialized_memory")
    )
    memory_mib = (amount(at(record, "real_memory")) or 0) - reserved_mib
    allocated_cpus = amount(at(record, "alloc_cpus")) or 0
    cpus_per_core, cpus_per_socket = cpu_groups(
        cpus, sockets=sockets, cores_per_socket=cores
    )
    gres, used = read_gres(text(at(record, "gres"))), at(record, "gres_used")
    reported = read_gres(used) if isinstance(used, str) else None
    used_mib = amount(at(record, "alloc_memory"))
    return Node(
        name=_present(text(at(record, "name")), "name"),
        states=known,
        unknown_states=unknown,
        features=frozenset(words(at(record, "active_features"))),
        gres=gres,
        cpus=effective or cpus,
        memory_mib=memory_mib,
        partitions=tuple(words(at(record, "partitions"))),
        reason=text(at(record, "reason")),
        comment=text(at(record, "comment")),
        allocated_cpus=allocated_cpus,
        allocated_memory_mib=memory_mib if used_mib is None else used_mib,
        allocated_gres=gres_in_use(gres, reported, allocated_cpus=allocated_cpus),
        cpus_per_core=cpus_per_core,
        cpus_per_socket=cpus_per_socket,
        owner=text(at(record, "owner")) or text(at(record, "mcs_label")),
    )


def _partition(record: object) -> Partition:
    nodes, qos = at(record, "nodes"), at(record, "qos")
    bounds = (
        whole(
            _either(record, ("maximums", "cpus_per_node"), ("maximum_cpus_per_node",))
        ),
        whole(at(record, "maximums", "cpus_per_socket")),
    )
    most_cpus = [bound for bound in bounds if bound is not None and bound >= 0]
    limit_s = minutes_s(_either(record, ("maximums", "time"), ("max_time_limit",)))
    grace_s = amount(_either(record, ("grace_time",), ("preemption_grace_time",)))
    tier = amount(_either(record, ("priority", "tier"), ("priority_tier",)))
    states = words(_either(record, ("partition", "state"), ("state",)))
    overrun = _either(record, ("maximums", "over_time_limit"), ("over_time_limit",))
    # 23.02 to 24.11 have neither this nor the default partition. 26.05 says
    # CLUSTER_GLOBAL where the partition has no mode of its own.
    modes = words(_either(record, ("preempt_mode",), ("preemption_mode",)))
    preempts = [word for word in modes if word != "CLUSTER_GLOBAL"]
    return Partition(
        name=_present(text(at(record, "name")), "name"),
        nodes=text(nodes if isinstance(nodes, str) else at(nodes, "configured")),
        is_up=states in ([], ["UP"]),  # 23.02 does not say
        max_time_s=math.inf if limit_s is None else limit_s,
        priority_tier=1 if tier is None else tier,
        preempt_mode=",".join(preempts).upper(),
        grace_time_s=float(grace_s or 0),
        over_time_limit_s=minutes_s(overrun),
        is_default="default" in {w.lower() for w in words(at(record, "flags"))},
        oversubscribe=_oversubscribe(record),
        qos=text(qos if isinstance(qos, str) else at(qos, "assigned")),
        most_cpus_per_node=min(most_cpus, default=None),
    )


def _oversubscribe(record: object) -> str:
    """Return OverSubscribe as in the text; 26.05 has it in two fields."""
    if at(record, "partition", "exclusive") == "NODE":
        return "EXCLUSIVE"
    return text(at(record, "partition", "oversubscribe"))


def _reservation(record: object) -> Reservation:
    return Reservation(
        name=_present(text(at(record, "name")), "name"),
        start_s=_present(time_s(at(record, "start_time")), "start_time"),
        end_s=time_s(at(record, "end_time")),
        nodes=text(at(record, "node_list")),
        flags=frozenset(words(at(record, "flags"))),
        users=tuple(words(at(record, "users"))),
        accounts=tuple(words(at(record, "accounts"))),
        partition=text(at(record, "partition")),
    )


def _either(record: object, new: tuple[str, ...], old: tuple[str, ...]) -> object:
    """Return the value at the *new* path (23.02 on), else at the *old* one."""
    found = at(record, *new)
    return at(record, *old) if found is None else found


def _present(value: T | None, key: str) -> T:
    if value is None or value == "":
        raise ValueError(f"the field {key} is missing")
    return value


def _unreadable(kind: str, record: int, answer: str, why: str) -> UnreadableOutputError:
    return UnreadableOutputError(f"{kind} as JSON", record, answer, why)


JSON = Dialect(
    nodes=Question(("scontrol", "--all", "--json", "show", "nodes"), parse_nodes_json),
    jobs=Question(("squeue", "--all", "--local", "--json"), parse_jobs_json),
    reservations=Question(
        ("scontrol", "--all", "--json", "show", "reservations"),
        parse_reservations_json,
    ),
    partitions=Question(
        ("scontrol", "--all", "--json", "show", "partitions"), parse_partitions_json
    ),
)
"""Large and slow; from 23.02 on, before which scontrol knows no ``--json``."""
