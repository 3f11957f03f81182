"""From what a tick observed to what it does: ratings, plan, actions.

:func:`decide_on` tells the whole way. Where forecasts fail, it plans without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.decide import Decision, Look, decide
from freetrain.broker.lease import uuid_in
from freetrain.broker.pool import Trainer
from freetrain.config.job import NodeSettings
from freetrain.config.site import requirement_of
from freetrain.planning.policy import Tools, make_policy
from freetrain.planning.rating import Ratings
from freetrain.planning.settings import HORIZON_S, POLICIES
from freetrain.tick.holes import Finder, not_tried, shape_name
from milp.planner import Planner, SolverName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.broker.belief import Belief
    from freetrain.broker.yielding import Claims
    from freetrain.config.job import TrainerJob
    from freetrain.config.site import PlannerSettings, Site
    from freetrain.planning.policy import Search
    from freetrain.state.tables import LossForecastRow
    from freetrain.tick.context import TickContext
    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.trainers import TickTrainer
    from slurm.records import JobRecord, Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What to do, and all that it was decided by.

    Attributes:
        look: What was observed, as the broker takes it.
        decision: What to do.
        shapes: What leases ask of their nodes, by shape.
        ratings: What the priority says of the trainers.
        problems: What could not be taken into account, for people.
        loss_forecasts: Those that were fitted for the ratings, to be kept.
        forecasts: How long nodes stay; None where the policy asks no forecasts.
    """

    look: Look
    decision: Decision
    shapes: Mapping[str, Requirement]
    ratings: Ratings
    problems: tuple[str, ...]
    loss_forecasts: tuple[LossForecastRow, ...] = ()
    forecasts: NodeForecasts | None = None


def decide_on(
    context: TickContext,
    observed: Observed,
    *,
    foresee: Callable[..., NodeForecasts] | None = None,
) -> Decided:
    """Return what to do about what was observed.

    Args:
        context: The tick.
        observed: What the tick observed.
        foresee: Makes forecasts in place of ``tick.lookahead``; one that fails, in a
            test.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
        MilpError: The planning problem contradicts itself.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
    """
    settings, limits = context.site.planner, observed.limits
    shapes, is_ours = _shapes(context.site, observed), _ours(context, observed)
    finder = Finder(context.site, observed, is_ours, context.environment.clock)
    holes, problems = finder.holes(shapes)
    claims = finder.claims(shapes)
    holes = finder.before_bookings(holes, claims, shapes)
    nodes = {hole.node for found in holes.values() for hole in found}
    ratings, loss_forecasts = _rated(context, observed, nodes=len(nodes))
    look = Look(
        now_s=observed.now_s,
        holes=holes,
        belief=_without_the_unreadable(observed, claims),
        trainers=_trainers(context.site, observed, ratings),
        assignments=tuple(
            one.newest.assignment
            for one in observed.trainers
            if one.newest is not None and not one.problem
        ),
        claims=claims,
        pace=observed.pace,
        silent=observed.heartbeats.silent,
        absent=observed.heartbeats.never_heard,
        unheard_s=observed.heartbeats.quiet_s,
        is_plan_known=observed.is_plan_known,
        background=ratings.background,
    )
    policy = make_policy(
        settings.policy, tools_for(settings, context.environment.clock)
    )
    forecasts, decision = None, None
    dropped: tuple[str, ...] = ()
    if POLICIES[settings.policy].looks_ahead:
        # Imported here: forecasts need NumPy, and most sites' ticks none of them.
        from freetrain.tick import lookahead  # noqa: PLC0415

        try:
            forecasts = (foresee or lookahead.foresee)(
                context, observed, is_ours=is_ours
            )
            decision = decide(
                look,
                policy,
                limits,
                t_fwd_s=settings.t_fwd_s,
                foresight=lookahead.foresight_of(settings, forecasts),
            )
            forecasts = forecasts.settled(observed)
            dropped = forecasts.problems
        except lookahead.FAULTS as error:
            forecasts, decision = None, None
            why = lookahead.said_of(error)
            dropped = (f"looking ahead failed ({why}); plans go by speed alone",)
    if decision is None:
        decision = decide(look, policy, limits, t_fwd_s=settings.t_fwd_s)
    unreadable = tuple(one.problem for one in observed.trainers if one.problem)
    too_dear = _too_dear(settings, ratings, forecasts)
    return Decided(
        look=look,
        decision=decision,
        shapes=shapes,
        ratings=ratings,
        problems=(*unreadable, *problems, *dropped, *too_dear, *not_tried(claims)),
        loss_forecasts=loss_forecasts,
        forecasts=forecasts,
    )


LONGEST_SEARCH_S = 2.0
"""Longer than a search by forecasts needs; others wait for ticks, not for a proof."""


