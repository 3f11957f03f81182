"""Replay a request under each of its policies, and show the results.

``run_and_show`` compares policies on one log: it reads the log and the trainers,
replays them once for each policy, priority and forecaster, and shows tables.
``run_sweep_and_show`` compares priorities: the same trainers on the same nodes are
replayed under each, once for each load and seed, and compared with one of them.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table

from freetrain.cli.context import (
    CliContext,
    check_folder,
    json_text,
    missing,
    process_context,
    progress,
    read_log,
    write_file,
    write_folder,
    write_out,
)
from freetrain.cli.replay import DRAWN, ReplayRequest, Settings, is_drawn
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.losscurve.recorded import load as recorded_curves
from freetrain.planning.settings import RATED_POLICIES
from freetrain.priority.base import (
    RatingBasis,
    check_settings,
    priority_named,
    settings_of,
)
from freetrain.replay.packs import replay_packs
from freetrain.replay.pool import DAY_S, PoolTimeline, idle_of
from freetrain.replay.run import run_replay
from freetrain.replay.settings import PACK_RULES
from freetrain.replay.trainers import (
    BUILTIN_NAMES,
    QualityTruth,
    TrainerSpec,
    builtin_trainers,
    in_leases,
    quality_trainers,
    truth_of,
)
from freetrain.replay.trainers_file import read_curve, read_trainers
from freetrain.report.quality import (
    AGAINST_HEADINGS,
    QUALITY_HEADINGS,
    Score,
    against,
    against_row,
    cell,
    quality_of,
    quality_records,
    quality_row,
    scores_of,
    sweep_rows,
)
from freetrain.report.summary import (
    GAP_HEADING,
    HEADINGS,
    Comparison,
    forecast_records,
    full_record,
    gap_lines,
    hole_lengths,
    lost_per_sample,
    name_among,
    percent,
    table_row,
)
from freetrain.text import closest, counted, one_line, render_duration, scaled
from logs.simulation import Method, Passes
from logs.trace import JobTrace, Trace
from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from freetrain.replay.run import ReplayResult
    from freetrain.replay.settings import ReplaySettings


def run_and_show(
    request: ReplayRequest,
    context: CliContext,
    *,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request*, write its folder where asked, and show the results."""
    folder = None if out is None else context.cwd / out
    if folder is not None:
        check_folder(folder, force=force)
    comparison, load_s = compare(request, context)
    if folder is not None:
        from freetrain.report.page import report_files  # noqa: PLC0415 - Plotly

        write_folder(folder, report_files(comparison))
    if as_json:
        records = [
            full_record(r, load_s=load_s)
            | quality_records(comparison, r)
            | forecast_records(r)
            for r in comparison.results
        ]
        write_out(context, json_text(records, indent=2, allow_nan=False))
        return

    write_out(context, _comparison_text(comparison, context))
    if out is not None:
        write_out(context, f"Report: {out / 'report.html'}\n")


def compare(request: ReplayRequest, context: CliContext) -> tuple[Comparison, float]:
    """Read the log once, and replay it under each policy.

    Returns:
        The comparison, and the seconds for reading the log and finding its holes.

    Raises:
        FreeTrainError, LogError, MilpError: See ``pool_of``, ``trainers_of`` and
            ``run_replay``.
    """
    entrants = entrants_of(request)  # refused before a log is read for nothing
    began_s = context.clock()
    timeline, cautions, lease_gpus = pool_of(request, context)
    if request.topology is not None:
        path, nodes = context.cwd / request.topology, timeline.node_names
        leaves = read_leaves(path, nodes, named=request.topology)
        entrants = tuple(replace(settings, leaves=leaves) for settings in entrants)
    mean_units = timeline.mean_nodes * lease_gpus
    trainers = trainers_of(request, context.cwd, mean_nodes=mean_units)
    if lease_gpus > 1:
        trainers = in_leases(trainers, lease_gpus)
        counts = f"Leases are of {lease_gpus} GPUs; counts of trainers are GPUs."
        cautions = (*cautions, counts)
    refuse_against(request, trainers)
    load_s = context.clock() - began_s
    results = tuple(
        _replay(timeline, trainers, settings, context=context) for settings in entrants
    )
    comparison = _described(
        request, timeline, trainers, log_cautions=cautions, results=results
    )
    return replace(comparison, lease_gpus=lease_gpus), load_s


