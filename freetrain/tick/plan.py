"""Care for those whom one job's end would let start: what a careful site asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.decide import Decision, Look, decide
from freetrain.broker.delay_protection import DelayProtection, keep_free
from freetrain.broker.lease import uuid_in
from freetrain.broker.limits import Mode
from freetrain.broker.pool import Trainer
from freetrain.broker.yielding import NO_CLAIMS, find_claims
from freetrain.config.job import NodeSettings
from freetrain.config.site import requirement_of
from freetrain.planning.rating import Ratings
from freetrain.planning.registry import make_policy
from freetrain.planning.request import Tools
from freetrain.planning.settings import HORIZON_S, POLICIES
from freetrain.tick.observe import margin_s
from milp.planner import Planner, SolverName
from slurm.errors import SlurmRefusedError
from slurm.holes import HoleEnd, find_holes
from slurm.hostlist import expand
from slurm.records import (
    JobState,
    NodeState,
    Requirement,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.broker.belief import Belief
    from freetrain.broker.decide import HoleExplanation
    from freetrain.broker.delay_protection import KeptFree, PendingDemand
    from freetrain.broker.yielding import Claims
    from freetrain.config.job import TrainerJob
    from freetrain.config.site import PlannerSettings, Site
    from freetrain.planning.request import Search
    from freetrain.state.tables import LossForecastRow
    from freetrain.tick.context import TickContext
    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.trainers import ObservedTrainer
    from slurm.holes import Hole
    from slurm.records import Gres, JobRecord, Node


# ----------------------------------------------------------------------
# Care for those whom one job's end would let start: what a careful site asks for.

LIMIT_S = 1.0
"""Last looks come as late as looks are quick; a second more lets more happen unseen."""


def careful_of(
    site: Site,
    observed: Observed,
    *,
    is_ours: Callable[[JobRecord], bool],
    clock: Callable[[], float],
) -> Callable[[PendingDemand], KeptFree] | None:
    """Return what says which nodes to keep leases off; None where nobody asks for it.

    Args:
        site: The site's settings.
        observed: The look.
        is_ours: Tells our own leases.
        clock: Seconds from any moment on.
    """
    if not site.lease.careful:
        return None
    until_s = clock() + LIMIT_S

    def kept_free(demand: PendingDemand) -> KeptFree:
        # Where nobody waits it is not asked for, and nobody's nodes need be read.
        running = [
            frozenset(expand(job.nodes))
            for job in observed.snapshot.jobs
            if job.holds_nodes and not is_ours(job)
        ]
        caution = DelayProtection(
            running,
            cycle_s=observed.config.bf_interval_s,
            longest_s=60.0 * observed.limits.most_limit_min,
            is_out_of_time=lambda: clock() > until_s,
        )
        return keep_free(demand, caution)

    return kept_free


def refusal_of(why: HoleExplanation, claims: Claims) -> str:
    """Return for people why a hole cannot be planned with; empty where it can."""
    if why.node in claims.kept_free.nodes:
        return f"{why.refusal}: {claims.kept_free.nodes[why.node]}"
    return str(why.refusal or "")


def not_tried(claims: Claims) -> tuple[str, ...]:
    """Return for people what care there was no time for; nothing where there was."""
    untried = claims.kept_free.untried
    if not untried:
        return ()
    told = (
        f"careful: the ends of {untried} running jobs could not be tried, "
        f"or not in full; where one ends early, a job may wait longer than a tick"
    )
    return (told,)


# ----------------------------------------------------------------------
# What a look shows of nodes: holes for leases, and what others could start on.

_SHARED = {NodeState.MIXED, NodeState.ALLOCATED, NodeState.PLANNED}


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds holes and claims in one look.

    Attributes:
        site: The site's settings.
        observed: The look, and what was known before.
        is_ours: Tells our own leases.
        clock: Seconds from any moment on.
    """

    site: Site
    observed: Observed
    is_ours: Callable[[JobRecord], bool]
    clock: Callable[[], float]

    def holes(
        self, shapes: Mapping[str, Requirement]
    ) -> tuple[dict[str, tuple[Hole, ...]], tuple[str, ...]]:
        """Return the holes of each shape, and for people what there are none for.

        Raises:
            UnreadableOutputError: Slurm's lists of nodes cannot be read.
        """
        holes: dict[str, tuple[Hole, ...]] = {}
        problems = []
        for shape, requirement in shapes.items():
            try:
                holes[shape] = self._holes_of(requirement)
            except SlurmRefusedError as error:
                problems.append(str(error))
        return holes, tuple(problems)

    def claims(self, shapes: Mapping[str, Requirement]) -> Claims:
        """Return which nodes others could start on, where they cannot take them.

        Raises:
            UnreadableOutputError: Slurm's lists of nodes cannot be read.
        """
        observed = self.observed
        if observed.limits.mode is Mode.PREEMPT:
            return NO_CLAIMS
        held = [one for one in observed.belief.leases if one.is_live and one.node]
        jobs, nodes = observed.snapshot.jobs, observed.snapshot.nodes
        ground = BackfillState(
            holes=self._every_hole(shapes),
            nodes={node.name: node for node in nodes},
            leased=frozenset(one.node for one in held),
            partly=frozenset(_partly(nodes)),
            spans={
                one.node: LeaseSpan(one.start_s, one.end_s)
                for one in held
                if one.start_s is not None and one.end_s is not None
            },
            busy_until_s=_busy_until_s(jobs, self.is_ours),
            backfill=Backfill(
                grain_s=observed.config.bf_resolution_s,
                window_s=observed.config.bf_window_s,
            ),
        )
        return find_claims(
            jobs,
            ground,
            is_ours=self.is_ours,
            now_s=observed.now_s,
            protect=careful_of(
                self.site, observed, is_ours=self.is_ours, clock=self.clock
            ),
        )

    def before_bookings(
        self,
        holes: Mapping[str, Iterable[Hole]],
        claims: Claims,
        shapes: Mapping[str, Requirement],
    ) -> dict[str, tuple[Hole, ...]]:
        """Let holes end in time for jobs that are booked there, by shape.

        What backfill has planned may be older than that, or be around our leases.
        Where we hold a lease its end is known to backfill, and claims say whether it
        must go.
        """
        early_s = {shape: self._early_s(asked) for shape, asked in shapes.items()}
        return {
            shape: tuple(_before(one, claims.booked_s, early_s[shape]) for one in found)
            for shape, found in holes.items()
        }

    def _every_hole(self, shapes: Mapping[str, Requirement]) -> tuple[Hole, ...]:
        """Return the holes of every partition that leases are in, whatever is asked."""
        observed = self.observed
        wanted = {one.partition for one in shapes.values()} | {observed.partition.name}
        there = {partition.name for partition in observed.snapshot.partitions}
        found = {
            hole.node: hole
            for name in sorted(wanted & there)
            for hole in self._holes_of(Requirement(partition=name), is_left_early=False)
        }
        return tuple(found.values())

    def _holes_of(
        self, requirement: Requirement, *, is_left_early: bool = True
    ) -> tuple[Hole, ...]:
        return find_holes(
            self.observed.snapshot,
            requirement,
            is_ours=self.is_ours,
            margin_s=self._early_s(requirement) if is_left_early else 0.0,
            window_s=self.observed.config.bf_window_s,
        )

    def _early_s(self, requirement: Requirement) -> float:
        """Return how long before their end holes of that partition are left."""
        observed, name = self.observed, requirement.partition
        named = (one for one in observed.snapshot.partitions if one.name == name)
        partition = next(named, observed.partition)
        return margin_s(self.site, observed.config, partition)


