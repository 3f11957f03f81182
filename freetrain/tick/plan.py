"""From what a tick observed to what it does: holes, limits, ratings, share, decision.

``make_plan`` goes the whole way in this order; ``broker.decide`` makes the decision.
Where forecasts fail, it plans without them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from freetrain.broker.decide import Decision, decide_leases
from freetrain.broker.job_limits import (
    LIMIT_REST_S,
    Accounts,
    AllowedLeases,
    BlockedJobs,
    LimitMemory,
    allowed_leases,
    blocked_by_limits,
    has_unknown_limit,
    limit_kind,
)
from freetrain.broker.lease import uuid_in
from freetrain.broker.limits import Mode
from freetrain.broker.pool import Situation, Trainer
from freetrain.broker.reasons import Refusal
from freetrain.broker.sharing import movable, share_of
from freetrain.broker.yielding import overdue_leases
from freetrain.config.job import NodeSettings
from freetrain.config.site import RULES_NAME, requirement_on
from freetrain.planning.policy import Tools, make_policy
from freetrain.planning.rating import Ratings
from freetrain.planning.settings import POLICIES
from freetrain.state.tables import (
    KnownLimits,
    awaited_preemptions,
    known_limits,
    limit_memory,
)
from freetrain.text import counted
from freetrain.tick.leases import kind_of_lease, margin_s, may_stand_for, shape_name
from freetrain.tick.room import (
    claims_of,
    idle_nodes,
    is_our_lease,
    preemptable,
    qos_of_partitions,
    with_begun,
    with_blocked,
)
from milp.planner import Planner, SolverName
from slurm.associations import UNKNOWN_LIMITS
from slurm.batch import MAX_VALUE_BYTES
from slurm.errors import SlurmRefusedError
from slurm.holes import BackfillPlans, HoleEnd, find_holes, takes_whole_nodes
from slurm.pieces import ANY_GPU
from slurm.records import JobRecord, JobState, Requirement, collapse, gres_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from freetrain.broker.belief import Belief
    from freetrain.broker.lease import Intent
    from freetrain.broker.reconcile import Submit
    from freetrain.broker.sharing import CallMemory, PooledLease, Share
    from freetrain.broker.yielding import AwaitedPreemption, Claims
    from freetrain.config.site import PlannerSettings, Site
    from freetrain.planning.policy import Search
    from freetrain.state.tables import LossForecastRow
    from freetrain.tick.environment import TickContext
    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.room import SlurmView
    from freetrain.tick.trainers import TickTrainer
    from slurm.holes import Hole
    from slurm.records import Node

    IsOurs = Callable[[JobRecord], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TickPlan:
    """The decision of a tick, and all that it follows from.

    Attributes:
        situation: The leases, holes and trainers that the broker decided by.
        decision: Its actions and reasons.
        shapes: What leases ask of their nodes, by shape.
        ratings: What the priority says of the trainers.
        problems: What could not be taken into account, for people.
        loss_forecasts: Those that were fitted for the ratings, to be kept.
        forecasts: How long nodes stay; None where the policy asks no forecasts.
        calls: Which brokers of other users leave calls unanswered, to be kept.
        limits: What Slurm's limits of accounts, users and QOS mean, to be kept.
        awaited: Jobs that Slurm should preempt leases for, to be kept.
        want: Nodes that the trainers could use, within our own cap.
    """

    situation: Situation
    decision: Decision
    shapes: Mapping[str, Requirement]
    ratings: Ratings
    problems: tuple[str, ...]
    calls: CallMemory
    limits: LimitsNow
    want: int
    loss_forecasts: tuple[LossForecastRow, ...] = ()
    forecasts: NodeForecasts | None = None
    awaited: Mapping[int, AwaitedPreemption] = field(default_factory=dict)


def make_plan(
    context: TickContext,
    observed: Observed,
    *,
    foresee: Callable[..., NodeForecasts] | None = None,
) -> TickPlan:
    """Return what to do about what was observed.

    Args:
        context: The tick.
        observed: What the tick observed.
        foresee: Makes forecasts in place of ``tick.lookahead``: in a test, forecasts
            that fail.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
        MilpError: The planning problem contradicts itself.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
    """
    site, settings = context.site, context.site.planner
    clock = context.environment.clock
    asked, is_ours = _asked(site, observed), _is_ours(context, observed)
    # Without trainers it is what the site asks.
    every = asked.values() or [_requirement(site, observed, NodeSettings(max_nodes=1))]
    shapes = {shape_name(requirement): requirement for requirement in every}
    holes, refused_shapes = _holes_by_shape(site, observed, is_ours, shapes)
    seen, of_others, calls = _without_deaf(context, observed, shapes.values())
    claims = with_begun(of_others, observed.belief)
    limited = limits_now(context, observed, shapes.values())
    uid = context.environment.uid
    claims = with_blocked(claims, limited.blocked, observed.snapshot, uid)
    claims = claims.with_blocked_before(limited.memory.blocked_s)
    limits = replace(observed.limits, most_allowed=limited.allowed.most)
    claims, awaited = _with_overdue(context, observed, seen, claims, shapes)
    widths = _widths(observed, shapes)
    margins_s = {shape: _margin_s(site, observed, shapes[shape]) for shape in holes}
    holes = _before_bookings(holes, claims.booked_s, margins_s=margins_s, widths=widths)
    ratings, loss_forecasts = _ratings(context, observed, nodes=_most_leases(holes))
    trainers = _trainers(observed, ratings, asked)
    want = min(
        observed.limits.most_leases,
        sum(trainer.curve.sizes[-1] for trainer in trainers),
    )
    share, calls = _share_now(
        context, seen, of_others, calls, want=want, are_pieces=bool(widths)
    )
    situation = Situation(
        now_s=observed.now_s,
        holes=holes,
        widths=widths,
        belief=_with_present_shapes(_without_unreadable(observed, claims), widths),
        trainers=trainers,
        background=ratings.background,
        assignments=tuple(
            trainer.newest.assignment
            for trainer in observed.trainers
            if trainer.newest is not None and not trainer.problem
        ),
        claims=claims,
        pace=observed.pace,
        not_ready=observed.heartbeats.not_ready,
        never_heard=observed.heartbeats.never_heard,
        training=observed.heartbeats.training,
        unheard_s=observed.heartbeats.unheard_s,
        is_plan_known=observed.is_plan_known,
        share=share,
    )
    policy = make_policy(settings.policy, tools_for(settings, clock))
    forecasts, decision = None, None
    forecast_problems: tuple[str, ...] = ()
    if POLICIES[settings.policy].looks_ahead:
        # Imported here: forecasts need NumPy, and most sites' ticks none of them.
        from freetrain.tick import lookahead  # noqa: PLC0415

        try:
            forecasts = (foresee or lookahead.foresee)(
                context, observed, is_ours=is_ours, situation=situation
            )
            decision = decide_leases(
                situation,
                policy,
                limits,
                t_fwd_s=settings.t_fwd_s,
                foresight=lookahead.foresight_of(settings, forecasts),
            )
            forecasts = forecasts.settled(observed)
            forecast_problems = forecasts.problems
        except lookahead.FAULTS as error:
            forecasts, decision = None, None
            why = lookahead.said_of(error)
            forecast_problems = (
                f"looking ahead failed ({why}); plans go by speed alone",
            )
    if decision is None:
        decision = decide_leases(situation, policy, limits, t_fwd_s=settings.t_fwd_s)
    return TickPlan(
        situation=situation,
        decision=decision,
        shapes=shapes,
        ratings=ratings,
        problems=(
            *(trainer.problem for trainer in observed.trainers if trainer.problem),
            *(
                f"{name}: {progress.problem}"
                for name, progress in observed.progress.items()
                if progress.problem
            ),
            *refused_shapes,
            *forecast_problems,
            *_untried(claims),
            *_limited(claims),
            *_not_preempted(claims),
        ),
        calls=calls,
        limits=limited,
        awaited=awaited,
        want=want,
        loss_forecasts=loss_forecasts,
        forecasts=forecasts,
    )


LONGEST_SEARCH_S = 2.0
"""Longer than a search by forecasts needs; others wait for ticks, not for a proof."""


def tools_for(settings: PlannerSettings, clock: Callable[[], float]) -> Tools:
    """Return what policies of ticks are made with; *clock* only goes up."""

    def solver() -> Planner:
        return Planner(SolverName(settings.solver), limit_s=settings.solver_limit_s)

    def search() -> Search:
        # Imported here: it needs what only policies that look ahead need.
        from freetrain.planning.lookahead import ProvingSearch  # noqa: PLC0415

        return ProvingSearch(min(LONGEST_SEARCH_S, settings.solver_limit_s), clock)

    return Tools(solver=solver, start_solver=solver, search=search)


# Other users' FreeTrain; the rules stand in ``broker.sharing``.


def _without_deaf(
    context: TickContext, observed: Observed, asked: Iterable[Requirement]
) -> tuple[SlurmView, Claims, CallMemory]:
    """Take brokers that leave calls unanswered out of the pool of all users' leases.

    Their leases then count as jobs that stay, and ours are given up in their place.

    Args:
        context: The tick.
        observed: What the tick observed.
        asked: What leases are to ask of their nodes.

    Returns:
        What Slurm said, with the pool without those brokers; the nodes that others'
        jobs could start on then; what to remember of calls and brokers.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    site, environment, room = context.site, context.environment, observed.room
    pool, now_s = room.seen.pool, room.seen.pool.now_s
    calls = observed.calls.after_signs(pool.leases, now_s=now_s)
    seen = room.seen._replace(
        snapshot=observed.snapshot,
        limits=observed.limits,
        pool=replace(pool, deaf=pool.deaf | calls.deaf),
        partitions=room.seen.partitions | {each.partition for each in asked},
    )
    # The claims by which room was made hold on, but where a broker is deaf, where
    # trainers want partitions without leases so far, or where backfill was at work,
    # and the state remembers its plans.
    is_same = (
        seen.snapshot.carried == BackfillPlans()
        and seen.partitions == room.seen.partitions
        and seen.pool == pool
    )
    claims = room.claims if is_same else claims_of(site, environment, seen)
    calls = calls.after_calls(
        _called(seen, claims, environment.uid),
        now_s=now_s,
        bf_interval_s=seen.config.bf_interval_s,
    )
    if not calls.deaf <= seen.pool.deaf:
        deaf = seen.pool.deaf | calls.deaf
        seen = seen._replace(pool=replace(seen.pool, deaf=deaf))
        claims = claims_of(site, environment, seen)
    return seen, claims, calls


