"""What a replay's command line names: a log, its idle nodes, trainers, a topology."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.context import CliContext, missing, progress
from freetrain.cli.replay_request import DRAWN, ReplayRequest, is_drawn
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.losscurve.forecast import Better
from freetrain.losscurve.recorded import load as recorded_curves
from freetrain.replay.pool import DAY_S, PoolTimeline
from freetrain.replay.trainers import (
    BUILTIN_NAMES,
    Demand,
    QualityTruth,
    TrainerSpec,
    builtin_trainers,
    quality_trainers,
    truth_of,
)
from freetrain.replay.trainers_file import read_curve, read_trainers
from freetrain.text import closest, counted, one_line
from logs.read import read_trace
from logs.schedule import Schedule, holes, schedule
from logs.simulation import Method, Reason
from logs.trace import IdleTrace, JobTrace, Trace
from slurm.errors import UnreadableOutputError
from slurm.records import leaf_by_node
from slurm.text import parse_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


MOST_DAYS = 90.0
"""Dedicated nodes are replayed until all trainers are done, or for so long."""


MOST_DRAWN = 10_000
WHY_LEFT_OUT = {
    Reason.NO_UNITS: "they needed no nodes",
    Reason.NEVER_RAN: "they never ran",
    Reason.NO_START: "the log does not tell when they started",
    Reason.TOO_WIDE: "they need more than the machine has",
}


def pool_of(
    request: ReplayRequest, context: CliContext
) -> tuple[PoolTimeline, tuple[str, ...]]:
    """Return the pool over time, and what was not used of its log.

    Raises:
        FreeTrainError, LogError: See ``load_trace``.
    """
    if request.log is None:
        days = MOST_DAYS if request.days is None else request.days
        return PoolTimeline.dedicated(request.pool or 1, days * DAY_S), ()
    trace = load_trace(request.log, named=request.named, skip_bad=request.skip_bad)
    with progress(context, f"scheduling ({request.schedule})") as report:
        idle = idle_of(trace, Method(request.schedule), on_progress=report)
    return cut(idle, request), idle.left_out


def cut(idle: Idle, request: ReplayRequest) -> PoolTimeline:
    """Return the part of the log that *request* asks for.

    Raises:
        BadDataError: The log has no holes.
        UsageError: Nothing is left of it.
    """
    if not len(idle.trace.node):
        left_out = "".join(f" {line}" for line in idle.left_out)
        raise BadDataError(
            f"{request.named}: no node is idle while its jobs run, so there is nothing "
            f"to replay and nothing was done.{left_out} If the log lacks start times, "
            f"use --schedule easy; if the machine is larger than its jobs, say so in "
            f"its header."
        )
    return PoolTimeline.from_trace(
        idle.trace, start_s=request.start_s, nodes=request.nodes, days=request.days
    )


def load_trace(path: Path, *, named: str, skip_bad: int) -> Trace:
    """Read the log at *path*.

    Raises:
        MissingInputError: It is not there or may not be read.
        OSError: Reading it broke off.
        UnreadableLogError: It is not a log, or a line of it is bad.
    """
    try:
        return read_trace(path, skip_bad=skip_bad)
    except OSError as error:
        if error.errno == errno.EIO:
            raise
        raise missing(named, error, undone="done") from error


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """The idle intervals of a log, and what was not used of it.

    Attributes:
        trace: The intervals.
        left_out: What was not used, one sentence each.
    """

    trace: IdleTrace
    left_out: tuple[str, ...]


def idle_of(
    trace: Trace,
    method: Method,
    *,
    on_progress: Callable[[float], None] | None = None,
) -> Idle:
    """Return when nodes are idle: as the log says, or as *method* leaves them.

    Raises:
        UsageError: A log of idle intervals has no jobs to schedule.
        UnusableLogError: The log's jobs cannot be scheduled.
    """
    if isinstance(trace, JobTrace):
        scheduled = schedule(trace, method, on_progress=on_progress)
        return Idle(holes(scheduled), (*_skipped(trace), *_not_placed(scheduled)))
    if method is not Method.RECORDED:
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so there is nothing "
            f"for --schedule {method} to place. Nothing was done. Leave --schedule out."
        )
    return Idle(trace, _skipped(trace))


def _skipped(trace: Trace) -> tuple[str, ...]:
    if not trace.skipped_lines:
        return ()
    return (f"{counted(trace.skipped_lines, 'bad line')} passed over.",)


def _not_placed(scheduled: Schedule) -> tuple[str, ...]:
    reasons = Counter(scheduled.refused.values())
    sentences = [
        f"{counted(n, 'job')} left out: {WHY_LEFT_OUT[why]}."
        for why, n in reasons.items()
    ]
    over = scheduled.over_commitment
    if over.jobs:
        sentences.append(
            f"{counted(over.jobs, 'job')} held more than the machine has, "
            f"by {over.worst_units:,} at the worst."
        )
    return tuple(sentences)


def read_leaves(path: Path, nodes: Sequence[str], *, named: str) -> tuple[str, ...]:
    """Return the leaf of each of *nodes*; empty for those that *path* does not name.

    Args:
        path: What ``scontrol show topology`` printed, or a file written like that.
        nodes: The nodes that take part.
        named: How the user named it.

    Raises:
        MissingInputError: It cannot be read.
        BadDataError: It is nothing of the kind, or names none of *nodes*.
    """
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise missing(named, error, undone="replayed") from error
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    try:
        topology = parse_topology("".join(f"{line}\n" for line in lines if line))
        leaf_of = leaf_by_node(topology)
    except UnreadableOutputError as error:
        raise BadDataError(
            f"{named} is no topology: {error.why}: {one_line(error.line)[:80]!r}. "
            f"Nothing was replayed. Name what `scontrol show topology` prints."
        ) from error
    if leaf_of.keys().isdisjoint(nodes):
        raise BadDataError(
            f"{named} names no node of the log, whose first is {one_line(nodes[0])!r}. "
            f"Nothing was replayed. Name the topology of that machine."
        )
    return tuple(leaf_of.get(node, "") for node in nodes)


def trainers_of(
    request: ReplayRequest, cwd: Path, *, mean_nodes: float
) -> tuple[TrainerSpec, ...]:
    """Return the trainers of *request*.

    Args:
        request: What was asked for.
        cwd: Where relative names begin.
        mean_nodes: Idle nodes on average, which a load is measured against.

    Raises:
        MissingInputError, BadConfigurationError, BadDataError: A file is not there,
            or not what it should be.
        UsageError: The set's size makes no sense.
    """
    if not is_drawn(request.trainers):
        return load_trainers(request.trainers, cwd)
    size = request.trainers.removeprefix(DRAWN)
    if not size.isdecimal() or not 1 <= int(size) <= MOST_DRAWN:
        raise UsageError(
            f"{size!r} trainers: expected a number from 1 to {MOST_DRAWN}, as in "
            f"{DRAWN}40. Nothing was replayed."
        )
    if request.curves is None:
        curves = list(_recorded_curves())
    else:
        curves = _curves_in(cwd / request.curves, request.better)
    demand = Demand(nodes=mean_nodes, load=request.load)
    return quality_trainers(int(size), tuple(curves), seed=request.seed, demand=demand)


def load_trainers(name: str, cwd: Path) -> tuple[TrainerSpec, ...]:
    """Return the built-in set *name*, or the trainers of the TOML file *name*.

    Raises:
        MissingInputError: It is neither.
        BadConfigurationError: The file does not describe trainers.
    """
    if name in BUILTIN_NAMES:
        return builtin_trainers(name)
    path = cwd / name
    near = closest(name, BUILTIN_NAMES)
    if near and not path.exists():
        raise MissingInputError(
            f"there is no built-in set and no file {name!r}; nothing was replayed."
            f"{near}"
        )
    return read_trainers(path, named=name)


def _recorded_curves() -> Iterator[QualityTruth]:
    """Yield the loss and the validation metric of each recorded training."""
    for name, curve in recorded_curves().items():
        for series in (curve.loss, curve.validation):
            yield truth_of(
                series.samples.tolist(),
                series.values.tolist(),
                series.better,
                name=f"{name}.{series.metric}",
            )


def _curves_in(folder: Path, better: Better) -> list[QualityTruth]:
    """Return every curve under *folder*, of the column ``metric``.

    Raises:
        MissingInputError: There is none.
        BadDataError: One cannot be read, or all of them get worse.
    """
    files = sorted(folder.rglob("*.csv"))
    if not files:
        raise MissingInputError(
            f"there is no .csv file in {folder}; nothing was replayed. Name a folder "
            f"of curves with --curves, or leave it out for the recorded ones."
        )
    curves = [
        replace(
            read_curve(file, "metric", better, named=str(file)),
            name=f"{file.parent.name}.{file.stem}",
        )
        for file in files
    ]
    if not any(better.is_reached(each.values[0], each.values[-1]) for each in curves):
        other = Better.LOWER if better is Better.HIGHER else Better.HIGHER
        raise BadDataError(
            f"every curve in {folder} ends worse than it begins where {better} values "
            f"are good; nothing was replayed. Say --better {other}."
        )
    return curves


def fitted(
    trainers: tuple[TrainerSpec, ...], nodes: int
) -> tuple[tuple[TrainerSpec, ...], tuple[str, ...]]:
    """Return *trainers* with fixed sizes that *nodes* can hold, and what was changed.

    One whose smallest size is too large stays as it is.
    """
    fitting = tuple(_fitted(trainer, nodes) for trainer in trainers)
    smaller = sum(a is not b for a, b in zip(trainers, fitting, strict=True))
    if not smaller:
        return trainers, ()
    change = (
        f"{counted(smaller, 'trainer')} of a fixed size above {counted(nodes, 'node')} "
        f"made smaller for scavenger."
    )
    return fitting, (change,)


def _fitted(trainer: TrainerSpec, nodes: int) -> TrainerSpec:
    sizes = [size for size in trainer.scaling.sizes if size <= nodes]
    if trainer.fixed_nodes <= nodes or not sizes:
        return trainer
    return replace(trainer, fixed_nodes=sizes[-1])
