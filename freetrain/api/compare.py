"""Replays a request under each of its policies, and says what its figures rest on.

``compare`` reads the log and the trainers, and replays them once for each policy,
priority and forecaster.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.api.context import missing
from freetrain.api.logs import read_log
from freetrain.api.request import DRAWN, is_drawn
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
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.trainers import (
    BUILTIN_NAMES,
    QualityTruth,
    TrainerSpec,
    builtin_trainers,
    in_leases,
    quality_trainers,
    truth_of,
)
from freetrain.report.summary import Comparison, hole_lengths, name_among, percent
from freetrain.text import DAY_S, closest, counted, one_line, render_duration
from logs.idleness import HALF
from logs.trace import JobTrace
from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from freetrain.api.context import UserContext
    from freetrain.api.logs import Log
    from freetrain.api.request import ReplayRequest, Settings
    from freetrain.replay.run import ReplayResult
    from freetrain.replay.settings import ReplaySettings
    from logs.trace import Trace


def compare(
    request: ReplayRequest, context: UserContext, *, log: Log | None = None
) -> tuple[Comparison, float]:
    """Read the log of *request* once, unless it is given, and replay each policy.

    Returns:
        The comparison, and the seconds for reading the log and finding its holes.

    Raises:
        FreeTrainError, LogError, MilpError: See ``pool_of``, ``trainers_of`` and
            ``run_replay``.
    """
    entrants = entrants_of(request)  # refused before a log is read for nothing
    began_s = context.clock()
    timeline, cautions, lease_gpus = pool_of(request, context, log=log)
    if request.topology is not None:
        path, nodes = context.cwd / request.topology, timeline.node_names
        leaves = read_leaves(path, nodes, named=request.topology)
        entrants = tuple(replace(settings, leaves=leaves) for settings in entrants)
    mean_units = timeline.mean_nodes * lease_gpus
    trainers = trainers_of(request, context.cwd, mean_nodes=mean_units)
    if lease_gpus > 1:
        trainers = in_leases(trainers, lease_gpus)
        cautions = (*cautions, lease_words(lease_gpus))
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
    context: UserContext,
) -> ReplayResult:
    began_s = context.clock()
    with context.progress(f"replaying under {settings.policy}") as report:
        result = run_replay(
            timeline, trainers, settings, clock=context.clock, on_progress=report
        )
    return replace(
        result,
        wall_s=context.clock() - began_s,
        peak_rss_bytes=context.peak_rss_bytes(),
    )


# Reading the input


def lease_words(gpus: int) -> str:
    """Return a sentence on leases of *gpus* GPUs."""
    return f"Leases are of {counted(gpus, 'GPU')}; counts of trainers are GPUs."


MOST_DAYS = 90.0
"""Dedicated nodes are replayed until all trainers are done, or for so long."""


def pool_of(
    request: ReplayRequest, context: UserContext, *, log: Log | None = None
) -> tuple[PoolTimeline, tuple[str, ...], int]:
    """Return the pool over time, the cautions of its log, and the GPUs of a lease.

    Of a log that counts no GPUs a lease is of one node, and that is 1.

    Raises:
        FreeTrainError, LogError: The log cannot be read, or nothing is left of it.
    """
    if request.log is None:
        days = MOST_DAYS if request.days is None else request.days
        return PoolTimeline.dedicated(request.pool or 1, days * DAY_S), (), 1
    log = log or log_of(request)
    idle, cautions = log.idle(
        schedule=request.schedule,
        passes=request.passes,
        gpus_per_lease=request.gpus_per_lease,
        context=context,
    )
    if not len(idle.node):
        reasons = "".join(f" {line}" for line in cautions)
        raise BadDataError(
            f"{request.named}: no node is idle while its jobs run, so there is nothing "
            f"to replay and nothing was done.{reasons} If the log lacks start times, "
            f"use --schedule easy; if the machine is larger than its jobs, say so in "
            f"its header."
        )
    gpus_per_node = _gpus_per_node(log.trace)
    lease_gpus = request.gpus_per_lease or gpus_per_node
    leases = (
        None if request.nodes is None else request.nodes * gpus_per_node // lease_gpus
    )
    timeline = PoolTimeline.from_trace(
        idle, start_s=request.start_s, nodes=leases, days=request.days
    )
    return timeline, cautions, lease_gpus


def log_of(request: ReplayRequest) -> Log:
    """Read the log of *request*.

    Raises:
        UsageError: It has none.
        MissingInputError, OSError, LogError: See ``read_log``.
    """
    if request.log is None:
        raise UsageError("there is no log; nothing was replayed. Name one.")
    return read_log(
        request.log,
        named=request.named,
        skip_bad=request.skip_bad,
        cores_per_node=request.cores_per_node,
        gpus_per_node=request.gpus_per_node,
    )


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
    # Checks of TOML files, which built-in trainers are spared.
    from freetrain.replay.trainers_file import read_trainers  # noqa: PLC0415

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
    from freetrain.replay.trainers_file import read_curve  # noqa: PLC0415 - as above

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
            f"{request.parallel or 'all'} at a time"
        ),
        trainer_count=len(trainers),
        parallel=request.parallel or len(trainers),
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