def entrants_of(request: ReplayRequest) -> tuple[ReplaySettings, ...]:
    """Return the settings of each replay of *request*.

    Each policy is replayed once; the rated ones under each priority, and ``lookahead``
    with each forecaster.

    Raises:
        UsageError: There is no such priority, or none of them has such a setting.
    """
    own = _settings_by_priority(request.priorities, request.priority_settings)
    return tuple(
        replace(
            request.settings,
            policy=policy,
            priority=priority,
            priority_settings=own[priority],
            forecaster=forecaster,
        )
        for policy in request.policies
        for priority in (
            request.priorities if policy in RATED_POLICIES else request.priorities[:1]
        )
        for forecaster in request.forecasters_of(policy)
    )


def _settings_by_priority(
    priorities: Sequence[str], settings: Settings
) -> dict[str, Settings]:
    """Return those of *settings* that each of *priorities* has."""
    own = {}
    try:
        check_settings(priorities, dict(settings))
        for name in priorities:
            known = settings_of(name)
            own[name] = tuple(pair for pair in settings if pair[0] in known)
            priority_named(name, dict(own[name]))
    except UsageError as error:
        raise UsageError(f"{error} Nothing was replayed.") from error
    return own


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


# Reading the input

MOST_DAYS = 90.0
"""Dedicated nodes are replayed until all trainers are done, or for so long."""


def pool_of(
    request: ReplayRequest, context: CliContext
) -> tuple[PoolTimeline, tuple[str, ...], int]:
    """Return the pool over time, the cautions of its log, and the GPUs of a lease.

    Of a log that counts no GPUs a lease is of one node, and that is 1.

    Raises:
        FreeTrainError, LogError: The log cannot be read, or nothing is left of it.
    """
    if request.log is None:
        days = MOST_DAYS if request.days is None else request.days
        return PoolTimeline.dedicated(request.pool or 1, days * DAY_S), (), 1
    trace = read_log(
        request.log,
        named=request.named,
        skip_bad=request.skip_bad,
        cores_per_node=request.cores_per_node,
        gpus_per_node=request.gpus_per_node,
    )
    with progress(context, f"scheduling ({request.schedule})") as report:
        idle, cautions = idle_of(
            trace,
            Method(request.schedule),
            passes=Passes(request.passes),
            lease_gpus=request.gpus_per_lease,
            on_progress=report,
        )
    if not len(idle.node):
        reasons = "".join(f" {line}" for line in cautions)
        raise BadDataError(
            f"{request.named}: no node is idle while its jobs run, so there is nothing "
            f"to replay and nothing was done.{reasons} If the log lacks start times, "
            f"use --schedule easy; if the machine is larger than its jobs, say so in "
            f"its header."
        )
    gpus_per_node = _gpus_per_node(trace)
    lease_gpus = request.gpus_per_lease or gpus_per_node
    leases = (
        None if request.nodes is None else request.nodes * gpus_per_node // lease_gpus
    )
    timeline = PoolTimeline.from_trace(
        idle, start_s=request.start_s, nodes=leases, days=request.days
    )
    return timeline, cautions, lease_gpus


def _gpus_per_node(trace: Trace) -> int:
    """Return the GPUs of a node; 1 where the log counts none."""
    if isinstance(trace, JobTrace) and trace.counts_gpus:
        return trace.units_per_node
    return 1


def read_leaves(path: Path, nodes: Sequence[str], *, named: str) -> tuple[str, ...]:
    """Return the leaf of each of *nodes*; empty for those that *path* does not name.

    The file at *path*, which the user named *named*, is as ``scontrol show topology``
    prints it.

    Raises:
        MissingInputError: It cannot be read.
        BadDataError: It is no topology, or names none of *nodes*.
    """
    from slurm.records import leaf_by_node  # noqa: PLC0415 - few replays read one
    from slurm.text import parse_topology  # noqa: PLC0415 - likewise

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


MOST_DRAWN = 10_000


