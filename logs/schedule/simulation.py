"""From a log of jobs to a schedule, and to what it leaves idle.

``schedule`` is the front: it steps a ``Simulation`` through time, one moment after
another, while a placer places the jobs; ``holes`` turns the result into idle intervals
of nodes.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

import numpy as np

from logs.schedule.machine import Machine, NoGuests, PlannedJob, Running, lay_out
from logs.schedule.placers import (
    EasyPlacer,
    RecordedPlacer,
    SlurmParameters,
    SlurmPlacer,
)
from logs.timeline import MachineUnits, UnitSet
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from logs.schedule.machine import Guests, Layout, Placer
    from logs.trace import Job, JobTrace


class Method(StrEnum):
    """How jobs get their places; the values of ``--schedule``."""

    RECORDED = "recorded"
    EASY = "easy"
    SLURM = "slurm"


class Reason(StrEnum):
    """Why a job has no place in a schedule."""

    NO_UNITS = "it needs no units"
    NEVER_RAN = "it never ran in the log"
    NO_START = "the log does not tell when it started"
    TOO_WIDE = "it needs more units than the machine has"


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that was left out of the schedule.

    Attributes:
        job: Its index in the trace.
        reason: Why.
    """

    job: int
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A trace's jobs on a machine.

    Attributes:
        trace: The log.
        method: How its jobs were placed.
        layout: The machine.
        placed: Every job that ran, in the order of starting; ``job`` is its
            index in ``trace.jobs``.
        refused: The jobs that did not, by index.
        over_commitment: How much the log's jobs held beyond the machine; nothing
            under the simulated schedulers.
        planned: The planned starts on idle nodes, as known at any time; none
            under ``recorded``.
    """

    trace: JobTrace
    method: Method
    layout: Layout
    placed: tuple[Running, ...]
    refused: tuple[Refused, ...]
    over_commitment: OverCommitment
    planned: PlannedStarts

    @property
    def end_s(self) -> float:
        """When the last job ends, 0 where none ran."""
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
    prepared = prepare(trace, method, units=units, slurm=slurm)
    placed, watcher = _run(prepared, on_progress=on_progress)
    return Schedule(
        trace=trace,
        method=method,
        layout=prepared.layout,
        placed=placed,
        refused=prepared.refused,
        over_commitment=find_over_commitment(trace, placed),
        planned=watcher.seen(prepared.layout),
    )


def _run(
    prepared: Prepared, *, on_progress: Callable[[float], None] | None
) -> tuple[tuple[Running, ...], PlanWatcher]:
    watcher = PlanWatcher()
    placed: list[Running] = []
    ended = 0
    for count, moment in enumerate(prepared.simulation, 1):
        placed += moment.started
        ended += len(moment.ended)
        watcher.watch(moment)
        if on_progress is not None and count % _MOMENTS_BETWEEN_REPORTS == 0:
            on_progress(ended / len(prepared.admitted))
    return tuple(placed), watcher


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A simulation that has not begun.

    Attributes:
        simulation: Steps through it.
        layout: The machine.
        admitted: The jobs that take part, by index.
        refused: The jobs that do not.
    """

    simulation: Simulation
    layout: Layout
    admitted: tuple[int, ...]
    refused: tuple[Refused, ...]


def prepare(
    trace: JobTrace,
    method: Method,
    *,
    units: int | None = None,
    slurm: SlurmParameters | None = None,
) -> Prepared:
    """Set a simulation up; `schedule` says what the arguments mean."""
    layout = lay_out(trace, units=units, by_name=method == Method.RECORDED)
    reasons = {n: _reason(job, method, layout) for n, job in enumerate(trace.jobs)}
    admitted = tuple(job for job, reason in reasons.items() if reason is None)
    refused = tuple(
        Refused(job, reason) for job, reason in reasons.items() if reason is not None
    )
    placer = _placer(method, layout, slurm or SlurmParameters())
    simulation = Simulation(
        trace.jobs, MachineUnits(layout.units), placer=placer, admitted=admitted
    )
    return Prepared(simulation, layout, admitted, refused)


def _placer(method: Method, layout: Layout, slurm: SlurmParameters) -> Placer:
    match method:
        case Method.RECORDED:
            return RecordedPlacer(layout)
        case Method.EASY:
            return EasyPlacer()
        case Method.SLURM:
            return SlurmPlacer(slurm)


