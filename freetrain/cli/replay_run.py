"""Replay one request under each of its policies, and show what came out."""

from __future__ import annotations

import errno
import importlib.metadata
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table

from freetrain.cli.output import (
    check_folder,
    json_text,
    missing,
    progress,
    write_folder,
    write_out,
)
from freetrain.cli.replay_request import DRAWN, ReplayRequest, is_drawn, refuse_against
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.losscurve.outlook import Better
from freetrain.losscurve.recorded import load
from freetrain.planning.settings import HORIZON_S, RATED_POLICIES
from freetrain.priority.base import Basis
from freetrain.priority.registry import priority_named
from freetrain.replay.run import run_replay, with_costs
from freetrain.replay.timeline import DAY_S, PoolTimeline
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
from freetrain.report import quality as quality_rows
from freetrain.report.comparison import (
    GAPS,
    HEADINGS,
    Comparison,
    full_record,
    gap_lines,
    hole_lengths_s,
    name_among,
    percent,
    table_row,
)
from freetrain.report.forecast import forecast_records
from freetrain.report.quality import (
    AGAINST_HEADINGS,
    against_row,
    quality_records,
    quality_row,
)
from freetrain.text import closest, counted, one_line, render_duration
from logs.read import read_trace
from logs.schedule import Method, Schedule, schedule
from logs.schedule.simulation import Reason, holes
from logs.trace import IdleTrace, JobTrace, Trace
from slurm.config import leaf_by_node, parse_topology
from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from freetrain.cli.context import CliContext
    from freetrain.replay.result import ReplayResult
    from freetrain.replay.settings import ReplaySettings

RIGID = "scavenger"
"""The policy that gives trainers their fixed size."""

MOST_NAMED = 8
"""Models that are named one by one."""

MOST_DAYS = 90.0
"""Dedicated nodes are there until all trainers are done; this ends who never is."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A comparison, and what making it took.

    Attributes:
        comparison: What came out.
        load_s: Seconds for reading the log and finding its holes, once.
    """

    comparison: Comparison
    load_s: float


def compare(request: ReplayRequest, context: CliContext) -> Compared:
    """Read the log once, replay it under each policy.

    Raises:
        FreeTrainError, LogError, MilpError: See ``load`` and ``run_replay``.
    """
    entrants = request.entrants  # refused before a log is read for nothing
    began_s = context.clock()
    timeline, left_out = pool_of(request, context)
    entrants = _placed(entrants, request, timeline, context)
    trainers = team(request, context.cwd, mean_nodes=timeline.mean_nodes)
    refuse_against(request, trainers)
    trainers, made_smaller = fitted(trainers, len(timeline.node_names))
    told = made_smaller if RIGID in request.policies else ()
    load_s = context.clock() - began_s
    results = tuple(
        _replay(timeline, trainers, settings, context=context) for settings in entrants
    )
    comparison = describe(
        request,
        timeline,
        trainers,
        left_out=left_out + told,
        results=results,
    )
    return Compared(comparison, load_s)


def pool_of(
    request: ReplayRequest, context: CliContext
) -> tuple[PoolTimeline, tuple[str, ...]]:
    """Return the pool over time, and what was not used of its log.

    Raises:
        FreeTrainError, LogError: See ``load``.
    """
    if request.log is None:
        days = MOST_DAYS if request.days is None else request.days
        return PoolTimeline.dedicated(request.pool or 1, days * DAY_S), ()
    trace = load_trace(request.log, named=request.named, skip_bad=request.skip_bad)
    with progress(context, f"scheduling ({request.schedule})") as report:
        idle = idle_of(trace, Method(request.schedule), on_progress=report)
    return cut(idle, request), idle.left_out


def _placed(
    entrants: Sequence[ReplaySettings],
    request: ReplayRequest,
    timeline: PoolTimeline,
    context: CliContext,
) -> tuple[ReplaySettings, ...]:
    """Return *entrants* with the leaf switches that the nodes are below, if asked for.

    Raises:
        FreeTrainError: See ``read_leaves``.
    """
    if request.topology is None:
        return tuple(entrants)
    path, nodes = context.cwd / request.topology, timeline.node_names
    leaves = read_leaves(path, nodes, named=request.topology)
    return tuple(replace(one, leaves=leaves) for one in entrants)