def trainers_of(
    request: ReplayRequest, cwd: Path, *, mean_nodes: float
) -> tuple[TrainerSpec, ...]:
    """Return the trainers of *request*; a load is measured against *mean_nodes*.

    Raises:
        MissingInputError, BadConfigurationError, BadDataError: A file is not there,
            or cannot be read.
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
    return quality_trainers(
        int(size),
        tuple(curves),
        seed=request.seed,
        nodes=mean_nodes,
        load=request.load,
    )


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


def _curves_in(folder: Path, better: MetricDirection) -> list[QualityTruth]:
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
        other = (
            MetricDirection.LOWER
            if better is MetricDirection.HIGHER
            else MetricDirection.HIGHER
        )
        raise BadDataError(
            f"every curve in {folder} ends worse than it begins where {better} values "
            f"are good; nothing was replayed. Say --better {other}."
        )
    return curves


def refuse_against(request: ReplayRequest, trainers: Iterable[TrainerSpec]) -> None:
    """Refuse ``--against`` if none of *trainers* has a quality curve.

    Raises:
        UsageError: None has.
    """
    if request.against is None or any(
        trainer.quality is not None for trainer in trainers
    ):
        return
    raise UsageError(
        f"--against is for trainers with quality curves, and of "
        f"{one_line(request.trainers)} none has one; nothing was replayed. Leave it "
        f"out, or say --trainers {DRAWN}20."
    )


# What was replayed, in words

MOST_NAMED = 8
"""Models whose names are shown; ``...`` stands for more."""


def _described(
    request: ReplayRequest,
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    *,
    log_cautions: tuple[str, ...],
    results: tuple[ReplayResult, ...],
) -> Comparison:
    """Return *results* with a description of their input."""
    nodes, lengths = len(timeline.node_names), hole_lengths(timeline)
    models = list(dict.fromkeys(trainer.scaling.model for trainer in trainers))
    return Comparison(
        command=one_line(request.command),
        version=importlib.metadata.version("freetrain"),
        log=one_line(request.named),
        read_as=_read_as(request, timeline, lengths.holes),
        log_cautions=log_cautions,
        figure_cautions=_figure_cautions(request, timeline, results, trainers=trainers),
        nodes=nodes,
        span_s=timeline.horizon_s,
        hole_lengths=lengths,
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


def _read_as(request: ReplayRequest, timeline: PoolTimeline, count: int) -> str:
    nodes = counted(len(timeline.node_names), "node")
    if request.log is None:
        return f"{nodes} that no other job takes."
    holes = counted(count, "hole")
    return (
        f"{holes} on {nodes} in {render_duration(timeline.horizon_s)}; "
        f"{timeline.mean_nodes:,.1f} nodes idle on average."
    )


HALF = 0.5
"""Share of idle nodes from which on an outage is more likely than a lack of jobs."""

REPORTED_SHARE = 0.05
"""Share of the idle node-time, or of the span, from which on a caution is shown."""


def _figure_cautions(
    request: ReplayRequest,
    timeline: PoolTimeline,
    results: Sequence[ReplayResult],
    *,
    trainers: Sequence[TrainerSpec],
) -> tuple[str, ...]:
    """Return a sentence for what the figures of *results* depend on."""
    never_used = (*missing_basis(results, trainers),)
    if request.log is None:
        return (*never_used, *rigid_jobs(results), *followed(results))
    early = ran_out(results, len(trainers), timeline.horizon_s)
    found = (*never_used, *hole_cautions(timeline), early)
    return (*filter(None, found), *rigid_jobs(results), *followed(results))


def rigid_jobs(results: Sequence[ReplayResult]) -> Iterator[str]:
    """Yield the size of rigid jobs."""
    for result in results:
        if result.fixed_nodes is not None:
            yield (
                f"scavenger: jobs of {counted(result.fixed_nodes, 'node')}, the size "
                f"that trains most here, as many at a time as fit."
            )


def followed(results: Sequence[ReplayResult]) -> Iterator[str]:
    """Yield which policies were followed, and for how much of the time."""
    for result in results:
        led_s = {name: led_s for name, led_s in result.followed_s if led_s}
        if len(led_s) > 1:
            shares = ", ".join(
                f"{name} {percent(own_s / sum(led_s.values()))}"
                for name, own_s in led_s.items()
            )
            yield f"{name_among(result, results)} followed {shares} of the time."


def missing_basis(
    results: Sequence[ReplayResult], trainers: Sequence[TrainerSpec]
) -> tuple[str, ...]:
    """Return a caution for priorities that rate by losses or deadlines none has."""
    asked = {run.priority for run in results if run.policy in RATED_POLICIES}
    by_losses = {n for n in asked if priority_named(n).basis is RatingBasis.LOSSES}
    cautions = []
    if by_losses and all(trainer.quality is None for trainer in trainers):
        names = ", ".join(sorted(by_losses))
        cautions.append(f"No trainer tells a loss, which is what {names} would go by.")
    if "deadline" in asked and all(trainer.deadline_s is None for trainer in trainers):
        cautions.append(
            "No trainer has a deadline, which is what deadline would go by."
        )
    return tuple(cautions)


def hole_cautions(timeline: PoolTimeline) -> tuple[str, ...]:
    """Return a sentence for each trait of the holes that inflates figures."""
    change = timeline.joined.counts - timeline.left.counts
    idle = np.cumsum(change)[: len(timeline.times_s)]
    until_s = np.append(timeline.times_s, timeline.horizon_s)
    lasts_s = np.diff(until_s.clip(max=timeline.horizon_s))
    low = idle >= HALF * len(timeline.node_names)
    low_s = float(lasts_s[low].sum())
    node_s = idle * lasts_s
    every_s = float(node_s.sum())
    in_low = float(node_s[low].sum()) / every_s if every_s else 0.0
    cautions = [_outside_log(timeline)]
    if in_low >= REPORTED_SHARE:
        cautions.append(
            f"Half of the nodes or more were idle for "
            f"{percent(low_s / timeline.horizon_s)} of the time, which holds "
            f"{percent(in_low)} of the idle node-time, as in outages, drains and at "
            f"a log's edges."
        )
    return tuple(filter(None, cautions))


def _outside_log(timeline: PoolTimeline) -> str:
    """Return a caution if there is no hole in much of the span's begin or end."""
    span_s, last_s = timeline.horizon_s, float(timeline.times_s[-1])
    if span_s - last_s >= REPORTED_SHARE * span_s:
        behind = render_duration(span_s - last_s)
        return f"The log ends {behind} before the replay: nothing is idle from there."
    starts_idle = timeline.joined.first[1] > 0
    first_s = 0.0 if starts_idle else float(timeline.times_s[1])
    if first_s >= REPORTED_SHARE * span_s:
        return (
            f"Nothing is idle in the first {render_duration(first_s)}: "
            f"--start can leave {first_s:.15g} s out."
        )
    return ""


