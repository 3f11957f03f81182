"""Slurm's limits of accounts, users and QOS, as a tick reads and uses them.

``limits_now`` takes what was read last, and reads it again where that is old: no tick
asks before room is made, and none where Slurm enforces no limits. It finds the jobs
that leases keep waiting at a limit, and how many leases fit. The rules are pure and
stand in ``broker.job_limits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.job_limits import (
    Accounts,
    AllowedLeases,
    HeldJobs,
    LimitMemory,
    allowed_leases,
    has_unknown_limit,
    held_by_limits,
    limit_kind,
)
from freetrain.broker.lease import uuid_in
from freetrain.state.tables import KnownLimits, known_limits, limit_memory
from freetrain.tick.room import is_our_lease, qos_of_partitions
from slurm.associations import UNKNOWN_LIMITS
from slurm.records import JobRecord, JobState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from freetrain.config.site import Site
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from slurm.records import Node, Requirement


LIMITS_KEPT_S = 600.0
"""How long limits that were read count. Administrators change them seldom."""

UNKNOWN_KEPT_S = 120.0
"""The same where a job is held by a limit that is not among them."""


@dataclass(frozen=True, slots=True)
class LimitsNow:
    """What limits of accounts, users and QOS mean for this tick.

    Attributes:
        known: What is known of them, to be kept.
        held: Jobs that wait for limits against which leases count, or would.
        memory: What to remember of such jobs.
        allowed: How many leases fit.
    """

    known: KnownLimits
    held: HeldJobs
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
    held = held_by_limits(jobs, [*leases, *wanted], accounts, now_s=now_s)
    remembered = limit_memory(context.state).after(held, jobs, now_s=now_s)
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
    return LimitsNow(known, held, remembered, min(bounds, key=AllowedLeases.rank))


def _waiting_for(leases: Iterable[JobRecord]) -> Iterator[str]:
    """Yield limits that hold leases of ours: more of them would wait, too."""
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
    of = [site.lease.account] if site.lease.account else {job.account for job in leases}
    qos = [site.lease.qos] if site.lease.qos else {job.qos for job in leases} - {""}
    for shape in shapes:
        whole = (node.cpus for node in nodes if shape.partition in node.partitions)
        cpus = max(whole, default=1) if site.lease.exclusive else shape.cpus
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
