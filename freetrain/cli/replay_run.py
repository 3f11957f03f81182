"""Show the replays of a request: its policies, and what is compared beside them.

That is leases of several sizes, loads and seeds, or a broker in the loop.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from freetrain.api.compare import (
    compare,
    entrants_of,
    lease_words,
    load_trainers,
    log_of,
)
from freetrain.api.writing import check_folder, write_file, write_folder
from freetrain.broker.limits import Mode
from freetrain.cli.context import CliContext, json_text, rendered, write_out
from freetrain.cli.replay import loop_words
from freetrain.errors import UsageError
from freetrain.replay.trainers import in_leases
from freetrain.report.quality import (
    AGAINST_HEADINGS,
    QUALITY_HEADINGS,
    Score,
    against_row,
    cell,
    quality_records,
    quality_row,
    sweep_rows,
)
from freetrain.report.summary import (
    FORECAST_PAGE,
    GAP_HEADING,
    HEADINGS,
    Comparison,
    Origin,
    forecast_records,
    full_record,
    gap_lines,
    lost_per_sample,
    name_among,
    percent,
    steady_record,
    table_row,
)
from freetrain.text import DAY_S, counted, one_line, render_duration, scaled
from logs.simulation import Method, Passes
from logs.trace import JobTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from freetrain.api.request import ReplayRequest
    from freetrain.replay.loop import LoopResult, Stage
    from freetrain.replay.run import ReplayResult
    from freetrain.replay.settings import LoopSettings, ReplaySettings
    from freetrain.replay.trainers import TrainerSpec


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
    results = [(comparison.name(result), result) for result in comparison.results]
    rows = [table_row(result, name) for name, result in results]
    tables = _quality_tables(comparison)
    return rendered(
        context,
        f"{comparison.log}: {comparison.read_as}",
        *comparison.log_cautions,
        *comparison.figure_cautions,
        f"Trainers: {comparison.trainers}.",
        figures_table(HEADINGS, rows),
        *_gap_parts(results),
        f"\n{LEGEND}",
        *(part for table in tables for part in ("", table)),
        *([f"\n{QUALITY_LEGEND}"] if tables else []),
    )


def _gap_parts(results: Iterable[tuple[str, ReplayResult]]) -> list[str]:
    """Return how far the plans of each result were from their bounds."""
    lines = gap_lines((name, result.gap) for name, result in results)
    return [f"\n{GAP_HEADING}", *lines] if lines else []


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


# Leases that are pieces of nodes

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
    rows = [
        _lease_row(comparison, result, base)
        for comparison, _ in found
        for result, base in zip(comparison.results, whole.results, strict=True)
    ]
    text = rendered(
        context,
        *whole.log_cautions[:-1],
        *whole.figure_cautions,
        f"Trainers, in GPUs: {whole.trainers}.",
        figures_table(LEASE_HEADINGS, rows),
        f"\n{LEASE_LEGEND}",
    )
    write_out(context, text)


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
    from freetrain.api.sweep import sweep  # noqa: PLC0415 - processes, packs

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


ABREAST = 3
"""Priorities that fit beside each other into 80 columns."""

SWEEP_LEGEND = """\
Changes in % against the same trainers on the same nodes: the mean over the seeds,
then the best and the worst seed. All figures: `freetrain docs notes/replay`."""


def sweep_text(scores: Sequence[Score], context: CliContext, *, against: str) -> str:
    """Return tables by load: a column a priority, a line a figure."""
    names = list(dict.fromkeys(score.priority for score in scores))
    parts: list[RenderableType] = []
    for load in dict.fromkeys(score.load for score in scores):
        for first in range(0, len(names), ABREAST):
            few = names[first : first + ABREAST]
            own = [s for s in scores if s.load == load and s.priority in few]
            parts += [_sweep_table(own, few, f"load {load:g}, vs {against}"), ""]
    return rendered(context, *parts, SWEEP_LEGEND)


def _sweep_table(scores: Sequence[Score], names: Sequence[str], title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    table.add_column(title, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    by_name = [[s for s in scores if s.priority == name] for name in names]
    for row in sweep_rows():
        table.add_row(row.title, *(cell(row, own) for own in by_name))
    return table


# With the broker in the loop


def run_loop_and_show(  # noqa: PLR0913 - as the command line has it
    request: ReplayRequest,
    loop: LoopSettings,
    context: CliContext,
    *,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request* in the loop, write its folder where asked, and show it.

    Raises:
        FreeTrainError, LogError, MilpError: See ``_stage`` and ``run_in_the_loop``.
    """
    folder = None if out is None else context.cwd / out
    if folder is not None:
        check_folder(folder, force=force)
    entrants = entrants_of(request)  # bad settings are refused before long work
    began_s = context.clock()
    trainers = load_trainers(request.trainers, context.cwd)
    stage = _stage(request, context)
    trainers = in_leases(trainers, stage.slots.gpus or 1)
    load_s = context.clock() - began_s
    results = [
        _replay(stage, trainers, settings, loop, context) for settings in entrants
    ]
    read_as = _loop_read_as(request, stage)
    files = {} if folder is None else _loop_files(request, loop, read_as, results)
    if folder is not None:
        write_folder(folder, files)
    if as_json:
        records = [
            full_record(result.replay, load_s=load_s) | _loop_record(result, loop)
            for result in results
        ]
        write_out(context, json_text(records, indent=2, allow_nan=False))
        return
    write_out(context, _loop_text(read_as, results, loop, context))
    if out is not None and FORECAST_PAGE in files:
        write_out(context, f"Forecasts: {out / FORECAST_PAGE}\n")


