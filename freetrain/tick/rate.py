"""Who deserves nodes, by the priority that the site has chosen; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.config.job import Order
from freetrain.errors import BadConfigurationError, UsageError
from freetrain.priority.base import Basis, Contender, Look, Target, planned_curves
from freetrain.priority.registry import priority_named
from freetrain.state.tables import latest_scalings, loss_forecast_of, priority_memory_of
from freetrain.tick.history import total_of
from freetrain.tick.speeds import StatedSpeeds, measured_by
from freetrain.tick.trainers import KeptLossForecasts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.config.site import PlannerSettings
    from freetrain.losscurve.outlook import Better, Outlook, Point
    from freetrain.priority.base import Memory, Priority, Rating
    from freetrain.state.tables import LossForecastRow
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.speeds import Speeds
    from freetrain.tick.trainers import ObservedTrainer, TrainerProgress
    from milp.problem import Curve


# ----------------------------------------------------------------------
# Who deserves nodes, by the priority that the site has chosen; pure.

if TYPE_CHECKING:
    Fitter = Callable[[str, Sequence[Point], Better], Outlook | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A trainer that wants nodes, with all that is known of it.

    Attributes:
        standing: The trainer.
        job: Its job file.
        learned: What it told and showed; None where nothing is known.
    """

    trainer: ObservedTrainer
    job: TrainerJob
    progress: TrainerProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asking:
    """What rating takes beside the trainers.

    Attributes:
        settings: The site's.
        priority: Who rates.
        memory: What it is to be told.
        fit: What makes outlooks, by name; not called where nobody looks at them.
        speeds: What says how quick trainers are.
        nodes: Idle nodes, held ones included.
        now_s: The moment, Unix time.
    """

    settings: PlannerSettings
    priority: Priority
    memory: Memory
    fit: Fitter
    speeds: Speeds
    nodes: int
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratings:
    """Who deserves what.

    Attributes:
        priority: Who says so.
        contenders: The trainers, as they were rated.
        curves: What the planner is told of each.
        reasons: Why, for people.
        background: Who gets only what the others leave.
        losses_s: Seconds of its work that losing nodes costs each trainer.
        memory: What the priority is to be told next.
        fresh: Outlooks that were fitted for it, to be kept.
    """

    priority: str
    contenders: Mapping[str, Contender] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    background: frozenset[str] = frozenset()
    losses_s: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=dict)
    fresh: tuple[LossForecastRow, ...] = ()


def rate(candidates: Sequence[Candidate], asking: Asking) -> Ratings:
    """Return what each of *candidates* deserves.

    Whoever is in the background, by job file or by rating, is planned after all
    others; so it needs no lower curve, and keeps its place among its like.

    Raises:
        MalformedProblemError: A trainer's speeds make no sense.
    """
    contenders = tuple(contender_of(one, asking) for one in candidates)
    look = Look(
        now_s=asking.now_s,
        contenders=contenders,
        nodes=asking.nodes,
        t_fwd_s=asking.settings.t_fwd_s,
    )
    rated = asking.priority.rate(look, asking.memory)
    names = [one.name for one in contenders]
    last = {
        name
        for name, one, rating in zip(names, candidates, rated.ratings, strict=True)
        if rating.is_background or one.job.order is Order.BACKGROUND
    }
    return Ratings(
        priority=asking.priority.name,
        contenders=dict(zip(names, contenders, strict=True)),
        curves=_curves(dict(zip(names, rated.ratings, strict=True)), last),
        reasons={n: r.reason for n, r in zip(names, rated.ratings, strict=True)},
        background=frozenset(last),
        losses_s=dict(zip(names, map(_loss_s, candidates, contenders), strict=True)),
        memory=rated.memory,
    )


def _loss_s(one: Candidate, contender: Contender) -> float:
    """Return the seconds of its work that losing nodes costs a trainer.

    Whoever uses our library commits when it is told to leave, and loses no more than
    the shrink; of another program it is not known, and half of what it does between
    two commits is lost in the mean.
    """
    lost_s = 0.0 if one.job.elastic else one.job.checkpoint.every_s / 2.0
    return contender.shrink_s + lost_s


def contender_of(one: Candidate, asking: Asking) -> Contender:
    """Return *one* as a priority sees it."""
    job, row, progress = one.job, one.trainer.row, one.progress
    newest = one.trainer.newest
    held = min(0 if newest is None else len(newest.members), job.nodes.sizes[-1])
    done = (progress.history.work if progress else None) or 0.0
    total = total_of(job, progress.history) if progress else None
    speed = asking.speeds.of(
        job,
        {} if progress is None else progress.scaling,
        held=held,
        remaining=math.inf if total is None else max(0.0, total - done),
    )
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
        outlook=_outlook(row.name, job, progress, asking),
        grow_s=speed.grow_s,
        shrink_s=speed.shrink_s,
        start_s=speed.start_s,
    )


def _target(job: TrainerJob, progress: TrainerProgress | None) -> Target | None:
    if job.target is None:
        return None
    return Target(
        deliver=job.target.deliver,
        final=job.target.final,
        is_delivered=progress is not None and progress.history.deliver is not None,
    )


def _outlook(
    name: str, job: TrainerJob, progress: TrainerProgress | None, asking: Asking
) -> Outlook | None:
    if asking.priority.basis is not Basis.LOSSES or progress is None:
        return None
    return asking.fit(name, progress.history.metric_points(), job.measure.better)


def _curves(ratings: Mapping[str, Rating], last: set[str]) -> dict[str, Curve]:
    """Return curves with floors worked in, those of the background on their own."""
    curves: dict[str, Curve] = {}
    for is_last in (False, True):
        names = [name for name in ratings if (name in last) is is_last]
        alike = [replace(ratings[name], is_background=False) for name in names]
        curves |= zip(names, planned_curves(alike), strict=True)
    return curves


# ----------------------------------------------------------------------
# Asking the site's priority: with what the store remembers, and what was learned.


def ratings_of(context: TickContext, observed: Observed, *, nodes: int) -> Ratings:
    """Return what the trainers that want nodes deserve.

    Args:
        context: The tick.
        observed: What is so.
        nodes: Idle nodes, held ones included.

    Raises:
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
        MalformedProblemError: A trainer's speeds make no sense.
    """
    settings = context.site.planner
    priority = priority_of(settings)
    candidates = [
        Candidate(
            trainer=one, job=one.job, progress=observed.progress.get(one.row.name)
        )
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    ]
    outlooks = KeptLossForecasts(
        lambda name, points: loss_forecast_of(context.state, name, fitted_to=points)
    )
    asking = Asking(
        settings=settings,
        priority=priority,
        memory=priority_memory_of(context.state, priority.name),
        fit=outlooks.look,
        speeds=_speeds(context, observed),
        nodes=nodes,
        now_s=observed.now_s,
    )
    return replace(rate(candidates, asking), fresh=tuple(outlooks.fresh))


def _speeds(context: TickContext, observed: Observed) -> Speeds:
    settings = context.site.planner
    if not settings.learn:
        return StatedSpeeds()
    # Imported here: who does not learn needs none of it.
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