def _called(seen: SlurmView, claims: Claims, uid: int) -> Iterator[PooledLease]:
    """Yield leases of others on whose nodes a job could start now."""
    for lease in movable(seen.pool.leases, owner=uid, deaf=seen.pool.deaf):
        is_called = lease.node in claims.startable
        is_called = is_called and claims.takes(lease.node, lease.job_id)
        if lease.owner != uid and lease.runs and is_called:
            yield lease


def _share_now(  # noqa: PLR0913 -- each from elsewhere
    context: TickContext,
    seen: SlurmView,
    claims: Claims,
    calls: CallMemory,
    *,
    want: int,
    are_pieces: bool,
) -> tuple[Share | None, CallMemory]:
    """Return our share of the nodes; None where no other user's FreeTrain is there.

    Args:
        context: The tick.
        seen: What Slurm said, with the pool of all users' leases.
        claims: Nodes that others' jobs could start on.
        calls: What is remembered of calls and brokers.
        want: Nodes that our trainers could use.
        are_pieces: Whether some of our trainers take pieces of nodes.

    Returns:
        The share, and the memory: where no broker may ask for a node now, shares are
        kept on for those without leases.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    uid, pool = context.environment.uid, seen.pool
    others = {lease.owner for lease in pool.leases} | calls.away.keys()
    if pool.most is None and others <= {uid}:
        return None, calls
    idle = idle_nodes(seen, claims, are_pieces=are_pieces)
    pool = replace(pool, idle=idle, away=calls.away)
    if pool.idle == 0 or claims.startable:
        calls = calls.with_shares_kept(now_s=pool.now_s)
    share = share_of(pool, owner=uid, want=want)
    if share is not None and claims.startable:  # first come those who wait
        share = replace(share, gives=0)
    return share, calls


# Slurm's limits of accounts, users and QOS: the jobs that leases keep waiting at one,
# and how many leases fit. No tick asks for limits before room is made, and none where
# Slurm enforces none; the rules stand in ``broker.job_limits``.

LIMITS_KEPT_S = 600.0
"""How long limits that were read count. Administrators change them seldom."""

UNKNOWN_KEPT_S = 120.0
"""The same where a job is blocked by a limit that is not among them."""


@dataclass(frozen=True, slots=True)
class LimitsNow:
    """What limits of accounts, users and QOS mean for this tick.

    Attributes:
        known: What is known of them, to be kept.
        blocked: Jobs that wait for limits against which leases count, or would.
        memory: What to remember of such jobs.
        allowed: How many leases fit.
    """

    known: KnownLimits
    blocked: BlockedJobs
    memory: LimitMemory
    allowed: AllowedLeases


def limits_now(
    context: TickContext, observed: Observed, shapes: Collection[Requirement]
) -> LimitsNow:
    """Return what limits mean for leases that run, and that would be asked for.

    Args:
        context: The tick.
        observed: What the tick observed.
        shapes: What leases would ask of their nodes.

    Raises:
        StoreError: What is known cannot be read.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    jobs, now_s, uid = observed.snapshot.jobs, observed.now_s, context.environment.uid
    leases = [job for job in jobs if is_our_lease(job, uid)]
    is_wanted = any(trainer.is_wanted for trainer in observed.trainers)
    known = known_limits(context.state)
    wanted: list[JobRecord] = []
    if observed.config.enforces_limits and (leases or is_wanted):
        known = _refreshed(context, observed, known)
    accounts = _accounts(context, observed, known)
    if observed.config.enforces_limits and is_wanted:
        nodes = observed.snapshot.nodes
        wanted += leases_to_ask_for(
            context.site, accounts, shapes, nodes, leases=leases
        )
    blocked = blocked_by_limits(jobs, [*leases, *wanted], accounts, now_s=now_s)
    remembered = limit_memory(context.state).after(blocked, jobs, now_s=now_s)
    known_uuids = {intent.uuid for intent in observed.belief.intents}

    def is_ours(job: JobRecord) -> bool:
        return is_our_lease(job, uid) and uuid_in(job.name) in known_uuids

    fits = allowed_leases(jobs, wanted, accounts, is_ours=is_ours, now_s=now_s)
    live = sum(lease.is_live for lease in observed.belief.leases)
    bounds = [
        fits,
        AllowedLeases(remembered.most_leases, "Slurm took no more lately"),
        *(AllowedLeases(live, why) for why in _waiting_for(filter(is_ours, leases))),
    ]
    return LimitsNow(known, blocked, remembered, min(bounds, key=AllowedLeases.rank))


