"""The first step of a tick: make room for others' jobs, with nothing but Slurm.

``make_room`` asks Slurm once for all that this tick will know of it. Our leases are
known by user and name alone. Those that others wait for, by nodes or surely by a limit
that they use up, are sent the notice to leave, and waiting leases that would take what
is given up are cancelled. Those that would put off a job that must wait are made to end
before it could start. No lock is taken and no file is read, so that room is made
whatever becomes of the state directory, the files of trainers, or another tick. The
tick then goes on with the same answers and claims, and records what was sent
(``with_room_made``).

A lease that stays after its notice must be cancelled. A tick that has the state sees to
that (``broker.reconcile``). Where a tick fails, ``end_those_that_stay`` waits for that
long in this process, and asks Slurm again. Should no tick come, Slurm ends it at the
end that it was given right after the notice (``end_soon``).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.job_limits import Accounts, blocked_by_limits
from freetrain.broker.lease import LeaseState, is_lease
from freetrain.broker.limits import Limits, Mode
from freetrain.broker.parts import (
    NO_SHARED_NODES,
    SharedNode,
    SharedNodes,
    YieldingLease,
)
from freetrain.broker.reasons import EndReason
from freetrain.broker.sharing import (
    LeasePool,
    leases_in,
    movable,
    pool_order,
    silent_owners,
)
from freetrain.broker.yielding import NO_CLAIMS, DelayProtection, find_claims, keep_free
from freetrain.config.site import LeaseMode
from freetrain.errors import BadConfigurationError
from freetrain.text import counted
from freetrain.tick.environment import MOST_ENDS_SET
from freetrain.tick.leases import (
    NOTICE,
    hidden_queue,
    limits_of,
    margin_s,
    sees_all_jobs,
)
from slurm.demands import held_by
from slurm.errors import SlurmError, SlurmRefusedError
from slurm.holes import find_holes, takes_whole_nodes
from slurm.pieces import ANY_GPU, free_gres, without
from slurm.records import (
    JobState,
    NodeState,
    Requirement,
    expand,
    named_or_default,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping

    from freetrain.broker.backfill import SoonerEnd
    from freetrain.broker.belief import Belief
    from freetrain.broker.job_limits import BlockedJobs
    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.broker.sharing import PooledLease
    from freetrain.broker.yielding import Claims, KeptFree, PendingDemand
    from freetrain.config.site import Site
    from freetrain.tick.environment import TickEnvironment
    from slurm.backend import SlurmBackend
    from slurm.holes import Hole, Snapshot
    from slurm.records import ClusterConfig, JobKey, JobRecord, Node


class SlurmView(NamedTuple):
    """Slurm's answers at the beginning of a tick, and limits and leases by them.

    Attributes:
        config: How the cluster is set up.
        snapshot: Nodes, jobs and reservations.
        limits: What the broker may do there.
        pool: Leases of all users; deaf are those whose brokers are silent.
        partitions: Those that leases of all users are in or may go to.
    """

    config: ClusterConfig
    snapshot: Snapshot
    limits: Limits
    pool: LeasePool
    partitions: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Room:
    """Slurm's answers at the beginning of a tick, and the room that was made by them.

    Attributes:
        seen: These answers, without plans carried over.
        claims: Nodes that others' jobs could start on.
        environment: Clocks, our user number.
        backend: Slurm.
        is_dry: Whether nothing may be sent.
        notified_before: When this process sent each lease a notice, by its clock. A
            lease is sent one, as a second would change nothing.
        notified: Leases that were sent the notice, or in a dry run would be: why, by
            display id.
        cancelled: Waiting leases that were cancelled, likewise.
        new_ends_s: When leases end that were made to end sooner, likewise: by display
            id, Unix time.
        notified_s: When the notice was sent, by the environment's clock.
        problems: What Slurm refused, for people. Hostile text.
        refused_ends: That it did not let leases end sooner, and why; empty where it
            did. Hostile text.
        error: Why not all was sent; None where Slurm answered.
        is_recorded: Whether the state has what was sent: then the next ticks see to
            leases that stay.
    """

    seen: SlurmView
    claims: Claims
    environment: TickEnvironment
    backend: SlurmBackend
    is_dry: bool
    notified_before: MutableMapping[str, float] = field(default_factory=dict)
    notified: dict[str, EndReason] = field(default_factory=dict)
    cancelled: dict[str, EndReason] = field(default_factory=dict)
    new_ends_s: dict[str, float] = field(default_factory=dict)
    notified_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    refused_ends: str = ""
    error: SlurmError | None = None
    is_recorded: bool = False

    @property
    def is_made(self) -> bool:
        """Whether all was sent that others wait for."""
        return self.error is None and not self.problems

    @property
    def words(self) -> str:
        """The room that was made, for the message of a tick that fails after it."""
        if self.seen.limits.mode is Mode.PREEMPT:
            return "Slurm itself takes leases that others need."
        if not self.notified and not self.cancelled and not self.new_ends_s:
            return "No lease had to make room for another job."
        notified = counted(len(self.notified), "lease")
        said = f"Room was made before that: {notified} asked to leave"
        if self.new_ends_s:
            said += f", {len(self.new_ends_s)} made to end sooner"
        if self.cancelled:
            said += f", {len(self.cancelled)} waiting cancelled"
        return f"{said}."


def make_room(
    site: Site,
    environment: TickEnvironment,
    backend: SlurmBackend,
    *,
    is_dry: bool,
    notified_before: MutableMapping[str, float],
) -> Room:
    """Ask Slurm how things are, and make room for the jobs that wait for our leases.

    Args:
        site: The site's settings.
        environment: Clocks, our user number.
        backend: Slurm.
        is_dry: Whether nothing may be sent.
        notified_before: As in ``Room``; notices of this call are added.

    Raises:
        BadConfigurationError: Leases are to yield to jobs that are hidden from us.
        SlurmError: Slurm did not answer, or not in a way that can be read; nothing
            was sent. Where it did not take what was sent, the result says so.
    """
    seen = view_of(site, backend.config(), backend.snapshot())
    room = room_to_make(
        site,
        environment,
        backend,
        seen,
        is_dry=is_dry,
        notified_before=notified_before,
    )
    _send(room)
    return room


def room_to_make(  # noqa: PLR0913 -- each from elsewhere
    site: Site,
    environment: TickEnvironment,
    backend: SlurmBackend,
    seen: SlurmView,
    *,
    is_dry: bool,
    notified_before: MutableMapping[str, float],
) -> Room:
    """Return the room that leases have to make by what was *seen*; nothing is sent.

    Raises:
        BadConfigurationError: Leases are to yield to jobs that are hidden from us.
        SlurmError: Slurm's answers cannot be read.
    """

    def sees_all() -> bool:
        uid, user = environment.uid, environment.user
        return sees_all_jobs(seen.config, backend, uid=uid, user=user)

    hidden = hidden_queue(seen.limits.mode, sees_all=sees_all)
    if hidden:
        raise BadConfigurationError(f"{hidden} Nothing was done.")
    claims = claims_of(site, environment, seen)
    blocked = _blocked_jobs(seen, environment.uid, is_sure=True)
    claims = with_blocked(claims, blocked, seen.snapshot, environment.uid)
    return Room(
        seen=seen,
        claims=claims,
        environment=environment,
        backend=backend,
        is_dry=is_dry,
        notified_before=notified_before,
    )


def give_up_where_unsure(room: Room) -> None:
    """Give up the leases that may count against a limit that blocks a job.

    For a tick that fails before it knows whose limits there are.
    """
    uid, snapshot = room.environment.uid, room.seen.snapshot
    blocked = _blocked_jobs(room.seen, uid, is_sure=False)
    room.claims = with_blocked(room.claims, blocked, snapshot, uid)
    _send(room)


def _send(room: Room) -> None:
    """Cancel waiting leases, give claimed ones the notice, make others end sooner.

    Where Slurm refuses to let leases end sooner, they are given up.
    """

    def make_room_now() -> None:
        _cancel_waiting(room)
        _give_notice(room)

    try:
        make_room_now()
        try:
            set_sooner_ends(room, room.claims)
        except (SlurmRefusedError, ValueError) as refusal:
            room.refused_ends = ends_refused(refusal)
            room.claims = room.claims.without_sooner_ends(
                job.nodes for job, _ in _late(room, room.claims)
            )
            make_room_now()
    except (SlurmRefusedError, ValueError) as error:
        room.problems.append(str(error))
    except SlurmError as error:
        room.error = error


def view_of(site: Site, config: ClusterConfig, snapshot: Snapshot) -> SlurmView:
    """Return what Slurm said, with all that follows from it and the site's settings."""
    return SlurmView(
        config,
        snapshot,
        _limits(site, config, snapshot),
        _pool_of_all(site, snapshot),
        _partitions(site, snapshot),
    )


