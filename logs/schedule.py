"""From a log of jobs to a schedule, and to the holes that it leaves idle.

:func:`schedule` places the jobs on a machine by a simulation; :func:`holes` turns the
result into idle intervals of nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from logs.simulation import Simulation
from logs.timeline import HolderCounts
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from logs.simulation import Layout, Method, Reason, Running, SlurmParameters
    from logs.timeline import UnitSet
    from logs.trace import JobTrace


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A trace's jobs on a machine.

    Attributes:
        trace: The log.
        method: How its jobs were placed.
        layout: The machine.
        placed: Every job that ran, in the order of starting; ``job`` is its
            index in ``trace.jobs``.
        refused: Why each of the others did not, by index.
        over_commitment: How much the log's jobs held beyond the machine; nothing
            under the simulated schedulers.
    """

    trace: JobTrace
    method: Method
    layout: Layout
    placed: tuple[Running, ...]
    refused: Mapping[int, Reason]
    over_commitment: OverCommitment

    @property
    def end_s(self) -> float:
        """When the last job ends, and the schedule with it; 0 where none ran."""
        return max((job.end_s for job in self.placed), default=0.0)


_MOMENTS_BETWEEN_REPORTS = 256


def schedule(
    trace: JobTrace,
    method: Method,
    *,
    units: int | None = None,
    slurm: SlurmParameters | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Schedule:
    """Place *trace*'s jobs on a machine.

    Args:
        trace: The log.
        method: How; docs/reference/schedule.md has every rule.
        units: The machine's size in the log's allocation units; None takes the
            trace's.
        slurm: Parameters of the ``slurm`` method; None takes Slurm's defaults.
        on_progress: Called now and then with the share of jobs that ended, 0..1.

    Raises:
        UnusableLogError: The machine does not fit the log.
    """
    simulation = Simulation(trace, method, units=units, slurm=slurm)
    placed: list[Running] = []
    ended = 0
    for count, moment in enumerate(simulation, 1):
        placed += moment.started
        ended += len(moment.ended)
        if on_progress is not None and count % _MOMENTS_BETWEEN_REPORTS == 0:
            on_progress(ended / len(simulation.admitted))
    return Schedule(
        trace=trace,
        method=method,
        layout=simulation.layout,
        placed=tuple(placed),
        refused=simulation.refused,
        over_commitment=find_over_commitment(trace, placed),
    )


@dataclass(frozen=True, slots=True)
class OverCommitment:
    """Where a log's jobs hold more than the machine has.

    A job gets the free units among those it needs; the missing ones are counted here.
    Jobs of zero run time are left out.

    Attributes:
        jobs: Jobs that got fewer units than they held in the log.
        unit_s: Units missing × seconds, summed over those jobs.
        worst_s: The first time at which most units were missing, or None.
        worst_units: Units missing then.
    """

    jobs: int
    unit_s: float
    worst_s: float | None
    worst_units: int


def find_over_commitment(trace: JobTrace, placed: Iterable[Running]) -> OverCommitment:
    """Return how much less *placed* holds than *trace*'s jobs held."""
    lacking = [
        (job, trace.jobs[job.job].units - job.units.bit_count())
        for job in placed
        if job.end_s > job.start_s
    ]
    short = [(job, missing) for job, missing in lacking if missing]
    # Ends sort before starts of the same time, as they happen.
    changes = sorted(
        change
        for job, missing in short
        for change in ((job.start_s, missing), (job.end_s, -missing))
    )
    levels = list(accumulate((change for _, change in changes), initial=0))
    worst_units = max(levels)
    worst_s = changes[levels.index(worst_units) - 1][0] if short else None
    unit_s = math.fsum(missing * (job.end_s - job.start_s) for job, missing in short)
    return OverCommitment(len(short), unit_s, worst_s, worst_units)


def holes(schedule: Schedule) -> IdleTrace:
    """Return when each node is idle, from t = 0 to the end of the last job.

    A node is idle while all its units are: one that is partly used is no hole.
    Intervals that touch are one; a node that passes from one job to the next at once is
    not idle in between.
    """
    layout = schedule.layout
    intervals = list(_sweep(schedule))
    node = np.concatenate([nodes for nodes, _, _ in intervals])
    start_s = np.concatenate([starts_s for _, starts_s, _ in intervals])
    end_s = np.repeat(
        [ends_s for _, _, ends_s in intervals],
        [len(nodes) for nodes, _, _ in intervals],
    )
    keep = end_s > start_s
    node, start_s, end_s = node[keep], start_s[keep], end_s[keep]
    order = np.lexsort((node, start_s))
    return IdleTrace(
        source=schedule.trace.source,
        node_names=layout.names,
        node=node[order].astype(np.int32),
        start_s=start_s[order],
        end_s=end_s[order],
        unix_start_s=schedule.trace.unix_start_s,
        comments=schedule.trace.comments,
        skipped_lines=schedule.trace.skipped_lines,
        log_end_s=schedule.end_s,
    )


def _sweep(
    schedule: Schedule,
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64], float]]:
    """Yield nodes, since when each was idle, and when all of them were taken."""
    layout = schedule.layout
    idle = np.ones(len(layout.names), np.bool_)
    since_s = np.zeros(len(layout.names))
    for time_s, free in _free_units(schedule):
        now_idle = idle_nodes(free, layout)
        taken = np.flatnonzero(idle & ~now_idle)
        yield taken, since_s[taken], time_s
        since_s[now_idle & ~idle] = max(time_s, 0.0)
        idle = now_idle
    left = np.flatnonzero(idle)
    yield left, since_s[left], schedule.end_s


def _free_units(schedule: Schedule) -> Iterator[tuple[float, UnitSet]]:
    """Yield the free units after everything that happens at each time."""
    every, holders = (1 << schedule.layout.units) - 1, HolderCounts()
    starts = ((job.start_s, holders.take, job.units) for job in schedule.placed)
    ends = ((job.end_s, holders.give_back, job.units) for job in schedule.placed)
    # Sorting keeps starts first among changes of one time, so that whatever is given
    # back was taken, also by a job of zero run time.
    changes = sorted((*starts, *ends), key=itemgetter(0))
    for time_s, together in groupby(changes, key=itemgetter(0)):
        for _, change, units in together:
            change(units)
        yield time_s, every & ~holders.at_least(1)


def idle_nodes(free: UnitSet, layout: Layout) -> NDArray[np.bool_]:
    """Return, per node, whether all of its units are in *free*."""
    nodes = len(layout.names)
    units = mask(free, layout.units)
    if layout.per_node == 1:
        return units
    # Units that the last node lacks never keep it busy.
    padded = np.ones((nodes, layout.per_node), np.bool_)
    padded.flat[: layout.units] = units
    return np.all(padded, axis=1, out=np.empty(nodes, np.bool_))


def mask(units: UnitSet, count: int) -> NDArray[np.bool_]:
    """Return *units* as *count* booleans, True where the unit is in the set."""
    packed = np.frombuffer(units.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)
