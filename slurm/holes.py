"""Holes: idle nodes, until when Slurm leaves each of them idle, and why not longer.

Only what is idle now is a hole (or held by a lease of ours): what comes free later
is planned anew by every backfill cycle. Whatever is not understood closes a node,
because a hole that is not there delays somebody's job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError
from slurm.hostlist import expand
from slurm.records import NodeState, choose_partition
from slurm.snapshot import first_starts, plans_of, starts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm.records import JobRecord, Node, Partition, Requirement, Reservation
    from slurm.snapshot import PlannedStart, Snapshot


_DAY_S = 86_400.0
_PERIODS_S = {
    "HOURLY": 3_600.0,
    "DAILY": _DAY_S,
    "WEEKDAY": _DAY_S,  # the days between are given away: the safe side
    "WEEKEND": _DAY_S,
    "WEEKLY": 7 * _DAY_S,
}
_HARMLESS = {
    NodeState.IDLE,
    NodeState.PLANNED,
    NodeState.CLOUD,
    NodeState.DYNAMIC_NORM,
}
# For seconds after a restart slurmctld knows no node's state; what runs there goes
# on, and no other job is on its way there.
_HELD = _HARMLESS | {
    NodeState.ALLOCATED,
    NodeState.MIXED,
    NodeState.NOT_RESPONDING,
    NodeState.UNKNOWN,
}


class HoleEnd(StrEnum):
    """Why a hole ends when it does."""

    PLANNED_JOB = "planned job"
    RESERVATION = "reservation"
    PARTITION_LIMIT = "partition limit"
    BACKFILL_WINDOW = "backfill window"
    UNKNOWN_PLANNER = "unknown planner"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Hole:
    """A node that Slurm leaves idle for a while, or would without our lease.

    Attributes:
        node: NodeName.
        start_s: First idle second known of, Unix time: that of the snapshot.
        end_s: When we must be gone, Unix time, margin taken off; ``math.inf``
            where no job waits for the node, None where a job that we cannot see
            does, from an unknown time on.
        ends_by: Why it ends then.
        blocker: The planned job's raw number, or the reservation's name; else
            empty.
        held_by: Raw numbers of our own jobs that hold the node now.
    """

    node: str
    start_s: float
    end_s: float | None
    ends_by: HoleEnd
    blocker: str = ""
    held_by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class _Bound:
    """One thing that ends a hole; the earliest counts."""

    end_s: float
    ends_by: HoleEnd
    blocker: str = ""


def find_holes(
    snapshot: Snapshot,
    requirement: Requirement,
    *,
    is_ours: Callable[[JobRecord], bool],
    margin_s: float,
    window_s: float = math.inf,
) -> tuple[Hole, ...]:
    """Return the holes that a lease could use, by node in Slurm's order.

    A hole ends at the earliest of: the start that backfill planned for another's
    job there, less the margin; the start of a reservation, less the margin; the
    longest limit of the lease's partition; the edge of what backfill plans.

    Args:
        snapshot: One snapshot, with plans carried where it was torn.
        requirement: What a lease asks of its node.
        is_ours: Tells our own leases: plans for waiting ones do not count against
            us, running ones leave their hole open.
        margin_s: How long before another job's start we must be gone: overrun of
            the limit, kill wait, epilog, and a scheduling cycle.
        window_s: How far ahead backfill plans (bf_window).

    Raises:
        SlurmRefusedError: There is no such partition.
        UnreadableOutputError: The snapshot lacks planned nodes, as the JSON of
            Slurm before 23.02 does, or a list of nodes in it is unreadable.
    """
    partition = choose_partition(snapshot.partitions, requirement.partition)
    if not partition.is_up:
        return ()
    _check_plans_are_there(snapshot)
    now_s = snapshot.time_s
    held = _held_nodes(snapshot, is_ours)
    names = _open_nodes(snapshot, requirement, held, is_ours=is_ours)
    plans = plans_of(snapshot)
    starts = first_starts(snapshot, plans.starts, names, is_ours=is_ours)
    planned = {name: _before(plan, margin_s) for name, plan in starts.items()}
    reserved = _reserved(snapshot, margin_s)
    hidden = {plan.node for plan in plans.hidden}
    edge = _edge(partition, now_s, window_s)
    holes = []
    for name in names:
        bound = min(planned.get(name, edge), reserved.get(name, edge), edge)
        if bound.end_s > now_s:
            by = tuple(held.get(name, ()))
            is_known = name not in hidden
            holes.append(_hole(name, now_s, bound, is_known=is_known, held_by=by))
    return tuple(holes)


def _hole(
    name: str,
    now_s: float,
    bound: _Bound,
    *,
    is_known: bool,
    held_by: tuple[int, ...],
) -> Hole:
    if not is_known:
        return Hole(name, now_s, None, HoleEnd.UNKNOWN_PLANNER, held_by=held_by)
    return Hole(name, now_s, bound.end_s, bound.ends_by, bound.blocker, held_by)


def _check_plans_are_there(snapshot: Snapshot) -> None:
    for number, job in enumerate(snapshot.jobs, start=1):
        if job.is_pending and job.planned_nodes is None:
            why = "jobs come without planned nodes; read the text, not the JSON"
            raise UnreadableOutputError("squeue", number, job.display_id, why)


def _held_nodes(
    snapshot: Snapshot, is_ours: Callable[[JobRecord], bool]
) -> dict[str, list[int]]:
    """Return the nodes that running leases of ours hold, each with their numbers."""
    held: dict[str, list[int]] = {}
    for job in snapshot.jobs:
        if job.holds_nodes and is_ours(job):
            for name in expand(job.nodes):
                held.setdefault(name, []).append(job.job_id)
    return held


def _open_nodes(
    snapshot: Snapshot,
    requirement: Requirement,
    held: dict[str, list[int]],
    *,
    is_ours: Callable[[JobRecord], bool],
) -> list[str]:
    """Return the nodes that a lease could use now, or that only ours use."""
    taken = {
        name
        for job in snapshot.jobs
        if job.holds_nodes and not is_ours(job)
        for name in expand(job.nodes)
    }
    return [
        node.name
        for node in snapshot.nodes
        if node.name not in taken
        and requirement.is_met_by(node)
        and is_open(node, is_held=node.name in held)
    ]


def is_open(node: Node, *, is_held: bool) -> bool:
    """Tell whether *node* is idle, or up where a lease of ours holds it."""
    if node.unknown_states:
        return False
    if is_held:
        return node.states <= _HELD
    return NodeState.IDLE in node.states and node.states <= _HARMLESS


def _before(plan: PlannedStart, margin_s: float) -> _Bound:
    """Return where a planned start ends a hole, margin taken off."""
    return _Bound(plan.start_s - margin_s, HoleEnd.PLANNED_JOB, str(plan.job_id))


def _reserved(snapshot: Snapshot, margin_s: float) -> dict[str, _Bound]:
    """Return the earliest reservation of each node, margin taken off."""
    bounds: dict[str, _Bound] = {}
    for reservation in snapshot.reservations:
        start_s = _next_start_s(reservation, snapshot.time_s)
        if start_s is None:
            continue
        bound = _Bound(start_s - margin_s, HoleEnd.RESERVATION, reservation.name)
        for name in expand(reservation.nodes):
            bounds[name] = min(bound, bounds.get(name, bound))
    return bounds


def _next_start_s(reservation: Reservation, now_s: float) -> float | None:
    """Return when *reservation* begins, or began where it lasts; None if it is over.

    Slurm shows the next occurrence of a recurring one, but only from a while after
    the last one ended; in between the next is worked out here. One that floats
    (TIME_FLOAT) is shown as if it began its offset from now, which bounds a job
    that starts now.
    """
    if reservation.end_s is None or now_s < reservation.end_s:
        return reservation.start_s
    periods = [_PERIODS_S[flag] for flag in reservation.flags if flag in _PERIODS_S]
    if not periods:
        return None
    missed = math.floor((now_s - reservation.end_s) / min(periods)) + 1
    return reservation.start_s + missed * min(periods)


def _edge(partition: Partition, now_s: float, window_s: float) -> _Bound:
    """Return what ends a hole for which no job is known to wait."""
    if math.isinf(min(partition.max_time_s, window_s)):
        return _Bound(math.inf, HoleEnd.OPEN)
    if partition.max_time_s <= window_s:
        return _Bound(now_s + partition.max_time_s, HoleEnd.PARTITION_LIMIT)
    return _Bound(now_s + window_s, HoleEnd.BACKFILL_WINDOW)


_UNCLEAR = {NodeState.COMPLETING, NodeState.NOT_RESPONDING, NodeState.UNKNOWN}
"""States that pass by themselves: an epilog, a restart of slurmctld, a lost packet.
What died is not responding either, but down or drained besides."""


@dataclass(frozen=True, slots=True)
class IdleNodes:
    """Which nodes are idle in a snapshot, whatever leases may ask for.

    Attributes:
        nodes: Nodes that no job but ours holds, and that jobs could use.
        unclear: Nodes that no other job holds, in a state that passes by itself.
        planned: The first planned start of another's job, by idle node.
    """

    nodes: frozenset[str]
    unclear: frozenset[str]
    planned: Mapping[str, PlannedStart] = field(default_factory=dict)


def find_idle(snapshot: Snapshot, *, is_ours: Callable[[JobRecord], bool]) -> IdleNodes:
    """Return the idle nodes of *snapshot*, and which jobs are planned there.

    Args:
        snapshot: One snapshot, with plans carried where it was torn.
        is_ours: Tells our own leases from other jobs.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    ours: set[str] = set()
    others: set[str] = set()
    for job in snapshot.jobs:
        if job.holds_nodes:
            (ours if is_ours(job) else others).update(expand(job.nodes))
    here = [node for node in snapshot.nodes if node.name not in others]
    idle = {node.name for node in here if is_open(node, is_held=node.name in ours)}
    unclear = {node.name for node in here if _is_unclear(node)} - idle
    planned = first_starts(snapshot, starts_of(snapshot), idle, is_ours=is_ours)
    return IdleNodes(frozenset(idle), frozenset(unclear), planned)


def _is_unclear(node: Node) -> bool:
    is_passing = bool(node.states & _UNCLEAR)
    return is_passing and is_open(
        replace(node, states=node.states - _UNCLEAR), is_held=True
    )
