"""Who is idle in a look, and what is planned there; whatever leases may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm.holes import is_open
from slurm.hostlist import expand
from slurm.snapshot import first_starts, starts_of
from slurm.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm.records import JobRecord, Node
    from slurm.snapshot import PlannedStart, Snapshot

_UNCLEAR = {NodeState.COMPLETING, NodeState.NOT_RESPONDING, NodeState.UNKNOWN}
"""States that pass by themselves: an epilog, a restart of slurmctld, a lost packet.
What died is not responding either, but down or drained besides."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Who is idle.

    Attributes:
        nodes: Nodes that nobody holds but us, and that jobs could use.
        unclear: Nodes that nobody else holds, and of which it cannot be told now.
        planned: The first planned start of somebody else's job, by idle node.
    """

    nodes: frozenset[str]
    unclear: frozenset[str]
    planned: Mapping[str, PlannedStart] = field(default_factory=dict)


def find_idle(snapshot: Snapshot, *, is_ours: Callable[[JobRecord], bool]) -> Idle:
    """Return who is idle in *snapshot*, and who is to have those nodes.

    Args:
        snapshot: One look, with plans carried where it was torn.
        is_ours: Tells our own leases.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    ours: set[str] = set()
    others: set[str] = set()
    for job in snapshot.jobs:
        if job.holds_nodes:
            (ours if is_ours(job) else others).update(expand(job.nodes))
    here = [node for node in snapshot.nodes if node.name not in others]
    idle = {one.name for one in here if is_open(one, is_held=one.name in ours)}
    unclear = {one.name for one in here if _is_unclear(one)} - idle
    planned = first_starts(snapshot, starts_of(snapshot), idle, is_ours=is_ours)
    return Idle(frozenset(idle), frozenset(unclear), planned)


def _is_unclear(node: Node) -> bool:
    is_passing = bool(node.states & _UNCLEAR)
    return is_passing and is_open(
        replace(node, states=node.states - _UNCLEAR), is_held=True
    )