def _waiting_for(leases: Iterable[JobRecord]) -> Iterator[str]:
    """Yield limits that block leases of ours: more of them would wait, too."""
    for lease in leases:
        if lease.is_pending and limit_kind(lease.reason) is not None:
            yield f"lease {lease.display_id} waits for {lease.reason}"


def _refreshed(
    context: TickContext, observed: Observed, known: KnownLimits
) -> KnownLimits:
    """Return *known*, read again where it is old; what cannot be read stays."""
    age_s = observed.now_s - known.read_s
    accounts = _accounts(context, observed, known)
    is_missing = has_unknown_limit(
        observed.snapshot.jobs, accounts, now_s=observed.now_s
    )
    kept_s = UNKNOWN_KEPT_S if is_missing else LIMITS_KEPT_S
    user = context.environment.user
    if not user or 0.0 <= age_s < kept_s:
        return known
    found = context.backend.limits(user, cluster=observed.config.cluster)
    kept = known.limits if found == UNKNOWN_LIMITS else found
    return KnownLimits(kept, observed.now_s)


def _accounts(context: TickContext, observed: Observed, known: KnownLimits) -> Accounts:
    return Accounts(
        known.limits,
        partition_qos=qos_of_partitions(observed.snapshot),
        user=context.environment.user,
        uid=context.environment.uid,
    )


