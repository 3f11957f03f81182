"""From a log of jobs to a schedule, and to the holes that it leaves idle.

:func:`schedule` places the jobs on a machine by a simulation; :func:`holes` turns the
result into idle intervals of nodes.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logs.simulation import Layout, Passes, Simulation
from logs.timeline import UnitRanges
from logs.trace import IdleTrace, UnusableLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from logs.gpus import GpuNodes
    from logs.simulation import Method, Reason, Running, SlurmParameters
    from logs.timeline import UnitSet
    from logs.trace import JobTrace


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A trace's jobs on a machine.

    Attributes:
        trace: The log.
        method: How its jobs were placed.
        layout: The machine.
        slots: What is idle or not: its nodes, or the leases that a node has room for.
        placed: Every job that ran, in the order of starting.
        idle: When slots were idle, in the order of the intervals' ends.
        refused: Why each of the others did not, by index.
        over_commitment: How much the log's jobs held beyond the machine; nothing
            under the simulated schedulers.
    """

    trace: JobTrace
    method: Method
    layout: Layout
    slots: Layout
    placed: tuple[PlacedJob, ...]
    idle: IdleIntervals
    refused: Mapping[int, Reason]
    over_commitment: OverCommitment

    @property
    def end_s(self) -> float:
        """When the last job ends, and the schedule with it; 0 where none ran."""
        return max((job.end_s for job in self.placed), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedJob:
    """A job on a machine.

    Attributes:
        job: Its index in ``trace.jobs``.
        start_s: When it started.
        end_s: When it ended.
        edges: The first unit of each range that it held, and the one behind it, in
            turn: a set of bits for each job would be gigabytes for a large log.
    """

    job: int
    start_s: float
    end_s: float
    edges: array[int]

    @property
    def units(self) -> UnitSet:
        """What it held."""
        units = 0
        for first, end in zip(self.edges[::2], self.edges[1::2], strict=True):
            units |= ((1 << end - first) - 1) << first
        return units

    @property
    def unit_count(self) -> int:
        """How many units it held."""
        return sum(self.edges[1::2]) - sum(self.edges[::2])


_MOMENTS_BETWEEN_REPORTS = 256


def schedule(  # noqa: PLR0913 - as the command line has it
    trace: JobTrace,
    method: Method,
    *,
    units: int | None = None,
    slurm: SlurmParameters | None = None,
    passes: Passes = Passes.MOMENT,
    lease_gpus: int | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Schedule:
    """Place *trace*'s jobs on a machine.

    Args:
        trace: The log.
        method: How; docs/reference/schedule.md has every rule.
        units: The machine's size in the log's allocation units; None takes the
            trace's.
        slurm: Parameters of the ``slurm`` method; None takes Slurm's defaults.
        passes: When a simulated scheduler makes a pass.
        lease_gpus: GPUs of a lease, of which several may be on a node; None for leases
            of whole nodes.
        on_progress: Called now and then with the share of jobs that ended, 0..1.

    Raises:
        UnusableLogError: The machine does not fit the log, or leases do not fit it.
    """
    simulation = Simulation(
        trace, method, units=units, slurm=slurm, passes=passes, plans_all=False
    )
    placed: list[PlacedJob] = []
    slots = lease_slots(trace.source, simulation.layout, lease_gpus)
    idle = _IdleSlots(slots, simulation.layout.gpus if lease_gpus else None)
    ended = 0
    for count, moment in enumerate(simulation, 1):
        idle.see(moment.time_s, moment.free)
        placed += map(_placed, moment.started)
        ended += len(moment.ended)
        if on_progress is not None and count % _MOMENTS_BETWEEN_REPORTS == 0:
            on_progress(ended / len(simulation.admitted))
    return Schedule(
        trace=trace,
        method=method,
        layout=simulation.layout,
        slots=slots,
        placed=tuple(placed),
        idle=idle.until(max((job.end_s for job in placed), default=0.0)),
        refused=simulation.refused,
        over_commitment=find_over_commitment(trace, placed),
    )


def lease_slots(source: str, layout: Layout, lease_gpus: int | None) -> Layout:
    """Return a machine whose nodes are the leases that each node of *layout* can hold.

    Raises:
        UnusableLogError: The log counts no GPUs, or leases do not divide a node.
    """
    if lease_gpus is None:
        return layout
    if layout.gpus is None or layout.per_node % lease_gpus:
        has = f"nodes of {layout.per_node} GPUs" if layout.gpus else "no GPUs in it"
        raise UnusableLogError(
            f"{source}: there are {has}, and leases of {lease_gpus} GPUs do not divide "
            f"that; nothing was done. Choose a divisor, or --gpus-per-node."
        )
    per_node = layout.per_node // lease_gpus
    if per_node == 1:
        return layout
    names = tuple(f"{name}/{k}" for name in layout.names for k in range(per_node))
    return Layout.of(layout.units, lease_gpus, names)


def node_names(schedule: Schedule, placed: PlacedJob) -> tuple[str, ...]:
    """Return the names of the nodes that *placed* is on, in the machine's order."""
    per_node, edges = schedule.layout.per_node, placed.edges
    nodes = {
        unit // per_node
        for first, end in zip(edges[::2], edges[1::2], strict=True)
        for unit in range(first, end)
    }
    return tuple(schedule.layout.names[node] for node in sorted(nodes))


def spread_jobs(schedule: Schedule) -> int:
    """Return how many jobs of GPUs got theirs on more nodes than they had."""
    if schedule.layout.gpus is None:
        return 0
    jobs = schedule.trace.jobs
    return sum(
        0 < jobs[placed.job].node_count < len(node_names(schedule, placed))
        for placed in schedule.placed
    )


def _placed(job: Running) -> PlacedJob:
    return PlacedJob(job.job, job.start_s, job.end_s, array("i", edges(job.units)))


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


def find_over_commitment(
    trace: JobTrace, placed: Iterable[PlacedJob]
) -> OverCommitment:
    """Return how much less *placed* holds than *trace*'s jobs held."""
    lacking = [
        (job, trace.jobs[job.job].units - job.unit_count)
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

    A node is idle while all its units are: one that is partly used is no hole, unless
    leases are of some of its GPUs: then there is one for each lease that fits, and of
    those on one node the last to come is the first to leave.
    Intervals that touch are one; a node that passes from one job to the next at once is
    not idle in between. Consecutive nodes that are idle from and until the same times
    are one interval.
    """
    node, nodes, start_s, end_s = schedule.idle
    order = np.lexsort((node, start_s))
    return IdleTrace(
        source=schedule.trace.source,
        node_names=schedule.slots.names,
        node=node[order],
        start_s=start_s[order],
        end_s=end_s[order],
        unix_start_s=schedule.trace.unix_start_s,
        comments=schedule.trace.comments,
        skipped_lines=schedule.trace.skipped_lines,
        log_end_s=schedule.end_s,
        nodes=nodes[order],
    )


class IdleIntervals(NamedTuple):
    """Idle intervals by their ends: four columns, a row for each range of nodes."""

    node: NDArray[np.int32]
    nodes: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


class _IdleSlots:
    """Follows which slots are idle; all are at first, from t = 0 on.

    Args:
        layout: The slots: nodes, or leases of *gpus*.
        gpus: Where leases are of some of a node's GPUs; else None.
    """

    def __init__(self, layout: Layout, gpus: GpuNodes | None) -> None:
        self._layout = layout
        self._gpus = gpus
        self._whole_node = (1 << layout.per_node) - 1
        self._free: UnitSet = (1 << layout.units) - 1
        self._time_s = 0.0
        self._idle: UnitSet = 0
        self._since = UnitRanges()
        self._node, self._nodes = array("i"), array("i")
        self._start_s, self._end_s = array("d"), array("d")
        self._look()

    def see(self, time_s: float, free: UnitSet) -> None:
        """Note the *free* units from *time_s* on; of two at one time the last counts.

        So a job of zero run time leaves no trace.
        """
        if time_s > self._time_s:
            self._look()
        self._time_s, self._free = max(time_s, 0.0), free

    def until(self, end_s: float) -> IdleIntervals:
        """Return the intervals; those that are open end at *end_s*."""
        self.see(end_s, 0)
        self._look()
        return IdleIntervals(
            np.array(self._node, np.int32),
            np.array(self._nodes, np.int32),
            np.array(self._start_s, np.float64),
            np.array(self._end_s, np.float64),
        )

    def _look(self) -> None:
        """Close and open intervals now."""
        free = self._free if self._gpus is None else self._gpus.stacked(self._free)
        idle = self._layout.first_units_within(free)
        changed, self._idle = self._idle ^ idle, idle
        for first, end in self._ranges(changed & ~idle):
            for own_first, own_end, since_s in self._since.remove(first, end):
                if since_s < self._time_s:
                    self._node.append(own_first)
                    self._nodes.append(own_end - own_first)
                    self._start_s.append(since_s)
                    self._end_s.append(self._time_s)
        for first, end in self._ranges(changed & idle):
            self._since.add(first, end, self._time_s)

    def _ranges(self, first_units: UnitSet) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the nodes with *first_units*."""
        if not first_units:
            return
        per_node = self._layout.per_node
        found = edges(first_units * self._whole_node)
        for first, end in zip(found[::2], found[1::2], strict=True):
            yield first // per_node, end // per_node


def edges(units: UnitSet) -> list[int]:
    """Return the first unit of each range of *units*, and the one behind it, in turn.

    Takes about 10 us for a hundred thousand units, where ``members`` takes a hundred.
    """
    changes = units ^ (units << 1)
    raw = changes.to_bytes(8 * (changes.bit_length() // 64 + 1), "little")
    words = np.frombuffer(raw, np.uint64)
    used = np.flatnonzero(words)
    bits = np.unpackbits(words[used].view(np.uint8), bitorder="little")
    at = np.flatnonzero(bits)
    return (used[at >> 6] * 64 + (at & 63)).tolist()  # type: ignore[no-any-return]


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
