"""Replays with the broker in the loop, and shows what came of it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.load import load_trace, load_trainers
from freetrain.cli.loop_request import loop_words
from freetrain.cli.output import check_folder, write_folder, write_out
from freetrain.cli.progress import progress
from freetrain.errors import UsageError
from freetrain.replay.loop import Stage, run_in_the_loop
from freetrain.replay.run import Caller
from freetrain.replay.timeline import DAY_S
from freetrain.report.comparison import full_record, steady_record
from freetrain.report.forecast import FORECAST_PAGE, forecast_records
from freetrain.text import counted, one_line, render_duration
from logs.schedule import Method
from logs.trace import JobTrace

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.cli.request import ReplayRequest
    from freetrain.cli.world import World
    from freetrain.replay.loop import LoopResult
    from freetrain.replay.loop_settings import LoopSettings
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import TrainerSpec


@dataclass(frozen=True, slots=True, eq=False)
class Looped:
    """What was replayed in the loop.

    Attributes:
        stage: The jobs.
        results: One an entrant.
        load_s: Seconds for reading the log and playing it up to the start, twice.
    """

    stage: Stage
    results: tuple[LoopResult, ...]
    load_s: float


def run_loop_and_show(  # noqa: PLR0913 - what the command line says, as it says it
    request: ReplayRequest,
    loop: LoopSettings,
    world: World,
    *,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request* in the loop, write its folder where asked, and show it.

    Raises:
        FreeTrainError, LogError, MilpError: See ``load`` and ``run_in_the_loop``.
    """
    folder = None if out is None else world.cwd / out
    if folder is not None:
        check_folder(folder, force=force)
    looped = _play(request, loop, world)
    files = {} if folder is None else _files(request, loop, looped)
    if folder is not None:
        write_folder(folder, files)
    if as_json:
        records = [
            full_record(one.replay, load_s=looped.load_s) | _loop_record(one, loop)
            for one in looped.results
        ]
        write_out(world, json.dumps(records, indent=2, allow_nan=False) + "\n")
        return
    from freetrain.cli.loop_text import loop_text  # noqa: PLC0415 - Rich

    write_out(world, loop_text(_read_as(request, looped), looped.results, loop, world))
    if out is not None and FORECAST_PAGE in files:
        write_out(world, f"Forecasts: {out / FORECAST_PAGE}\n")


def _play(request: ReplayRequest, loop: LoopSettings, world: World) -> Looped:
    entrants = request.entrants  # bad settings are refused before long work
    began_s = world.clock()
    trainers = load_trainers(request.trainers, world.cwd)
    stage = _stage(request, world)
    load_s = world.clock() - began_s
    results = tuple(
        _replay(stage, trainers, settings, loop, world) for settings in entrants
    )
    return Looped(stage, results, load_s)


def _stage(request: ReplayRequest, world: World) -> Stage:
    if request.log is None:
        raise UsageError("a loop needs a log; nothing was replayed.")
    trace = load_trace(request.log, named=request.named, skip_bad=request.skip_bad)
    if not isinstance(trace, JobTrace):
        raise UsageError(
            f"{request.named} holds idle intervals and no jobs, so that no scheduler "
            f"can be in the loop. Nothing was replayed. Leave --in-the-loop out."
        )
    with progress(world, f"scheduling ({request.schedule})") as report:
        stage = Stage(
            trace,
            Method(request.schedule),
            start_s=request.start_s,
            days=request.days,
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
    # Once, before anybody's time is taken.
    _ = stage.alone_s
    return stage


def _replay(
    stage: Stage,
    trainers: tuple[TrainerSpec, ...],
    settings: ReplaySettings,
    loop: LoopSettings,
    world: World,
) -> LoopResult:
    began_s = world.clock()
    with progress(world, f"replaying under {settings.policy}") as report:
        caller = Caller(world.clock, report)
        result = run_in_the_loop(stage, trainers, settings, loop, caller)
    measured = replace(
        result.replay,
        wall_s=world.clock() - began_s,
        peak_rss_bytes=world.peak_rss_bytes(),
    )
    return replace(result, replay=measured)


def _files(
    request: ReplayRequest, loop: LoopSettings, looped: Looped
) -> dict[str, bytes]:
    """Return the content of each file of ``--out``, the same bytes every time."""
    from freetrain.report.forecast import Origin  # noqa: PLC0415 - Plotly
    from freetrain.report.page import forecast_texts  # noqa: PLC0415 - Plotly

    origin = Origin(
        log=one_line(request.named),
        read_as=one_line(_read_as(request, looped)),
        command=one_line(f"{request.command} {shlex.join(loop_words(loop))}"),
        version=importlib.metadata.version("freetrain"),
    )
    policies = [
        steady_record(one.replay) | _loop_record(one, loop) for one in looped.results
    ]
    summary = dataclasses.asdict(origin) | {"policies": policies}
    del summary["report"]
    texts = {"summary.json": json.dumps(summary, indent=2, allow_nan=False) + "\n"}
    texts |= forecast_texts(origin, [one.replay for one in looped.results])
    return {name: text.encode("utf-8") for name, text in texts.items()}


def _loop_record(result: LoopResult, loop: LoopSettings) -> dict[str, object]:
    """Return the figures of docs/replay.md by name that only loops have."""
    asked = {
        "mode": loop.mode.value,
        "knows_plans": loop.knows_plans,
        "tick_s": loop.tick_s,
        "lead_s": loop.lead_s,
        "last_s": loop.last_s,
        "notice_s": loop.notice_s,
        "commit_s": loop.commit_s,
        "margin_s": loop.margin_s,
        "is_careful": loop.is_careful,
    }
    holes = dataclasses.asdict(result.holes) | {"long_use": result.holes.long_use}
    loops = {"loop": asked, "holes": holes, "harm": dataclasses.asdict(result.harm)}
    return loops | forecast_records(result.replay)


def _read_as(request: ReplayRequest, looped: Looped) -> str:
    stage = looped.stage
    span_s = stage.end_s - stage.start_s
    nodes, jobs = stage.nodes.count, len(stage.alone_s)
    return (
        f"{request.named}: {counted(jobs, 'job')} under {request.schedule} on "
        f"{counted(nodes, 'node')} in {render_duration(span_s)}, from day "
        f"{stage.start_s / DAY_S:g}."
    )
