"""Replays one request under each of its policies."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.cautions import cautions, ran_out
from freetrain.cli.load import (
    counted,
    cut,
    fitted,
    idle_of,
    load_trace,
    load_trainers,
)
from freetrain.cli.progress import progress
from freetrain.replay.run import run_replay
from freetrain.report.comparison import Comparison, hole_lengths_s
from freetrain.toml.duration import render_duration
from freetrain.toml.wording import one_line
from logs.schedule import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.cli.request import ReplayRequest
    from freetrain.cli.world import World
    from freetrain.replay.result import ReplayResult
    from freetrain.replay.timeline import PoolTimeline
    from freetrain.trainers.spec import TrainerSpec

RIGID = "scavenger"
"""The policy that gives trainers their fixed size."""

MOST_NAMED = 8
"""Models that are named one by one."""


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
    began_s = world.clock()
    trainers = load_trainers(request.trainers, world.cwd)
    trace = load_trace(request.log, named=request.named, skip_bad=request.skip_bad)
    with progress(world, f"scheduling ({request.schedule})") as report:
        idle = idle_of(trace, Method(request.schedule), on_progress=report)
    timeline = cut(idle, request)
    trainers, made_smaller = fitted(trainers, len(timeline.node_names))
    told = made_smaller if RIGID in request.policies else ()
    load_s = world.clock() - began_s
    results = tuple(
        _replay(timeline, trainers, policy, request=request, world=world)
        for policy in request.policies
    )
    comparison = describe(
        request,
        timeline,
        trainers,
        left_out=idle.left_out + told,
        results=results,
    )
    return Compared(comparison, load_s)


def _replay(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    policy: str,
    *,
    request: ReplayRequest,
    world: World,
) -> ReplayResult:
    settings = replace(request.settings, policy=policy)
    began_s = world.clock()
    with progress(world, f"replaying under {policy}") as report:
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
    lengths_s = hole_lengths_s(timeline)
    nodes = len(timeline.node_names)
    early = ran_out(results, len(trainers), timeline.horizon_s)
    models = list(dict.fromkeys(trainer.scaling.model for trainer in trainers))
    return Comparison(
        command=one_line(request.command),
        version=importlib.metadata.version("freetrain"),
        log=one_line(request.named),
        read_as=(
            f"{counted(len(lengths_s), 'hole')} on {counted(nodes, 'node')} in "
            f"{render_duration(timeline.horizon_s)}; "
            f"{timeline.mean_nodes:,.1f} nodes idle on average."
        ),
        left_out=left_out,
        cautions=tuple(filter(None, (*cautions(timeline), early))),
        nodes=nodes,
        span_s=timeline.horizon_s,
        hole_lengths_s=lengths_s,
        trainers=(
            f"{one_line(request.trainers)}: {counted(len(trainers), 'trainer')} "
            f"({', '.join(models[:MOST_NAMED])}"
            f"{', ...' if len(models) > MOST_NAMED else ''}), "
            f"{request.settings.parallel} at a time"
        ),
        trainer_count=len(trainers),
        parallel=request.settings.parallel or len(trainers),
        results=results,
    )