def ran_out(results: Sequence[ReplayResult], trainers: int, span_s: float) -> str:
    """Return a caution if all *trainers* finished before the span was over."""
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


# Tables

LEGEND = """\
static:     no policy that can be run: as many nodes, all the time, at no cost;
            a bound for others that run as many trainers at a time
efficiency: training speed over that of static
coverage:   idle node-time spent on training that lasted, of all idle node-time
lost:       training not done as nodes changed, over the training that was done
slowdown:   arrival to finish, over running alone: median / 95th percentile"""
"""The columns' meanings; docs/notes/replay.md has the formulas."""

QUALITY_LEGEND = """\
quality:    of the best, from 0 where a trainer began: mean and worst under way,
            and the mean of all that were submitted
to, tier 1: mean time from arrival to that share of the best, to the first target
last:       longest from arrival to finish; all in: the makespan
luckiest:   the trainer whose first target came soonest; slower: share of trainers
            that finished later; worst: the one that lost most"""


def _comparison_text(comparison: Comparison, context: CliContext) -> str:
    """Return the description of the input, and the tables, for a terminal."""
    console = context.out()
    with console.capture() as captured:
        console.print(f"{comparison.log}: {comparison.read_as}", soft_wrap=True)
        for line in (*comparison.log_cautions, *comparison.figure_cautions):
            console.print(line, soft_wrap=True)
        console.print(f"Trainers: {comparison.trainers}.", soft_wrap=True)
        rows = [table_row(r, comparison.name(r)) for r in comparison.results]
        console.print(figures_table(HEADINGS, rows))
        print_gaps(console, [(comparison.name(r), r) for r in comparison.results])
        console.print(f"\n{LEGEND}", soft_wrap=True)
        tables = _quality_tables(comparison)
        for table in tables:
            console.print()
            console.print(table)
        if tables:
            console.print(f"\n{QUALITY_LEGEND}", soft_wrap=True)
    return captured.get()