_USUAL_QOS = "normal"
"""That of jobs where neither user nor administrator names one, or it is not shown."""


def leases_to_ask_for(
    site: Site,
    accounts: Accounts,
    shapes: Iterable[Requirement],
    nodes: Collection[Node],
    *,
    leases: Collection[JobRecord] = (),
) -> Iterator[JobRecord]:
    """Yield leases as they would be asked for, one for all that they may be of.

    Args:
        site: How leases are submitted.
        accounts: What is known of limits; whose the leases are.
        shapes: What leases ask of their nodes.
        nodes: The cluster's.
        leases: Those that are there: others are of the same accounts and QOS, where
            the site names none.
    """
    named = site.lease.account
    of = [named] if named else {job.account for job in leases} - {""}
    qos = [site.lease.qos] if site.lease.qos else {job.qos for job in leases} - {""}
    for shape in shapes:
        whole = (node.cpus for node in nodes if shape.partition in node.partitions)
        takes_whole = site.lease.exclusive and shape.exclusive
        cpus = max(whole, default=1) if takes_whole else shape.cpus
        for account in of or accounts.own_accounts() or {""}:
            usual = accounts.default_qos(account, shape.partition) or _USUAL_QOS
            for name in qos or {usual}:
                yield JobRecord(
                    job_id=0,
                    display_id="",
                    states=frozenset({JobState.PENDING}),
                    uid=accounts.uid,
                    user=accounts.user,
                    account=account,
                    qos=name,
                    partitions=(shape.partition,),
                    node_count=1,
                    cpu_count=cpus,
                )