def _limits(site: Site, config: ClusterConfig, snapshot: Snapshot) -> Limits:
    """Return the limits; where the site's partition is gone, those to yield with.

    Leases may run in a partition that was renamed since, and must give way all the
    same; ``observe`` then refuses to go on.
    """
    partition = named_or_default(snapshot.partitions, site.lease.partition)
    if partition is None:
        is_preempted = site.lease.mode is LeaseMode.PREEMPT
        return Limits(mode=Mode.PREEMPT if is_preempted else Mode.YIELD)
    return limits_of(site, config, partition, partitions=snapshot.partitions)


def _pool_of_all(site: Site, snapshot: Snapshot) -> LeasePool:
    """Return the leases of all users as one pool; idle nodes are not counted yet."""
    now_s, rules = snapshot.time_s, site.rules
    leases = leases_in(snapshot.jobs, now_s=now_s)
    weights = dict(rules.weights)
    return LeasePool(
        leases=leases,
        idle=0,
        now_s=now_s,
        deaf=silent_owners(leases, now_s=now_s),
        weights={
            job.uid: weights[job.user]
            for job in snapshot.jobs
            if job.uid is not None and job.user in weights
        },
        most=rules.caps.leases,
    )


def _partitions(site: Site, snapshot: Snapshot) -> frozenset[str]:
    """Return the partitions that leases of all users are in, and where ours usually go.

    All brokers must plan with the same nodes.
    """
    named = {name for job in snapshot.jobs if is_lease(job) for name in job.partitions}
    usual = named_or_default(snapshot.partitions, site.lease.partition)
    return frozenset(named if usual is None else {*named, usual.name})