def tools_for(settings: PlannerSettings, clock: Callable[[], float]) -> Tools:
    """Return what policies of ticks are made with.

    Args:
        settings: The site's.
        clock: Seconds that only go up.
    """

    def solver() -> Planner:
        return Planner(SolverName(settings.solver), limit_s=settings.solver_limit_s)

    def search() -> Search:
        # Imported here: it needs what only policies that look ahead need.
        from freetrain.planning.lookahead import ProvingSearch  # noqa: PLC0415

        return ProvingSearch(min(LONGEST_SEARCH_S, settings.solver_limit_s), clock)

    return Tools(solver=solver, start_solver=solver, search=search)


def requirement_for(site: Site, job: TrainerJob, observed: Observed) -> Requirement:
    """Return what leases for *job* ask of their nodes."""
    default = observed.partition.name
    return requirement_of(job.nodes, site.lease, default_partition=default)


def _shapes(site: Site, observed: Observed) -> dict[str, Requirement]:
    """Return what is asked of nodes, by shape; without trainers, what the site asks."""
    wanted = [
        requirement_for(site, one.job, observed)
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    ]
    if not wanted:
        default = observed.partition.name
        own = requirement_of(
            NodeSettings(max_nodes=1), site.lease, default_partition=default
        )
        wanted = [own]
    return {shape_name(one): one for one in wanted}


def _ours(context: TickContext, observed: Observed) -> Callable[[JobRecord], bool]:
    known = frozenset(intent.uuid for intent in observed.belief.intents)
    uid = context.environment.uid
    return lambda job: job.uid == uid and uuid_in(job.name) in known


def _rated(
    context: TickContext, observed: Observed, *, nodes: int
) -> tuple[Ratings, tuple[LossForecastRow, ...]]:
    if not any(one.is_wanted for one in observed.trainers):
        return Ratings(priority=context.site.planner.priority), ()
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.rate import ratings_of  # noqa: PLC0415

    return ratings_of(context, observed, nodes=nodes)


def _trainers(site: Site, observed: Observed, ratings: Ratings) -> tuple[Trainer, ...]:
    return tuple(
        _trainer(site, observed, one.job, one, ratings)
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    )


def _trainer(
    site: Site,
    observed: Observed,
    job: TrainerJob,
    trainer: TickTrainer,
    ratings: Ratings,
) -> Trainer:
    name, newest = trainer.row.name, trainer.newest
    contender = ratings.contenders[name]
    return Trainer(
        name=name,
        curve=ratings.curves[name],
        shape=shape_name(requirement_for(site, job, observed)),
        up_s=contender.grow_s,
        down_s=contender.shrink_s,
        start_s=contender.start_s,
        assignment=None if newest is None else newest.assignment,
        loss_s=contender.loss_s,
    )


def _too_dear(
    settings: PlannerSettings, ratings: Ratings, forecasts: NodeForecasts | None
) -> Iterator[str]:
    """Yield trainers whose start costs more than it gains within the look-ahead."""
    reach_s, advice = _reach(settings)
    is_learning = forecasts is not None and forecasts.forecast.is_learning
    now_s = min(settings.t_fwd_s, reach_s) if is_learning else reach_s
    for name, one in ratings.contenders.items():
        if one.held or one.start_s < now_s:
            continue
        told = f"{name}: starting takes {one.start_s:.0f} s, and what a start is worth"
        if one.start_s >= reach_s:
            yield (
                f"{told} is counted over {reach_s:.0f} s, so that it is never started; "
                f"{advice}"
            )
        else:
            yield (
                f"{told} is counted over {now_s:.0f} s until an hour has been watched, "
                f"so that it waits for that; a longer t_fwd under [planner] in "
                f"freetrain.toml starts it now"
            )


def _reach(settings: PlannerSettings) -> tuple[float, str]:
    """Return how far gains are counted at most, and what to do about it."""
    policy = POLICIES[settings.policy]
    if policy.looks_ahead:
        return HORIZON_S, 'policy = "freetrain" with a longer t_fwd starts it'
    if policy.by_worth:
        return settings.t_fwd_s, "set a longer t_fwd under [planner] in freetrain.toml"
    return math.inf, ""


def _without_the_unreadable(observed: Observed, claims: Claims) -> Belief:
    """Return the belief without the leases of trainers whose files cannot be read.

    Such a trainer runs on, and its leases are left alone, unless another job needs
    their nodes.
    """
    names = {one.row.name for one in observed.trainers if one.problem}
    if not names:
        return observed.belief
    theirs = {
        key for key, beat in observed.heartbeats.latest.items() if beat.trainer in names
    }
    kept = (
        one
        for one in observed.belief.leases
        if one.key not in theirs or one.node in claims.leased
    )
    return replace(observed.belief, leases=tuple(kept))
