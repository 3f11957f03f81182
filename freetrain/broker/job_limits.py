"""Jobs that limits of accounts, QOS or users keep waiting, and leases that count there.

A job that is held by such a limit waits whatever nodes are free. Leases that count
against the same limit may be the reason, so all of them go (``held_by_limits``), and
none is asked for until no such job has been seen for ``LIMIT_REST_S``
(``LimitMemory``). Giving up exactly enough would let smaller jobs overtake the one that
waits. Budgets that are spent cannot be given back; the leases go all the same, as they
would spend more.

Slurm says the kind of limit, not whose it is: leases of the same QOS, account or user
count against it, and of every account where accounts above may share the limit and are
not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.broker.lease import is_lease

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from slurm.records import JobRecord

LIMIT_REST_S = 65.0
"""Two cycles of backfill, by which Slurm starts a job that its limit lets start."""


class LimitKind(StrEnum):
    """Whose jobs count against a limit."""

    ACCOUNT = "jobs of the account, and of those below the same limit"
    USER = "jobs of the user in the account"
    QOS = "jobs of the QOS"
    USER_IN_QOS = "jobs of the user in the QOS"
    ACCOUNT_IN_QOS = "jobs of the account in the QOS"


_OF_ONE_JOB = re.compile(
    r"PerJob|PerNode|QOSMin|WallDuration|NotAllowed|Threshold|TimeLimit|MaxMemPerLimit"
)
"""Reasons that are about the job alone, whatever else runs."""

_KINDS = (
    (re.compile(r"Assoc(Grp|iationJobLimit|iationResourceLimit)"), LimitKind.ACCOUNT),
    (re.compile(r"AssocMax"), LimitKind.USER),
    (re.compile(r"QOSMax\w*PerUser"), LimitKind.USER_IN_QOS),
    (re.compile(r"QOS(Grp|JobLimit|ResourceLimit)"), LimitKind.QOS),
    (re.compile(r"Max\w*PerAccount"), LimitKind.ACCOUNT_IN_QOS),
)


def limit_kind(reason: str) -> LimitKind | None:
    """Return the kind of limit that holds a job, by its *reason*; None for no limit.

    Source: job_reason_string of Slurm 21.08 to 26.05.
    """
    if _OF_ONE_JOB.search(reason):
        return None
    return next((kind for pattern, kind in _KINDS if pattern.match(reason)), None)


@dataclass(frozen=True, slots=True)
class Accounts:
    """What is known of the site's accounts and QOS.

    Attributes:
        parents: The account above each account; empty where that is not known.
        limited: Accounts that have a limit on all their jobs together.
        partition_qos: The QOS of each partition that has one.
    """

    parents: Mapping[str, str] = field(default_factory=dict)
    limited: frozenset[str] = frozenset()
    partition_qos: Mapping[str, str] = field(default_factory=dict)

    def limited_above(self, account: str) -> frozenset[str]:
        """Return *account* and those above it, of those that have a limit."""
        chain: dict[str, None] = {}
        while account and account not in chain:
            chain[account] = None
            account = self.parents.get(account, "")
        return self.limited & chain.keys()

    def qos_of(self, job: JobRecord) -> set[str]:
        """Return the QOS whose limits bind *job*: its own, and its partitions'."""
        of_partitions = (self.partition_qos.get(name, "") for name in job.partitions)
        return {job.qos, *of_partitions} - {""}


UNKNOWN_ACCOUNTS = Accounts()


@dataclass(frozen=True, slots=True)
class HeldJobs:
    """Jobs that wait for limits against which leases of ours count.

    Attributes:
        leases: The leases, by display id, each with the number of such a job.
        reasons: Of each such job, Slurm's word for the limit.
    """

    leases: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)


NONE_HELD = HeldJobs()


def held_by_limits(
    jobs: Iterable[JobRecord],
    leases: Collection[JobRecord],
    accounts: Accounts = UNKNOWN_ACCOUNTS,
    *,
    now_s: float,
) -> HeldJobs:
    """Return the jobs that wait for limits, and the leases that count against them.

    Args:
        jobs: All jobs of a snapshot; leases of any FreeTrain count as none that waits.
        leases: Our own leases among them, or such as we would ask for.
        accounts: What is known of accounts and QOS.
        now_s: Time of the snapshot, Unix time.
    """
    if not leases:
        return NONE_HELD
    counting: dict[str, int] = {}
    reasons: dict[int, str] = {}
    for job, kind in _held(jobs, now_s):
        found = [lease for lease in leases if _counts(lease, job, kind, accounts)]
        if found:
            reasons[job.job_id] = job.reason
        for lease in found:
            counting.setdefault(lease.display_id, job.job_id)
    return HeldJobs(counting, reasons)


