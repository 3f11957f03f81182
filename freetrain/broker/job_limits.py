"""Limits of accounts, QOS and users: jobs that they keep waiting, and room for leases.

A job that such a limit blocks waits whatever nodes are free. Leases that count
against the same limit may be the reason, so all of them go (``blocked_by_limits``), and
none is asked for until no such job has been seen for ``LIMIT_REST_S``
(``LimitMemory``). Giving up exactly enough would let smaller jobs overtake the one that
waits. Budgets that are spent cannot be given back; the leases go all the same, as they
would spend more.

Slurm says the kind of limit, not whose it is. Where its accounting tells the limits
(``slurm.associations``), ``Accounts`` finds those that bind a job, and no more leases
are asked for than fit below them beside all other jobs (``allowed_leases``). Where it
does not, leases of the same QOS, account or user count, and of every account where
accounts above may share the limit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from freetrain.broker.backfill import could_start, waiting_tasks
from freetrain.broker.lease import is_lease
from slurm.associations import UNKNOWN_LIMITS
from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from slurm.associations import AccountingLimits, Association
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
    """Return the kind of limit that blocks a job, by its *reason*; None for no limit.

    Source: job_reason_string of Slurm 21.08 to 26.05.
    """
    if _OF_ONE_JOB.search(reason):
        return None
    return next((kind for pattern, kind in _KINDS if pattern.match(reason)), None)


_TRES_WORDS = {
    "cpu": "cpu",
    "mem": "mem",
    "memory": "mem",
    "node": "node",
    "gres": "gres/",
    "license": "license/",
    "bb": "bb/",
    "billing": "billing",
    "energy": "energy",
}
"""How TRES begin, by the words of reasons."""

_REASON = re.compile(
    r"(?:Assoc|QOS)?(?P<all>Grp|Max)(?P<what>\w+?)(?P<mins>Run)?(?P<minutes>Minutes)?"
    r"(?P<each>Per(?:User|Account))?(?:Limit)?"
)


def _is_named(name: str, reason: str) -> bool:
    """Tell whether the limit *name* may be the one that *reason* names.

    ``AssocGrpCPURunMinutesLimit`` names ``GrpTRESRunMins=cpu``, for example.
    """
    found = _REASON.fullmatch(reason)
    if found is None:  # ``QOSResourceLimit``, for example, says no more
        return True
    each = {"PerUser": "PU", "PerAccount": "PA"}.get(found["each"] or "", "")
    start = found["all"]
    what = found["what"].lower()
    if what in {"jobs", "wall"}:
        return name == f"{start}{what.capitalize()}{each}"
    if what in {"submitjobs", "submitjob"}:
        return name == f"{start}SubmitJobs{each}"
    mins = "Run" * bool(found["mins"]) + "Mins" * bool(found["minutes"])
    if not name.startswith(f"{start}TRES{mins}{each}="):
        return False
    return name.partition("=")[2].startswith(_TRES_WORDS.get(what, ""))


@dataclass(frozen=True, slots=True)
class JobLimit:
    """A limit on all the jobs together that count against it.

    Attributes:
        name: Slurm's word for it, for example ``GrpTRES=node``.
        most: Its value.
        owner: Whose it is, for people.
        accounts: The accounts whose jobs count; None for those of every account.
        uid: The user whose jobs count; None for those of every user.
        qos: The QOS whose jobs count; empty for those of every QOS.
        partition: The partition whose jobs count; empty for those of every partition.
    """

    name: str
    most: int
    owner: str
    accounts: frozenset[str] | None = None
    uid: int | None = None
    qos: str = ""
    partition: str = ""

    def __str__(self) -> str:
        """Say the limit, its value and whose it is."""
        value = f"{self.name}={self.most}"
        return f"{value} of {self.owner}"


@dataclass(frozen=True)
class Accounts:
    """The site's accounts and QOS, as far as they are known.

    Attributes:
        known: What Slurm's accounting tells of their limits.
        partition_qos: The QOS of each partition that has one.
        user: The user whose associations are known.
        uid: That user's number.
    """

    known: AccountingLimits = UNKNOWN_LIMITS
    partition_qos: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    uid: int | None = None

    def qos_of(self, job: JobRecord) -> set[str]:
        """Return the QOS whose limits bind *job*: its own, and its partitions'."""
        of_partitions = (self.partition_qos.get(name, "") for name in job.partitions)
        return {job.qos, *of_partitions} - {""}

    def knows(self, job: JobRecord) -> bool:
        """Tell whether the limits of the account of *job*, and above, are known."""
        return job.account in self._of_account

    def own_accounts(self) -> frozenset[str]:
        """Return those that our jobs may be of where they name none."""
        usual = frozenset(ours.account for ours in self._ours if ours.is_default)
        return usual or frozenset(ours.account for ours in self._ours)

    def default_qos(self, account: str, partition: str) -> str:
        """Return the QOS of our jobs of *account* that name none, as far as known."""
        of = (
            ours
            for ours in self._ours
            if ours.account == account and ours.partition in {"", partition}
        )
        own = max(of, key=lambda ours: bool(ours.partition), default=None)
        return own.default_qos if own is not None else ""

    def counts(self, job: JobRecord, limit: JobLimit) -> bool:
        """Tell whether *job* counts against *limit*."""
        return (
            (limit.accounts is None or job.account in limit.accounts)
            and (limit.uid is None or job.uid == limit.uid)
            and (not limit.qos or limit.qos in self.qos_of(job))
            and (not limit.partition or limit.partition in job.partitions)
        )

    def limits_on(self, job: JobRecord) -> tuple[JobLimit, ...]:
        """Return the limits that bind *job*; of a user's own, those of ours alone.

        A QOS that sets a limit sets aside the same one of associations. Source:
        acct_policy.c of Slurm 22.05, and "Limit hierarchy" of resource_limits.html.
        """
        of_qos = list(self._of_qos(job))
        set_aside = {limit.name.removesuffix("PU") for limit in of_qos}
        of_accounts = (
            limit for limit in self._of_associations(job) if limit.name not in set_aside
        )
        return (*of_qos, *of_accounts)

    def _of_qos(self, job: JobRecord) -> Iterator[JobLimit]:
        names = self.qos_of(job)
        for qos in self.known.qos:
            if qos.name not in names:
                continue
            for name, most in qos.limits.items():
                owner, whose = f"QOS {qos.name}", name.partition("=")[0]
                if whose.endswith("PU"):
                    owner = f"each user in {owner}"
                    yield JobLimit(name, most, owner, uid=job.uid, qos=qos.name)
                elif whose.endswith("PA"):
                    owner, of = f"each account in {owner}", frozenset({job.account})
                    yield JobLimit(name, most, owner, accounts=of, qos=qos.name)
                else:
                    yield JobLimit(name, most, owner, qos=qos.name)

    def _of_associations(self, job: JobRecord) -> Iterator[JobLimit]:
        own = self._own(job)
        if own is not None:
            owner = f"user {own.user} in account {own.account}"
            of = frozenset({own.account})
            for name, most in own.limits.items():
                yield JobLimit(name, most, owner, of, job.uid, partition=own.partition)
        yield from self._of_account.get(job.account, ())

    def _own(self, job: JobRecord) -> Association | None:
        """Return our association that *job* is of; None for others' jobs."""
        if self.uid is None or job.uid != self.uid:
            return None
        found = (
            ours
            for ours in self._ours
            if ours.account == job.account
            and (not ours.partition or ours.partition in job.partitions)
        )
        return max(found, key=lambda ours: bool(ours.partition), default=None)

    # There may be thousands of accounts, and as many jobs.

    @cached_property
    def _ours(self) -> tuple[Association, ...]:
        """Our user's associations."""
        known = self.known.associations
        return tuple(found for found in known if found.user and found.user == self.user)

    @cached_property
    def _of_account(self) -> Mapping[str, tuple[JobLimit, ...]]:
        """The limits on all jobs of each account that is known, and of those above."""
        known = {
            found.account: found for found in self.known.associations if not found.user
        }
        below: dict[str, list[str]] = {}
        for name, found in known.items():
            below.setdefault(found.parent, []).append(name)
        limits: dict[str, tuple[JobLimit, ...]] = dict.fromkeys(known, ())
        for name, found in known.items():
            group = {k: v for k, v in found.limits.items() if k.startswith("Grp")}
            names = _and_below(name, below) if group else frozenset()
            for limit, most in group.items():
                made = JobLimit(limit, most, f"account {name}", names)
                limits |= {each: (*limits[each], made) for each in names}
        return limits