# Trainers as the broker sees them.


def _ratings(
    context: TickContext, observed: Observed, *, nodes: int
) -> tuple[Ratings, tuple[LossForecastRow, ...]]:
    if not any(trainer.is_wanted for trainer in observed.trainers):
        return Ratings(priority=context.site.planner.priority), ()
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.rate import ratings_of  # noqa: PLC0415

    return ratings_of(context, observed, nodes=nodes)


def _trainers(
    observed: Observed, ratings: Ratings, asked: Mapping[str, Requirement]
) -> tuple[Trainer, ...]:
    """Return the trainers that want nodes; *asked* is by their names."""
    return tuple(
        planned_trainer(trainer, ratings, shape_name(asked[trainer.row.name]))
        for trainer in observed.trainers
        if trainer.row.name in asked
    )


def planned_trainer(trainer: TickTrainer, ratings: Ratings, shape: str) -> Trainer:
    """Return a trainer that wants leases of *shape*, as the broker sees it."""
    name, newest = trainer.row.name, trainer.newest
    contender = ratings.contenders[name]
    return Trainer(
        name=name,
        curve=ratings.curves[name],
        shape=shape,
        up_s=contender.grow_s,
        down_s=contender.shrink_s,
        start_s=contender.start_s,
        assignment=None if newest is None else newest.assignment,
        loss_s=contender.loss_s,
    )