def is_our_lease(job: JobRecord, uid: int) -> bool:
    """Tell whether *job* is a lease of ours, of whatever state directory."""
    return job.uid == uid and is_lease(job)


# What is sent. A waiting lease would take what is being given up, so it goes first.


def _cancel_waiting(room: Room) -> None:
    if not room.claims.bars_leases:
        return
    uid = room.environment.uid
    waiting = [
        job
        for job in room.seen.snapshot.jobs
        if job.is_pending and is_our_lease(job, uid)
    ]
    if any(job.array_job_id is not None for job in waiting) and not room.is_dry:
        # squeue shows waiting tasks together, and scancel wants each by itself.
        names = dict.fromkeys(job.name for job in waiting)
        waiting = [
            job
            for job in room.backend.find_by_name(*names)
            if job.is_pending and is_our_lease(job, uid)
        ]
    if not waiting:
        return
    if not room.is_dry:
        with room.environment.effect(
            f"ending {EndReason.MAKES_ROOM.name} {len(waiting)}"
        ):
            room.backend.cancel([job.key for job in waiting])
    ids = (job.display_id for job in waiting)
    room.cancelled |= dict.fromkeys(ids, EndReason.MAKES_ROOM)


def set_sooner_ends(room: Room, claims: Claims) -> None:
    """Let our leases that would put off a job that must wait end before it could start.

    They train until then. As Slurm knows their end, it plans the job for then, and no
    other job is let in before it.

    Args:
        room: The room made so far; leases that have a new end for it are left alone,
            and others are added.
        claims: Which leases are to end sooner.

    Raises:
        SlurmError: Slurm did not answer, or does not let leases end sooner.
    """
    ends: dict[float, list[JobRecord]] = {}
    for job, end_s in _late(room, claims):
        ends.setdefault(end_s, []).append(job)
    for end_s in sorted(ends)[:MOST_ENDS_SET]:
        jobs = ends[end_s]
        if not room.is_dry:
            with room.environment.effect(f"setting ends {len(jobs)}"):
                room.backend.end_by([job.key for job in jobs], end_s)
        room.new_ends_s |= dict.fromkeys((job.display_id for job in jobs), end_s)


