"""Rate trainers by the site's priority: their speeds, their forecasts, their worth."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.config.job import ServiceOrder
from freetrain.errors import BadConfigurationError, BadDataError, UsageError
from freetrain.losscurve.curve import LossHistory
from freetrain.losscurve.fit import (
    broken_forecast,
    fingerprint,
    fit_history,
    from_state,
)
from freetrain.losscurve.fit import to_state as fit_to_state
from freetrain.planning.rating import (
    ASSUMED_COSTS_S,
    is_scarce,
    learned_costs_s,
    learned_speeds,
    rate,
)
from freetrain.priority.base import (
    Contender,
    RatingBasis,
    RatingInputs,
    Target,
    priority_named,
)
from freetrain.scaling import (
    ASSUMED_EXPONENT,
    LearnedScaling,
    Profiling,
    deviations_for,
    shown_by,
    site_prior,
)
from freetrain.state.tables import (
    LossForecastRow,
    latest_scalings,
    loss_forecast_of,
    priority_memory_of,
)
from freetrain.tick.trainers import (
    PROGRAM,
    kind_of,
    known_from,
    program_of,
    siblings_of,
    total_of,
    unit_of,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.config.job import RescaleCosts, TrainerJob
    from freetrain.config.site import PlannerSettings
    from freetrain.losscurve.fit import FittedForecast, Sibling
    from freetrain.losscurve.forecast import LossForecast, MetricPoint
    from freetrain.planning.rating import Ratings, RescaleCostsS
    from freetrain.priority.base import Priority
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.trainers import PastTrainer, TickTrainer, TrainerProgress

    Fitter = Callable[[str, TrainerJob, Sequence[MetricPoint]], LossForecast | None]


def ratings_of(
    context: TickContext, observed: Observed, *, nodes: int
) -> tuple[Ratings, tuple[LossForecastRow, ...]]:
    """Return the ratings of the trainers that want nodes.

    Args:
        context: The tick.
        observed: What the tick observed.
        nodes: Idle nodes, held ones included.

    Returns:
        The ratings, and loss forecasts that were fitted for them, to be kept.

    Raises:
        BadConfigurationError: There is no such priority.
        StoreError: The priority's memory cannot be read.
        MalformedProblemError: A trainer's speeds make no sense.
    """
    settings = context.site.planner
    priority = priority_of(settings)
    past = [(trainer.row, trainer.job) for trainer in observed.trainers]
    forecaster = LossForecaster(context.state, past)
    fit = forecaster.forecast if priority.basis is RatingBasis.LOSSES else None
    wanted = [
        (trainer, trainer.job)
        for trainer in observed.trainers
        if trainer.job is not None and trainer.is_wanted
    ]
    largest = [job.nodes.sizes[-1] for _, job in wanted]
    speeds = _measured_speeds(context, observed, scarce=is_scarce(largest, nodes))
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
    return ratings, tuple(forecaster.fresh)


def contender_of(
    trainer: TickTrainer,
    job: TrainerJob,
    progress: TrainerProgress | None = None,
    *,
    speeds: MeasuredSpeeds | None = None,
    fit: Fitter | None = None,
) -> Contender:
    """Return a trainer as a priority sees it.

    Args:
        trainer: The trainer.
        job: Its job file.
        progress: What it reported and showed; None where nothing is known.
        speeds: How quick trainers were measured to be; None for what users say.
        fit: Forecasts its losses; None where the priority does not look at them.
    """
    row, newest = trainer.row, trainer.newest
    held = min(0 if newest is None else len(newest.members), job.nodes.sizes[-1])
    done = (progress.history.work if progress else None) or 0.0
    total = total_of(job, progress.history) if progress else None
    speed = (
        stated_speed(job)
        if speeds is None
        else speeds.of(
            job,
            {} if progress is None else progress.scaling,
            held=held,
            remaining=math.inf if total is None else max(0.0, total - done),
            since_s=None if newest is None else newest.created_s,
            report_s=progress.history.report_s if progress else 0.0,
        )
    )
    forecast = None
    if fit is not None and progress is not None:
        points = progress.history.metric_points()
        forecast = fit(row.name, job, points)
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
        # A program that uses our library commits at the notice to leave. Another may
        # not: on average it loses half of its work between two commits.
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


def _measured_speeds(
    context: TickContext, observed: Observed, *, scarce: bool
) -> MeasuredSpeeds | None:
    settings = context.site.planner
    if not settings.learn:
        return None
    return MeasuredSpeeds(
        latest_scalings(context.state),
        now_s=observed.now_s,
        profiling=Profiling(trial_s=settings.t_fwd_s) if settings.profile else None,
        deviations=deviations_for(settings.priority),
        scarce=scarce,
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


# How quick trainers are by node count, and what rescales cost them.


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSpeed:
    """How quick one trainer is, and what rescales cost it.

    Attributes:
        samples_per_s: By node count, from 0 to the most that it can use; in the unit
            of its work where that is not samples.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
    """

    samples_per_s: NDArray[np.float64]
    grow_s: float
    shrink_s: float
    start_s: float


def stated_speed(job: TrainerJob) -> TrainerSpeed:
    """Return how quick *job* is by its job file."""
    return TrainerSpeed(speeds_of(job), *costs_s(job.costs))


_PATIENCE_S = 600.0
"""After ten minutes without a report of its speed a trainer need not stay on its
smallest size; then it gets nodes as if its speed grew as is assumed of all."""

_REPORTS = 3
"""A speed is measured by the third report at the latest."""


class MeasuredSpeeds:
    """How quick trainers were measured to be at one site, and what users say.

    Args:
        scalings: What trainers of the site have shown (``scaling.to_state``); a trainer
            is expected to be like them until it has shown its own speed.
        now_s: Unix time.
        profiling: How trainers try sizes; None where they do not.
        deviations: By how many standard deviations speeds of trainers that wait are
            lowered.
        scarce: Whether trainers contend for nodes.
    """

    def __init__(
        self,
        scalings: Iterable[Mapping[str, Any]],
        *,
        now_s: float,
        profiling: Profiling | None = None,
        deviations: float = 0.0,
        scarce: bool = False,
    ) -> None:
        shown = []
        self._programs: dict[str, LearnedScaling] = {}
        for scaling in scalings:
            known, program = known_from(scaling), scaling.get(PROGRAM)
            shown.append(shown_by(known, now_s=now_s))
            if isinstance(program, str):
                others = self._programs.get(program, LearnedScaling())
                self._programs[program] = others.merged(known)
        self._prior = site_prior(speeds for speeds in shown if speeds is not None)
        self._scarce = scarce
        self._now_s = now_s
        self._profiling = profiling
        self._deviations = deviations

    def of(  # noqa: PLR0913 - one fact each
        self,
        job: TrainerJob,
        scaling: Mapping[str, Any],
        *,
        held: int = 0,
        remaining: float = math.inf,
        since_s: float | None = None,
        report_s: float = 0.0,
    ) -> TrainerSpeed:
        """Return how quick *job* is; its stated costs count before measured ones.

        What other trainers of the same program showed counts where it has not run yet.
        Speeds of a trainer that waits are lowered by their uncertainty. Where trainers
        may try sizes, speeds of a running one include the gain that it may hope for.

        Args:
            job: The trainer.
            scaling: What it has shown itself, empty for nothing.
            held: Nodes that it runs on now.
            remaining: Its work until it is finished, in the unit of its speeds; inf
                where that is unknown.
            since_s: Since when it holds these nodes; None for unknown.
            report_s: Seconds between its reports, about.
        """
        siblings = self._programs.get(program_of(job), LearnedScaling())
        known = known_from(scaling).with_siblings(siblings, now_s=self._now_s)
        rescales_s = costs_s(job.costs, learned_costs_s(known))
        if job.scaling and not known.seen:
            return TrainerSpeed(speeds_of(job), *rescales_s)
        speeds = learned_speeds(
            known,
            job.nodes.sizes,
            held=held,
            now_s=self._now_s,
            prior=self._prior,
            deviations=self._deviations,
            profiling=self._tries(job, known, held, since_s, report_s),
            remaining_samples=remaining,
            costs_s=rescales_s,
            is_scarce=self._scarce,
            stated=_stated(job, known),
        )
        return TrainerSpeed(speeds, *rescales_s)

    def _tries(
        self,
        job: TrainerJob,
        known: LearnedScaling,
        held: int,
        since_s: float | None,
        report_s: float,
    ) -> Profiling | None:
        """Return how a trainer tries sizes; None where none can be measured."""
        waited_s = self._now_s - since_s if held and since_s is not None else 0.0
        reports = job.elastic or job.progress is not None
        if self._profiling is None or not reports:
            return None
        if not known.seen and waited_s > _PATIENCE_S:
            return None
        trial_s = max(self._profiling.trial_s, _REPORTS * report_s)
        return replace(self._profiling, trial_s=trial_s)


def speeds_of(job: TrainerJob, *, at_least: int = 0) -> NDArray[np.float64]:
    """Return stated samples a second, from 0 nodes to the most that *job* can use.

    Between the points of ``scaling`` speed is linear; beyond the last, and where there
    are none, it grows as is assumed of all.

    Args:
        job: The trainer.
        at_least: Nodes up to which speeds are wanted in any case.
    """
    most = max(job.nodes.sizes[-1], at_least)
    counts = np.arange(most + 1, dtype=np.float64)
    if not job.scaling:
        return counts**ASSUMED_EXPONENT
    nodes = [0, *(count for count, _ in job.scaling)]
    speeds = np.interp(counts, nodes, [0.0, *(speed for _, speed in job.scaling)])
    last = nodes[-1]
    beyond = counts > last
    speeds[beyond] = job.scaling[-1][1] * (counts[beyond] / last) ** ASSUMED_EXPONENT
    return speeds


def costs_s(
    costs: RescaleCosts,
    assumed_s: RescaleCostsS = ASSUMED_COSTS_S,
) -> RescaleCostsS:
    """Return seconds without training at growing, shrinking and starting.

    Args:
        costs: What the user says.
        assumed_s: The same three, for those that the user does not give.
    """
    grow_s, shrink_s, start_s = assumed_s
    return (
        grow_s if costs.grow_s is None else costs.grow_s,
        shrink_s if costs.shrink_s is None else costs.shrink_s,
        start_s if costs.start_s is None else costs.start_s,
    )


def _stated(job: TrainerJob, known: LearnedScaling) -> dict[int, float] | None:
    """Return the stated speeds, in the unit in which speeds were measured.

    Users state samples. Where the program reports only steps or epochs, the shape of
    the stated curve still holds: it is scaled to the speed of the smallest size seen.
    """
    if not job.scaling:
        return None
    stated = dict(job.scaling)
    if unit_of(job) == "samples" or not known.seen:
        return stated
    nodes = min(known.seen)
    measured_per_s = known.seen[nodes][-1].samples_per_s
    factor = measured_per_s / float(speeds_of(job, at_least=nodes)[nodes])
    return {n: speed * factor for n, speed in stated.items()}


# Loss forecasts, fitted anew only where a trainer reported something new.


class LossForecaster:
    """Forecasts losses of trainers, by a saved fit where nothing new was reported.

    Args:
        state: The store, with fits of earlier ticks.
        past: All trainers in order of submission; the finished ones show how others of
            their program go on.

    Attributes:
        fresh: New fits, to be saved for later ticks.
    """

    def __init__(
        self, state: sqlite3.Connection, past: Sequence[PastTrainer] = ()
    ) -> None:
        self.fresh: list[LossForecastRow] = []
        self._state = state
        self._past = past
        self._siblings: dict[tuple[object, ...], tuple[Sibling, ...]] = {}

    def forecast(
        self, name: str, job: TrainerJob, points: Sequence[MetricPoint]
    ) -> LossForecast | None:
        """Return the forecast of the trainer *name*; None where there is none.

        Args:
            name: Unique among trainers.
            job: Its job file.
            points: All points of its metric, in order.
        """
        better, siblings = job.measure.better, self._siblings_of(job)
        history, points_id = LossHistory(points), fingerprint(points, better)
        saved = loss_forecast_of(self._state, name, fitted_to=points_id)
        if saved is not None:
            with suppress(BadDataError):
                return from_state(saved, history, better, siblings=siblings)
        fitted = fit_history(
            history, better, lr_steps=job.measure.lr_steps, siblings=siblings
        )
        if fitted is None:
            return broken_forecast(history, better)
        self.fresh.append(LossForecastRow(name, points_id, fit_to_state(fitted)))
        return fitted

    def recent(
        self, name: str, job: TrainerJob, points: Sequence[MetricPoint]
    ) -> tuple[FittedForecast | None, float]:
        """Return a saved forecast moved on to the last of *points*; nothing is fitted.

        Returns:
            The forecast, None where there is none; and by what share of itself the work
            has grown since it was fitted, inf where it is of no use.
        """
        saved = loss_forecast_of(self._state, name, fitted_to=None)
        history = LossHistory(points)
        if saved is None or not len(history):
            return None, math.inf
        with suppress(BadDataError):
            fitted = from_state(
                saved, history, job.measure.better, siblings=self._siblings_of(job)
            )
            done = fitted.frame.samples(fitted.fit.end)
            grown = fitted.points[-1].samples / done - 1.0 if done > 0 else -1.0
            if grown >= 0.0:
                return fitted.refreshed(history), grown
        return None, math.inf

    def _siblings_of(self, job: TrainerJob) -> tuple[Sibling, ...]:
        kind = kind_of(job)
        if kind not in self._siblings:
            self._siblings[kind] = siblings_of(self._state, job, self._past)
        return self._siblings[kind]