def _without_unreadable(observed: Observed, claims: Claims) -> Belief:
    """Return the belief without the leases of trainers whose files cannot be read.

    Such a trainer runs on, and its leases are left alone, unless another job needs
    their nodes. A lease whose heartbeat cannot be read may be one of them.
    """
    names = {trainer.row.name for trainer in observed.trainers if trainer.problem}
    if not names:
        return observed.belief
    left_alone = {
        key
        for key, heartbeat in observed.heartbeats.latest.items()
        if heartbeat.trainer in names
    } | observed.heartbeats.unreadable
    leases = (
        lease
        for lease in observed.belief.leases
        if lease.key not in left_alone or claims.takes(lease.node, lease.job_id)
    )
    return replace(observed.belief, leases=tuple(leases))


def _with_present_shapes(belief: Belief, widths: Collection[str]) -> Belief:
    """Return the belief with leases of pieces under the shapes that are asked for now.

    Leases that have at least what is asked for now are as good: otherwise all would end
    at once where a node comes of which less goes with each GPU.

    Args:
        belief: Leases under the shapes that they were submitted with.
        widths: The shapes of pieces that are asked for.
    """
    if not widths:
        return belief

    def now_of(shape: str) -> str:
        if shape in widths:
            return shape
        fitting = (wanted for wanted in widths if may_stand_for(shape, wanted))
        return min(fitting, default=shape)

    leases = (replace(lease, shape=now_of(lease.shape)) for lease in belief.leases)
    return replace(belief, leases=tuple(leases))


# Holes by shape.


def _asked(site: Site, observed: Observed) -> dict[str, Requirement]:
    """Return what each trainer that wants nodes asks of them, by its name."""
    known: dict[NodeSettings, Requirement] = {}
    asked = {}
    for trainer in observed.trainers:
        if trainer.job is not None and trainer.is_wanted:
            kind = kind_of_lease(trainer.job.nodes)
            if kind not in known:  # what goes with GPUs is worked out over all nodes
                known[kind] = _requirement(site, observed, kind)
            asked[trainer.row.name] = known[kind]
    return asked


def _requirement(site: Site, observed: Observed, nodes: NodeSettings) -> Requirement:
    return requirement_on(
        nodes,
        site.lease,
        default_partition=observed.partition.name,
        nodes=observed.snapshot.nodes,
        sharing=observed.config.sharing,
    )


def _is_ours(context: TickContext, observed: Observed) -> IsOurs:
    """Return what tells our own leases."""
    known = frozenset(intent.uuid for intent in observed.belief.intents)
    uid = context.environment.uid
    return lambda job: job.uid == uid and uuid_in(job.name) in known


