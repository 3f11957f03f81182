"""Who deserves nodes, by the priority that the site has chosen; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.jobfile.job import Order
from freetrain.priority.interface import Basis, Contender, Look, Target
from freetrain.priority.planned import planned_curves
from freetrain.tick.deserts import Deserts
from freetrain.tick.past import total_of
from freetrain.tick.worth import Way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from freetrain.jobfile.job import TrainerJob
    from freetrain.priority.interface import Memory, Priority, Rating
    from freetrain.quality.outlook import Better, Outlook, Point
    from freetrain.site.settings import PlannerSettings
    from freetrain.tick.learning import Learned
    from freetrain.tick.standing import Standing
    from freetrain.tick.worth import Speeds
    from milp.problem import Curve

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