def _and_below(top: str, below: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the account *top* and all below it, where *below* has those of each."""
    found, fresh = set[str](), {top}
    while fresh:
        found |= fresh
        fresh = {name for each in fresh for name in below.get(each, ())} - found
    return frozenset(found)


UNKNOWN_ACCOUNTS = Accounts()


# How much of a limit jobs use, and how much it leaves to leases.


def _unit(limit: JobLimit) -> str:
    """Return what *limit* counts: jobs, submitted jobs, nodes or CPUs; else nothing.

    Memory, GRES and the like of jobs, and minutes that they use, are not shown by the
    queue.
    """
    whose, _, tres = limit.name.partition("=")
    if tres:
        is_at_a_time = whose in {"GrpTRES", "MaxTRESPU", "MaxTRESPA"}
        return tres if is_at_a_time and tres in {"node", "cpu"} else ""
    if "SubmitJobs" in whose:
        return "submitted"
    return "jobs" if "Jobs" in whose else ""


_UNCLEAR_TASKS = 1_000
"""Of an array whose waiting tasks squeue does not list in full."""


def _need(job: JobRecord, unit: str) -> int:
    """Return how much of a limit *job*, or one task of it, uses as it runs."""
    match unit:
        case "node":
            return max(1, job.node_count)
        case "cpu":
            return max(1, job.cpu_count)
        case _:
            return 1


def _used(jobs: Iterable[JobRecord], unit: str) -> int:
    """Return how much *jobs*, all of which count, use of a limit.

    Slurm counts a node once that jobs of one limit share.
    """
    if unit == "submitted":
        alive = (job for job in jobs if not job.has_ended)
        return sum(waiting_tasks(job, most=_UNCLEAR_TASKS) for job in alive)
    running = [job for job in jobs if job.holds_nodes]
    if unit == "node":
        return len({name for job in running for name in expand(job.nodes)})
    return sum(_need(job, unit) for job in running)


@dataclass(frozen=True, slots=True)
class AllowedLeases:
    """How many leases Slurm's limits leave room for, those that are there included.

    Attributes:
        most: So many; None for any number, as far as is known.
        why: What leaves room for no more, for people; empty for nothing.
    """

    most: int | None = None
    why: str = ""

    def rank(self) -> float:
        """Return what sorts those that allow least first."""
        return math.inf if self.most is None else self.most


ANY_NUMBER = AllowedLeases()


def allowed_leases(
    jobs: Iterable[JobRecord],
    wanted: Iterable[JobRecord],
    accounts: Accounts,
    *,
    is_ours: Callable[[JobRecord], bool],
    now_s: float,
) -> AllowedLeases:
    """Return how many leases fit below limits beside all other jobs.

    Room is left for the jobs that run, and for the largest that waits for nodes alone:
    Slurm would block it where leases had used up its part.

    Args:
        jobs: All jobs of a snapshot.
        wanted: Leases as they would be asked for, one for each account, QOS and
            partition that they may be of.
        accounts: What is known of limits.
        is_ours: Whether a job is one of the leases to be counted.
        now_s: Time of the snapshot, Unix time.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    limits = {
        limit: _need(lease, unit)
        for lease in wanted
        for limit in accounts.limits_on(lease)
        if (unit := _unit(limit))
    }
    if not limits:
        return ANY_NUMBER
    others = [job for job in jobs if not is_ours(job)]
    found = [ANY_NUMBER]
    for limit, each in limits.items():
        unit = _unit(limit)
        counting = [job for job in others if accounts.counts(job, limit)]
        used = _used(counting, unit)
        if unit != "submitted":
            used += max(
                (
                    need
                    for job in counting
                    if could_start(job, now_s) and not is_lease(job)
                    if (need := _need(job, unit)) <= limit.most
                ),
                default=0,
            )
        beside = f", {used} of them for other jobs" if used else ""
        most = max(0, limit.most - used) // each
        found.append(AllowedLeases(most, f"{limit}{beside}"))
    return min(found, key=AllowedLeases.rank)


def limits_below(
    most: int, wanted: Iterable[JobRecord], accounts: Accounts
) -> tuple[JobLimit, ...]:
    """Return the limits that leave room for fewer leases than *most*, jobs or none.

    Args:
        most: Leases.
        wanted: Leases as they would be asked for.
        accounts: What is known of limits.
    """
    limits = {
        limit: None
        for lease in wanted
        for limit in accounts.limits_on(lease)
        if (unit := _unit(limit)) and limit.most < most * _need(lease, unit)
    }
    return tuple(limits)


# Jobs that wait for limits, and the leases that count there.


@dataclass(frozen=True, slots=True)
class BlockedJobs:
    """Jobs that wait for limits against which leases of ours count.

    Attributes:
        leases: The leases, by display id, each with the number of such a job.
        reasons: Of each such job, Slurm's word for the limit, and the limit itself
            where it is known.
    """

    leases: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)