def ends_refused(refusal: Exception) -> str:
    """Say, for people, that Slurm refused to let leases end sooner."""
    return (
        f"Slurm did not let leases end sooner; those that could have trained on are "
        f"given up, and what they leave may go to other jobs first: {refusal}"
    )


def _late(room: Room, claims: Claims) -> Iterator[tuple[JobRecord, float]]:
    """Yield our leases that are to end sooner than they will, each with that end.

    Slurm lets nobody but operators move an end to later.
    """
    for job in running_leases(room.seen.snapshot.jobs, room.environment.uid):
        end = claims.ends_sooner(job.nodes, job.job_id)
        is_new = job.display_id not in room.new_ends_s
        if end is not None and is_new and is_late(end, job.end_s):
            yield job, end.end_s


def is_late(end: SoonerEnd, end_s: float | None) -> bool:
    """Tell whether a lease that ends at *end_s*, None for never, is to end sooner."""
    return end_s is None or end_s > end.end_s


def _give_notice(room: Room) -> None:
    """Send claimed leases the notice to commit and leave, and let them end soon.

    Whether an agent is there to hear it is not known here. ``reconcile`` cancels those
    of which no agent was ever heard.
    """
    claims, environment = room.claims, room.environment
    leases = {
        job.display_id: (job, name)
        for job in running_leases(room.seen.snapshot.jobs, environment.uid)
        for name in expand(job.nodes)
        if claims.takes(name, job.job_id) and job.display_id not in room.notified_before
    }
    if not leases:
        return
    if not room.is_dry:
        with environment.effect(f"ending {EndReason.CLAIMED.name} {len(leases)}"):
            room.backend.signal([job.key for job, _ in leases.values()], NOTICE)
    room.notified_s = environment.clock()
    room.notified_before.update(dict.fromkeys(leases, room.notified_s))
    room.notified |= {
        display_id: claims.end_reason(name) for display_id, (_, name) in leases.items()
    }
    if not room.is_dry:
        ends_s = {job.key: job.end_s for job, _ in leases.values()}
        refused = end_soon(room, ends_s)
        room.refused_ends = room.refused_ends or refused


UNTIL_TICK_S = 60.0
"""The time for a tick to cancel a lease that stays, before Slurm ends it."""


def end_soon(room: Room, leases: Mapping[JobKey, float | None]) -> str:
    """Let Slurm know that leases end soon, as they were sent the notice for others.

    They leave one by one. Once every lease that a job waits for has such an end, those
    of other users' brokers included, Slurm keeps what comes free for that job. It also
    ends those that stay where no tick comes to cancel them (later where OverTimeLimit
    says so). The notice goes first: a command that hangs must not hold it up.

    Args:
        room: The room made so far.
        leases: When each would end, Unix time; None where that is not known.

    Returns:
        Why it did not let them end sooner, for people; empty where it did. They leave
        all the same.

    Raises:
        SlurmError: Slurm did not answer.
    """
    seen = room.seen
    end_s = seen.snapshot.time_s + seen.limits.claim_patience_s + UNTIL_TICK_S
    late = [key for key, at_s in leases.items() if at_s is None or at_s > end_s]
    if not late:
        return ""
    try:
        with room.environment.effect(f"setting an end for {len(late)}"):
            room.backend.end_by(late, end_s)
    except SlurmRefusedError as refusal:
        return ends_refused(refusal)
    return ""


def running_leases(jobs: Iterable[JobRecord], uid: int) -> Iterator[JobRecord]:
    """Yield our leases that run, and are not just ending."""
    for job in jobs:
        is_ending = JobState.COMPLETING in job.states
        if JobState.RUNNING in job.states and not is_ending and is_our_lease(job, uid):
            yield job


