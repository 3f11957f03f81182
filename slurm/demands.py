"""What a waiting job asks of its nodes, as far as it is certain.

``demand_of`` reads a job's record. A part that Slurm cut, or that this version cannot
read, asks for nothing: then the job counts as one that could start, as others must not
wait because we misread them. Licences are left out: Slurm says itself that a job waits
for one (reason ``Licenses``).

squeue does not tell whether a job may take more nodes than it names, so what it asks
for in all (``--gpus``) says how many nodes it takes, and not what each must have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm.constraints import ANY_NODE, parse_constraint
from slurm.errors import UnreadableOutputError
from slurm.records import Gres, expand

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from slurm.constraints import FeatureChoice
    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand:
    """What a job asks of its nodes.

    Attributes:
        partitions: All nodes are of one of them; none for any.
        choices: All nodes meet one of them.
        required: Nodes that it must have.
        excluded: Nodes that it must not have.
        nodes: How many nodes it takes at least.
        cpus, memory_mib, gres: What each node has at least; an empty kind takes any.
        gres_in_all: What all nodes together have at least.
    """

    partitions: tuple[str, ...] = ()
    choices: tuple[FeatureChoice, ...] = (ANY_NODE,)
    required: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    nodes: int = 1
    cpus: int = 0
    memory_mib: int = 0
    gres: tuple[Gres, ...] = ()
    gres_in_all: tuple[Gres, ...] = ()


def demand_of(job: JobRecord) -> NodeDemand:
    """Return what *job* asks of its nodes."""
    nodes = max(1, job.node_count)
    per_task = tuple(_gres(job, "gres_per_task"))
    in_all = _most((*_gres(job, "gres_per_job"), *_times(job.task_count, per_task)))
    each = [*_gres(job, "gres_per_node"), *_gres(job, "gres_per_socket"), *per_task]
    if nodes == 1:  # at least the first node has some of it
        each += (replace(gres, count=1) for gres in in_all)
    choices = None if "features" in job.cut else parse_constraint(job.features)
    return NodeDemand(
        partitions=job.partitions,
        choices=(ANY_NODE,) if choices is None else choices,
        required=_names(job.requested_nodes),
        excluded=_names(job.excluded_nodes),
        nodes=nodes,
        cpus=job.least_cpus,
        # Slurm's figure may be for each CPU, of which a node gives at least one.
        memory_mib=job.least_memory_mib,
        gres=_most(each),
        gres_in_all=in_all,
    )


def asked_for(job: JobRecord) -> tuple[object, ...]:
    """Return what ``demand_of`` goes by, as a key: of equal keys demands are equal."""
    return (
        job.partitions,
        job.features,
        job.requested_nodes,
        job.excluded_nodes,
        job.node_count,
        job.task_count,
        job.least_cpus,
        job.least_memory_mib,
        job.gres_per_node,
        job.gres_per_job,
        job.gres_per_task,
        job.gres_per_socket,
        job.cut,
    )


def _names(hostlist: str) -> frozenset[str]:
    try:
        return frozenset(expand(hostlist))
    except UnreadableOutputError:
        return frozenset()


_REQUEST = re.compile(
    r"gres[:/]([A-Za-z][\w-]*)(?:[:=]([A-Za-z0-9][\w.-]*?))?(?:[:=]([0-9]{1,9}))?",
    re.ASCII,
)
"""A generic resource as jobs ask for it: ``gres:gpu``, ``gres:gpu:a100:2``, and since
23.02 ``gres/gpu:2``. Source: squeue of 21.08 to 26.05."""


def _gres(job: JobRecord, field: str) -> Iterator[Gres]:
    """Yield the generic resources of one *field*; those that are unclear are left out.

    Source: other TRES may stand beside them (``cpu:2,gres/gpu:1``).
    """
    words = getattr(job, field).split(",")
    for word in words[:-1] if field in job.cut else words:
        found = _REQUEST.fullmatch(word)
        if found is not None:
            name, kind, count = found.groups()
            if kind and kind.isdecimal() and count is None:
                kind, count = "", kind
            yield Gres(name, kind or "", int(count or 1))


def _times(tasks: int, gres: Collection[Gres]) -> Iterator[Gres]:
    return (replace(one, count=max(1, tasks) * one.count) for one in gres)


def _most(gres: Collection[Gres]) -> tuple[Gres, ...]:
    """Return each resource once, with its highest count."""
    most: dict[tuple[str, str], int] = {}
    for one in gres:
        key = (one.name, one.kind)
        most[key] = max(one.count, most.get(key, 0))
    return tuple(Gres(name, kind, count) for (name, kind), count in most.items())