NONE_BLOCKED = BlockedJobs()


def blocked_by_limits(
    jobs: Collection[JobRecord],
    leases: Collection[JobRecord],
    accounts: Accounts = UNKNOWN_ACCOUNTS,
    *,
    now_s: float,
    is_sure: bool = False,
) -> BlockedJobs:
    """Return the jobs that wait for limits, and the leases that count against them.

    Args:
        jobs: All jobs of a snapshot; leases of any FreeTrain count as none that waits.
        leases: Our own leases among them, and such as would be asked for, without an
            id: they count for a job whose limit they would use.
        accounts: What is known of accounts and QOS.
        now_s: Time of the snapshot, Unix time.
        is_sure: Whether only leases count that do so whosever the limit is.
    """
    if not leases:
        return NONE_BLOCKED
    counting: dict[str, int] = {}
    reasons: dict[int, str] = {}
    seen: dict[object, tuple[str, bool]] = {}  # a queue is full of equal jobs
    for job, kind in _blocked(jobs, now_s):
        size = job.node_count, job.cpu_count
        alike = job.uid, job.account, job.qos, job.partitions, job.reason, size
        if alike not in seen:
            limits = _blocking(job, jobs, accounts)
            blocked = _BlockedJob(job, kind, limits, is_sure=is_sure)
            found = [lease for lease in leases if blocked.has_counting(lease, accounts)]
            seen[alike] = blocked.words, bool(found)
            for lease in found:
                if lease.display_id:
                    counting.setdefault(lease.display_id, job.job_id)
        words, is_ours = seen[alike]
        if is_ours:
            reasons[job.job_id] = words
    return BlockedJobs(counting, reasons)


