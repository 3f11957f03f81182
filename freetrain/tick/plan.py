"""From what a tick observed to what it does: holes, ratings, plan, actions.

``decide_on`` tells the whole way. Where forecasts fail, it plans without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.decide import Decision, Look, Trainer, decide
from freetrain.broker.lease import uuid_in
from freetrain.broker.limits import Mode, Refusal
from freetrain.broker.yielding import NO_CLAIMS, DelayProtection, find_claims, keep_free
from freetrain.config.job import NodeSettings
from freetrain.config.site import requirement_of
from freetrain.planning.policy import Tools, make_policy
from freetrain.planning.rating import Ratings
from freetrain.planning.settings import HORIZON_S, POLICIES
from freetrain.tick.leases import (
    margin_s,
)
from milp.planner import Planner, SolverName
from slurm.batch import MAX_VALUE_BYTES, gres_argument
from slurm.errors import (
    SlurmRefusedError,
)
from slurm.holes import HoleEnd, find_holes
from slurm.records import (
    JobState,
    NodeState,
    Requirement,
    collapse,
    expand,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.broker.belief import Belief
    from freetrain.broker.lease import Intent
    from freetrain.broker.reconcile import (
        Submit,
    )
    from freetrain.broker.yielding import Claims, KeptFree, PendingDemand
    from freetrain.config.job import TrainerJob
    from freetrain.config.site import PlannerSettings, Site
    from freetrain.planning.policy import Search
    from freetrain.state.tables import LossForecastRow
    from freetrain.tick.environment import TickContext
    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.trainers import TickTrainer
    from slurm.holes import Hole
    from slurm.records import JobRecord, Node


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


# The holes that leases may go into, and the nodes that others' jobs could start on.


def shape_name(requirement: Requirement) -> str:
    """Return the name of this requirement: always the same, and of no other.

    Features, resources and partitions are checked words without these signs.
    """
    parts = [
        requirement.partition,
        *(f"feature={name}" for name in sorted(requirement.features)),
        *(f"gres={gres}" for gres in sorted(map(gres_argument, requirement.gres))),
    ]
    if requirement.memory_mib:
        parts.append(f"memory={requirement.memory_mib}MiB")
    if requirement.cpus:
        parts.append(f"cpus={requirement.cpus}")
    return " ".join(parts)


_SHARED = {NodeState.MIXED, NodeState.ALLOCATED, NodeState.PLANNED}


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds holes and claims in what a tick observed.

    Attributes:
        site: The site's settings.
        observed: What the tick observed, and what was known before.
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
        """Return the holes of each shape, and the problems of shapes that have none.

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

        Backfill's own plan may be older, or lie around our leases. A hole that we
        hold stays: backfill knows when its lease ends, and claims say whether the lease
        must go.
        """
        early_s = {shape: self._early_s(asked) for shape, asked in shapes.items()}
        return {
            shape: tuple(_before(one, claims.booked_s, early_s[shape]) for one in found)
            for shape, found in holes.items()
        }

    def _every_hole(self, shapes: Mapping[str, Requirement]) -> tuple[Hole, ...]:
        """Return the holes of every partition that leases go to, whatever is asked."""
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

    No job can start on the nodes of our leases that are just ending, either; the job
    that waits for them gets them in a moment.
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


CAREFUL_LIMIT_S = 1.0
"""The last tick before a backfill cycle must be quick: what happens while it works is
not seen."""


def careful_of(
    site: Site,
    observed: Observed,
    *,
    is_ours: Callable[[JobRecord], bool],
    clock: Callable[[], float],
) -> Callable[[PendingDemand], KeptFree] | None:
    """Return delay protection; None where the site does not want it.

    Args:
        site: The site's settings.
        observed: What the tick observed.
        is_ours: Tells our own leases.
        clock: Seconds from any moment on.
    """
    if not site.lease.careful:
        return None
    until_s = clock() + CAREFUL_LIMIT_S

    def kept_free(demand: PendingDemand) -> KeptFree:
        # Node lists are read here, as this is called only where jobs wait.
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


def not_tried(claims: Claims) -> tuple[str, ...]:
    """Return a line about running jobs that there was no time to consider."""
    untried = claims.kept_free.untried
    if not untried:
        return ()
    line = (
        f"careful: the ends of {untried} running jobs could not be tried, "
        f"or not in full; where one ends early, a job may wait longer than a tick"
    )
    return (line,)


# The nodes that a submission must not get.

EXCLUDING_WAIT_S = 180.0
"""A few cycles of backfill, which is 30 s and more by default."""


def nodes_to_exclude(decided: Decided, action: Submit) -> str:
    """Return the nodes for ``sbatch --exclude`` of *action*, as a hostlist.

    Slurm chooses the node of a lease. Excluded are, in this order:

    * holes that end before the lease would, as a job is booked there, which Slurm may
      not know;
    * nodes left to waiting jobs, which may come after leases in Slurm's order, or may
      need the node only if another job ended;
    * where forecasts tell holes apart, holes that the plan left idle: the next tick
      would give the lease up and ask for another.

    Nodes that come free later are not excluded.

    Returns:
        Empty where any hole will do. Of a list that is too long for Slurm as many as
        it takes: those it would give first.
    """
    look = decided.look
    places = {hole.node: place for place, hole in enumerate(look.holes[action.shape])}

    def in_slurms_order(nodes: Iterable[str]) -> list[str]:
        return sorted(nodes, key=lambda name: (places.get(name, math.inf), name))

    left = {**look.claims.idle, **look.claims.kept_free.nodes}
    groups = _booked(look, action), left, _left_idle(decided, action)
    nodes = chain.from_iterable(map(in_slurms_order, groups))
    return _longest_hostlist(list(dict.fromkeys(nodes)))


def _booked(look: Look, action: Submit) -> set[str]:
    """Return the holes that end before the lease would, as a job is booked there."""
    until_s = look.now_s + 60.0 * action.limit_min
    return {
        hole.node
        for hole in look.holes[action.shape]
        if hole.node in look.claims.booked_s
        and hole.end_s is not None
        and hole.end_s < until_s
    }


def _left_idle(decided: Decided, action: Submit) -> set[str]:
    """Return the holes, those beyond the cap as well, that the plan left idle."""
    forecasts, decision = decided.forecasts, decided.decision
    if forecasts is None or forecasts.forecast.is_learning:
        return set()
    pool = decision.classes.pool
    idle = {node.name for node in pool.nodes if node.lease is None}
    capped = {name for name, why in pool.refused.items() if why is Refusal.LEASE_CAP}
    wanted = {
        node
        for request in decision.wanted.requests
        if request.shape == action.shape
        for node in request.nodes
    }
    return (idle | capped) - wanted


def _longest_hostlist(nodes: list[str]) -> str:
    """Return as many of the first *nodes* as Slurm takes; empty where it takes none."""

    def is_short(text: str) -> bool:
        return len(text) <= MAX_VALUE_BYTES

    try:
        everything = collapse(nodes)
        if is_short(everything):
            return everything
        fits, too_many = 0, len(nodes)
        while too_many - fits > 1:
            half = (fits + too_many) // 2
            if is_short(collapse(nodes[:half])):
                fits = half
            else:
                too_many = half
        return collapse(nodes[:fits])
    except ValueError:
        return ""


def with_short_wait(intent: Intent) -> Intent:
    """Return *intent* with a deadline that keeps its leases from waiting for long.

    While they wait, the next plans count on them: a lease that finds its nodes taken
    would hold up a trainer that could have had others by then.
    """
    latest_s = intent.created_s + 60.0 * intent.limit_min + EXCLUDING_WAIT_S
    return replace(intent, deadline_s=min(intent.deadline_s, latest_s))
