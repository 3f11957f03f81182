"""What a log says FreeTrain would do on its machine: for an administrator to judge.

``assess`` composes what other commands show one by one: why nodes stood idle
(``logs.idleness``), what trainings would have been done there (``freetrain.replay``),
by how much jobs of others would have started later (``freetrain.replay.loop``), and
what slurmctld would have been asked.

Work is bounded whatever the log's size: at most ``MOST_PIECES`` pieces are replayed, of
a day each or shorter where more happens, spread evenly over the time without outages.
The same log gives the same figures.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.broker.limits import Mode
from freetrain.config.site import Caps
from freetrain.errors import BadDataError
from freetrain.replay.loop import Harm, Stage, run_in_the_loop
from freetrain.replay.pool import PoolTimeline, log_cautions
from freetrain.replay.run import ReplayResult, play, result_of
from freetrain.replay.settings import SHORTEST_S, ReplaySettings, usual_settings
from freetrain.replay.trainers import builtin_trainers, in_leases
from freetrain.text import DAY_S
from logs.idleness import (
    HALF,
    IdleReason,
    idle_levels,
    idle_reasons,
    queue_lengths,
)
from logs.simulation import Method
from logs.trace import IdleTrace, JobTrace
from slurm.backend import SNAPSHOT_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.api.context import UserContext
    from freetrain.api.logs import Log, MethodName
    from freetrain.replay.trainers import TrainerSpec
    from logs.trace import Trace

MOST_PIECES = 8
MOST_EVENTS = 2_000
"""Times at which nodes become idle or are taken, in a piece: a replay of Theta with
100 trainers takes 2 s for 375 of them, of Summit 0.2 s for 108."""

LEAST_PIECES = 5
"""Pieces are shorter than a day, down to an eighth, where there are not so many."""

NORMAL_SHARE = 0.9
"""A piece is in normal operation if less than half of the machine is idle for so much
of it."""

LOOP_S = 12 * 3_600.0
LOOP_JOBS = 500
"""The loop lasts so long, or for so many jobs."""

YIELD_WORK = 3e10
"""The loop is shorter where mode ``yield`` would need more than so many seconds x
waiting jobs x running ones x nodes: half a day of Theta, 5e10, took 211 s."""

LEAST_YIELD_S = 3_600.0
"""A shorter one would show nothing: it is left whole, and ``yield`` left out."""

WARM_UP_S = 2 * DAY_S
"""The loop's scheduler has played for so long before the broker comes."""

TICK_REQUESTS = SNAPSHOT_REQUESTS + 1
"""Commands of a tick that only read, at the most: a snapshot and the settings."""

LENGTHS_S = (0.0, 120.0, 600.0, 3_600.0, 6 * 3_600.0)
"""Where classes of holes by length begin."""


ELASTIC = "freetrain"
"""Elastic trainers in leases, planned as ticks plan by default."""

RIGID = "scavenger"
"""Jobs of one fixed size in a preemptable partition, requeued when preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Trainings that would wait for idle nodes.

    Attributes:
        about: In words.
        trainers: A built-in set.
        policy: How they get nodes: ``ELASTIC`` or ``RIGID``.
        priority: What ranks its trainers.
        parallel: How many FreeTrain runs at a time; jobs of a fixed size run as many
            at a time as fit.
        least: The fewest nodes, or GPUs, that a trainer runs on.
    """

    about: str
    trainers: str
    policy: str
    priority: str = "throughput"
    parallel: int = 10
    least: int = 1


WIDE = 4
"""Nodes from which on some trainings run: too many for any single idle node."""

_IN_LEASES = (
    Workload(about="ShuffleNet, 10 at a time", trainers="hps", policy=ELASTIC),
    Workload(
        about="ShuffleNet, 100 at a time",
        trainers="hps",
        policy=ELASTIC,
        parallel=100,
    ),
    Workload(
        about=f"ShuffleNet from {WIDE} {{units}} on, 20 at a time",
        trainers="hps",
        policy=ELASTIC,
        parallel=20,
        least=WIDE,
    ),
    Workload(
        about="seven networks, 40 at a time",
        trainers="imagenet",
        policy=ELASTIC,
        priority="speedup",
        parallel=40,
    ),
)
_AS_JOBS = (
    Workload(about="ShuffleNet", trainers="hps", policy=RIGID),
    Workload(
        about=f"ShuffleNet from {WIDE} {{units}} on",
        trainers="hps",
        policy=RIGID,
        least=WIDE,
    ),
    Workload(about="seven networks", trainers="imagenet", policy=RIGID),
)
WORKLOADS = (*_IN_LEASES, *_AS_JOBS)