def has_unknown_limit(
    jobs: Iterable[JobRecord], accounts: Accounts, *, now_s: float
) -> bool:
    """Tell whether a limit that blocks a job may be newer than what is known."""
    return any(
        not _named(job, accounts)
        for job, kind in _blocked(jobs, now_s)
        if kind is not LimitKind.USER or job.uid == accounts.uid
    )


def _blocked(
    jobs: Iterable[JobRecord], now_s: float
) -> Iterator[tuple[JobRecord, LimitKind]]:
    """Yield the jobs that only a limit blocks, each with its kind."""
    for job in jobs:
        kind = limit_kind(job.reason) if job.is_pending and job.reason else None
        is_eligible = job.eligible_s is None or job.eligible_s <= now_s
        if kind is not None and is_eligible and job.priority != 0 and not is_lease(job):
            yield job, kind


def _blocking(
    job: JobRecord, jobs: Iterable[JobRecord], accounts: Accounts
) -> tuple[JobLimit, ...]:
    """Return the limits that may block *job*: of several those that are used up."""
    named = _named(job, accounts)
    if len(named) > 1:
        used_up = tuple(
            each for each in named if _is_used_up(each, job, jobs, accounts)
        )
        return used_up or named
    return named


def _named(job: JobRecord, accounts: Accounts) -> tuple[JobLimit, ...]:
    """Return the limits on *job* that its reason may name."""
    is_of_account = job.reason.startswith("Assoc")
    return tuple(
        limit
        for limit in accounts.limits_on(job)
        if is_of_account != bool(limit.qos) and _is_named(limit.name, job.reason)
    )


def _is_used_up(
    limit: JobLimit, job: JobRecord, jobs: Iterable[JobRecord], accounts: Accounts
) -> bool:
    unit = _unit(limit)
    if not unit:
        return True
    counting = [other for other in jobs if accounts.counts(other, limit)]
    return _used(counting, unit) + _need(job, unit) > limit.most


