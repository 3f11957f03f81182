"""What a tick does about other users' FreeTrain, beside making room.

``settled_pool`` takes the leases out of the pool whose brokers leave calls unanswered,
so that ours step in for them. ``share_now`` works out how many nodes are ours.
``announce`` writes into the comment of a lease what the others must know of us. The
rules are pure and stand in ``broker.sharing``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import parse_comment, uuid_in
from freetrain.broker.sharing import movable, share_of
from freetrain.tick.leases import lease_comment
from freetrain.tick.room import claims_of, idle_nodes, is_our_lease
from slurm.errors import SlurmError
from slurm.holes import BackfillPlans
from slurm.records import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.broker.pool import Trainer
    from freetrain.broker.sharing import CallMemory, LeasePool, PooledLease, Share
    from freetrain.broker.yielding import Claims
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.room import Room, SlurmView
    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledPool:
    """The pool without those who do not answer, and what follows from it.

    Attributes:
        seen: What Slurm said.
        partitions: Those that leases are in or may go to.
        pool: Leases of all users, and the owners whose brokers do not answer.
        claims: Nodes that others' jobs could start on.
        calls: What to remember of calls and brokers.
    """

    seen: SlurmView
    partitions: frozenset[str]
    pool: LeasePool
    claims: Claims
    calls: CallMemory


def settled_pool(
    context: TickContext,
    room: Room,
    seen: SlurmView,
    before: CallMemory,
    *,
    partitions: frozenset[str],
) -> SettledPool:
    """Return the pool without deaf brokers, and the claims by it.

    They are the claims by which room was made, but where a broker is deaf, where
    trainers want partitions without leases so far, or where backfill was at work, and
    the state remembers its plans.

    Args:
        context: The tick.
        room: What was found with Slurm alone.
        seen: What Slurm said; plans carried over may be in its snapshot.
        before: What the last tick remembered of calls.
        partitions: Those that leases are in or may go to.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    pool, now_s = room.pool, room.pool.now_s
    calls = before.after_signs(pool.leases, now_s=now_s)
    pool = replace(pool, deaf=pool.deaf | calls.deaf)

    def claims_by(pool: LeasePool) -> Claims:
        return claims_of(
            context.site, context.environment, seen, pool=pool, partitions=partitions
        )

    is_same = seen.snapshot.carried == BackfillPlans() and partitions == room.partitions
    claims = room.claims if is_same and pool == room.pool else claims_by(pool)
    calls = calls.after_calls(
        _called(pool, claims, context.environment.uid),
        now_s=now_s,
        bf_interval_s=seen.config.bf_interval_s,
    )
    if not calls.deaf <= pool.deaf:
        pool = replace(pool, deaf=pool.deaf | calls.deaf)
        claims = claims_by(pool)
    return SettledPool(
        seen=seen, partitions=partitions, pool=pool, claims=claims, calls=calls
    )


def _called(pool: LeasePool, claims: Claims, uid: int) -> Iterator[PooledLease]:
    """Yield leases of others on whose nodes a job could start now."""
    for lease in movable(pool.leases, owner=uid, deaf=pool.deaf):
        if lease.owner != uid and lease.runs and lease.node in claims.startable:
            yield lease


def share_now(context: TickContext, settled: SettledPool, *, want: int) -> Share | None:
    """Return our share of the nodes; None where no other user's FreeTrain is there.

    Args:
        context: The tick.
        settled: The pool and the claims.
        want: Nodes that our trainers could use.

    Raises:
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    uid, pool, claims = context.environment.uid, settled.pool, settled.claims
    if pool.most is None and all(lease.owner == uid for lease in pool.leases):
        return None
    idle = idle_nodes(settled.seen, claims, pool=pool, partitions=settled.partitions)
    share = share_of(replace(pool, idle=idle), owner=uid, want=want)
    if share is not None and claims.startable:  # first come those who wait
        share = replace(share, gives=0)
    return share


def wanted_nodes(trainers: Iterable[Trainer], most_leases: int) -> int:
    """Return how many nodes *trainers* could use, within our own cap."""
    return min(most_leases, sum(trainer.curve.sizes[-1] for trainer in trainers))


def announce(context: TickContext, observed: Observed, *, want: int) -> str:
    """Say in a lease's comment that our broker lives, and how many nodes it wants.

    One command writes it to all tasks of one submission: of those that do not say yet
    that they are part of the pool, else of all, the oldest that runs.

    Nothing else fails because of it.

    Returns:
        Why Slurm did not take it, or an empty text.
    """
    uid = context.environment.uid
    known = {intent.uuid for intent in observed.belief.intents}
    running = [
        job
        for job in observed.snapshot.jobs
        if is_our_lease(job, uid)
        and JobState.RUNNING in job.states
        and JobState.COMPLETING not in job.states
        and uuid_in(job.name) in known
    ]
    if not running:
        return ""
    job = min(running, key=_first_to_publish)
    uuid = uuid_in(job.name) or ""
    text = lease_comment(context.folder, uuid, want=want, beat_s=observed.now_s)
    try:
        with context.effect("publishing"):
            context.backend.set_comment(job.array_job_id or job.job_id, text)
    except (SlurmError, ValueError) as error:
        return (
            f"Slurm did not take the comment by which other users' FreeTrain knows "
            f"that this one lives and wants {want} nodes; they count it as silent: "
            f"{error}"
        )
    return ""


def _first_to_publish(job: JobRecord) -> tuple[bool, float, int]:
    said = parse_comment(job.comment)
    is_pooled = said is not None and said.is_pooled
    return (is_pooled, job.submit_s or 0.0, job.job_id)