def _replay(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    *,
    context: CliContext,
) -> ReplayResult:
    began_s = context.clock()
    with progress(context, f"replaying under {settings.policy}") as report:
        result = run_replay(
            timeline, trainers, settings, clock=context.clock, on_progress=report
        )
    return replace(
        result,
        wall_s=context.clock() - began_s,
        peak_rss_bytes=context.peak_rss_bytes(),
    )


def describe(
    request: ReplayRequest,
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    *,
    left_out: tuple[str, ...],
    results: tuple[ReplayResult, ...],
) -> Comparison:
    """Put *results* together with what they were made from, in words."""
    nodes = len(timeline.node_names)
    models = list(dict.fromkeys(trainer.scaling.model for trainer in trainers))
    return Comparison(
        command=one_line(request.command),
        version=importlib.metadata.version("freetrain"),
        log=one_line(request.named),
        read_as=_read_as(request, timeline),
        left_out=left_out,
        cautions=_cautions(request, timeline, results, trainers=trainers),
        nodes=nodes,
        span_s=timeline.horizon_s,
        hole_lengths_s=hole_lengths_s(timeline),
        trainers=(
            f"{one_line(request.trainers)}: {counted(len(trainers), 'trainer')} "
            f"({', '.join(models[:MOST_NAMED])}"
            f"{', ...' if len(models) > MOST_NAMED else ''}), "
            f"{request.settings.parallel or 'all'} at a time"
        ),
        trainer_count=len(trainers),
        parallel=request.settings.parallel or len(trainers),
        results=results,
        against=request.against,
    )


def _read_as(request: ReplayRequest, timeline: PoolTimeline) -> str:
    nodes = counted(len(timeline.node_names), "node")
    if request.log is None:
        return f"{nodes} that nobody takes away."
    holes = counted(len(hole_lengths_s(timeline)), "hole")
    return (
        f"{holes} on {nodes} in {render_duration(timeline.horizon_s)}; "
        f"{timeline.mean_nodes:,.1f} nodes idle on average."
    )


def _cautions(
    request: ReplayRequest,
    timeline: PoolTimeline,
    results: Sequence[ReplayResult],
    *,
    trainers: Sequence[TrainerSpec],
) -> tuple[str, ...]:
    in_vain = (
        *nothing_to_go_by(results, trainers),
        *too_dear_to_start(results, trainers, request.settings),
    )
    if request.log is None:
        return in_vain
    early = ran_out(results, len(trainers), timeline.horizon_s)
    return tuple(filter(None, (*in_vain, *cautions(timeline), early)))


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


MOST_DRAWN = 10_000