def print_gaps(console: Console, results: Iterable[tuple[str, ReplayResult]]) -> None:
    """Print how far the plans of each result were from their bounds."""
    lines = gap_lines((name, result.gap) for name, result in results)
    if lines:
        console.print(f"\n{GAP_HEADING}")
    for line in lines:
        console.print(line, soft_wrap=True)


def _quality_tables(comparison: Comparison) -> list[Table]:
    """Return the tables of quality: none without curves; two with a baseline."""
    shown, baseline = comparison.results, comparison.baseline
    if not any(result.learning for result in shown):
        return []
    rows = [quality_row(result, comparison.name(result)) for result in shown]
    tables = [figures_table(QUALITY_HEADINGS, rows)]
    if baseline is not None:
        others = [
            against_row(result, baseline, comparison.name(result))
            for result in shown
            if result is not baseline
        ]
        name = comparison.name(baseline)
        between = "\n" if " " in name else " "
        heads = (f"vs{between}{_stacked(name)}", *AGAINST_HEADINGS[1:])
        tables.append(figures_table(heads, others))
    return tables


def figures_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for a terminal, its first column words and the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for heading in headings:
        left = heading == headings[0]
        table.add_column(heading, justify="left" if left else "right", no_wrap=left)
    for name, *numbers in rows:
        table.add_row(_stacked(name), *numbers)
    return table


def _stacked(name: str) -> str:
    """Return *name* with the priority below the policy, as 80 columns are few."""
    return name.replace(" ", "\n")


# Leases of parts of nodes

LEASE_HEADINGS = (
    "leases",
    "samples",
    "gain",
    "idle",
    "used",
    "rescales",
    "preempt",
    "lost",
)
LEASE_LEGEND = """\
leases: by their GPUs, the last of whole nodes
gain: samples over those of the same policy with leases of whole nodes
idle: GPU time in which such leases could run; used: of it, held by trainers"""


def run_leases_and_show(
    request: ReplayRequest, sizes: Sequence[int], context: CliContext, *, as_json: bool
) -> None:
    """Replay *request* with leases of each of *sizes* in GPUs, and of whole nodes.

    Raises:
        FreeTrainError, LogError, MilpError: See ``compare``.
    """
    every = (*sizes, None)
    wanted = [replace(request, gpus_per_lease=size) for size in every]
    found = [compare(own, context) for own in wanted]
    whole, _ = found[-1]
    if as_json:
        records = [
            full_record(result, load_s=load_s) | _lease_record(comparison, result, base)
            for comparison, load_s in found
            for result, base in zip(comparison.results, whole.results, strict=True)
        ]
        write_out(context, json_text(records, indent=2, allow_nan=False))
        return
    console = context.out()
    with console.capture() as captured:
        for line in (*whole.log_cautions[:-1], *whole.figure_cautions):
            console.print(line, soft_wrap=True)
        console.print(f"Trainers, in GPUs: {whole.trainers}.", soft_wrap=True)
        rows = [
            _lease_row(comparison, result, base)
            for comparison, _ in found
            for result, base in zip(comparison.results, whole.results, strict=True)
        ]
        console.print(figures_table(LEASE_HEADINGS, rows))
        console.print(f"\n{LEASE_LEGEND}", soft_wrap=True)
    write_out(context, captured.get())


def _lease_record(
    comparison: Comparison, result: ReplayResult, whole: ReplayResult
) -> dict[str, object]:
    gpus = comparison.lease_gpus
    return {
        "gpus_per_lease": gpus,
        "pool_gpu_s": gpus * result.pool_node_s,
        "used_gpu_s": gpus * result.used_node_s,
        "gain": result.samples / whole.samples - 1 if whole.samples else None,
    }


def _lease_row(
    comparison: Comparison, result: ReplayResult, whole: ReplayResult
) -> tuple[str, ...]:
    own = _lease_record(comparison, result, whole)
    gain = own["gain"]
    used = result.used_node_s / result.pool_node_s if result.pool_node_s else None
    gpus, is_alone = f"{comparison.lease_gpus}", len(comparison.results) == 1
    return (
        gpus if is_alone else f"{gpus} {comparison.name(result)}",
        scaled(result.samples),
        percent(gain if isinstance(gain, float) else None),
        f"{comparison.lease_gpus * result.pool_node_s / 3600:,.0f} GPU-h",
        percent(used),
        f"{result.rescales:,}",
        f"{result.preemptions:,}",
        percent(lost_per_sample(result)),
    )