def _reason(job: Job, method: Method, layout: Layout) -> Reason | None:
    if job.units < 1:
        return Reason.NO_UNITS
    if job.start_s is None and job.run_s == 0:
        return Reason.NEVER_RAN
    if method == Method.RECORDED:
        return Reason.NO_START if job.start_s is None else None
    return Reason.TOO_WIDE if job.units > layout.units else None


@dataclass(frozen=True, slots=True)
class ScheduleMoment:
    """The events of one time, and what can be seen of the machine afterwards.

    Attributes:
        time_s: The time. Two moments may share it: a job of zero run time ends
            at a second one.
        ended: Jobs that ended, by index.
        arrived: Jobs that entered the queue, by index.
        started: Jobs that started, in the order they did.
        waiting: Length of the queue afterwards.
        free: Units that no job holds afterwards.
        plan: The scheduler's plan for the waiting jobs afterwards.
        put_off: Jobs that would have started then without any lease, and did not.
    """

    time_s: float
    ended: tuple[int, ...]
    arrived: tuple[int, ...]
    started: tuple[Running, ...]
    waiting: int
    free: UnitSet
    plan: tuple[PlannedJob, ...]
    put_off: tuple[int, ...] = ()


class Simulation:
    """Steps through time, one moment a step, until nothing is left to happen.

    At each moment, in this order: every job whose time has come ends, every job
    due by then enters the queue, and the placer makes one pass.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        units: MachineUnits,
        *,
        placer: Placer,
        admitted: Sequence[int],
    ) -> None:
        """Set the machine up, empty.

        Args:
            jobs: Every job of the trace, by index.
            units: The machine.
            placer: What places the jobs; it serves this simulation only.
            admitted: Indices of the jobs that take part.
        """
        self._machine = Machine(jobs, units)
        self._placer = placer
        due = [(placer.arrives_s(jobs[index]), index) for index in admitted]
        self._arrivals = sorted(due, reverse=True)

    def __iter__(self) -> Iterator[ScheduleMoment]:
        """Step until the end."""
        while (moment := self.step()) is not None:
            yield moment

    def branch(self, guests: Guests | None = None) -> Simulation:
        """Return a copy that goes on by itself, with *guests* on the machine."""
        shared = {id(self._machine.jobs): self._machine.jobs}
        other = copy.deepcopy(self, shared)
        other._machine.guests = guests or NoGuests()  # noqa: SLF001 - the same class
        return other

    def step(self) -> ScheduleMoment | None:
        """Go to the next moment, or return None where there is none."""
        machine = self._machine
        now_s = self.next_s
        if math.isinf(now_s):
            return None
        machine.now_s = now_s
        ended = machine.end_due()
        arrived = self._admit_due()
        return self._pass(ended, arrived, changed=bool(ended))

    def lease(self, units: UnitSet, *, until_s: float, now_s: float) -> ScheduleMoment:
        """Lease *units*, all free, as a job that asked for them until *until_s*.

        Not before the last moment, and not after the next. They are held until
        `release`, even beyond *until_s*. The placer makes a pass.
        """
        self._machine.now_s = now_s
        self._machine.lease(units, until_s)
        return self._pass((), (), changed=True)

    def release(self, units: UnitSet, *, now_s: float) -> ScheduleMoment:
        """Give leased *units* back now; the placer makes a pass."""
        self._machine.now_s = now_s
        self._machine.release(units)
        return self._pass((), (), changed=True)

    def _pass(
        self, ended: tuple[int, ...], arrived: tuple[int, ...], *, changed: bool
    ) -> ScheduleMoment:
        machine = self._machine
        would_start = self._unhindered(changed=changed, arrived=bool(arrived))
        self._placer.place(machine, ended=changed, arrived=bool(arrived))
        moment = _seen(machine, self._placer, ended, arrived)
        put_off = would_start.difference(job.job for job in moment.started)
        return replace(moment, put_off=tuple(sorted(put_off))) if put_off else moment

    def _unhindered(self, *, changed: bool, arrived: bool) -> frozenset[int]:
        """Return the jobs that the pass which is due would start without leases."""
        if not (self._machine.waiting and self._machine.leased):
            return frozenset()
        machine = self._machine.without_leases()
        placer = self._placer.anew(self._placer.wakes_s)
        placer.place(machine, ended=changed, arrived=arrived)
        return frozenset(job.job for job in machine.take_started())

    @property
    def machine(self) -> Machine:
        """The machine as it is now, to look at."""
        return self._machine

    @property
    def plan(self) -> tuple[PlannedJob, ...]:
        """What the scheduler has planned for the jobs that wait."""
        return self._placer.plan

    @property
    def next_s(self) -> float:
        """When the next moment is, ``inf`` where there is none."""
        arrival_s = self._arrivals[-1][0] if self._arrivals else math.inf
        return min(arrival_s, self._machine.next_end_s, self._placer.wakes_s)

    def _admit_due(self) -> tuple[int, ...]:
        arrived = []
        while self._arrivals and self._arrivals[-1][0] <= self._machine.now_s:
            job = self._arrivals.pop()[1]
            self._machine.enqueue(job, self._placer)
            arrived.append(job)
        return tuple(arrived)


def _seen(
    machine: Machine, placer: Placer, ended: tuple[int, ...], arrived: tuple[int, ...]
) -> ScheduleMoment:
    return ScheduleMoment(
        time_s=machine.now_s,
        ended=ended,
        arrived=arrived,
        started=machine.take_started(),
        waiting=len(machine.waiting),
        free=machine.free,
        plan=placer.plan,
    )


Promises = tuple[tuple[float, UnitSet], ...]
"""Planned starts, ascending, each with the idle units that await it first."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedStarts:
    """When idle nodes were planned to be taken, as could be seen at any time.

    Only changes are kept, and only for units that were idle: a year of Theta
    under ``slurm`` takes tens of megabytes.

    Attributes:
        layout: The machine.
        times_s: When the plan that could be seen changed, strictly ascending.
        promises: The plan from then on, one entry a time.
    """

    layout: Layout
    times_s: tuple[float, ...]
    promises: tuple[Promises, ...]

    def seen_at(self, time_s: float) -> NDArray[np.float64]:
        """Return, per node, the next planned start as seen at *time_s*.

        Everything that happened by *time_s*, it included, has been seen.

        Returns:
            Float64, one entry a node: when the first of its units is to be
            taken; ``inf`` where no plan is known or the node is not idle. A
            start before *time_s* is overdue: any moment now.
        """
        per_node = self.layout.per_node
        nodes = len(self.layout.names)
        starts_s = np.full(nodes * per_node, math.inf)
        at = bisect_right(self.times_s, time_s) - 1
        for start_s, units in self.promises[at] if at >= 0 else ():
            starts_s[: self.layout.units][mask(units, self.layout.units)] = start_s
        by_node: NDArray[np.float64] = starts_s.reshape(nodes, per_node).min(axis=1)
        return by_node