@dataclass(frozen=True, slots=True)
class _BlockedJob:
    """A job that a limit blocks.

    Attributes:
        job: The job.
        kind: Whose jobs count against the limit.
        limits: The limits that it may be; none where that is not known.
        is_sure: Whether only leases count that do so whosever the limit is.
    """

    job: JobRecord
    kind: LimitKind
    limits: tuple[JobLimit, ...]
    is_sure: bool

    @property
    def words(self) -> str:
        """Slurm's word for the limit, and the limit."""
        known = " or ".join(map(str, self.limits))
        return f"{self.job.reason}: {known}" if known else self.job.reason

    def has_counting(self, lease: JobRecord, accounts: Accounts) -> bool:
        """Tell whether *lease* counts against the limit."""
        if self.limits:
            return any(accounts.counts(lease, limit) for limit in self.limits)
        if accounts.knows(self.job) and self.kind is LimitKind.ACCOUNT:
            # It is its user's own, which is not known.
            return lease.uid == self.job.uid and lease.account == self.job.account
        return self._may_count(lease, accounts)

    def _may_count(self, lease: JobRecord, accounts: Accounts) -> bool:
        """Tell the same by the kind of limit alone."""
        is_own = lease.uid == self.job.uid
        match self.kind:
            case LimitKind.ACCOUNT:
                if self.is_sure:
                    return is_own and self._has_account_of(lease)
                return self._may_share_account(lease, accounts)
            case LimitKind.USER:
                return is_own and self._has_account_of(lease)
            case LimitKind.QOS:
                return self._shares_qos(lease, accounts)
            case LimitKind.USER_IN_QOS:
                return is_own and self._shares_qos(lease, accounts)
            case LimitKind.ACCOUNT_IN_QOS:
                has_account = self._has_account_of(lease)
                return has_account and self._shares_qos(lease, accounts)

    def _has_account_of(self, lease: JobRecord) -> bool:
        """Tell whether both are of one account, or it is not known of one of them."""
        ours, theirs = lease.account, self.job.account
        is_unknown = not self.is_sure and not (ours and theirs)
        return is_unknown or ours == theirs != ""

    def _shares_qos(self, lease: JobRecord, accounts: Accounts) -> bool:
        """Tell whether the limit's QOS, one of the job's, may be the lease's too."""
        ours, theirs = accounts.qos_of(lease), accounts.qos_of(self.job)
        if self.is_sure:
            return theirs <= ours and bool(theirs)
        return not ours or not theirs or not ours.isdisjoint(theirs)

    def _may_share_account(self, lease: JobRecord, accounts: Accounts) -> bool:
        """Tell whether a limit of the lease's accounts, if known, may be the one."""
        if not accounts.knows(lease):
            return True
        return any(
            limit.accounts is not None and _is_named(limit.name, self.job.reason)
            for limit in accounts.limits_on(lease)
        )


# What one tick remembers for the next.


@dataclass(frozen=True, slots=True)
class LimitMemory:
    """Which jobs limits blocked lately, and what limits were learned of.

    Attributes:
        blocked_s: When each job was last seen blocked by a limit against which leases
            count, by its number, Unix time.
        most_leases: How many leases Slurm would take at a time; None for any number.
        learned_s: When that was learned, Unix time.
    """

    blocked_s: Mapping[int, float] = field(default_factory=dict)
    most_leases: int | None = None
    learned_s: float = 0.0

    def after(
        self, blocked: BlockedJobs, jobs: Iterable[JobRecord], *, now_s: float
    ) -> LimitMemory:
        """Return what to remember after a snapshot.

        A job that was blocked while leases counted stays in mind while it is blocked.

        Args:
            blocked: Jobs that leases keep waiting.
            jobs: All jobs.
            now_s: Time of the snapshot, Unix time.
        """
        waiting = {
            job.job_id for job, _ in _blocked(jobs, now_s)
        } & self.blocked_s.keys()
        seen = dict.fromkeys(waiting | blocked.reasons.keys(), now_s)
        recent = {
            job: at_s
            for job, at_s in self.blocked_s.items()
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
        return LimitMemory(self.blocked_s, live + asked // 2, now_s)


NOTHING_REMEMBERED = LimitMemory()

LEARNED_S = 3_600.0
"""How long a learned limit counts: others' jobs use it up, too, and end."""

_LIMIT_WORDS = re.compile(r"accounting/QOS policy|(Assoc|QOS|Max)\w*Submit\w*")


def is_refused_for_limit(said: str) -> bool:
    """Tell whether sbatch refused leases for a limit, by its error message.

    Source: slurm_strerror of ESLURM_ACCOUNTING_POLICY, 21.08 to 26.05.
    """
    return _LIMIT_WORDS.search(said) is not None
