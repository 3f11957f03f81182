"""Replays one request under each of its policies."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.cautions import (
    cautions,
    nothing_to_go_by,
    ran_out,
    too_dear_to_start,
)
from freetrain.cli.leaves import read_leaves
from freetrain.cli.load import (
    cut,
    fitted,
    idle_of,
    load_trace,
)
from freetrain.cli.progress import progress
from freetrain.cli.team import team
from freetrain.cli.unused import refuse_against
from freetrain.replay.run import run_replay
from freetrain.replay.timeline import DAY_S, PoolTimeline
from freetrain.report.comparison import Comparison, hole_lengths_s
from freetrain.text import counted, one_line, render_duration
from logs.schedule import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.cli.request import ReplayRequest
    from freetrain.cli.world import World
    from freetrain.replay.result import ReplayResult
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import TrainerSpec

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


def compare(request: ReplayRequest, world: World) -> Compared:
    """Read the log once, replay it under each policy.

    Raises:
        FreeTrainError, LogError, MilpError: See ``load`` and ``run_replay``.
    """
    entrants = request.entrants  # refused before a log is read for nothing
    began_s = world.clock()
    timeline, left_out = pool_of(request, world)
    entrants = _placed(entrants, request, timeline, world)
    trainers = team(request, world.cwd, mean_nodes=timeline.mean_nodes)
    refuse_against(request, trainers)
    trainers, made_smaller = fitted(trainers, len(timeline.node_names))
    told = made_smaller if RIGID in request.policies else ()
    load_s = world.clock() - began_s
    results = tuple(
        _replay(timeline, trainers, settings, world=world) for settings in entrants
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
    request: ReplayRequest, world: World
) -> tuple[PoolTimeline, tuple[str, ...]]:
    """Return the pool over time, and what was not used of its log.

    Raises:
        FreeTrainError, LogError: See ``load``.
    """
    if request.log is None:
        days = MOST_DAYS if request.days is None else request.days
        return PoolTimeline.dedicated(request.pool or 1, days * DAY_S), ()
    trace = load_trace(request.log, named=request.named, skip_bad=request.skip_bad)
    with progress(world, f"scheduling ({request.schedule})") as report:
        idle = idle_of(trace, Method(request.schedule), on_progress=report)
    return cut(idle, request), idle.left_out


def _placed(
    entrants: Sequence[ReplaySettings],
    request: ReplayRequest,
    timeline: PoolTimeline,
    world: World,
) -> tuple[ReplaySettings, ...]:
    """Return *entrants* with the leaf switches that the nodes are below, if asked for.

    Raises:
        FreeTrainError: See ``read_leaves``.
    """
    if request.topology is None:
        return tuple(entrants)
    path, nodes = world.cwd / request.topology, timeline.node_names
    leaves = read_leaves(path, nodes, named=request.topology)
    return tuple(replace(one, leaves=leaves) for one in entrants)


def _replay(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    *,
    world: World,
) -> ReplayResult:
    began_s = world.clock()
    with progress(world, f"replaying under {settings.policy}") as report:
        result = run_replay(
            timeline, trainers, settings, clock=world.clock, on_progress=report
        )
    return replace(
        result,
        wall_s=world.clock() - began_s,
        peak_rss_bytes=world.peak_rss_bytes(),
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
