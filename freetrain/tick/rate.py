"""Who deserves nodes, by the priority that the site has chosen; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.config.job import Order
from freetrain.errors import BadConfigurationError, UsageError
from freetrain.priority.base import Basis, Contender, Look, Target, planned_curves
from freetrain.priority.registry import priority_named
from freetrain.state.tables import latest_scalings, memory_of, outlook_kept
from freetrain.tick.page import Deserts
from freetrain.tick.trainers import AsSaid, KeptOutlooks, Way, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.config.site import PlannerSettings
    from freetrain.losscurve.outlook import Better, Outlook, Point
    from freetrain.priority.base import Memory, Priority, Rating
    from freetrain.tick.context import Run
    from freetrain.tick.observe import Observed
    from freetrain.tick.trainers import Learned, Speeds, Standing
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

    standing: Standing
    job: TrainerJob
    learned: Learned | None = None


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


def rate(candidates: Sequence[Candidate], asking: Asking) -> Deserts:
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
    return Deserts(
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
    job, row, learned = one.job, one.standing.row, one.learned
    newest = one.standing.newest
    held = min(0 if newest is None else len(newest.members), job.nodes.sizes[-1])
    done = (learned.past.work if learned else None) or 0.0
    total = total_of(job, learned.past) if learned else None
    speed = asking.speeds.of(
        job,
        {} if learned is None else learned.scaling,
        Way(held, math.inf if total is None else max(0.0, total - done)),
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
        target=_target(job, learned),
        outlook=_outlook(row.name, job, learned, asking),
        grow_s=speed.grow_s,
        shrink_s=speed.shrink_s,
        start_s=speed.start_s,
    )


def _target(job: TrainerJob, learned: Learned | None) -> Target | None:
    if job.target is None:
        return None
    return Target(
        deliver=job.target.deliver,
        final=job.target.final,
        is_delivered=learned is not None and learned.past.deliver is not None,
    )


def _outlook(
    name: str, job: TrainerJob, learned: Learned | None, asking: Asking
) -> Outlook | None:
    if asking.priority.basis is not Basis.LOSSES or learned is None:
        return None
    return asking.fit(name, learned.past.told(), job.measure.better)


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


def deserts_of(run: Run, observed: Observed, *, nodes: int) -> Deserts:
    """Return what the trainers that want nodes deserve.

    Args:
        run: The tick.
        observed: What is so.
        nodes: Idle nodes, held ones included.

    Raises:
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
        MalformedProblemError: A trainer's speeds make no sense.
    """
    settings = run.site.planner
    priority = priority_of(settings)
    candidates = [
        Candidate(standing=one, job=one.job, learned=observed.learned.get(one.row.name))
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    ]
    outlooks = KeptOutlooks(lambda name, told: outlook_kept(run.state, name, told=told))
    asking = Asking(
        settings=settings,
        priority=priority,
        memory=memory_of(run.state, priority.name),
        fit=outlooks.look,
        speeds=_speeds(run, observed),
        nodes=nodes,
        now_s=observed.now_s,
    )
    return replace(rate(candidates, asking), fresh=tuple(outlooks.fresh))


def _speeds(run: Run, observed: Observed) -> Speeds:
    settings = run.site.planner
    if not settings.learn:
        return AsSaid()
    # Imported here: who does not learn needs none of it.
    from freetrain.scaling import (  # noqa: PLC0415
        Profiling,
        deviations_for,
    )
    from freetrain.tick.trainers import measured_by  # noqa: PLC0415

    profiling = Profiling(trial_s=settings.t_fwd_s) if settings.profile else None
    scalings = latest_scalings(run.state)
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