def _stage(request: ReplayRequest, context: CliContext) -> Stage:
    trace = log_of(request).trace
    if not isinstance(trace, JobTrace):
        raise UsageError(
            f"{request.named} holds idle intervals and no jobs, so that no scheduler "
            f"can be in the loop. Nothing was replayed. Leave --in-the-loop out."
        )
    from freetrain.replay.loop import Stage  # noqa: PLC0415 - the whole broker

    with context.progress(f"scheduling ({request.schedule})") as report:
        stage = Stage(
            trace,
            Method(request.schedule),
            start_s=request.start_s,
            days=request.days,
            passes=Passes(request.passes),
            lease_gpus=request.gpus_per_lease,
            on_progress=report,
        )
    if stage.end_s <= stage.start_s:
        when, advice = (
            ("by --start", "Start earlier.")
            if request.start_s > 0
            else ("at second 0", "Leave --in-the-loop out.")
        )
        raise UsageError(
            f"{request.named}: its last job is submitted {when}, and the loop lasts "
            f"until then; nothing was replayed. {advice}"
        )
    _ = stage.alone_s  # worked out here, so that no policy's time includes it
    return stage


def _replay(
    stage: Stage,
    trainers: tuple[TrainerSpec, ...],
    settings: ReplaySettings,
    loop: LoopSettings,
    context: CliContext,
) -> LoopResult:
    from freetrain.replay.loop import run_in_the_loop  # noqa: PLC0415 - see _stage

    began_s = context.clock()
    with context.progress(f"replaying under {settings.policy}") as report:
        result = run_in_the_loop(
            stage,
            trainers,
            settings,
            loop,
            clock=context.clock,
            on_progress=report,
        )
    measured = replace(
        result.replay,
        wall_s=context.clock() - began_s,
        peak_rss_bytes=context.peak_rss_bytes(),
    )
    return replace(result, replay=measured)


def _loop_files(
    request: ReplayRequest,
    loop: LoopSettings,
    read_as: str,
    results: Sequence[LoopResult],
) -> dict[str, bytes]:
    """Return the content of each file of ``--out``, the same bytes every time."""
    from freetrain.report.page import forecast_texts  # noqa: PLC0415 - Plotly

    origin = Origin(
        log=one_line(request.named),
        read_as=one_line(read_as),
        command=one_line(f"{request.command} {shlex.join(loop_words(loop))}"),
        version=importlib.metadata.version("freetrain"),
    )
    policies = [
        steady_record(result.replay) | _loop_record(result, loop) for result in results
    ]
    summary = dataclasses.asdict(origin) | {"policies": policies}
    del summary["report"]
    texts = {"summary.json": json_text(summary, indent=2, allow_nan=False)}
    texts |= forecast_texts(origin, [result.replay for result in results])
    return {name: text.encode("utf-8") for name, text in texts.items()}


