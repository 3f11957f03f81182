"""Pieces of nodes: what jobs leave free of a node, and how many leases fit there.

A lease that is not exclusive takes a piece: CPUs, memory, and generic resources such as
GPUs; other jobs have the rest. Slurm counts these and nothing else (cons_tres), CPUs
by its grain. Anything that is not understood closes a node: memory that was not asked
for by amount counts as all of it, since a site's default may be that.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm.records import Grain, Gres, gres_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm.records import Node, NodeSharing, Requirement

GPU = "gpu"
ANY_GPU = Gres(GPU, "", 1)


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource of which a node has less than a lease takes.

    Attributes:
        resource: ``cpus``, ``memory_mib``, or a generic resource such as
            ``gpu:a100``.
        free: How much is free.
        wanted: How much a lease takes.
        present: How much there is, free or not.
    """

    resource: str
    free: int
    wanted: int
    present: int


def room(
    node: Node,
    wanted: Requirement,
    sharing: NodeSharing,
    *,
    most_cpus: float = math.inf,
) -> int:
    """Return how many leases that take *wanted* could start on *node* now.

    Args:
        node: A node in a state in which jobs start.
        wanted: What each takes.
        sharing: How Slurm shares nodes.
        most_cpus: CPUs that the partition's jobs may have there beside those that they
            have.
    """
    needs = list(_needs(node, wanted, sharing, most_cpus))
    return max(0, min(need.free // need.wanted for need in needs))


def lacks(
    node: Node,
    wanted: Requirement,
    sharing: NodeSharing,
    *,
    most_cpus: float = math.inf,
) -> Lack | None:
    """Return the first resource that keeps a lease from *node*; None for none.

    The arguments are those of :func:`room`.
    """
    needs = _needs(node, wanted, sharing, most_cpus)
    return next((need for need in needs if need.free < need.wanted), None)


def never_fits(node: Node, wanted: Requirement) -> Lack | None:
    """Return the first resource of which *node* has less than *wanted*, free or not."""
    asked = [
        Lack(_name(g), free_gres(node, g), g.count, gres_count(node.gres, g))
        for g in wanted.gres
    ]
    cpus, mib = node.cpus, node.memory_mib
    asked.append(Lack("cpus", cpus - node.allocated_cpus, wanted.cpus, cpus))
    free_mib = mib - node.allocated_memory_mib
    asked.append(Lack("memory_mib", free_mib, wanted.memory_mib, mib))
    return next((need for need in asked if need.present < need.wanted), None)


def _needs(
    node: Node, wanted: Requirement, sharing: NodeSharing, most_cpus: float
) -> Iterator[Lack]:
    """Yield what a lease takes of each resource: generic ones, CPUs, memory."""
    for gres in wanted.gres:
        present = gres_count(node.gres, gres)
        yield Lack(_name(gres), free_gres(node, gres), max(1, gres.count), present)
    grain = cpu_grain(node, sharing.grain)
    cpus = grain * math.ceil(max(1, wanted.cpus) / grain)
    free_cpus = node.cpus - node.allocated_cpus
    if sharing.grain is Grain.NODE and node.allocated_cpus:
        free_cpus = 0
    yield Lack("cpus", int(min(free_cpus, most_cpus)), cpus, node.cpus)
    if sharing.counts_memory:
        mib = wanted.memory_mib or node.memory_mib
        free_mib = node.memory_mib - node.allocated_memory_mib
        yield Lack("memory_mib", free_mib, max(1, mib), node.memory_mib)


_ON_GPUS = frozenset({"shard", "mps"})
"""Generic resources that are parts of GPUs: a GPU is given whole or in such parts."""


def used_gres(node: Node, wanted: Gres) -> int:
    """Return how many of the *wanted* resources of *node* jobs have, at most.

    What jobs have of no known kind counts for every kind. How parts of GPUs lie on them
    is not read: each may be on a GPU of its own.
    """
    present = gres_count(node.gres, wanted)
    kinds = {gres.kind for gres in node.gres if gres.name == wanted.name} - {""}
    used = sum(
        gres.count
        for gres in node.allocated_gres
        if gres.name == wanted.name
        and (wanted.kind in {"", gres.kind} or gres.kind not in kinds)
    )
    if wanted.name == GPU:
        used += sum(g.count for g in node.allocated_gres if g.name in _ON_GPUS)
    elif wanted.name in _ON_GPUS and gres_count(node.allocated_gres, ANY_GPU):
        used = present
    return min(used, present)


def free_gres(node: Node, wanted: Gres) -> int:
    """Return how many of the *wanted* resources of *node* no job has, at least."""
    return gres_count(node.gres, wanted) - used_gres(node, wanted)


def cpu_grain(node: Node, grain: Grain) -> int:
    """Return the CPUs of *node* that are given out together.

    Threads of one core go to one job even where Slurm counts by CPUs. Source:
    slurm.conf(5), CR_CPU.
    """
    if grain is Grain.NODE:
        return max(1, node.cpus)
    return node.cpus_per_socket if grain is Grain.SOCKET else node.cpus_per_core


def _name(gres: Gres) -> str:
    return f"{gres.name}:{gres.kind}" if gres.kind else gres.name


def in_proportion(
    wanted: Requirement, nodes: Iterable[Node], sharing: NodeSharing
) -> Requirement:
    """Return *wanted* with the CPUs and the memory that go with its GPUs.

    That is the node's part of them: a quarter for one GPU of four. Of nodes that
    differ, the least part counts, so that a piece fits all. CPUs come in Slurm's grain,
    one grain at least. Without GPUs memory goes by the CPUs, which are one if not
    said. What is said stays.

    Args:
        wanted: What a lease takes; not exclusive.
        nodes: The cluster's.
        sharing: How Slurm shares them.
    """
    of_any_size = replace(wanted, cpus=0)
    # Of thousands of nodes most are alike, and this is asked for each trainer.
    unlike = {_size(node): node for node in nodes}.values()
    fitting = [node for node in unlike if of_any_size.is_met_by(node)]
    if not fitting:
        return wanted
    asked = gres_count(wanted.gres, ANY_GPU)
    cpus, memory_mib = wanted.cpus, wanted.memory_mib
    if not cpus and asked:
        parts = (_part_of_cpus(node, asked, sharing) for node in fitting)
        cpus = min(parts)
    if not memory_mib and sharing.counts_memory:
        memory_mib = min(
            math.floor(node.memory_mib * _part(node, asked, cpus)) for node in fitting
        )
    return replace(wanted, cpus=cpus, memory_mib=memory_mib)


def _size(node: Node) -> tuple[object, ...]:
    """Return all of *node* that decides whether and how much of it a lease takes."""
    what = (node.partitions, node.features, node.gres)
    return (
        *what,
        node.cpus,
        node.memory_mib,
        node.cpus_per_core,
        node.cpus_per_socket,
    )


def _part_of_cpus(node: Node, gpus: int, sharing: NodeSharing) -> int:
    grain = cpu_grain(node, sharing.grain)
    return max(grain, math.floor(node.cpus * _part(node, gpus, 0) / grain) * grain)


def _part(node: Node, gpus: int, cpus: int) -> float:
    """Return the part of *node* that so many GPUs are; without GPUs, so many CPUs."""
    if gpus:
        return min(1.0, gpus / gres_count(node.gres, ANY_GPU))
    return min(1.0, max(1, cpus) / max(1, node.cpus))


def gpu_kinds(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the kinds of GPU on *nodes*, sorted; an empty one where none is named."""
    return tuple(sorted({g.kind for node in nodes for g in node.gres if g.name == GPU}))


# A node once jobs come and go.


def without(node: Node, held: Iterable[Requirement]) -> Node:
    """Return *node* once the jobs are gone that have *held* these pieces of it.

    A resource of no known kind comes free only where the node has a single kind of it.
    A job for which Slurm shows no memory has all of it, and with the last CPU all that
    is in use comes free: of a job that takes a whole node Slurm shows neither memory
    nor generic resources.
    """
    cpus, mib = node.allocated_cpus, node.allocated_memory_mib
    used = Counter[tuple[str, str]]()
    for gres in node.allocated_gres:
        used[gres.name, gres.kind] += gres.count
    for piece in held:
        cpus -= piece.cpus
        mib -= piece.memory_mib or node.memory_mib
        for gres in piece.gres:
            key = _held_as(node, gres)
            if key in used:
                used[key] = max(0, used[key] - gres.count)
    if cpus <= 0:
        return replace(
            node, allocated_cpus=0, allocated_memory_mib=0, allocated_gres=()
        )
    return replace(
        node,
        allocated_cpus=cpus,
        allocated_memory_mib=max(0, mib),
        allocated_gres=tuple(Gres(*key, count) for key, count in used.items() if count),
    )


def _held_as(node: Node, gres: Gres) -> tuple[str, str]:
    """Return name and kind under which *node* counts what a job has of *gres*."""
    kinds = {used.kind for used in node.allocated_gres if used.name == gres.name}
    if gres.kind in kinds or len(kinds) != 1:
        return gres.name, gres.kind
    present = {there.kind for there in node.gres if there.name == gres.name}
    return gres.name, kinds.pop() if len(present) == 1 else gres.kind


def with_job(node: Node, taken: Requirement, sharing: NodeSharing) -> Node:
    """Return *node* once a job more has *taken* this piece of it."""
    grain = cpu_grain(node, sharing.grain)
    cpus = grain * math.ceil(max(1, taken.cpus) / grain)
    return replace(
        node,
        allocated_cpus=node.allocated_cpus + cpus,
        allocated_memory_mib=node.allocated_memory_mib
        + (taken.memory_mib or node.memory_mib),
        allocated_gres=(*node.allocated_gres, *taken.gres),
    )