def end_those_that_stay(room: Room) -> int:
    """Cancel the leases that stay after their notice; return how many.

    For a tick that cannot record its notices: no later tick would know since when they
    stay. Waits for the rest of their time, at most ``claim_patience_s``.

    Raises:
        SlurmError: Slurm did not answer; they may stay.
    """
    if not room.notified:
        return 0
    environment = room.environment
    left_s = room.seen.limits.claim_patience_s - (environment.clock() - room.notified_s)
    if left_s > 0.0:
        environment.sleep(left_s)
    stayed = [
        job.key
        for job in running_leases(room.backend.jobs(), environment.uid)
        if job.display_id in room.notified
    ]
    if stayed:
        with environment.effect(f"ending {EndReason.STAYED.name} {len(stayed)}"):
            room.backend.cancel(stayed)
    return len(stayed)


def with_room_made(
    belief: Belief, room: Room, now_s: float
) -> tuple[Belief, dict[LeaseKey, EndReason]]:
    """Return *belief* with the times at which room was asked for, and of whom.

    A lease that was asked before keeps that time: it counts from there that it stays.

    Returns:
        The belief, and by lease the reason for which it was asked just now.
    """
    why: dict[LeaseKey, EndReason] = {}
    leases: list[Lease] = []
    for lease in belief.leases:
        changed = lease
        if lease.display_id in room.notified and lease.notice_s is None:
            changed = replace(lease, notice_s=now_s)
            why[lease.key] = room.notified[lease.display_id]
        elif lease.display_id in room.cancelled:
            changed = replace(lease, cancel_s=now_s)
            why[lease.key] = room.cancelled[lease.display_id]
        if lease.display_id in room.new_ends_s:
            changed = replace(changed, end_s=room.new_ends_s[lease.display_id])
        leases.append(changed)
    return replace(belief, leases=tuple(leases)), why


# Claims: the nodes that others' jobs could start on.

_SHARED = {NodeState.MIXED, NodeState.ALLOCATED, NodeState.PLANNED}

CAREFUL_LIMIT_S = 1.0
"""The last tick before a backfill cycle must be quick: changes of the queue while it
works go unseen."""


def claims_of(site: Site, environment: TickEnvironment, seen: SlurmView) -> Claims:
    """Return the nodes that leases must leave to others.

    Jobs could start on them, where Slurm does not preempt leases; these are nodes of
    leases of all users, each of whose brokers gives up its own.

    Args:
        site: The site's settings.
        environment: Clocks, our user number.
        seen: What Slurm said; plans carried over may be in its snapshot.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    if seen.limits.mode is not Mode.YIELD:
        return NO_CLAIMS
    partitions = seen.snapshot.partitions
    partition = named_or_default(partitions, site.lease.partition)
    return _startable(
        environment,
        seen,
        margin_s=margin_s(site, seen.config, partition) if partition else 0.0,
        is_careful=site.lease.careful,
    )


def _blocked_jobs(seen: SlurmView, uid: int, *, is_sure: bool) -> BlockedJobs:
    """Return the jobs that limits block, and our leases that count, by Slurm alone."""
    jobs = seen.snapshot.jobs
    leases = [job for job in jobs if is_our_lease(job, uid)]
    accounts = Accounts(partition_qos=qos_of_partitions(seen.snapshot))
    now_s = seen.snapshot.time_s
    return blocked_by_limits(jobs, leases, accounts, now_s=now_s, is_sure=is_sure)


def qos_of_partitions(snapshot: Snapshot) -> dict[str, str]:
    """Return the QOS of each partition; empty where it has none."""
    return {partition.name: partition.qos for partition in snapshot.partitions}


def with_blocked(
    claims: Claims, blocked: BlockedJobs, snapshot: Snapshot, uid: int
) -> Claims:
    """Return *claims* with our running leases that count against limits."""
    running = {job.display_id: job for job in running_leases(snapshot.jobs, uid)}
    nodes = {lease: job.nodes for lease, job in running.items()}
    limited = {running[one].job_id for one in blocked.leases if one in running}
    return claims.with_limits(blocked, nodes).without_spared(limited)


def preemptable(environment: TickEnvironment, seen: SlurmView) -> Claims:
    """Return the nodes of leases on which Slurm could start jobs by preemption now.

    Only jobs in a partition of a higher tier than all that leases are in preempt them.

    Args:
        environment: Clocks, our user number.
        seen: What Slurm said.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    tiers = {p.name: p.priority_tier for p in seen.snapshot.partitions}
    ours = max((tiers[name] for name in seen.partitions if name in tiers), default=0)

    def may_preempt(job: JobRecord) -> bool:
        return any(tiers.get(name, 0) > ours for name in job.partitions)

    jobs = tuple(j for j in seen.snapshot.jobs if not j.is_pending or may_preempt(j))
    if not any(job.is_pending for job in jobs):
        return NO_CLAIMS
    seen = seen._replace(snapshot=replace(seen.snapshot, jobs=jobs))
    return _startable(environment, seen, margin_s=0.0, is_careful=False)