def _holes_by_shape(
    site: Site,
    observed: Observed,
    is_ours: IsOurs,
    shapes: Mapping[str, Requirement],
) -> tuple[dict[str, tuple[Hole, ...]], tuple[str, ...]]:
    """Return the holes of each shape, and the problems of shapes that have none.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    holes: dict[str, tuple[Hole, ...]] = {}
    problems = []
    for shape, requirement in shapes.items():
        if not site.rules.allows(requirement.partition):
            problems.append(_not_allowed(site, requirement))
            continue
        margin = _margin_s(site, observed, requirement)
        try:
            holes[shape] = _holes(observed, is_ours, requirement, margin_s=margin)
        except SlurmRefusedError as error:
            problems.append(str(error))
    return holes, tuple(problems)


def _not_allowed(site: Site, requirement: Requirement) -> str:
    return (
        f"leases may not go to partition {requirement.partition}: the rules for all "
        f"users ({RULES_NAME}) allow {', '.join(site.rules.partitions)}; name one of "
        f"these under [lease] in freetrain.toml or under [nodes] in the job file"
    )


def _holes(
    observed: Observed, is_ours: IsOurs, requirement: Requirement, *, margin_s: float
) -> tuple[Hole, ...]:
    return find_holes(
        observed.snapshot,
        requirement,
        is_ours=is_ours,
        margin_s=margin_s,
        window_s=observed.config.bf_window_s,
        sharing=observed.config.sharing,
    )


def _margin_s(site: Site, observed: Observed, requirement: Requirement) -> float:
    """Return how long before their end holes of that partition are left."""
    return margin_s(site, observed.config, observed.partition_of(requirement))


def _widths(observed: Observed, shapes: Mapping[str, Requirement]) -> dict[str, int]:
    """Return how many GPUs a lease takes, by shape of those that take pieces of nodes.

    Where the partition gives whole nodes to all its jobs, none does.
    """
    partitions = {known.name: known for known in observed.snapshot.partitions}
    return {
        shape: gres_count(requirement.gres, ANY_GPU)
        for shape, requirement in shapes.items()
        if not requirement.exclusive
        and requirement.partition in partitions
        and not takes_whole_nodes(
            partitions[requirement.partition], observed.config.sharing
        )
    }


def _most_leases(holes: Mapping[str, Iterable[Hole]]) -> int:
    """Return how many leases the holes could take, those that are there included."""
    most: dict[str, int] = {}
    for found in holes.values():
        for hole in found:
            leases = hole.room + len(hole.held_by)
            most[hole.node] = max(leases, most.get(hole.node, 0))
    return sum(most.values())


def _before_bookings(
    holes: Mapping[str, Iterable[Hole]],
    booked_s: Mapping[str, float],
    *,
    margins_s: Mapping[str, float],
    widths: Mapping[str, int],
) -> dict[str, tuple[Hole, ...]]:
    """Return *holes*, each with its end moved before the job that is booked there.

    Backfill's own plan may be older, or lie around our leases. A hole that we hold
    stays, unless there is room for more: backfill knows when its lease ends, and claims
    say whether the lease must go.

    Args:
        holes: By shape.
        booked_s: By node: when a job that must wait has it, Unix time.
        margins_s: By shape: how long before that the node is left.
        widths: Of the shapes that are pieces of nodes.
    """
    return {
        shape: tuple(
            _ending_by(hole, booked_s[hole.node] - margins_s[shape])
            if hole.node in booked_s
            and (not hole.held_by or (shape in widths and hole.room))
            else hole
            for hole in found
        )
        for shape, found in holes.items()
    }


def _ending_by(hole: Hole, end_s: float) -> Hole:
    if hole.end_s is None or end_s >= hole.end_s:
        return hole
    return replace(hole, end_s=end_s, ends_by=HoleEnd.PLANNED_JOB, blocker="")


def _with_overdue(
    context: TickContext,
    observed: Observed,
    seen: SlurmView,
    claims: Claims,
    shapes: Mapping[str, Requirement],
) -> tuple[Claims, dict[int, AwaitedPreemption]]:
    """Return *claims* with leases that Slurm should have preempted, and what to keep.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
        StoreError: What it remembers cannot be read.
    """
    if observed.limits.mode is not Mode.PREEMPT:
        return claims, {}
    found = preemptable(context.environment, seen)
    waiting = {job.job_id for job in observed.snapshot.jobs if job.is_pending}
    shape_of = {lease.node: lease.shape for lease in observed.belief.leases}
    patience_s: dict[int, float] = {}
    for node, job in found.leased.items():
        asked = shapes.get(shape_of.get(node, ""))
        partition = (
            observed.partition if asked is None else observed.partition_of(asked)
        )
        own_s = partition.grace_time_s + 2.0 * observed.config.bf_interval_s
        patience_s[job] = max(own_s, patience_s.get(job, 0.0))
    overdue, awaited = overdue_leases(
        found.leased,
        awaited_preemptions(context.state),
        waiting,
        patience_s=patience_s,
        now_s=observed.now_s,
    )
    return claims.with_overdue(overdue, found), awaited


def _not_preempted(claims: Claims) -> Iterator[str]:
    """Yield for each job that leases are given up for in place of Slurm."""
    for job, count in Counter(claims.overdue.values()).items():
        yield (
            f"Slurm has not preempted {counted(count, 'lease')} for job {job}, which "
            f"could start there, within the grace time and two cycles of backfill: "
            f"FreeTrain gives them up itself. Please tell the site's administrators."
        )


def _limited(claims: Claims) -> Iterator[str]:
    """Yield for each job that waits for a limit what is done about it."""
    for job, reason in claims.blocked.reasons.items():
        if reason:
            count = sum(by == job for by in claims.blocked.leases.values())
            given = f"{count} of them are given up, and " if count else ""
            yield (
                f"job {job} waits for a limit against which leases count ({reason}): "
                f"{given}none is asked for until none has waited so for "
                f"{LIMIT_REST_S:.0f} s"
            )


def _untried(claims: Claims) -> tuple[str, ...]:
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


def nodes_to_exclude(plan: TickPlan, submit: Submit) -> str:
    """Return the nodes for ``sbatch --exclude`` of *submit*, as a hostlist.

    Slurm chooses the node of a lease. Excluded are, in this order:

    * holes that end before the lease would, as a job is booked there, which Slurm may
      not know;
    * nodes left to waiting jobs, which may come after leases in Slurm's order, or may
      need the node only if another job ended;
    * holes that the plan left idle (``_left_idle``), where forecasts tell holes apart:
      the next tick would give the lease up and ask for another; and idle nodes that
      it leaves whole, where leases take pieces of nodes.

    Nodes that come free later are not excluded.

    Returns:
        Empty where any hole will do. Of a list that is too long for Slurm as many as
        it takes: those it would give first.
    """
    situation = plan.situation
    holes = situation.holes[submit.shape]
    places = {hole.node: place for place, hole in enumerate(holes)}

    def in_slurms_order(nodes: Iterable[str]) -> list[str]:
        return sorted(nodes, key=lambda name: (places.get(name, math.inf), name))

    claims = situation.claims
    left_to_others = {**claims.idle, **claims.kept_free.nodes}
    groups = _booked(situation, submit), left_to_others, _left_idle(plan, submit)
    nodes = chain.from_iterable(map(in_slurms_order, groups))
    return _longest_hostlist(list(dict.fromkeys(nodes)))


def _booked(situation: Situation, submit: Submit) -> set[str]:
    """Return the holes that end before the lease would, as a job is booked there."""
    until_s = situation.now_s + 60.0 * submit.limit_min
    return {
        hole.node
        for hole in situation.holes[submit.shape]
        if hole.node in situation.claims.booked_s
        and hole.end_s is not None
        and hole.end_s < until_s
    }


def _left_idle(plan: TickPlan, submit: Submit) -> set[str]:
    """Return the nodes that this submission must leave idle, as the plan does.

    With forecasts all that the plan left idle, those beyond the cap as well; without,
    nodes that pieces would break up.
    """
    forecasts, decision = plan.forecasts, plan.decision
    wanted = {
        node
        for request in decision.wanted.requests
        if request.shape == submit.shape
        for node in request.nodes
    }
    if forecasts is None or forecasts.weighing.is_learning:
        apart = {node.node for node in decision.classes.nodes if node.is_apart}
        return apart - wanted
    refused = decision.refused.items()
    idle = {node.node for node in decision.classes.nodes if node.lease is None}
    capped = {name for name, why in refused if why is Refusal.LEASE_CAP}
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


def with_bounded_wait(intent: Intent) -> Intent:
    """Return *intent* with a deadline that keeps its leases from waiting for long.

    While they wait, the next plans count on them: a lease that finds its nodes taken
    would hold up a trainer that could have had others by then.
    """
    latest_s = intent.created_s + 60.0 * intent.limit_min + EXCLUDING_WAIT_S
    return replace(intent, deadline_s=min(intent.deadline_s, latest_s))
