"""A log in figures: sizes, run times, waits, use of the machine, holes."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from logs.format import levels
from logs.idleness import idle_levels
from logs.schedule import holes, schedule
from logs.simulation import Method, Simulation
from logs.trace import IdleTrace, JobTrace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logs.timeline import UnitSet
    from logs.trace import Trace

LONG_HOLE_S = 600.0
"""From this length on a hole is long: rescaling into it surely pays."""

LASTING_PIECE_S = 300.0
"""From this length on a piece of a node is worth a start."""

LOW_USE = 0.5
"""Up to this share in use, the machine is not in normal operation: an outage, a drain,
maintenance, or the log's first and last jobs."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a quantity is spread over jobs or holes; zeros where there are none."""

    median: float
    mean: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution:
        """Return the spread of *values*."""
        known = sorted(map(float, values))
        if not known:
            return cls(0.0, 0.0, 0.0)
        return cls(statistics.median(known), statistics.fmean(known), known[-1])


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A log of jobs in figures. Occupancy counts jobs that have a start.

    Attributes:
        source: The file, as the user named it.
        log_format: What it was recognised as.
        unix_start_s: Unix time of t = 0, or None.
        skipped_lines: Bad lines that were tolerated.
        never_ran_jobs: Those without a start and without a run time.
        without_start_jobs: Those that ran, but the log does not tell when.
        without_limit_jobs: Those that asked for no time limit, or none is known.
        over_limit_jobs: Those that ran for longer than they asked for.
        oversized_jobs: Those larger than the machine.
        users: Distinct users.
        machine_units: The machine's size in allocation units.
        units_per_node: Units that make up a node.
        machine_nodes: The machine's size in nodes, parts counted as whole ones.
        first_submit_s: First submission.
        first_start_s: First start, or None where no job has one. Until then a
            schedule leaves the whole machine idle.
        span_s: From t = 0 to the last end, as in holes and replays.
        used_node_s: Node-seconds of nodes on which a job was. Nothing is counted that
            jobs held beyond the machine, and a node that jobs share counts once.
        partly_used_node_s: Those of them of which only a part was held, or that
            several jobs held.
        idle_node_s: Node-seconds of nodes on which no job was: the holes. With
            ``used_node_s`` all of the machine's.
        utilisation: Units held over the machine's, over ``span_s``.
        low_use_share: Share of ``span_s`` with half of the units or fewer held.
        mean_idle_nodes: Nodes idle on average over ``span_s``.
        busy_mean_idle_nodes: The same over the time above half.
        peak_units: The most units that jobs asked for at once, beyond the machine too.
        overcommitted_s: Time during which that was more than the machine has.
        size_units: Sizes of the jobs that are not nothing.
        run_s: Run times of the jobs that ran.
        wait_s: From submission to start.
        cautions: What of the log was not used or may mislead, a sentence each; but for
            bad lines, which are counted above. One tells of jobs without a start.
    """

    source: str
    log_format: str
    unix_start_s: float | None
    skipped_lines: int
    jobs: int
    never_ran_jobs: int
    without_start_jobs: int
    without_limit_jobs: int
    over_limit_jobs: int
    oversized_jobs: int
    users: int
    machine_units: int
    units_per_node: int
    machine_nodes: int
    first_submit_s: float
    first_start_s: float | None
    span_s: float
    used_node_s: float
    partly_used_node_s: float
    idle_node_s: float
    utilisation: float
    low_use_share: float
    mean_idle_nodes: float
    busy_mean_idle_nodes: float
    peak_units: int
    overcommitted_s: float
    size_units: Distribution
    run_s: Distribution
    wait_s: Distribution
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceSummary:
    """What leases of *gpus* GPUs could have of a log, several on one node.

    Attributes:
        gpus: GPUs of a lease; the largest is a whole node.
        idle_gpu_s: GPU-seconds that are idle and in such a piece.
        in_use_gpu_s: Those of them on nodes of which jobs have other GPUs.
        pieces: How many pieces there are.
        lasting_share: Share of them that last five minutes and more.
        lasting_gpu_share: Share of ``idle_gpu_s`` in these.
    """

    gpus: int
    idle_gpu_s: float
    in_use_gpu_s: float
    pieces: int
    lasting_share: float
    lasting_gpu_share: float


@dataclass(frozen=True, slots=True)
class GpuSummary(JobSummary):
    """A log of jobs that share nodes, in figures; its units are GPUs.

    Attributes:
        used_gpu_s: GPU-seconds that jobs held.
        pieces: By size, from one GPU to a whole node: what is idle of the others.
    """

    used_gpu_s: float = 0.0
    pieces: tuple[PieceSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class IdleSummary:
    """A log of idle intervals in figures.

    Attributes:
        source: The file, as the user named it.
        log_format: ``fragments``.
        unix_start_s: Unix time of t = 0, or None.
        skipped_lines: Bad lines that were tolerated.
        machine_nodes: Nodes of the machine, as far as the log says.
        ever_idle_nodes: Nodes that were idle at some time.
        span_s: From t = 0 to the log's end, as in replays.
        holes: Idle intervals.
        idle_node_s: Node-seconds idle.
        idle_share: ``idle_node_s`` over ``machine_nodes`` times ``span_s``.
        low_use_share: Share of ``span_s`` with half of the nodes or more idle.
        mean_idle_nodes: Nodes idle on average over ``span_s``.
        busy_mean_idle_nodes: The same over the time with fewer idle.
        peak_idle_nodes: The most nodes ever idle at once.
        hole_s: Lengths of the holes.
        short_hole_share: Share of holes shorter than ten minutes.
        long_hole_time_share: Share of idle node-time in holes of ten minutes
            and more.
    """

    source: str
    log_format: str
    unix_start_s: float | None
    skipped_lines: int
    machine_nodes: int
    ever_idle_nodes: int
    span_s: float
    holes: int
    idle_node_s: float
    idle_share: float
    low_use_share: float
    mean_idle_nodes: float
    busy_mean_idle_nodes: float
    peak_idle_nodes: int
    hole_s: Distribution
    short_hole_share: float
    long_hole_time_share: float


TraceSummary = JobSummary | IdleSummary
"""A log in figures; plain numbers, texts and `Distribution` throughout."""


def summarise(trace: Trace) -> TraceSummary:
    """Return *trace* in figures."""
    if isinstance(trace, IdleTrace):
        return _summarise_idle(trace)
    return _summarise_gpus(trace) if trace.counts_gpus else _summarise_jobs(trace)


def _summarise_gpus(trace: JobTrace) -> GpuSummary:
    jobs = _summarise_jobs(trace)
    return GpuSummary(
        **{field.name: getattr(jobs, field.name) for field in dataclasses.fields(jobs)},
        used_gpu_s=jobs.utilisation * trace.units * jobs.span_s,
        pieces=tuple(
            _pieces(trace, gpus, jobs.idle_node_s * trace.units_per_node)
            for gpus in range(1, trace.units_per_node + 1)
            if trace.units_per_node % gpus == 0
        ),
    )


def _pieces(trace: JobTrace, gpus: int, whole_gpu_s: float) -> PieceSummary:
    """Return what is idle in pieces of *gpus*; on wholly idle nodes, *whole_gpu_s*."""
    idle = holes(schedule(trace, Method.RECORDED, lease_gpus=gpus))
    hole_s, pieces = idle.end_s - idle.start_s, idle.widths
    lasts = hole_s >= LASTING_PIECE_S
    gpu_s = gpus * hole_s * pieces
    idle_gpu_s = float(gpu_s.sum())
    return PieceSummary(
        gpus=gpus,
        idle_gpu_s=idle_gpu_s,
        in_use_gpu_s=max(0.0, idle_gpu_s - whole_gpu_s),
        pieces=idle.holes,
        lasting_share=_ratio(int(pieces[lasts].sum()), idle.holes),
        lasting_gpu_share=_ratio(float(gpu_s[lasts].sum()), idle_gpu_s),
    )


def _summarise_jobs(trace: JobTrace) -> JobSummary:
    jobs = trace.jobs
    ran = [job for job in jobs if job.start_s is not None or job.run_s > 0]
    limits = [(job.run_s, job.requested_s) for job in jobs]
    use = _Use(trace)
    unplaced = sum(job.start_s is None for job in ran)
    demand = list(levels(trace.jobs))
    return JobSummary(
        source=trace.source,
        log_format=trace.log_format,
        unix_start_s=trace.unix_start_s,
        skipped_lines=trace.skipped_lines,
        jobs=len(jobs),
        never_ran_jobs=len(jobs) - len(ran),
        without_start_jobs=unplaced,
        without_limit_jobs=sum(limit_s is None for _, limit_s in limits),
        over_limit_jobs=sum(
            limit_s is not None and run_s > limit_s for run_s, limit_s in limits
        ),
        oversized_jobs=sum(job.units > trace.units for job in jobs),
        users=len({job.user for job in jobs if job.user}),
        machine_units=trace.units,
        units_per_node=trace.units_per_node,
        machine_nodes=-(-trace.units // trace.units_per_node),
        first_submit_s=min((job.submit_s for job in jobs), default=0.0),
        first_start_s=min(
            (job.start_s for job in jobs if job.start_s is not None), default=None
        ),
        span_s=use.span_s,
        used_node_s=use.used_node_s,
        partly_used_node_s=use.partly_used_node_s,
        idle_node_s=use.idle_node_s,
        utilisation=_ratio(use.unit_s, trace.units * use.span_s),
        low_use_share=_ratio(use.low_s, use.span_s),
        mean_idle_nodes=_ratio(use.idle_node_s, use.span_s),
        busy_mean_idle_nodes=_ratio(
            use.idle_node_s - use.low_idle_node_s, use.span_s - use.low_s
        ),
        peak_units=max((held for _, held in demand), default=0),
        overcommitted_s=0.0
        if trace.names_nodes  # several jobs on one node are no more than it has
        else sum(
            until_s - from_s
            for (from_s, held), (until_s, _) in itertools.pairwise(demand)
            if held > trace.units
        ),
        size_units=Distribution.of(job.units for job in jobs if job.units),
        run_s=Distribution.of(job.run_s for job in ran),
        wait_s=Distribution.of(
            job.start_s - job.submit_s for job in jobs if job.start_s is not None
        ),
        cautions=(*trace.cautions, *_without_starts(unplaced, len(ran))),
    )


def _without_starts(unplaced: int, ran: int) -> tuple[str, ...]:
    """Return what to know where *unplaced* of *ran* jobs have no start."""
    if not unplaced:
        return ()
    if unplaced == ran:
        what = "no job has a start in the log, so use, idle time and waits are unknown"
    else:
        what = (
            f"{unplaced:,} of {ran:,} jobs that ran have no start in the log, "
            "and are not in use, idle time and waits"
        )
    return (f"{what}: holes and replay simulate starts with --schedule easy",)


class _Use:
    """Integrals over time of what the jobs with a start held on the machine.

    They are played as the log recorded them, just as for its holes.
    """

    def __init__(self, trace: JobTrace) -> None:
        self.span_s = 0.0
        self.unit_s = 0.0
        self.used_node_s = 0.0
        self.partly_used_node_s = 0.0
        self.idle_node_s = 0.0
        self.low_s = 0.0
        self.low_idle_node_s = 0.0
        self._units = trace.units
        if not any(job.start_s is not None and job.units for job in trace.jobs):
            return
        simulation = Simulation(trace, Method.RECORDED)
        machine, layout = simulation.machine, simulation.layout
        nodes = len(layout.names)
        free, idle, partly = machine.free, nodes, 0
        for moment in simulation:
            self._count(moment.time_s - self.span_s, free, idle, partly, nodes)
            self.span_s = moment.time_s
            free = moment.free
            idle = layout.count_within(free)
            full = layout.count_within(machine.units.every & ~free)
            partly = nodes - idle - full + machine.shared.bit_count()

    def _count(
        self, lasts_s: float, free: UnitSet, idle: int, partly: int, nodes: int
    ) -> None:
        held = self._units - free.bit_count()
        self.unit_s += held * lasts_s
        self.used_node_s += (nodes - idle) * lasts_s
        self.partly_used_node_s += partly * lasts_s
        self.idle_node_s += idle * lasts_s
        if held <= LOW_USE * self._units:
            self.low_s += lasts_s
            self.low_idle_node_s += idle * lasts_s


def _summarise_idle(trace: IdleTrace) -> IdleSummary:
    hole_s = trace.end_s - trace.start_s
    idle_node_s = float(hole_s.sum())
    span_s = trace.span_s
    long_s = hole_s[hole_s >= LONG_HOLE_S]
    mean_idle = _ratio(idle_node_s, span_s)
    _, idle, lasts_s = idle_levels(trace)
    busy = idle < (1 - LOW_USE) * len(trace.node_names)
    busy_s = float(lasts_s[busy].sum())
    return IdleSummary(
        source=trace.source,
        log_format="fragments",
        unix_start_s=trace.unix_start_s,
        skipped_lines=trace.skipped_lines,
        machine_nodes=len(trace.node_names),
        ever_idle_nodes=len(np.unique(trace.node)),
        span_s=span_s,
        holes=len(hole_s),
        idle_node_s=idle_node_s,
        idle_share=_ratio(mean_idle, len(trace.node_names)),
        low_use_share=_ratio(span_s - busy_s, span_s),
        mean_idle_nodes=mean_idle,
        busy_mean_idle_nodes=_ratio(float((idle * lasts_s)[busy].sum()), busy_s),
        peak_idle_nodes=int(idle.max(initial=0)),
        hole_s=Distribution.of(hole_s.tolist()),
        short_hole_share=_ratio(len(hole_s) - len(long_s), len(hole_s)),
        long_hole_time_share=_ratio(float(long_s.sum()), idle_node_s),
    )


def _ratio(part: float, whole: float) -> float:
    """Return *part* / *whole*, 0 where *whole* is 0."""
    return part / whole if whole else 0.0
