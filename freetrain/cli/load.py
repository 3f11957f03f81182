"""From the files a request names to a pool over time and trainers."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.missing import missing
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.replay.timeline import PoolTimeline
from freetrain.replay.trainers import BUILTIN_NAMES, builtin_trainers
from freetrain.replay.trainers_file import read_trainers
from freetrain.text import closest, counted
from logs.read import read_trace
from logs.schedule import Method, schedule
from logs.schedule.simulation import Reason, holes
from logs.trace import JobTrace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from freetrain.cli.request import ReplayRequest
    from freetrain.replay.trainers import TrainerSpec
    from logs.schedule import Schedule
    from logs.trace import IdleTrace, Trace

WHY_LEFT_OUT = {
    Reason.NO_UNITS: "they needed no nodes",
    Reason.NEVER_RAN: "they never ran",
    Reason.NO_START: "the log does not tell when they started",
    Reason.TOO_WIDE: "they need more than the machine has",
}


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """The idle intervals of a log, and what was not used of it.

    Attributes:
        trace: The intervals.
        left_out: What was not used, one sentence each.
    """

    trace: IdleTrace
    left_out: tuple[str, ...]


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
        made = schedule(trace, method, on_progress=on_progress)
        return Idle(holes(made), (*_skipped(trace), *_not_placed(made)))
    if method is not Method.RECORDED:
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so there is nothing "
            f"for --schedule {method} to place. Nothing was done. Leave --schedule out."
        )
    return Idle(trace, _skipped(trace))


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
    told = (
        f"{counted(smaller, 'trainer')} of a fixed size above {counted(nodes, 'node')} "
        f"made smaller for scavenger."
    )
    return fitting, (told,)


def _fitted(trainer: TrainerSpec, nodes: int) -> TrainerSpec:
    sizes = [size for size in trainer.scaling.sizes if size <= nodes]
    if trainer.fixed_nodes <= nodes or not sizes:
        return trainer
    return replace(trainer, fixed_nodes=sizes[-1])


def _skipped(trace: Trace) -> tuple[str, ...]:
    if not trace.skipped_lines:
        return ()
    return (f"{counted(trace.skipped_lines, 'bad line')} passed over.",)


def _not_placed(made: Schedule) -> tuple[str, ...]:
    reasons = Counter(refused.reason for refused in made.refused)
    said = [
        f"{counted(n, 'job')} left out: {WHY_LEFT_OUT[why]}."
        for why, n in reasons.items()
    ]
    over = made.over_commitment
    if over.jobs:
        said.append(
            f"{counted(over.jobs, 'job')} held more than the machine has, "
            f"by {over.worst_units:,} at the worst."
        )
    return tuple(said)
