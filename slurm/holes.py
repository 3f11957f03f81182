"""Snapshots of the cluster, and the holes in them.

A hole is an idle node, or for leases that are not exclusive what jobs leave free of a
node (``slurm.pieces``), until Slurm needs it: only what is idle now (or held by a lease
of ours) is one, since every backfill cycle plans later nodes anew. A hole beside jobs
ends as that of a whole node does: Slurm plans by whole nodes, and starts nothing beside
a planned job that would run into its time, even if both fit.
Anything that is not understood closes a node, because a hole that is not there delays
another user's job.

Every backfill cycle first clears the plans of all waiting jobs and then makes them
anew, and others may read in between: half of all snapshots of a busy test cluster saw
nodes as free that were not (496 of 985, with forced yields). So a snapshot is taken
between two readings of ``sdiag``, and where a cycle overlapped it, the plans of the
snapshot before still count, job by job, for a while (``carry_plans``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from slurm.demands import held_by
from slurm.errors import UnreadableOutputError
from slurm.pieces import ANY_GPU, free_gres, lacks, never_fits, room, without
from slurm.records import WHOLE_NODES, Grain, NodeState, choose_partition, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm.pieces import Lack
    from slurm.records import (
        JobRecord,
        Node,
        NodeSharing,
        Partition,
        Requirement,
        Reservation,
        Sdiag,
    )


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """Backfill's plan for one waiting job.

    Attributes:
        job_id: The job's raw number.
        start_s: Planned start, Unix time; in the past where it is overdue.
        nodes: Planned nodes, a hostlist.
        seen_s: When Slurm last showed it, Unix time.
    """

    job_id: int
    start_s: float
    nodes: str
    seen_s: float


@dataclass(frozen=True, slots=True)
class HiddenPlan:
    """A node that is planned for a job that Slurm hides from us.

    Attributes:
        node: NodeName.
        seen_s: When Slurm last showed it, Unix time.
    """

    node: str
    seen_s: float


@dataclass(frozen=True, slots=True)
class BackfillPlans:
    """Backfill's plans as a snapshot showed them; small, and kept between ticks."""

    starts: tuple[PlannedStart, ...] = ()
    hidden: tuple[HiddenPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of the cluster.

    Read in this order: ``before``, nodes, jobs, reservations, partitions, ``after``;
    a job that starts in between then shows as a job, not as an idle node.

    Attributes:
        jobs: Every job that waits or holds nodes, as far as we may see them.
        before, after: slurmctld's statistics at both ends.
        carried: Plans of an earlier snapshot that still count (``carry_plans``).
    """

    nodes: tuple[Node, ...]
    jobs: tuple[JobRecord, ...]
    reservations: tuple[Reservation, ...]
    partitions: tuple[Partition, ...]
    before: Sdiag
    after: Sdiag
    carried: BackfillPlans = field(default=BackfillPlans())

    @property
    def time_s(self) -> float:
        """When it was complete, by slurmctld's clock."""
        return self.after.taken_s

    @property
    def is_torn(self) -> bool:
        """Whether backfill was at work meanwhile, so that plans may be missing."""
        return is_torn(self.before, self.after)


def is_torn(before: Sdiag, after: Sdiag) -> bool:
    """Tell whether a backfill cycle overlapped the time between two statistics.

    Being at work at one of the two ends shows it, and so do the time and the count
    of the last cycle where a whole one fits in between. A slurmctld that restarted
    or reset its statistics meanwhile cannot tell, so that counts as well.
    """
    return (
        before.bf_active
        or after.bf_active
        or before.bf_last_cycle_s != after.bf_last_cycle_s
        or before.bf_cycles != after.bf_cycles
        or before.since_s != after.since_s
    )


def plans_of(snapshot: Snapshot) -> BackfillPlans:
    """Return all plans that count in *snapshot*: those it shows, then those carried.

    Nodes may be read before a backfill cycle begins and jobs after: the nodes are
    then still marked for a job whose plan is gone, and the carried plan explains
    them. Taken for a hidden job's, they would stay closed as long as plans are carried.
    """
    starts, now_s = starts_of(snapshot), snapshot.time_s
    hidden = (HiddenPlan(name, now_s) for name in _unexplained(snapshot, starts))
    return BackfillPlans(
        starts=starts,
        hidden=(*hidden, *snapshot.carried.hidden),
    )


def starts_of(snapshot: Snapshot) -> tuple[PlannedStart, ...]:
    """Return the planned starts of ``plans_of`` alone, which is cheap."""
    shown = (
        PlannedStart(job.job_id, job.start_s, job.planned_nodes, snapshot.time_s)
        for job in snapshot.jobs
        if job.is_planned and job.start_s is not None and job.planned_nodes
    )
    return (*shown, *snapshot.carried.starts)


def first_starts(
    snapshot: Snapshot,
    starts: Iterable[PlannedStart],
    names: Iterable[str],
    *,
    is_ours: Callable[[JobRecord], bool],
) -> dict[str, PlannedStart]:
    """Return the first planned start of another user's job on each of *names*.

    Args:
        snapshot: One snapshot.
        starts: Its planned starts.
        names: Nodes; those without a planned start are left out.
        is_ours: Tells our own leases from other jobs.

    Raises:
        UnreadableOutputError: A list of planned nodes is unreadable.
    """
    ours = {job.job_id for job in snapshot.jobs if is_ours(job)}
    free = set(names)
    first: dict[str, PlannedStart] = {}
    for plan in sorted(starts, key=lambda plan: plan.start_s):
        if not free:  # spelling out every plan of a large machine takes seconds
            break
        if plan.job_id not in ours:
            found = free.intersection(expand(plan.nodes))
            first.update(dict.fromkeys(found, plan))
            free -= found
    return first


def _unexplained(snapshot: Snapshot, starts: Sequence[PlannedStart]) -> list[str]:
    """Return the nodes marked as planned that none of the plans *starts* names."""
    planned = [n.name for n in snapshot.nodes if NodeState.PLANNED in n.states]
    unexplained = set(planned)
    for plan in starts:
        if not unexplained:  # as in ``first_starts``
            break
        unexplained.difference_update(expand(plan.nodes))
    return [name for name in planned if name in unexplained]


def carry_plans(
    previous: BackfillPlans, current: Snapshot, *, max_age_s: float
) -> Snapshot:
    """Return *current* with the plans that backfill was just making anew.

    Where no backfill cycle overlapped, nothing is carried: a job without a plan has
    none. Otherwise the plan of a job that still waits, and shows no new one, stays
    as it was shown last; so does a node that was planned for a job we cannot see.

    Args:
        previous: ``plans_of`` the snapshot before.
        current: The snapshot just taken.
        max_age_s: Plans that Slurm last showed longer ago are dropped.
    """
    if not current.is_torn:
        return current
    since_s = current.time_s - max_age_s
    unplanned = {j.job_id for j in current.jobs if j.is_pending and not j.is_planned}
    unmarked = {n.name for n in current.nodes if NodeState.PLANNED not in n.states}
    starts = (p for p in previous.starts if p.job_id in unplanned)
    hidden = (p for p in previous.hidden if p.node in unmarked)
    carried = BackfillPlans(
        starts=tuple(plan for plan in starts if plan.seen_s >= since_s),
        hidden=tuple(plan for plan in hidden if plan.seen_s >= since_s),
    )
    return replace(current, carried=carried)


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
_IN_USE = _HARMLESS | {NodeState.MIXED, NodeState.ALLOCATED}
# For seconds after a restart slurmctld knows no node's state; jobs there go on,
# and no other job is on its way there.
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
        held_by: Raw numbers of our own jobs that hold the node, or pieces of it, now.
        room: How many more leases could start there now.
        is_in_use: Whether any job is on the node now.
    """

    node: str
    start_s: float
    end_s: float | None
    ends_by: HoleEnd
    blocker: str = ""
    held_by: tuple[int, ...] = ()
    room: int = 1
    is_in_use: bool = False


@dataclass(frozen=True, slots=True, order=True)
class _Bound:
    """One thing that ends a hole; the earliest counts."""

    end_s: float
    ends_by: HoleEnd
    blocker: str = ""


def find_holes(  # noqa: PLR0913 -- each from elsewhere
    snapshot: Snapshot,
    requirement: Requirement,
    *,
    is_ours: Callable[[JobRecord], bool],
    margin_s: float,
    window_s: float = math.inf,
    sharing: NodeSharing = WHOLE_NODES,
) -> tuple[Hole, ...]:
    """Return the holes that a lease could use, by node in Slurm's order.

    A hole ends at the earliest of: the start that backfill planned for another's
    job there, less the margin; the start of a reservation, less the margin; the
    longest limit of the lease's partition; the edge of backfill's plans.

    Args:
        snapshot: One snapshot, with plans carried where it was torn.
        requirement: A lease's demands on its node.
        is_ours: Tells our own leases: plans for waiting ones do not count against
            us, running ones leave their hole open.
        margin_s: How long before another job's start we must be gone: overrun of
            the limit, kill wait, epilog.
        window_s: How far ahead backfill plans (bf_window).
        sharing: How Slurm shares nodes, for leases that are not exclusive.

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
    if requirement.exclusive or takes_whole_nodes(partition, sharing):
        names = _open_nodes(snapshot, requirement, held, is_ours=is_ours)
        rooms = {name: int(name not in held) for name in names}
    else:
        rooms = _rooms(snapshot, requirement, held, partition, sharing)
        names = list(rooms)
    plans = plans_of(snapshot)
    starts = first_starts(snapshot, plans.starts, names, is_ours=is_ours)
    planned = {name: _before(plan, margin_s) for name, plan in starts.items()}
    reserved = _reserved(snapshot, margin_s)
    hidden = {plan.node for plan in plans.hidden}
    edge = _edge(partition, now_s, window_s)
    in_use = {node.name for node in snapshot.nodes if node.allocated_cpus}
    holes = []
    for name in names:
        bound = min(planned.get(name, edge), reserved.get(name, edge), edge)
        if bound.end_s > now_s:
            end_s: float | None = bound.end_s
            ends_by, blocker = bound.ends_by, bound.blocker
            if name in hidden:
                end_s, ends_by, blocker = None, HoleEnd.UNKNOWN_PLANNER, ""
            by = tuple(held.get(name, ()))
            holes.append(
                Hole(
                    name,
                    now_s,
                    end_s,
                    ends_by,
                    blocker,
                    held_by=by,
                    room=rooms[name],
                    is_in_use=bool(by) or name in in_use,
                )
            )
    return tuple(holes)


def takes_whole_nodes(partition: Partition, sharing: NodeSharing) -> bool:
    """Tell whether jobs in *partition* get whole nodes, whatever they ask for."""
    return sharing.grain is Grain.NODE or partition.oversubscribe == "EXCLUSIVE"


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


def _taken_nodes(
    snapshot: Snapshot, is_ours: Callable[[JobRecord], bool]
) -> dict[str, str]:
    """Return the nodes on which jobs of others run, each with one of them."""
    return {
        name: job.display_id
        for job in snapshot.jobs
        if job.holds_nodes and not is_ours(job)
        for name in expand(job.nodes)
    }


def _open_nodes(
    snapshot: Snapshot,
    requirement: Requirement,
    held: dict[str, list[int]],
    *,
    is_ours: Callable[[JobRecord], bool],
) -> list[str]:
    """Return the nodes that a lease could use now, or that only ours use."""
    taken = _taken_nodes(snapshot, is_ours)
    return [
        node.name
        for node in snapshot.nodes
        if node.name not in taken
        and requirement.is_met_by(node)
        and is_open(node, is_held=node.name in held)
    ]


def _rooms(
    snapshot: Snapshot,
    requirement: Requirement,
    held: Mapping[str, Sequence[int]],
    partition: Partition,
    sharing: NodeSharing,
) -> dict[str, int]:
    """Return how many leases could start on each node, jobs of others there or not.

    Nodes where none could are left out, but for those where one of ours runs.
    """
    used = _partition_cpus(snapshot, partition)
    rooms = {}
    for node in snapshot.nodes:
        is_held = node.name in held
        if not requirement.is_met_by(node) or not is_open_in_part(
            node, is_held=is_held
        ):
            continue
        left = _cpus_left(partition, used.get(node.name, 0))
        count = room(node, requirement, sharing, most_cpus=left)
        if count or is_held:
            rooms[node.name] = count
    return rooms


def why_no_hole(
    snapshot: Snapshot,
    requirement: Requirement,
    *,
    is_ours: Callable[[JobRecord], bool],
    sharing: NodeSharing = WHOLE_NODES,
) -> dict[str, Lack | str]:
    """Return why no lease could start now, by node of the partition where none could.

    The first reason is given: a feature, a job or a state in the way, in a few words,
    or the first resource that is missing. Nodes of ours are left out, and so are those
    where only a planned start, a reservation or the margin keeps a lease from a hole.

    Raises:
        SlurmRefusedError: There is no such partition.
        UnreadableOutputError: A list of nodes is unreadable.
    """
    partition = choose_partition(snapshot.partitions, requirement.partition)
    held = _held_nodes(snapshot, is_ours)
    is_whole = requirement.exclusive or takes_whole_nodes(partition, sharing)
    taken = _taken_nodes(snapshot, is_ours) if is_whole else {}
    used = _partition_cpus(snapshot, partition)
    reasons: dict[str, Lack | str] = {}
    for node in snapshot.nodes:
        if partition.name not in node.partitions or node.name in held:
            continue
        why = _why_closed(node, requirement, taken, is_whole=is_whole)
        if why is None and not is_whole:
            left = _cpus_left(partition, used.get(node.name, 0))
            why = lacks(node, requirement, sharing, most_cpus=left)
        if why is None and not partition.is_up:
            why = f"partition {partition.name} is not up"
        if why is not None:
            reasons[node.name] = why
    return reasons


def _why_closed(
    node: Node, requirement: Requirement, taken: Mapping[str, str], *, is_whole: bool
) -> Lack | str | None:
    """Return why *node* is closed to a lease, however much is free; None if it is open.

    Args:
        node: A node of the partition.
        requirement: What the lease takes.
        taken: By node where jobs of others run, one of them.
        is_whole: Whether the lease takes a whole node.
    """
    missing = sorted(requirement.features - node.features)
    if missing:
        return f"it has no feature {missing[0]}"
    lack = never_fits(node, requirement)
    if lack is not None:
        return lack
    if node.name in taken:
        return f"job {taken[node.name]} runs there"
    if node.owner and not is_whole:
        return f"only jobs of {node.owner} may run there"
    is_usable = is_open(node, is_held=False) if is_whole else is_open_in_part(node)
    return None if is_usable else f"its state is {'+'.join(sorted(node.states))}"


def _cpus_left(partition: Partition, used: int) -> float:
    if partition.most_cpus_per_node is None:
        return math.inf
    return max(0, partition.most_cpus_per_node - used)


def _partition_cpus(snapshot: Snapshot, partition: Partition) -> dict[str, int]:
    """Return the CPUs that jobs of *partition* have of each node, at most.

    Empty where the partition sets no bound. How a job's CPUs spread over its nodes is
    not shown: each of them may have all but one for each of the others.
    """
    used: dict[str, int] = {}
    if partition.most_cpus_per_node is None:
        return used
    for job in snapshot.jobs:
        if job.holds_nodes and partition.name in job.partitions:
            names = expand(job.nodes)
            most = max(1, job.cpu_count - (len(names) - 1))
            for name in names:
                used[name] = used.get(name, 0) + most
    return used


def is_open_in_part(node: Node, *, is_held: bool = False) -> bool:
    """Tell whether jobs may start on *node* beside those that are there."""
    if node.unknown_states or node.owner:
        return False
    return node.states <= (_HELD if is_held else _IN_USE)


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
    """Return the end of a hole for which no job is known to wait."""
    if math.isinf(min(partition.max_time_s, window_s)):
        return _Bound(math.inf, HoleEnd.OPEN)
    if partition.max_time_s <= window_s:
        return _Bound(now_s + partition.max_time_s, HoleEnd.PARTITION_LIMIT)
    return _Bound(now_s + window_s, HoleEnd.BACKFILL_WINDOW)


_UNCLEAR = {NodeState.COMPLETING, NodeState.NOT_RESPONDING, NodeState.UNKNOWN}
"""States that pass by themselves: an epilog, a restart of slurmctld, a lost packet.
A node that died is not responding either, but down or drained besides."""


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


def find_free_gpus(
    snapshot: Snapshot, *, is_ours: Callable[[JobRecord], bool]
) -> tuple[dict[str, int], frozenset[str]]:
    """Return how many GPUs of each node no job but ours has.

    Args:
        snapshot: One snapshot.
        is_ours: Tells our own leases from other jobs.

    Returns:
        Their number by node; and nodes in a state that passes by itself, of which it is
        not known.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    ours: dict[str, list[Requirement]] = {}
    for job in snapshot.jobs:
        if job.holds_nodes and is_ours(job):
            held, _ = held_by(job)
            for name in expand(job.nodes):
                ours.setdefault(name, []).append(held)
    free, unclear = {}, set()
    for node in snapshot.nodes:
        own = ours.get(node.name, ())
        if is_open_in_part(node, is_held=bool(own)):
            bare = without(node, own)
            has_cpus = bare.allocated_cpus < bare.cpus
            free[node.name] = free_gres(bare, ANY_GPU) if has_cpus else 0
        elif _is_unclear(node):
            unclear.add(node.name)
    return free, frozenset(unclear)


def _is_unclear(node: Node) -> bool:
    is_passing = bool(node.states & _UNCLEAR)
    return is_passing and is_open(
        replace(node, states=node.states - _UNCLEAR), is_held=True
    )