def _startable(
    environment: TickEnvironment,
    seen: SlurmView,
    *,
    margin_s: float,
    is_careful: bool,
) -> Claims:
    """Return the nodes that others' jobs could start on; see ``claims_of``."""
    config, pool = seen.config, seen.pool
    giving = movable(pool.leases, owner=environment.uid, deaf=pool.deaf)
    numbers = {lease.job_id for lease in giving}
    order = pool_order(giving, pool.weights)
    turns = {lease.job_id: turn for turn, lease in enumerate(order)}
    node_turns = {lease.node: turns[lease.job_id] for lease in reversed(order)}
    snapshot = _with_leaving(seen.snapshot, giving)

    def gives_way(job: JobRecord) -> bool:
        return job.job_id in numbers or (job.is_pending and is_lease(job))

    jobs = snapshot.jobs
    held = [job for job in jobs if job.nodes in node_turns and job.job_id in turns]
    nodes = {node.name: node for node in snapshot.nodes}
    holes = _every_hole(snapshot, config, gives_way, seen.partitions)
    are_pieces = _are_pieces(held, nodes)
    shared = NO_SHARED_NODES
    if are_pieces:
        places = snapshot, config, gives_way, seen.partitions
        shared = _shared_nodes(*places, whole=holes, turns=turns)
    state = BackfillState(
        holes=holes,
        nodes=nodes,
        leased=frozenset(node_turns),
        turns=node_turns,
        partly=frozenset(() if are_pieces else _partly_held(snapshot.nodes)),
        shared=shared,
        spans=_spans(held),
        busy_until_s=_busy_until_s(jobs, gives_way),
        margin_s=margin_s,
        backfill=Backfill(grain_s=config.bf_resolution_s, window_s=config.bf_window_s),
    )
    protect = None
    if is_careful:
        protect = _protection(
            [job for job in jobs if job.holds_nodes and not gives_way(job)],
            cycle_s=config.bf_interval_s,
            longest_s=60.0 * seen.limits.most_limit_min,
            clock=environment.clock,
        )
    return find_claims(
        jobs, state, is_ours=gives_way, now_s=snapshot.time_s, protect=protect
    )


def _spans(held: Iterable[JobRecord]) -> dict[str, LeaseSpan]:
    """Return by node the time of its leases, from the first start to the last end."""
    spans: dict[str, LeaseSpan] = {}
    for job in held:
        if job.start_s is not None and job.end_s is not None:
            span = spans.get(job.nodes, LeaseSpan(job.start_s, job.end_s))
            start_s = min(job.start_s, span.start_s)
            spans[job.nodes] = LeaseSpan(start_s, max(job.end_s, span.end_s))
    return spans


def _are_pieces(held: Iterable[JobRecord], nodes: Mapping[str, Node]) -> bool:
    """Tell whether some of these running leases leave a part of their node."""
    names: set[str] = set()
    for job in held:
        node = nodes.get(job.nodes)
        if node is None:
            continue
        used = node.allocated_cpus
        if 0 < used < node.cpus or 0 < job.cpu_count < used or job.nodes in names:
            return True
        names.add(job.nodes)
    return False


