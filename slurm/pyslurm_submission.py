"""From a lease request to what pyslurm submits; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.batch import LeaseRequest

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