SPEEDS = "as measured on up to 64 nodes of Summit (BFTrainer, arXiv 2106.12091)"

LOOP_WORKLOAD = _IN_LEASES[1]
"""Of those that FreeTrain trains, the one whose leases take most nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleShare:
    """Training over idle time, both summed over the pieces of a log.

    What is gained follows what is idle, so that this differs less from piece to piece
    than either, and the idle time of the whole log is known.

    Attributes:
        mean: The share.
        low: Lower end of its 95 % interval, by leaving out one piece at a time (the
            jackknife) and Student's t, as if pieces were independent. None of a single
            piece.
        high: Upper end likewise.
    """

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, worth: Sequence[float], idle: Sequence[float]) -> IdleShare:
        """Return the share that *worth* is of *idle*, by pieces, at least one."""
        every_worth, every_idle = math.fsum(worth), math.fsum(idle)
        mean, count = every_worth / every_idle, len(worth)
        if count == 1:
            return cls(mean=mean, low=None, high=None)
        from scipy.special import stdtrit  # noqa: PLC0415 - for this alone

        without = [
            (every_worth - own) / (every_idle - stood)
            for own, stood in zip(worth, idle, strict=True)
        ]
        error = (count - 1) / math.sqrt(count) * statistics.stdev(without)
        around = float(stdtrit(count - 1, 0.975)) * error
        return cls(mean=mean, low=max(0.0, mean - around), high=min(1.0, mean + around))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one workload would have trained in the pieces.

    Training is worth the node-time that it would take with each trainer on its most
    efficient number of nodes, where nothing is ever taken away. So rescales, lost work
    and trainers on more nodes than they use well all count against it.

    Attributes:
        about: The workload in words.
        lease_gpus: GPUs of a lease; None for whole nodes.
        share: What training is worth, over all nodes, or GPUs, that were idle.
        worth: Nodes, or GPUs, of one's own that would train as much: that share of the
            idle ones in normal operation.
        preemptions_per_day: How often a trainer lost nodes to others, a day.
    """

    about: str
    policy: str
    lease_gpus: int | None
    share: IdleShare
    worth: float
    preemptions_per_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopHarm:
    """What jobs of others would have waited, in one simulated stretch of the log.

    Attributes:
        mode: How leases gave way.
        harm: By how much jobs started later.
        preemptions: How often trainings lost nodes.
        coverage: Idle node-time spent on training that lasted, of all.
    """

    mode: Mode
    harm: Harm
    preemptions: int
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A stretch of the log, simulated with FreeTrain and without.

    Attributes:
        start_s: Second of the log.
        span_s: How long.
        wait_s: The mean wait of its jobs in the simulation without FreeTrain.
        recorded_wait_s: The same in the log; None where it does not say.
        modes: What became of them. Without ``yield`` where an hour of it is too much.
    """

    start_s: float
    span_s: float
    wait_s: float
    recorded_wait_s: float | None
    modes: tuple[LoopHarm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleClass:
    """Holes of a range of lengths: their share of all, and of the idle node-time."""

    from_s: float
    count_share: float
    time_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What slurmctld would be asked and given, for each user's FreeTrain.

    Attributes:
        reads_per_minute: Commands of a tick that read, at the most.
        writes_per_minute: Commands that change something, at the most by default.
        listed_mean: Jobs that such a command lists, waiting and running: the mean;
            None where the log has no jobs.
        listed_most: The most; likewise.
        jobs_per_day: Jobs of others a day in the log; likewise.
        holes_per_day: Holes long enough for a lease, a day of normal operation: about
            as many leases are jobs more if leases may take all nodes.
        leases_cap: Leases at a time, by default, of one user's FreeTrain.
    """

    reads_per_minute: int
    writes_per_minute: int
    listed_mean: float | None
    listed_most: int | None
    jobs_per_day: float | None
    holes_per_day: float
    leases_cap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a log says FreeTrain would do on its machine.

    Attributes:
        log: As the user named it.
        unit: What figures count, ``node`` or ``GPU``.
        machine: How many of these there are.
        nodes: Nodes of the machine.
        span_s: Seconds of the log.
        unix_start_s: Unix time of its second 0; None where it does not say.
        schedule: Who placed its jobs: ``recorded``, or ``easy`` where it has no starts.
        idle_mean: Idle on average over the whole log.
        normal_share: Share of the time with less than half of the machine idle.
        normal_idle: Idle on average in that time.
        reasons: By reason: the share of all idle time; empty where a log has no jobs,
            or does not say when they started.
        lengths: Holes by length, over the whole log.
        levels: Second of the log, and the mean idle from there on, for a drawing.
        pieces: Where each piece begins, second of the log.
        piece_s: How long each is.
        are_normal: Whether the pieces are of normal operation.
        gains: What would have been trained.
        loop: What others would have waited; None where the log has no jobs.
        load: What slurmctld would be asked.
        cautions: What of the log was not used or may mislead, a sentence each.
    """

    log: str
    unit: str
    machine: int
    nodes: int
    span_s: float
    unix_start_s: float | None
    schedule: MethodName
    idle_mean: float
    normal_share: float
    normal_idle: float
    reasons: Mapping[IdleReason, float]
    lengths: tuple[HoleClass, ...]
    levels: tuple[tuple[float, float], ...]
    pieces: tuple[float, ...]
    piece_s: float
    are_normal: bool
    gains: tuple[Gain, ...]
    loop: Loop | None
    load: Load
    cautions: tuple[str, ...]


def assess(log: Log, context: UserContext) -> Assessment:
    """Return what *log* says FreeTrain would do on its machine.

    Raises:
        BadDataError: Nothing is idle in it.
        FreeTrainError, LogError, MilpError: It cannot be replayed.
    """
    jobs = log.trace if isinstance(log.trace, JobTrace) else None
    schedule: MethodName = "recorded"
    if jobs is not None and all(job.start_s is None for job in jobs.jobs):
        schedule = "easy"
    lease_gpus = 1 if jobs is not None and jobs.counts_gpus else None
    idle, cautions = log.idle(
        schedule=schedule, gpus_per_lease=lease_gpus, context=context
    )
    if not len(idle.node):
        raise BadDataError(
            f"{log.named}: no node is idle while its jobs run, so there is nothing to "
            f"assess and nothing was done. If the machine is larger than its jobs, "
            f"say so in its header."
        )
    if schedule != "recorded":
        cautions = (
            *cautions,
            (
                "The log does not tell when jobs started: a simulated scheduler (easy) "
                "placed them, and what is idle is its doing."
            ),
        )
    if jobs is not None:
        placed = log_cautions(jobs, Method.SLURM, {})  # as the loop does
        cautions = tuple(dict.fromkeys((*cautions, *placed)))
    level = _Level(idle)
    pieces_s, piece_s, are_normal = _pieces(idle, level)
    return Assessment(
        log=log.named,
        unit="node" if lease_gpus is None else "GPU",
        machine=len(idle.node_names),
        nodes=len(idle.node_names) // _slots_per_node(log),
        span_s=idle.span_s,
        unix_start_s=idle.unix_start_s,
        schedule=schedule,
        idle_mean=level.mean_idle,
        normal_share=level.normal_share(0.0, idle.span_s),
        normal_idle=level.normal_idle,
        reasons=_reasons(log.trace, idle, is_recorded=schedule == "recorded"),
        lengths=_lengths(idle),
        levels=level.drawn(),
        pieces=pieces_s,
        piece_s=piece_s,
        are_normal=are_normal,
        gains=_gains(
            log,
            idle,
            pieces_s,
            piece_s,
            idle_mean=level.normal_idle if are_normal else level.mean_idle,
            context=context,
        ),
        loop=None if jobs is None else _loop(jobs, pieces_s, piece_s, context),
        load=_load(jobs, idle, pieces_s, piece_s),
        cautions=cautions,
    )


def _slots_per_node(log: Log) -> int:
    trace = log.trace
    is_gpus = isinstance(trace, JobTrace) and trace.counts_gpus
    return trace.units_per_node if is_gpus else 1  # type: ignore[union-attr]


# What stands idle


class _Level:
    """How many nodes are idle over time."""

    def __init__(self, idle: IdleTrace) -> None:
        self.begins_s, self._counts, self._lasts_s = idle_levels(idle)
        self.span_s = idle.span_s
        self._is_normal = self._counts < HALF * len(idle.node_names)
        self._edges_s = np.append(self.begins_s, idle.span_s)
        self._idle_s = _so_far(self._counts * self._lasts_s)
        self._normal_s = _so_far(self._is_normal * self._lasts_s)

    def mean_between(self, begin_s: float, end_s: float) -> float:
        """Return the mean idle from *begin_s* to *end_s*."""
        return self._between(self._idle_s, begin_s, end_s)

    def normal_share(self, begin_s: float, end_s: float) -> float:
        """Return the share of that time with less than half of the machine idle."""
        return self._between(self._normal_s, begin_s, end_s)

    @property
    def mean_idle(self) -> float:
        """Idle on average over all of the log."""
        return self.mean_between(0.0, self.span_s)

    @property
    def normal_idle(self) -> float:
        """Idle on average in normal operation; 0 where there was none."""
        lasts_s = float(self._normal_s[-1])
        idle_s = (self._counts * self._lasts_s)[self._is_normal].sum()
        return float(idle_s) / lasts_s if lasts_s else 0.0

    def drawn(self, most: int = 300) -> tuple[tuple[float, float], ...]:
        """Return the mean of each of *most* equal parts, with its begin."""
        edges_s = np.linspace(0.0, self.span_s, most + 1).tolist()
        return tuple(
            (begin_s, self.mean_between(begin_s, end_s))
            for begin_s, end_s in itertools.pairwise(edges_s)
        )

    def _between(
        self, so_far: NDArray[np.float64], begin_s: float, end_s: float
    ) -> float:
        first, last = np.interp([begin_s, end_s], self._edges_s, so_far).tolist()
        return (last - first) / (end_s - begin_s)


def _so_far(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(values)))


def _reasons(
    trace: Trace, idle: IdleTrace, *, is_recorded: bool
) -> Mapping[IdleReason, float]:
    if isinstance(trace, IdleTrace) or not is_recorded:
        return {}
    lease_units = 1 if trace.counts_gpus else trace.units_per_node
    node_s = idle_reasons(trace, idle, lease_units=lease_units)
    every_s = math.fsum(node_s.values())
    return {reason: part_s / every_s for reason, part_s in node_s.items()}


def _lengths(idle: IdleTrace) -> tuple[HoleClass, ...]:
    lasts_s = idle.end_s - idle.start_s
    place = np.digitize(lasts_s, LENGTHS_S) - 1
    widths = idle.widths.astype(np.float64)
    counts = np.bincount(place, weights=widths, minlength=len(LENGTHS_S))
    node_s = np.bincount(place, weights=widths * lasts_s, minlength=len(LENGTHS_S))
    return tuple(
        HoleClass(from_s=from_s, count_share=count, time_share=share)
        for from_s, count, share in zip(
            LENGTHS_S,
            (counts / counts.sum()).tolist(),
            (node_s / node_s.sum()).tolist(),
            strict=True,
        )
    )


def _pieces(idle: IdleTrace, level: _Level) -> tuple[tuple[float, ...], float, bool]:
    """Return where pieces begin, how long they are, and whether they are normal."""
    span_s = idle.span_s
    events = len(level.begins_s)
    longest_s = min(DAY_S, span_s / LEAST_PIECES, span_s * MOST_EVENTS / events)
    for piece_s in (longest_s, longest_s / 2, longest_s / 4, longest_s / 8):
        every = [k * piece_s for k in range(int(span_s / piece_s + 1e-9))]
        used = [s for s in every if level.mean_between(s, s + piece_s) > 0]
        normal = [s for s in used if level.normal_share(s, s + piece_s) >= NORMAL_SHARE]
        if len(normal) >= LEAST_PIECES:
            break
    chosen = normal or used
    places = np.linspace(0, len(chosen) - 1, min(MOST_PIECES, len(chosen)))
    kept = [chosen[k] for k in dict.fromkeys(places.round().astype(int).tolist())]
    return tuple(kept), piece_s, bool(normal)


# What would be gained


def _gains(  # noqa: PLR0913 - what is replayed, and where
    log: Log,
    idle: IdleTrace,
    pieces_s: Sequence[float],
    piece_s: float,
    *,
    idle_mean: float,
    context: UserContext,
) -> tuple[Gain, ...]:
    """Replay every workload in every piece; of a log of GPUs also in whole nodes."""
    per_node = _slots_per_node(log)
    pools = [(1 if per_node > 1 else None, idle)]
    if per_node > 1:
        pools.append((per_node, log.idle(gpus_per_lease=per_node, context=context)[0]))
    tasks = [
        (workload, gpus, found)
        for gpus, found in pools
        for workload in WORKLOADS
        if found is idle or workload.policy is ELASTIC
    ]
    days = piece_s / DAY_S
    stood = [
        PoolTimeline.from_trace(idle, start_s=start_s, days=days)
        for start_s in pieces_s
    ]
    idle_s = [piece.mean_nodes * piece.horizon_s for piece in stood]
    gains = []
    with context.progress("replaying pieces of the log") as report:
        for done, (workload, gpus, found) in enumerate(tasks):
            trainers, results = _trainers(workload), []
            for piece, start_s in enumerate(pieces_s):
                timeline = PoolTimeline.from_trace(found, start_s=start_s, days=days)
                results.append(
                    _replayed(timeline, trainers, workload, gpus or 1, context)
                )
                if report is not None:
                    report((done + (piece + 1) / len(pieces_s)) / len(tasks))
            share = IdleShare.of([worth_s for _, worth_s in results], idle_s)
            preempted = sum(result.preemptions for result, _ in results)
            gains.append(
                Gain(
                    about=workload.about.format(
                        units="nodes" if gpus is None else "GPUs"
                    ),
                    policy=workload.policy,
                    lease_gpus=gpus,
                    share=share,
                    worth=share.mean * idle_mean,
                    preemptions_per_day=preempted / (days * len(results)),
                )
            )
    return tuple(gains)


def _trainers(workload: Workload) -> tuple[TrainerSpec, ...]:
    """Return the trainers of *workload*, whose counts are nodes, or GPUs."""
    trainers = builtin_trainers(workload.trainers)
    wide = {
        scaling: replace(
            scaling, sizes=tuple(n for n in scaling.sizes if n >= workload.least)
        )
        for scaling in {each.scaling for each in trainers}
    }
    return tuple(replace(each, scaling=wide[each.scaling]) for each in trainers)


def _settings(workload: Workload) -> ReplaySettings:
    return ReplaySettings(
        policy=workload.policy,
        priority=workload.priority,
        parallel=workload.parallel,
        requeue=True,
        record_steps=False,
    )


def _replayed(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    workload: Workload,
    gpus: int,
    context: UserContext,
) -> tuple[ReplayResult, float]:
    """Return the replay, and what it is worth in node-seconds."""
    settings = _settings(workload)
    engine, use = play(
        timeline, in_leases(trainers, gpus), settings, clock=context.clock
    )
    result = result_of(engine, settings, use, efficiency=None, forecasts=None)
    best = {
        scaling: max(float(scaling.samples_per_s[n]) / n for n in scaling.sizes)
        for scaling in {each.scaling for each in trainers}
    }
    per_s = {each.name: best[each.scaling] for each in trainers}
    worth_s = math.fsum(run.samples / per_s[run.trainer] for run in result.completions)
    return result, worth_s


# What others would wait


def _loop(
    trace: JobTrace, pieces_s: Sequence[float], piece_s: float, context: UserContext
) -> Loop | None:
    """Simulate the busiest piece, by jobs submitted, with FreeTrain and without."""
    windows = [
        (len(submitted_s), start_s, submitted_s)
        for start_s in pieces_s
        if (submitted_s := _submitted_s(trace, start_s, min(LOOP_S, piece_s)))
    ]
    if not windows:
        return None
    jobs, start_s, submitted_s = max(windows)
    span_s = min(LOOP_S, piece_s)
    if jobs > LOOP_JOBS:
        span_s = submitted_s[LOOP_JOBS] - start_s
    modes = [Mode.PREEMPT]
    yield_s = _yield_span_s(_around(trace, start_s, start_s + span_s), start_s, span_s)
    if yield_s >= LEAST_YIELD_S and _submitted_s(trace, start_s, yield_s):
        modes.append(Mode.YIELD)
        span_s = yield_s
    around = _around(trace, start_s, start_s + span_s)
    stage = _stage(around, start_s, span_s, context)
    waits_s = [s - around.jobs[job].submit_s for job, s in stage.alone_s.items()]
    compared = [around.jobs[job] for job in stage.alone_s]
    recorded_s = [j.start_s - j.submit_s for j in compared if j.start_s is not None]
    return Loop(
        start_s=start_s,
        span_s=span_s,
        wait_s=statistics.fmean(waits_s),
        recorded_wait_s=statistics.fmean(recorded_s) if recorded_s else None,
        modes=tuple(_harm(stage, mode, context) for mode in modes),
    )


def _submitted_s(trace: JobTrace, start_s: float, span_s: float) -> tuple[float, ...]:
    """Return when jobs were submitted from *start_s* on, for *span_s* seconds."""
    end_s = start_s + span_s
    return tuple(job.submit_s for job in trace.jobs if start_s < job.submit_s <= end_s)


def _stage(
    around: JobTrace, start_s: float, span_s: float, context: UserContext
) -> Stage:
    with context.progress("simulating the scheduler") as report:
        stage = Stage(
            around,
            Method.SLURM,
            start_s=start_s,
            days=span_s / DAY_S,
            lease_gpus=1 if around.counts_gpus else None,
            on_progress=report,
        )
        _ = stage.alone_s  # worked out here, within what is announced
    return stage


def _harm(stage: Stage, mode: Mode, context: UserContext) -> LoopHarm:
    with context.progress(f"FreeTrain in the loop, mode {mode}") as report:
        result = run_in_the_loop(
            stage,
            _trainers(LOOP_WORKLOAD),
            _settings(LOOP_WORKLOAD),
            usual_settings(mode),
            clock=context.clock,
            on_progress=report,
        )
    return LoopHarm(
        mode=mode,
        harm=result.harm,
        preemptions=result.replay.preemptions,
        coverage=result.replay.coverage,
    )


def _yield_span_s(around: JobTrace, start_s: float, span_s: float) -> float:
    """Return how long the loop may be with ``yield``, where each tick is long work."""
    end_s = start_s + span_s

    def mean(stays: Iterable[tuple[float, float]]) -> float:
        within = (min(go, end_s) - max(come, start_s) for come, go in stays)
        return math.fsum(s for s in within if s > 0) / span_s

    timed = [(j, j.start_s) for j in around.jobs if j.start_s is not None]
    waiting = mean((job.submit_s, begin_s) for job, begin_s in timed)
    running = mean((begin_s, begin_s + job.run_s) for job, begin_s in timed)
    a_second = max(1.0, waiting) * max(1.0, running) * around.units
    return min(span_s, YIELD_WORK / a_second)


def _around(trace: JobTrace, start_s: float, end_s: float) -> JobTrace:
    """Return the jobs that a scheduler needs to play *trace* from *start_s* on.

    Those of the days before, and those that ran when these began, which are submitted
    then. Nodes are not named: the simulated scheduler chooses its own.
    """
    begin_s = max(0.0, start_s - WARM_UP_S)
    jobs = []
    for job in trace.jobs:
        came_s = job.submit_s
        if came_s < begin_s and job.start_s is not None:
            if job.start_s + job.run_s <= begin_s:
                continue
            came_s = min(job.start_s, begin_s)
        elif came_s < begin_s:
            continue
        if came_s <= end_s:
            jobs.append(replace(job, submit_s=came_s, nodes=()))
    return replace(trace, jobs=tuple(sorted(jobs, key=lambda job: job.submit_s)))


# What slurmctld would be asked


def _load(
    trace: JobTrace | None, idle: IdleTrace, pieces_s: Sequence[float], piece_s: float
) -> Load:
    lasting = idle.end_s - idle.start_s >= SHORTEST_S
    begins_s, widths = idle.start_s[lasting], idle.widths[lasting]
    leased = sum(
        int(widths[(begins_s >= start_s) & (begins_s < start_s + piece_s)].sum())
        for start_s in pieces_s
    )
    caps = Caps()
    listed = None if trace is None else queue_lengths(trace)
    span_s = idle.span_s
    return Load(
        reads_per_minute=TICK_REQUESTS,
        writes_per_minute=caps.rpcs_per_tick,
        listed_mean=None if listed is None else listed[0],
        listed_most=None if listed is None else listed[1],
        jobs_per_day=None if trace is None else len(trace.jobs) * DAY_S / span_s,
        holes_per_day=leased * DAY_S / (piece_s * len(pieces_s)),
        leases_cap=caps.leases,
    )