def _shared_nodes(  # noqa: PLR0913 -- the first four as of every function of holes
    snapshot: Snapshot,
    config: ClusterConfig,
    gives_way: Callable[[JobRecord], bool],
    partitions: frozenset[str],
    *,
    whole: Iterable[Hole],
    turns: Mapping[int, int],
) -> SharedNodes:
    """Return the nodes that jobs have parts of, and the leases there.

    A node that others have none of is shared, too, where leases run that give way.
    What leases have that are just ending is free there already.

    Args:
        snapshot: What Slurm said.
        config: How the cluster is set up.
        gives_way: Whether a job is a lease that gives way.
        partitions: Those of leases.
        whole: The holes of these partitions for leases of whole nodes.
        turns: By the number of each running lease that gives way: its place in the
            order in which they do.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    holding = [job for job in snapshot.jobs if job.holds_nodes and gives_way(job)]
    pieces = _pieces((job for job in holding if job.job_id in turns), turns, nodes)
    ending = [job for job in holding if job.job_id not in turns]
    of_whole = {hole.node: hole for hole in whole}
    shared = {
        name: SharedNode(
            without(nodes[name], _held_on(name, ending)),
            of_whole.get(name, hole),
            pieces.get(name, ()),
        )
        for name, hole in _every_part(snapshot, config, gives_way, partitions).items()
        if name in pieces or name not in of_whole
    }
    sharing, known = config.sharing, snapshot.partitions
    return SharedNodes(
        shared,
        sharing,
        whole=frozenset(p.name for p in known if takes_whole_nodes(p, sharing)),
        capped=frozenset(p.name for p in known if p.most_cpus_per_node is not None),
    )


def _pieces(
    held: Iterable[JobRecord], turns: Mapping[int, int], nodes: Mapping[str, Node]
) -> dict[str, tuple[YieldingLease, ...]]:
    """Return by node the leases there, in the order in which they give way.

    Which GPUs a lease has that asked for any is unclear on a node of several kinds.
    """
    pieces: dict[str, tuple[YieldingLease, ...]] = {}
    for job in sorted(held, key=lambda job: turns[job.job_id]):
        has, is_clear = held_by(job)
        node = nodes.get(job.nodes)
        kinds = Counter(gres.name for gres in node.gres) if node is not None else {}
        is_clear &= all(gres.kind or kinds[gres.name] <= 1 for gres in has.gres)
        piece = YieldingLease(job.job_id, turns[job.job_id], has, is_clear)
        pieces[job.nodes] = (*pieces.get(job.nodes, ()), piece)
    return pieces


def _held_on(name: str, jobs: Iterable[JobRecord]) -> Iterator[Requirement]:
    for job in jobs:
        if job.nodes == name:
            held, _ = held_by(job)
            yield held


def _with_leaving(snapshot: Snapshot, leases: Iterable[PooledLease]) -> Snapshot:
    """Return *snapshot* with the nodes up whose leases have just ended.

    Nodes that one broker has released already must still count for the job that all
    of them release nodes for; otherwise the others would keep theirs until it is idle.
    """
    names = {lease.node for lease in leases if lease.is_leaving}
    if not names:
        return snapshot
    nodes = (
        replace(node, states=node.states - {NodeState.COMPLETING})
        if node.name in names
        else node
        for node in snapshot.nodes
    )
    return replace(snapshot, nodes=tuple(nodes))


LEAST_HOLE_S = 180.0
"""Holes that end sooner are not shared out: a lease takes whole minutes."""


def idle_nodes(seen: SlurmView, claims: Claims, *, are_pieces: bool = False) -> int:
    """Return how many nodes are idle, or about to be, that no other job claims.

    Where leases of any user are pieces of nodes, each free GPU counts as a node, since
    each lease counts as one, though it may have several GPUs.

    Args:
        seen: What Slurm said.
        claims: Nodes that others' jobs could start on, or are booked for.
        are_pieces: Whether our own leases are to be pieces.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    until_s = seen.snapshot.time_s + LEAST_HOLE_S
    leaving = [lease for lease in seen.pool.leases if lease.is_leaving]
    numbers = {lease.job_id for lease in leaving}

    def gives_way(job: JobRecord) -> bool:
        return job.job_id in numbers or (job.is_pending and is_lease(job))

    snapshot = _with_leaving(seen.snapshot, leaving)
    nodes = {node.name: node for node in snapshot.nodes}
    running = {lease.job_id for lease in seen.pool.leases if lease.runs}
    held = (job for job in snapshot.jobs if job.job_id in running)
    places = snapshot, seen.config, gives_way, seen.partitions
    counts = {hole.node: (hole, 1) for hole in _every_hole(*places)}
    if are_pieces or _are_pieces(held, nodes):
        for name, hole in _every_part(*places).items():
            free = free_gres(nodes[name], ANY_GPU)
            whole = counts.get(name)
            counts[name] = (hole, free) if whole is None else (whole[0], max(1, free))
    return sum(
        count
        for hole, count in counts.values()
        if hole.node not in claims.nodes
        and hole.end_s is not None
        and min(hole.end_s, claims.booked_s.get(hole.node, math.inf)) >= until_s
    )