def _held(
    jobs: Iterable[JobRecord], now_s: float
) -> Iterator[tuple[JobRecord, LimitKind]]:
    """Yield the jobs that only a limit holds, each with its kind."""
    for job in jobs:
        kind = limit_kind(job.reason) if job.is_pending and job.reason else None
        is_eligible = job.eligible_s is None or job.eligible_s <= now_s
        if kind is not None and is_eligible and job.priority != 0 and not is_lease(job):
            yield job, kind


def _counts(
    lease: JobRecord, job: JobRecord, kind: LimitKind, accounts: Accounts
) -> bool:
    """Tell whether *lease* counts against the limit that holds *job*."""
    match kind:
        case LimitKind.ACCOUNT:
            return _share_account(lease, job, accounts)
        case LimitKind.USER:
            return lease.uid == job.uid and _may_be_one(lease.account, job.account)
        case LimitKind.QOS:
            return _share_qos(lease, job, accounts)
        case LimitKind.USER_IN_QOS:
            return lease.uid == job.uid and _share_qos(lease, job, accounts)
        case LimitKind.ACCOUNT_IN_QOS:
            return _may_be_one(lease.account, job.account) and _share_qos(
                lease, job, accounts
            )


def _may_be_one(one: str, other: str) -> bool:
    """Tell whether two names are the same, or one of them is not known."""
    return one == other or not one or not other


def _share_account(lease: JobRecord, job: JobRecord, accounts: Accounts) -> bool:
    if not accounts.parents:
        return True
    limited = accounts.limited_above(job.account)
    if not limited:  # a limit that is newer than what we know
        return _may_be_one(lease.account, job.account)
    return not limited.isdisjoint(accounts.limited_above(lease.account))


def _share_qos(lease: JobRecord, job: JobRecord, accounts: Accounts) -> bool:
    ours, theirs = accounts.qos_of(lease), accounts.qos_of(job)
    return not ours or not theirs or not ours.isdisjoint(theirs)


# What one tick remembers for the next.


@dataclass(frozen=True, slots=True)
class LimitMemory:
    """Which jobs were held by limits lately, and what limits were learned of.

    Attributes:
        held_s: When each job was last seen held by a limit against which leases count,
            by its number, Unix time.
        most_leases: How many leases Slurm would take at a time; None for any number.
        learned_s: When that was learned, Unix time.
    """

    held_s: Mapping[int, float] = field(default_factory=dict)
    most_leases: int | None = None
    learned_s: float = 0.0

    def after(
        self, held: HeldJobs, jobs: Iterable[JobRecord], *, now_s: float
    ) -> LimitMemory:
        """Return what to remember after a snapshot.

        A job that was held while leases counted stays in mind while it is held.

        Args:
            held: Jobs that leases keep waiting.
            jobs: All jobs.
            now_s: Time of the snapshot, Unix time.
        """
        waiting = {job.job_id for job, _ in _held(jobs, now_s)} & self.held_s.keys()
        seen = dict.fromkeys(waiting | held.reasons.keys(), now_s)
        recent = {
            job: at_s
            for job, at_s in self.held_s.items()
            if 0.0 <= now_s - at_s < LIMIT_REST_S
        }
        keeps = 0.0 <= now_s - self.learned_s < LEARNED_S
        return LimitMemory(
            {**recent, **seen},
            self.most_leases if keeps else None,
            self.learned_s if keeps else 0.0,
        )

    def refused(self, live: int, asked: int, *, now_s: float) -> LimitMemory:
        """Return what to remember once Slurm took none of *asked* leases for a limit.

        The next request is for half as many.

        Args:
            live: Leases that waited or ran then.
            asked: Leases asked for, at least 1.
            now_s: Unix time.
        """
        return LimitMemory(self.held_s, live + asked // 2, now_s)


NOTHING_REMEMBERED = LimitMemory()

LEARNED_S = 3_600.0
"""How long a learned limit counts: others' jobs use it up, too, and end."""

_LIMIT_WORDS = re.compile(r"accounting/QOS policy|(Assoc|QOS|Max)\w*Submit\w*")


def is_refused_for_limit(said: str) -> bool:
    """Tell whether sbatch refused leases for a limit, by its error message.

    Source: slurm_strerror of ESLURM_ACCOUNTING_POLICY, 21.08 to 26.05.
    """
    return _LIMIT_WORDS.search(said) is not None
