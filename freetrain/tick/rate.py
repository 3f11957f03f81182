"""Rate trainers by the site's priority, with what is known of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.config.job import ServiceOrder
from freetrain.errors import BadConfigurationError, UsageError
from freetrain.planning.rating import rate
from freetrain.priority.base import Basis, Contender, RatingInputs, Target
from freetrain.priority.registry import priority_named
from freetrain.state.tables import latest_scalings, loss_forecast_of, priority_memory_of
from freetrain.tick.history import total_of
from freetrain.tick.progress import KeptLossForecasts
from freetrain.tick.speeds import StatedSpeeds, measured_by

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.config.site import PlannerSettings
    from freetrain.losscurve.forecast import Better, LossForecast, Point
    from freetrain.planning.rating import Ratings
    from freetrain.priority.base import Priority
    from freetrain.state.tables import LossForecastRow
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.progress import TrainerProgress
    from freetrain.tick.speeds import Speeds
    from freetrain.tick.trainers import TickTrainer

    Fitter = Callable[[str, Sequence[Point], Better], LossForecast | None]


def ratings_of(
    context: TickContext, observed: Observed, *, nodes: int
) -> tuple[Ratings, tuple[LossForecastRow, ...]]:
    """Return the ratings of the trainers that want nodes.

    Args:
        context: The tick.
        observed: What is so.
        nodes: Idle nodes, held ones included.

    Returns:
        The ratings, and loss forecasts that were fitted for them, to be kept.

    Raises:
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
        MalformedProblemError: A trainer's speeds make no sense.
    """
    settings = context.site.planner
    priority = priority_of(settings)
    forecasts = KeptLossForecasts(
        lambda name, points: loss_forecast_of(context.state, name, fitted_to=points)
    )
    fit = forecasts.look if priority.basis is Basis.LOSSES else None
    speeds = _speeds(context, observed)
    wanted = [
        (trainer, trainer.job)
        for trainer in observed.trainers
        if trainer.job is not None and trainer.is_wanted
    ]
    contenders = tuple(
        contender_of(
            trainer,
            job,
            observed.progress.get(trainer.row.name),
            speeds=speeds,
            fit=fit,
        )
        for trainer, job in wanted
    )
    inputs = RatingInputs(
        now_s=observed.now_s,
        contenders=contenders,
        nodes=nodes,
        t_fwd_s=settings.t_fwd_s,
    )
    ratings = rate(
        inputs,
        priority,
        priority_memory_of(context.state, priority.name),
        background=[
            trainer.row.name
            for trainer, job in wanted
            if job.order is ServiceOrder.BACKGROUND
        ],
    )
    return ratings, tuple(forecasts.fresh)


def contender_of(
    trainer: TickTrainer,
    job: TrainerJob,
    progress: TrainerProgress | None,
    *,
    speeds: Speeds,
    fit: Fitter | None,
) -> Contender:
    """Return a trainer as a priority sees it.

    Args:
        trainer: The trainer.
        job: Its job file.
        progress: What it reported and showed; None where nothing is known.
        speeds: Knows how quick trainers are.
        fit: Forecasts its losses; None where the priority does not look at them.
    """
    row, newest = trainer.row, trainer.newest
    held = min(0 if newest is None else len(newest.members), job.nodes.sizes[-1])
    done = (progress.history.work if progress else None) or 0.0
    total = total_of(job, progress.history) if progress else None
    speed = speeds.of(
        job,
        {} if progress is None else progress.scaling,
        held=held,
        remaining=math.inf if total is None else max(0.0, total - done),
    )
    forecast = None
    if fit is not None and progress is not None:
        points = progress.history.metric_points()
        forecast = fit(row.name, points, job.measure.better)
    return Contender(
        name=row.name,
        sizes=job.nodes.sizes,
        samples_per_s=speed.samples_per_s,
        held=held,
        done_samples=done,
        total_samples=total,
        weight=job.weight,
        deadline_s=job.deadline.time_s(row.submitted_s) if job.deadline else None,
        target=_target(job, progress),
        forecast=forecast,
        grow_s=speed.grow_s,
        shrink_s=speed.shrink_s,
        start_s=speed.start_s,
        # A program that uses our library commits when it is told to leave. What another
        # does is not known: it loses half of what it does between two commits, in the
        # mean.
        lost_s=0.0 if job.elastic else job.checkpoint.every_s / 2.0,
    )


def _target(job: TrainerJob, progress: TrainerProgress | None) -> Target | None:
    if job.target is None:
        return None
    return Target(
        deliver=job.target.deliver,
        final=job.target.final,
        is_delivered=progress is not None and progress.history.deliver is not None,
    )


def _speeds(context: TickContext, observed: Observed) -> Speeds:
    settings = context.site.planner
    if not settings.learn:
        return StatedSpeeds()
    # Imported here: a site that does not learn needs none of it.
    from freetrain.scaling import (  # noqa: PLC0415
        Profiling,
        deviations_for,
    )

    profiling = Profiling(trial_s=settings.t_fwd_s) if settings.profile else None
    scalings = latest_scalings(context.state)
    return measured_by(
        scalings,
        now_s=observed.now_s,
        profiling=profiling,
        deviations=deviations_for(settings.priority),
    )


def priority_of(settings: PlannerSettings) -> Priority:
    """Return the priority that *settings* name.

    Raises:
        BadConfigurationError: There is none of that name, or it has no such setting.
    """
    try:
        return priority_named(settings.priority, dict(settings.priority_settings))
    except UsageError as error:
        raise BadConfigurationError(f"freetrain.toml: [planner]: {error}") from error
