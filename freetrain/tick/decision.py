"""The second half of observing: from what is so to what to do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.decide import Decision, Look, decide
from freetrain.broker.lease import uuid_in
from freetrain.broker.wanted import Trainer
from freetrain.jobfile.job import Nodes
from freetrain.jobfile.requirement import requirement_of
from freetrain.site.settings import PlannerSettings, PolicyName
from freetrain.tick.ahead import look_ahead, tried
from freetrain.tick.caring import not_tried
from freetrain.tick.deserts import Deserts
from freetrain.tick.finding import Finder
from freetrain.tick.planners import planner_of
from freetrain.tick.shapes import shape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.broker.belief import Belief
    from freetrain.broker.claims import Claims
    from freetrain.broker.decide import Plans
    from freetrain.jobfile.job import TrainerJob
    from freetrain.site.settings import Site
    from freetrain.tick.foreseeing import Outlook
    from freetrain.tick.lookahead import Foresight
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing
    from slurm.records import JobRecord
    from slurm.requirement import Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What to do, and all that it was decided by.

    Attributes:
        look: What was so, as the broker takes it.
        decision: What to do.
        shapes: What leases ask of their nodes, by shape.
        deserts: What the priority says of the trainers.
        problems: What could not be taken into account, for people.
        outlook: What is expected of nodes; None where the policy looks at none.
    """

    look: Look
    decision: Decision
    shapes: Mapping[str, Requirement]
    deserts: Deserts
    problems: tuple[str, ...]
    outlook: Outlook | None = None


def decide_on(
    run: Run,
    observed: Observed,
    *,
    planner: Callable[..., Plans] = planner_of,
    ahead: Callable[..., tuple[Outlook | None, Foresight | None]] = look_ahead,
) -> Decided:
    """Return what to do about what is so.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
        MilpError: The planning problem contradicts itself.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
    """
    shapes, is_ours = _shapes(run.site, observed), _ours(run, observed)
    finder = Finder(run.site, observed, is_ours, run.outside.clock)
    holes, problems = finder.holes(shapes)
    claims = finder.claims(shapes)
    holes = finder.before_bookings(holes, claims, shapes)
    nodes = {hole.node for found in holes.values() for hole in found}
    deserts = _deserts(run, observed, nodes=len(nodes))
    look = Look(
        now_s=observed.now_s,
        holes=holes,
        belief=_without_the_unreadable(observed, claims),
        trainers=_trainers(run.site, observed, deserts),
        assignments=tuple(
            one.newest.assignment
            for one in observed.trainers
            if one.newest is not None and not one.problem
        ),
        claims=claims,
        pace=observed.pace,
        silent=observed.hearing.silent,
        absent=observed.hearing.absent,
        unheard_s=observed.hearing.unheard_s,
        is_plan_known=observed.is_plan_known,
    )
    settings = run.site.planner
    plans = planner(settings, background=deserts.background)

    def by(foresight: Foresight | None) -> Decision:
        limits, t_fwd_s = observed.limits, settings.t_fwd_s
        return decide(look, plans, limits, t_fwd_s=t_fwd_s, foresight=foresight)

    def looking_ahead() -> tuple[Outlook | None, Decision]:
        outlook, foresight = ahead(run, observed, deserts, is_ours=is_ours)
        decision = by(foresight)
        return None if outlook is None else outlook.settled(observed), decision

    (outlook, decision), failed = tried(looking_ahead, lambda: (None, by(None)))
    unreadable = tuple(one.problem for one in observed.trainers if one.problem)
    dropped = (failed,) * bool(failed) if outlook is None else outlook.problems
    too_dear = _too_dear(run.site.planner, deserts, outlook)
    return Decided(
        look=look,
        decision=decision,
        shapes=shapes,
        deserts=deserts,
        problems=(*unreadable, *problems, *dropped, *too_dear, *not_tried(claims)),
        outlook=outlook,
    )


def requirement_for(site: Site, job: TrainerJob, observed: Observed) -> Requirement:
    """Return what leases for *job* ask of their nodes."""
    default = observed.partition.name
    return requirement_of(job.nodes, site.lease, default_partition=default)


def _shapes(site: Site, observed: Observed) -> dict[str, Requirement]:
    """Return what is asked of nodes, by shape; the site's own where nobody asks."""
    wanted = [
        requirement_for(site, one.job, observed)
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    ]
    if not wanted:
        default = observed.partition.name
        own = requirement_of(Nodes(max_nodes=1), site.lease, default_partition=default)
        wanted = [own]
    return {shape_name(one): one for one in wanted}


def _ours(run: Run, observed: Observed) -> Callable[[JobRecord], bool]:
    known = frozenset(intent.uuid for intent in observed.belief.intents)
    uid = run.outside.uid
    return lambda job: job.uid == uid and uuid_in(job.name) in known


def _deserts(run: Run, observed: Observed, *, nodes: int) -> Deserts:
    if not any(one.is_wanted for one in observed.trainers):
        return Deserts(priority=run.site.planner.priority)
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.rated import deserts_of  # noqa: PLC0415

    return deserts_of(run, observed, nodes=nodes)


def _trainers(site: Site, observed: Observed, deserts: Deserts) -> tuple[Trainer, ...]:
    return tuple(
        _trainer(site, observed, one.job, one, deserts)
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    )


def _trainer(
    site: Site,
    observed: Observed,
    job: TrainerJob,
    standing: Standing,
    deserts: Deserts,
) -> Trainer:
    name, newest = standing.row.name, standing.newest
    contender = deserts.contenders[name]
    return Trainer(
        name=name,
        curve=deserts.curves[name],
        shape=shape_name(requirement_for(site, job, observed)),
        up_s=contender.grow_s,
        down_s=contender.shrink_s,
        start_s=contender.start_s,
        assignment=None if newest is None else newest.assignment,
    )


def _too_dear(
    settings: PlannerSettings, deserts: Deserts, outlook: Outlook | None
) -> Iterator[str]:
    """Yield who waits and costs more to start than is gained within the look-ahead."""
    reach_s, advice = _reach(settings)
    is_learning = outlook is not None and outlook.forecast.is_learning
    now_s = min(settings.t_fwd_s, reach_s) if is_learning else reach_s
    for name, one in deserts.contenders.items():
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
    if settings.policy is PolicyName.FREETRAIN:
        return (
            settings.t_fwd_s,
            "set a longer t_fwd under [planner] in freetrain.toml",
        )
    if settings.policy is PolicyName.LOOKAHEAD:
        # Imported here: it needs NumPy, which ticks that do not look ahead do not.
        from freetrain.replay.policies.lookahead import HORIZON_S  # noqa: PLC0415

        return HORIZON_S, 'policy = "freetrain" with a longer t_fwd starts it'
    return math.inf, ""


def _without_the_unreadable(observed: Observed, claims: Claims) -> Belief:
    """Return what is believed but for leases of trainers that cannot be read.

    Nothing is done about those: what runs, runs on. But nobody waits for them.
    """
    names = {one.row.name for one in observed.trainers if one.problem}
    if not names:
        return observed.belief
    theirs = {
        key for key, beat in observed.hearing.beats.items() if beat.trainer in names
    }
    kept = (
        one
        for one in observed.belief.leases
        if one.key not in theirs or one.node in claims.leased
    )
    return replace(observed.belief, leases=tuple(kept))