def _before(hole: Hole, booked_s: Mapping[str, float], early_s: float) -> Hole:
    if hole.held_by or hole.end_s is None or hole.node not in booked_s:
        return hole
    end_s = booked_s[hole.node] - early_s
    if end_s >= hole.end_s:
        return hole
    return replace(hole, end_s=end_s, ends_by=HoleEnd.PLANNED_JOB, blocker="")


def _busy_until_s(
    jobs: Iterable[JobRecord], is_ours: Callable[[JobRecord], bool]
) -> dict[str, float]:
    """Return when nodes that others hold come free, by the limits of their jobs.

    Nodes of our leases that are just ending are nobody's to start on either; but who
    waits for them gets them in a moment.
    """
    until_s: dict[str, float] = {}
    for job in jobs:
        is_leaving = JobState.COMPLETING in job.states
        if job.holds_nodes and (is_leaving or not is_ours(job)):
            end_s = math.inf if job.end_s is None else job.end_s
            for name in expand(job.nodes):
                until_s[name] = max(end_s, until_s.get(name, 0.0))
    return until_s


def _partly(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the nodes that jobs hold a part of, so that others may start beside."""
    for node in nodes:
        is_up = node.states <= _SHARED and not node.unknown_states
        if is_up and 0 < node.allocated_cpus < node.cpus:
            yield node.name


# ----------------------------------------------------------------------
# Shapes: what leases ask of their nodes, under names that never change.


def shape_name(requirement: Requirement) -> str:
    """Return a name that this requirement has, whenever asked, and no other.

    Features, resources and partitions are checked words without these signs.
    """
    parts = [
        requirement.partition,
        *(f"feature={name}" for name in sorted(requirement.features)),
        *(f"gres={written(one)}" for one in sorted(requirement.gres, key=written)),
    ]
    if requirement.memory_mib:
        parts.append(f"memory={requirement.memory_mib}MiB")
    if requirement.cpus:
        parts.append(f"cpus={requirement.cpus}")
    return " ".join(parts)


def written(gres: Gres) -> str:
    """Return *gres* as sbatch takes it."""
    return (
        f"{gres.name}:{gres.kind}:{gres.count}"
        if gres.kind
        else (f"{gres.name}:{gres.count}")
    )


# ----------------------------------------------------------------------
# The second half of observing: from what is so to what to do about it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What to do, and all that it was decided by.

    Attributes:
        look: What was so, as the broker takes it.
        decision: What to do.
        shapes: What leases ask of their nodes, by shape.
        ratings: What the priority says of the trainers.
        problems: What could not be taken into account, for people.
        loss_forecasts: Those that were fitted for the ratings, to be kept.
        outlook: How long nodes stay; None where the policy asks no forecasts.
    """

    look: Look
    decision: Decision
    shapes: Mapping[str, Requirement]
    ratings: Ratings
    problems: tuple[str, ...]
    loss_forecasts: tuple[LossForecastRow, ...] = ()
    outlook: NodeForecasts | None = None


def decide_on(
    context: TickContext,
    observed: Observed,
    *,
    foresee: Callable[..., NodeForecasts] | None = None,
) -> Decided:
    """Return what to do about what is so.

    Args:
        context: The tick.
        observed: What is so.
        foresee: Makes forecasts; None for those of ``tick.lookahead``.

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
    outlook, decision = None, None
    dropped: tuple[str, ...] = ()
    if POLICIES[settings.policy].looks_ahead:
        # Imported here: forecasts need NumPy, and most sites' ticks none of them.
        from freetrain.tick import lookahead  # noqa: PLC0415

        try:
            outlook = (foresee or lookahead.foresee)(context, observed, is_ours=is_ours)
            decision = decide(
                look,
                policy,
                limits,
                t_fwd_s=settings.t_fwd_s,
                foresight=lookahead.foresight_of(settings, outlook),
            )
            outlook = outlook.settled(observed)
            dropped = outlook.problems
        except lookahead.FAULTS as error:
            outlook, decision = None, None
            why = lookahead.said_of(error)
            dropped = (f"looking ahead failed ({why}); plans go by speed alone",)
    if decision is None:
        decision = decide(look, policy, limits, t_fwd_s=settings.t_fwd_s)
    unreadable = tuple(one.problem for one in observed.trainers if one.problem)
    too_dear = _too_dear(settings, ratings, outlook)
    return Decided(
        look=look,
        decision=decision,
        shapes=shapes,
        ratings=ratings,
        problems=(*unreadable, *problems, *dropped, *too_dear, *not_tried(claims)),
        loss_forecasts=loss_forecasts,
        outlook=outlook,
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
    """Return what is asked of nodes, by shape; the site's own where nobody asks."""
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
    trainer: ObservedTrainer,
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
    settings: PlannerSettings, ratings: Ratings, outlook: NodeForecasts | None
) -> Iterator[str]:
    """Yield who waits and costs more to start than is gained within the look-ahead."""
    reach_s, advice = _reach(settings)
    is_learning = outlook is not None and outlook.forecast.is_learning
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
    """Return what is believed but for leases of trainers that cannot be read.

    Nothing is done about those: what runs, runs on. But nobody waits for them.
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
