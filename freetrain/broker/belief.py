"""From what Slurm tells to what the broker believes of its leases.

Two sources: the whole queue as the snapshot has it, and a look for our jobs by
name, ended ones included, taken after it. What one of them shows is believed, the
later one first. What neither shows is *unknown*: a lease is believed gone only
after both have missed it over several ticks. A source that failed says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import (
    IntentOutcome,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
    submitted_leases,
)
from freetrain.broker.sightings import as_told, number_of, sighted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.broker.lease import Intent
    from freetrain.broker.limits import Limits
    from freetrain.broker.sightings import Sighting, Sources
    from slurm.records import JobRecord

_SOURCES = 2


@dataclass(frozen=True, slots=True, order=True)
class Extra:
    """A second job for a lease there is already; it must go.

    Attributes:
        uuid: The intent's.
        display_id: What scancel calls it.
    """

    uuid: str
    display_id: str


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed after a look.

    Attributes:
        leases: All leases given, and those adopted.
        intents: All intents given, each with what became of it.
        extras: Jobs that stand for no lease.
        adopted: Leases of submissions whose answer never came.
    """

    leases: tuple[Lease, ...]
    intents: tuple[Intent, ...]
    extras: tuple[Extra, ...] = ()
    adopted: tuple[LeaseKey, ...] = ()


def believe(
    leases: Iterable[Lease],
    intents: Iterable[Intent],
    sources: Sources,
    *,
    now_s: float,
    limits: Limits,
) -> Belief:
    """Return what is so, from what was believed and what Slurm tells now.

    Args:
        leases: What was believed, gone ones included: one may turn out alive.
        intents: Every intent that may still have jobs.
        sources: What Slurm tells.
        now_s: Unix time.
        limits: How long to wait for what does not show.
    """
    known = {intent.uuid: intent for intent in intents}
    looks = [
        sighted(source, known, sources.uid)
        for source in (sources.lookup, sources.queue)
        if source is not None
    ]
    settled = {
        one.uuid: _settle(one, looks, now_s=now_s, limits=limits)
        for one in known.values()
    }
    before = {lease.key: lease for lease in leases}
    adopted = _adopted(known, settled, before)
    before |= {lease.key: lease for lease in adopted}
    believed = tuple(
        _updated(lease, looks, settled, now_s=now_s, limits=limits)
        for lease in before.values()
    )
    return Belief(
        leases=believed,
        intents=tuple(settled.values()),
        extras=_extras(looks, settled),
        adopted=tuple(lease.key for lease in adopted),
    )


def _settle(
    intent: Intent,
    looks: list[Sighting],
    *,
    now_s: float,
    limits: Limits,
) -> Intent:
    """Return *intent* with what the looks say about a submission without answer."""
    if intent.job_id is not None:
        return intent
    numbers = _numbers(intent, looks)
    if numbers:
        return replace(
            intent, outcome=IntentOutcome.SUBMITTED, job_id=min(numbers), missed=0
        )
    if intent.outcome is not IntentOutcome.OPEN or len(looks) < _SOURCES:
        return intent
    if any(intent.uuid in look.waiting for look in looks):
        return replace(intent, missed=0)
    missed = intent.missed + 1
    has_settled = now_s >= intent.created_s + limits.settle_s
    is_over = missed >= limits.gone_ticks and has_settled
    outcome = IntentOutcome.ABANDONED if is_over else IntentOutcome.OPEN
    return replace(intent, missed=missed, outcome=outcome)


def _numbers(intent: Intent, looks: list[Sighting]) -> set[int]:
    """Return the numbers of the jobs or arrays that bear the name of *intent*."""
    return {
        number_of(job)
        for look in looks
        for key, jobs in look.jobs.items()
        if key.uuid == intent.uuid
        for job in jobs
    }


def _adopted(
    known: Mapping[str, Intent],
    settled: Mapping[str, Intent],
    before: Mapping[LeaseKey, Lease],
) -> list[Lease]:
    """Return the leases of intents of which we learn only now that Slurm has them.

    An intent that is submitted already, but whose leases were not written down,
    counts as well.
    """
    return [
        lease
        for uuid in known
        if (intent := settled[uuid]).job_id is not None
        for lease in submitted_leases(intent, intent.job_id)
        if lease.key not in before
    ]


def _updated(
    lease: Lease,
    looks: list[Sighting],
    settled: Mapping[str, Intent],
    *,
    now_s: float,
    limits: Limits,
) -> Lease:
    for look in looks:
        job = _job_of(lease, look, settled)
        if job is not None:
            return as_told(lease, job)
        if lease.key.uuid in look.waiting and lease.state is LeaseState.PENDING:
            return replace(lease, missed=0, missed_s=None)
    if len(looks) < _SOURCES or not lease.is_live:
        return lease
    missed_s = now_s if lease.missed_s is None else lease.missed_s
    missing = replace(lease, missed=lease.missed + 1, missed_s=missed_s)
    if missing.missed < limits.gone_ticks or now_s - missed_s < limits.gone_s:
        return missing
    return replace(missing, state=LeaseState.GONE, ended=LeaseEnd.VANISHED)


def _job_of(
    lease: Lease, look: Sighting, settled: Mapping[str, Intent]
) -> JobRecord | None:
    """Return the job that stands for *lease*, not one that merely has its name."""
    intent = settled.get(lease.key.uuid)
    for job in look.jobs.get(lease.key, ()):
        if intent is not None and number_of(job) == intent.job_id:
            return job
    return None


def _extras(looks: list[Sighting], settled: Mapping[str, Intent]) -> tuple[Extra, ...]:
    """Return live jobs that bear an intent's name but are not the job it became."""
    return tuple(
        sorted(
            {
                Extra(key.uuid, job.display_id)
                for look in looks
                for key, jobs in look.jobs.items()
                for job in jobs
                if not job.has_ended and number_of(job) != settled[key.uuid].job_id
            }
        )
    )
