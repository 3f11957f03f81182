"""Replay a request with the broker in the loop, and show the results."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.api.compare import entrants_of, lease_words, load_trainers, log_of
from freetrain.api.writing import check_folder, write_folder
from freetrain.broker.limits import Mode
from freetrain.cli.context import (
    CliContext,
    json_text,
    write_out,
)
from freetrain.cli.replay import loop_words
from freetrain.cli.replay_run import figures_table, print_gaps
from freetrain.errors import UsageError
from freetrain.replay.loop import Stage, run_in_the_loop
from freetrain.replay.pool import DAY_S
from freetrain.replay.trainers import in_leases
from freetrain.report.summary import (
    FORECAST_PAGE,
    Origin,
    forecast_records,
    full_record,
    name_among,
    percent,
    steady_record,
)
from freetrain.text import counted, one_line, render_duration, scaled
from logs.simulation import Method, Passes
from logs.trace import JobTrace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from freetrain.api.request import ReplayRequest
    from freetrain.replay.loop import LoopResult
    from freetrain.replay.settings import LoopSettings, ReplaySettings
    from freetrain.replay.trainers import TrainerSpec


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
    read_as = _read_as(request, stage)
    files = {} if folder is None else _files(request, loop, read_as, results)
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


def _files(
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


def _loop_record(result: LoopResult, loop: LoopSettings) -> dict[str, object]:
    """Return the figures of docs/notes/replay.md by name that only loops have."""
    return {
        "loop": {
            "mode": loop.mode,
            "knows_plans": loop.knows_plans,
            "tick_s": loop.tick_s,
            "lead_s": loop.lead_s,
            "last_s": loop.last_s,
            "notice_s": loop.notice_s,
            "commit_s": loop.commit_s,
            "margin_s": loop.margin_s,
            "is_careful": loop.is_careful,
        },
        "holes": dataclasses.asdict(result.holes) | {"long_use": result.holes.long_use},
        "harm": result.harm,
    } | forecast_records(result.replay)


def _read_as(request: ReplayRequest, stage: Stage) -> str:
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

LEGEND = """\
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
    console = context.out()
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
    with console.capture() as captured:
        console.print(read_as, soft_wrap=True)
        console.print(
            f"The broker ticks {ticks} and {seen}; mode {loop.mode}{care}.",
            soft_wrap=True,
        )
        console.print(figures_table(TRAINED, [_trained(*each) for each in named]))
        console.print()
        console.print(figures_table(HARMED, [_harmed(*each) for each in named]))
        print_gaps(console, [(name, result.replay) for name, result in named])
        console.print(f"\n{LEGEND}", soft_wrap=True)
    return captured.get()


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