class PlanWatcher:
    """Collects, moment by moment, the plans that can be seen."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._promises: list[Promises] = []
        self._plan: tuple[PlannedJob, ...] = ()
        self._free: UnitSet = 0

    def watch(self, moment: ScheduleMoment) -> None:
        """Note the plan of *moment*."""
        if moment.plan is self._plan and moment.free == self._free:
            return
        self._plan, self._free = moment.plan, moment.free
        promises = _promises(moment)
        if self._promises and promises == self._promises[-1]:
            return
        if self._times_s and self._times_s[-1] == moment.time_s:
            self._promises[-1] = promises
        elif promises or self._promises:
            self._times_s.append(moment.time_s)
            self._promises.append(promises)

    def seen(self, layout: Layout) -> PlannedStarts:
        """Return everything seen so far, on *layout*."""
        return PlannedStarts(layout, tuple(self._times_s), tuple(self._promises))


def _promises(moment: ScheduleMoment) -> Promises:
    unpromised = moment.free
    promises = []
    for planned in sorted(moment.plan, key=lambda job: job.start_s):
        units = planned.units & unpromised
        if units:
            promises.append((planned.start_s, units))
            unpromised ^= units
        if not unpromised:
            break
    return tuple(promises)


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

    A node is idle while all its units are. Intervals that touch are one; a node
    that passes from one job to the next at once is not idle in between.
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
    )


_Closed = tuple["NDArray[np.intp]", "NDArray[np.float64]", float]
"""Nodes, since when each was idle, and when all of them were taken."""


def _sweep(schedule: Schedule) -> Iterator[_Closed]:
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
    changes = [
        change
        for job in schedule.placed
        for change in ((job.start_s, job.units), (job.end_s, job.units))
    ]
    changes.sort(key=lambda change: change[0])
    free = (1 << schedule.layout.units) - 1
    for time_s, together in groupby(changes, key=lambda change: change[0]):
        for _, units in together:
            # Taking and giving back are one operation, whose order does not matter:
            # every unit is flipped as often as it changed hands.
            free ^= units
        yield time_s, free


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