# Replays over seeds and loads


def run_sweep_and_show(  # noqa: PLR0913 - as the command line has it
    request: ReplayRequest,
    context: CliContext,
    *,
    loads: Sequence[float],
    seeds: Sequence[int],
    processes: int,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request* once for each load and seed, and show or write the scores.

    Raises:
        FreeTrainError, LogError, MilpError: See ``compare``.
    """
    draws = [replace(request, load=load, seed=seed) for load in loads for seed in seeds]
    scores = sweep(draws, context, processes=processes)
    if as_json or out is not None:
        text = json_text(scores, indent=2)
    else:
        text = sweep_text(scores, context, against=str(request.against))
    if out is None:
        write_out(context, text)
    else:
        write_file(context.cwd / out, text.encode("utf-8"), force=force)


def sweep(
    draws: Sequence[ReplayRequest], context: CliContext, *, processes: int
) -> tuple[Score, ...]:
    """Return the scores of all *draws*, in order, with any number of processes."""
    found: list[Score] = []
    with progress(context, "replaying") as report:
        for done, scores in enumerate(_scores(draws, context, processes), start=1):
            found.extend(scores)
            if report is not None:
                report(done / len(draws))
    return tuple(found)


def _scores(
    draws: Sequence[ReplayRequest], context: CliContext, processes: int
) -> Iterator[Sequence[Score]]:
    if processes == 1:
        quiet = replace(context, is_terminal=False)
        yield from (_scores_of_draw(request, quiet) for request in draws)
        return
    # A fresh interpreter: forking one that has threads may hang.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh) as pool:
        with _interrupts_later():
            replays = [pool.submit(_in_a_worker, request) for request in draws]
        try:
            for replay in replays:
                yield replay.result()
        except BaseException:  # an interrupt, too: do not wait for the rest
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold interrupts back, and let no process that begins meanwhile ever have one.

    Ctrl-C goes to all processes of a terminal; each of ours would print a traceback.
    Processes keep the mask that they begin with, signal(7).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_a_worker(request: ReplayRequest) -> Sequence[Score]:
    return _scores_of_draw(request, replace(process_context(), is_terminal=False))


def _scores_of_draw(request: ReplayRequest, context: CliContext) -> Sequence[Score]:
    if request.packs is not None:
        return _scores_of_packs(request, request.packs, context)
    comparison, _ = compare(request, context)
    return scores_of(comparison, load=request.load, seed=request.seed)


def _scores_of_packs(
    request: ReplayRequest, nodes: int, context: CliContext
) -> Sequence[Score]:
    """Return the scores of all rules by which members of packs move, but one."""
    trainers = trainers_of(request, context.cwd, mean_nodes=nodes)
    results = {
        rule: replay_packs(
            trainers,
            rule,
            nodes=nodes,
            interval_s=request.settings.t_fwd_s,
            cost_factor=request.settings.cost_factor,
        )
        for rule in PACK_RULES
    }
    baseline = results.pop(str(request.against))
    return tuple(
        Score(
            priority=rule,
            load=request.load,
            seed=request.seed,
            quality=quality_of(result),
            against=against(result, baseline),
        )
        for rule, result in results.items()
    )


ABREAST = 3
"""Priorities that fit beside each other into 80 columns."""

SWEEP_LEGEND = """\
Changes in % against the same trainers on the same nodes: the mean over the seeds,
then the best and the worst seed. `freetrain docs notes/replay` defines all figures."""


def sweep_text(scores: Sequence[Score], context: CliContext, *, against: str) -> str:
    """Return tables by load: a column a priority, a line a figure."""
    console = context.out()
    names = list(dict.fromkeys(score.priority for score in scores))
    with console.capture() as captured:
        for load in dict.fromkeys(score.load for score in scores):
            for first in range(0, len(names), ABREAST):
                few = names[first : first + ABREAST]
                own = [s for s in scores if s.load == load and s.priority in few]
                console.print(_table(own, few, f"load {load:g}, vs {against}"))
                console.print()
        console.print(SWEEP_LEGEND, soft_wrap=True)
    return captured.get()


def _table(scores: Sequence[Score], names: Sequence[str], title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    table.add_column(title, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    by_name = [[s for s in scores if s.priority == name] for name in names]
    for row in sweep_rows():
        table.add_row(row.title, *(cell(row, own) for own in by_name))
    return table