def with_begun(claims: Claims, belief: Belief) -> Claims:
    """Return *claims* with the leases that began after the queue was read.

    The node of such a lease was idle there, and others could start on it.
    """
    begun = {
        lease.node
        for lease in belief.leases
        if lease.state is LeaseState.RUNNING
        and lease.node in claims.idle
        and lease.job_id not in claims.spared.get(lease.node, ())
    }
    if not begun:
        return claims
    return replace(
        claims,
        leased={**claims.leased, **{name: claims.idle[name] for name in begun}},
        idle={name: by for name, by in claims.idle.items() if name not in begun},
    )


def _every_hole(
    snapshot: Snapshot,
    config: ClusterConfig,
    is_ours: Callable[[JobRecord], bool],
    partitions: frozenset[str],
) -> tuple[Hole, ...]:
    """Return the holes of *partitions*, whatever leases ask of their nodes."""
    places = snapshot, config, is_ours, partitions
    return tuple(_holes_for(Requirement(partition=""), *places).values())


def _every_part(
    snapshot: Snapshot,
    config: ClusterConfig,
    is_ours: Callable[[JobRecord], bool],
    partitions: frozenset[str],
) -> dict[str, Hole]:
    """Return the nodes of *partitions* on which jobs may run beside others.

    In Slurm's order: those where a CPU is free, and those with leases.
    """
    least = Requirement(partition="", memory_mib=1, exclusive=False)
    found = _holes_for(least, snapshot, config, is_ours, partitions)
    return {
        node.name: found[node.name] for node in snapshot.nodes if node.name in found
    }


def _holes_for(
    asked: Requirement,
    snapshot: Snapshot,
    config: ClusterConfig,
    is_ours: Callable[[JobRecord], bool],
    partitions: frozenset[str],
) -> dict[str, Hole]:
    """Return by node the holes of *partitions* for leases that ask so much there."""
    present = {partition.name for partition in snapshot.partitions}
    return {
        hole.node: hole
        for name in sorted(partitions & present)
        for hole in find_holes(
            snapshot,
            replace(asked, partition=name),
            is_ours=is_ours,
            margin_s=0.0,
            window_s=config.bf_window_s,
            sharing=config.sharing,
        )
    }


def _busy_until_s(
    jobs: Iterable[JobRecord], gives_way: Callable[[JobRecord], bool]
) -> dict[str, float]:
    """Return when nodes that others hold come free, by the limits of their jobs."""
    until_s: dict[str, float] = {}
    for job in jobs:
        if job.holds_nodes and not gives_way(job):
            end_s = math.inf if job.end_s is None else job.end_s
            for name in expand(job.nodes):
                until_s[name] = max(end_s, until_s.get(name, 0.0))
    return until_s


def _partly_held(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the nodes that jobs hold a part of, so that others may start beside."""
    for node in nodes:
        is_up = node.states <= _SHARED and not node.unknown_states
        if is_up and 0 < node.allocated_cpus < node.cpus:
            yield node.name


def _protection(
    others: Iterable[JobRecord],
    *,
    cycle_s: float,
    longest_s: float,
    clock: Callable[[], float],
) -> Callable[[PendingDemand], KeptFree]:
    """Return delay protection that may take a second from now on.

    Args:
        others: Their running jobs.
        cycle_s: Between two cycles of backfill.
        longest_s: Of the longest lease.
        clock: Returns seconds that only go up.
    """
    until_s = clock() + CAREFUL_LIMIT_S

    def protect(demand: PendingDemand) -> KeptFree:
        # Node lists are read here, as this is called only where jobs wait.
        running = [frozenset(expand(job.nodes)) for job in others]
        protection = DelayProtection(
            running,
            cycle_s=cycle_s,
            longest_s=longest_s,
            is_out_of_time=lambda: clock() > until_s,
        )
        return keep_free(demand, protection)

    return protect