def team(
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
        curves = list(_recorded())
    else:
        curves = _in(cwd / request.curves, request.better)
    demand = Demand(nodes=mean_nodes, load=request.load)
    return quality_trainers(int(size), tuple(curves), seed=request.seed, demand=demand)


def _recorded() -> Iterator[QualityTruth]:
    """Yield the loss and the validation metric of each recorded training."""
    for name, curve in load().items():
        for series in (curve.loss, curve.validation):
            yield truth_of(
                series.samples.tolist(),
                series.values.tolist(),
                series.better,
                name=f"{name}.{series.metric}",
            )


def _in(folder: Path, better: Better) -> list[QualityTruth]:
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
    found = [
        replace(
            read_curve(file, "metric", better, named=str(file)),
            name=f"{file.parent.name}.{file.stem}",
        )
        for file in files
    ]
    if not any(better.is_reached(one.values[0], one.values[-1]) for one in found):
        other = Better.LOWER if better is Better.HIGHER else Better.HIGHER
        raise BadDataError(
            f"every curve in {folder} ends worse than it begins where {better} values "
            f"are good; nothing was replayed. Say --better {other}."
        )
    return found


HALF = 0.5
"""With this share of the nodes idle, something keeps the machine from working."""

WORTH_TELLING = 0.05
"""Share of the idle node-time, or of the span, from which on it is told."""


def cautions(timeline: PoolTimeline) -> tuple[str, ...]:
    """Return what in the holes of *timeline* inflates figures, one sentence each."""
    change = np.diff(timeline.joined.first) - np.diff(timeline.left.first)
    idle = np.cumsum(change)[: len(timeline.times_s)]
    until_s = np.append(timeline.times_s, timeline.horizon_s)
    lasts_s = np.diff(until_s.clip(max=timeline.horizon_s))
    low = idle >= HALF * len(timeline.node_names)
    low_s = float(lasts_s[low].sum())
    node_s = idle * lasts_s
    every_s = float(node_s.sum())
    in_low = float(node_s[low].sum()) / every_s if every_s else 0.0
    said = [_without_a_log(timeline)]
    if in_low >= WORTH_TELLING:
        said.append(
            f"Half of the nodes or more were idle for "
            f"{percent(low_s / timeline.horizon_s)} of the time, which holds "
            f"{percent(in_low)} of the idle node-time, as in outages, drains and at "
            f"a log's edges."
        )
    return tuple(filter(None, said))


def ran_out(results: Sequence[ReplayResult], trainers: int, span_s: float) -> str:
    """Return which of *results* finished all *trainers* before the span was over."""
    early = [
        f"{name_among(result, results)} {render_duration(result.end_s)}"
        for result in results
        if result.finished == trainers and result.end_s < span_s
    ]
    if not early:
        return ""
    return (
        f"All trainers were done before the end, after: {', '.join(early)}. "
        f"--requeue keeps them coming."
    )


def nothing_to_go_by(
    results: Sequence[ReplayResult], trainers: Sequence[TrainerSpec]
) -> tuple[str, ...]:
    """Return which priorities among *results* look at what no trainer has."""
    asked = {one.priority for one in results if one.policy in RATED_POLICIES}
    by_losses = {n for n in asked if priority_named(n).basis is Basis.LOSSES}
    said = []
    if by_losses and all(one.quality is None for one in trainers):
        names = ", ".join(sorted(by_losses))
        said.append(f"No trainer tells a loss, which is what {names} would go by.")
    if "deadline" in asked and all(one.deadline_s is None for one in trainers):
        said.append("No trainer has a deadline, which is what deadline would go by.")
    return tuple(said)


def too_dear_to_start(
    results: Sequence[ReplayResult],
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
) -> tuple[str, ...]:
    """Return which policies among *results* never start some of *trainers*.

    Starting is weighed against what is gained within the look-ahead.
    """
    starts_s = [with_costs(one, settings).costs.start_s for one in trainers]
    reach_s = {
        "freetrain": (settings.t_fwd_s, "--t-fwd"),
        "lookahead": (HORIZON_S, "its horizon"),
    }
    said = []
    for name in dict.fromkeys(one.policy for one in results if one.policy in reach_s):
        t_fwd_s, called = reach_s[name]
        dear = sum(start_s >= t_fwd_s for start_s in starts_s)
        if dear:
            said.append(
                f"Starting takes {dear:,} of {counted(len(trainers), 'trainer')} "
                f"{render_duration(t_fwd_s)} ({called}) or longer, in which {name} "
                f"counts gains: it never starts these."
            )
    return tuple(said)


def _without_a_log(timeline: PoolTimeline) -> str:
    """Return how much of the span lies before the first hole or behind the last."""
    span_s, last_s = timeline.horizon_s, float(timeline.times_s[-1])
    if span_s - last_s >= WORTH_TELLING * span_s:
        behind = render_duration(span_s - last_s)
        return f"The log ends {behind} before the replay: nothing is idle from there."
    starts_idle = timeline.joined.first[1] > 0
    first_s = 0.0 if starts_idle else float(timeline.times_s[1])
    if first_s >= WORTH_TELLING * span_s:
        return (
            f"Nothing is idle in the first {render_duration(first_s)}: "
            f"--start can leave {first_s:.15g} s out."
        )
    return ""


LEGEND = """\
efficiency: training speed over that of as many dedicated nodes ("static")
coverage:   idle node-time spent on training that lasted, of all idle node-time
lost:       training not done because of rescales, preemptions and starts
slowdown:   arrival to finish, queueing included, over running alone at best"""
"""What the columns mean; docs/replay.md has the formulas."""

QUALITY_LEGEND = """\
quality:    of the best, from 0 where a trainer began: mean and worst under way,
            and the mean of all that were submitted
to, tier 1: mean time from arrival to that share of the best, to the first target
last:       longest from arrival to finish; all in: the makespan
luckiest:   the trainer whose first target came soonest; slower: share of trainers
            that finished later; worst: the one that lost most"""


def comparison_text(comparison: Comparison, context: CliContext) -> str:
    """Return what was read and left out, and the table, for *context*'s terminal."""
    console = context.out()
    with console.capture() as captured:
        console.print(f"{comparison.log}: {comparison.read_as}", soft_wrap=True)
        for line in (*comparison.left_out, *comparison.cautions):
            console.print(line, soft_wrap=True)
        console.print(f"Trainers: {comparison.trainers}.", soft_wrap=True)
        console.print(comparison_table(comparison))
        print_gaps(console, [(comparison.name(r), r) for r in comparison.results])
        console.print(f"\n{LEGEND}", soft_wrap=True)
        tables = quality_tables(comparison)
        for table in tables:
            console.print()
            console.print(table)
        if tables:
            console.print(f"\n{QUALITY_LEGEND}", soft_wrap=True)
    return captured.get()


def print_gaps(console: Console, results: Iterable[tuple[str, ReplayResult]]) -> None:
    """Print how far the plans of each of *results*, by its name, were from the best."""
    lines = list(gap_lines((name, result.gap) for name, result in results))
    if lines:
        console.print(f"\n{GAPS}")
    for line in lines:
        console.print(line, soft_wrap=True)


def comparison_table(comparison: Comparison) -> Table:
    """Return one row a policy; 80 columns are enough."""
    return figures(
        HEADINGS, [table_row(r, comparison.name(r)) for r in comparison.results]
    )


def quality_tables(comparison: Comparison) -> list[Table]:
    """Return what there is to say of quality: nothing, one table, or two."""
    shown, baseline = comparison.results, comparison.baseline
    if not any(result.learning for result in shown):
        return []
    rows = [quality_row(result, comparison.name(result)) for result in shown]
    tables = [figures(quality_rows.HEADINGS, rows)]
    if baseline is not None:
        others = [
            against_row(result, baseline, comparison.name(result))
            for result in shown
            if result is not baseline
        ]
        name = comparison.name(baseline)
        between = "\n" if " " in name else " "
        heads = (f"vs{between}{_stacked(name)}", *AGAINST_HEADINGS[1:])
        tables.append(figures(heads, others))
    return tables


def figures(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for a terminal, its first column words and the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for heading in headings:
        left = heading == headings[0]
        table.add_column(heading, justify="left" if left else "right", no_wrap=left)
    for name, *numbers in rows:
        table.add_row(_stacked(name), *numbers)
    return table


def _stacked(name: str) -> str:
    """Return a policy above its priority, where *name* is both: 80 columns are few."""
    return name.replace(" ", "\n")


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
        told = parse_topology("".join(f"{line}\n" for line in lines if line))
        leaf_of = leaf_by_node(told)
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


def run_and_show(
    request: ReplayRequest,
    context: CliContext,
    *,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request*, write its folder where asked, and show what came out."""
    folder = None if out is None else context.cwd / out
    if folder is not None:
        check_folder(folder, force=force)
    compared = compare(request, context)
    comparison = compared.comparison
    if folder is not None:
        from freetrain.report.page import report_files  # noqa: PLC0415 - Plotly

        write_folder(folder, report_files(comparison))
    if as_json:
        records = [
            full_record(r, load_s=compared.load_s)
            | quality_records(comparison, r)
            | forecast_records(r)
            for r in comparison.results
        ]
        write_out(context, json_text(records, indent=2, allow_nan=False))
        return

    write_out(context, comparison_text(comparison, context))
    if out is not None:
        write_out(context, f"Report: {out / 'report.html'}\n")