LOOP_NAMES = (
    *("mode", "knows_plans", "tick_s", "lead_s", "last_s"),
    *("notice_s", "commit_s", "margin_s", "is_careful"),
)
"""Settings of a loop that are shown."""


def _loop_record(result: LoopResult, loop: LoopSettings) -> dict[str, object]:
    """Return the figures of docs/notes/replay.md by name that only loops have."""
    return {
        "loop": {name: getattr(loop, name) for name in LOOP_NAMES},
        "holes": dataclasses.asdict(result.holes) | {"long_use": result.holes.long_use},
        "harm": result.harm,
    } | forecast_records(result.replay)


def _loop_read_as(request: ReplayRequest, stage: Stage) -> str:
    span_s = stage.end_s - stage.start_s
    nodes, jobs = len(stage.slots.layout.names), len(stage.alone_s)
    played = (
        f"{request.named}: {counted(jobs, 'job')} under {request.schedule} on "
        f"{counted(nodes, 'node')} in {render_duration(span_s)}, from day "
        f"{stage.start_s / DAY_S:g}."
    )
    cautions = stage.cautions
    if stage.slots.gpus is not None:
        cautions = (*cautions, lease_words(stage.slots.gpus))
    return " ".join((played, *cautions))


TRAINED = ("policy", "samples", "preempt", "lost to it", "coverage", "10 min")
HARMED = (
    "policy",
    "met",
    "waited",
    "at most",
    "later",
    "sooner",
    "median",
    "95 %",
    "worst",
    "total",
)

LOOP_LEGEND = """\
preempt:    preemptions; lost to it: samples not trained because of them
coverage:   idle node-time spent on training that lasted, of all idle node-time
10 min:     node-time of holes of ten minutes and more that trainers held
met:        jobs that had to wait for us to go; waited: how long, in seconds
later:      jobs that started later than without us, however little, and sooner;
            median, 95 %, worst: by how many seconds, over all jobs;
            total: hours by which jobs started later"""
"""The columns' meanings; docs/notes/replay.md has the formulas."""


def _loop_text(
    read_as: str, results: Sequence[LoopResult], loop: LoopSettings, context: CliContext
) -> str:
    """Return the description of the input, and two tables, for a terminal."""
    replays = [result.replay for result in results]
    named = [(name_among(each.replay, replays), each) for each in results]
    ticks = f"every {loop.tick_s:g} s"
    if loop.lead_s is not None:
        early = f"{loop.lead_s:g}"
        if loop.last_lead_s is not None:
            early += f" and {loop.last_lead_s:g}"
        ticks += f", {early} s early,"
    seen = "sees plans" if loop.knows_plans else "is blind to plans"
    care = ""
    if loop.mode is Mode.YIELD:
        care = ", careful" if loop.is_careful else ", careless"
    return rendered(
        context,
        read_as,
        f"The broker ticks {ticks} and {seen}; mode {loop.mode}{care}.",
        figures_table(TRAINED, [_trained(*each) for each in named]),
        "",
        figures_table(HARMED, [_harmed(*each) for each in named]),
        *_gap_parts((name, result.replay) for name, result in named),
        f"\n{LOOP_LEGEND}",
    )


def _trained(name: str, result: LoopResult) -> tuple[str, ...]:
    replay = result.replay
    return (
        name,
        scaled(replay.samples),
        f"{replay.preemptions:,}",
        scaled(replay.preempt_samples),
        percent(replay.coverage),
        percent(result.holes.long_use),
    )


def _harmed(name: str, result: LoopResult) -> tuple[str, ...]:
    harm = result.harm
    return (
        name,
        f"{harm.met:,}",
        f"{harm.waited_mean_s:.1f}",
        f"{harm.waited_most_s:.1f}",
        f"{harm.later:,}",
        f"{harm.sooner:,}",
        f"{harm.median_s:.0f}",
        f"{harm.high_s:.0f}",
        f"{harm.most_s:.0f}",
        f"{harm.total_s / 3600:,.1f} h",
    )
