"""One snapshot of the cluster, with backfill's plans from the one before if needed.

Every backfill cycle first clears the plans of all waiting jobs and then makes them
anew, and others may read in between: half of all snapshots of a busy test cluster saw
nodes as free that were not (496 of 985, with forced yields). So a snapshot is taken
between two readings of ``sdiag``, and where a cycle overlapped it, the plans of the
snapshot before still count, job by job, for a while (``carry_plans``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm.hostlist import expand
from slurm.records import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from slurm.records import JobRecord, Node, Partition, Reservation, Sdiag


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
