"""The questions and acts that FreeTrain has for Slurm: one protocol, two back ends.

``CommandLine`` runs Slurm's programs and is always there. ``slurm.pyslurm`` calls
libslurm where an installed pyslurm matches this Slurm. Both return the same records,
and ``connect`` chooses between them.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from slurm.associations import (
    QOS_ARGV,
    UNKNOWN_LIMITS,
    assoc_mgr_argv,
    associations_argv,
    default_qos_argv,
    is_operator,
    parse_assoc_mgr,
    parse_associations,
    parse_default_qos,
    parse_qos,
    user_argv,
)
from slurm.batch import (
    comment_argv,
    end_time_argv,
    only_gone,
    parse_sbatch,
    sbatch_argv,
    scancel_argv,
)
from slurm.errors import RequestsSpentError, SlurmError, SlurmRefusedError
from slurm.holes import Snapshot
from slurm.text import (
    CONFIG_ARGV,
    NODES_ARGV,
    PARTITIONS_ARGV,
    RESERVATIONS_ARGV,
    SDIAG_ARGV,
    TOPOLOGY_ARGV,
    VERSION_ARGV,
    parse_config,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
    parse_topology,
    parse_version,
    parse_waiting,
    squeue_argv,
    waiting_argv,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm.associations import AccountingLimits
    from slurm.batch import LeaseRequest, SubmittedJob
    from slurm.records import (
        ClusterConfig,
        JobKey,
        JobRecord,
        Leaf,
        Node,
        Partition,
        Release,
        Reservation,
        Sdiag,
    )
    from slurm.runner import Runner


class SlurmBackend(Protocol):
    """Asks Slurm, and acts on our own jobs.

    Contract, checked for every implementation by one suite: each method does all
    it says or raises. Any of them may raise

    * ``SlurmUnavailableError``: no answer; the request may have had its effect;
    * ``RequestsSpentError``: nothing was asked, the allowed requests are used up;
    * ``SlurmRefusedError``: Slurm said no, and will say so again;
    * ``UnreadableOutputError``: the answer cannot be read. After ``submit`` jobs may
      have been submitted all the same: look them up by name.
    """

    @property
    def name(self) -> str:
        """Its name in messages, for example ``command line``."""
        ...

    @property
    def requests(self) -> int:
        """Requests made so far; each command counts as one."""
        ...

    def release(self) -> Release:
        """Return the release of Slurm that answers."""
        ...

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        ...

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below.

        An empty answer means that the site names none, or that Slurm could not
        load them: Slurm answers both alike (``slurm.records.must_have_leaves`` tells
        them apart).
        """
        ...

    def sees_all_jobs(self, user: str) -> bool:
        """Tell whether *user*, an operator or administrator, sees all jobs.

        They do whatever PrivateData says, as root and SlurmUser do, who are not asked
        for here. False where that is unknown, as without accounting. One request.
        """
        ...

    def limits(self, user: str, *, cluster: str) -> AccountingLimits:
        """Return the limits of all accounts, of *user* and of QOS.

        Three requests; a fourth where slurmctld tells the accounts to administrators
        alone. What cannot be read is missing.

        Args:
            user: Whose associations are returned; those of other users are not.
            cluster: ClusterName.

        Raises:
            ValueError: A name that jobs cannot be of.
        """
        ...

    def snapshot(self) -> Snapshot:
        """Return one snapshot, without plans carried from an earlier one.

        It may be torn by backfill (``Snapshot.is_torn``), which is no error.
        """
        ...

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes; one request.

        Without the nodes that waiting jobs exclude, which a snapshot has.
        """
        ...

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, ended ones included.

        However many names there are, this is one request. Each array task is a
        record of its own, whether it runs or waits. An empty answer means that Slurm
        knows no such job now: it forgets jobs some minutes after they ended, and a
        submission that timed out may still be under way.

        Raises:
            ValueError: No name, or one that jobs cannot be looked up by.
        """
        ...

    def submit(self, request: LeaseRequest) -> SubmittedJob:
        """Submit one job, or one array of jobs.

        Raises:
            ValueError: A value that Slurm would misread; nothing was submitted.
        """
        ...

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*; those that have ended already are no error.

        The keys must come from a snapshot just taken, in which user and name were
        ours. Take another one afterwards: Slurm needs a while, and may do nothing
        and say nothing.

        Raises:
            ValueError: No job, or a key that stands for several waiting tasks
                (``18_[1-3]``; ``find_by_name`` returns each by itself).
        """
        ...

    def signal(self, jobs: Sequence[JobKey], signal: str) -> None:
        """Send *signal*, for example ``TERM``, to the steps of *jobs*.

        Batch scripts, and an srun that they wait for, are spared; KILL ends all.
        Jobs that have ended already get none, and that is no error; one that still
        waits is refused.

        Raises:
            ValueError: As ``cancel``, or no name of a signal.
        """
        ...

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replace the comment of the job, or of all tasks of the array, *job_id*.

        Everybody sees it. Jobs that have ended already keep theirs, and that is no
        error.

        Args:
            job_id: A raw number; that of an array stands for its tasks.
            comment: The new comment.

        Raises:
            ValueError: A value that Slurm would misread; nothing was changed.
        """
        ...

    def end_by(self, jobs: Sequence[JobKey], end_s: float) -> None:
        """Let running *jobs* of ours end sooner than their time limits say.

        Slurm then plans other jobs from that end on, and ends these at it. A later end
        than the old one is refused. Jobs that have ended already are no error.

        Args:
            jobs: As for ``cancel``.
            end_s: Their new end, Unix time by slurmctld's clock; Slurm keeps seconds.

        Raises:
            ValueError: As ``cancel``, or no usable time; nothing was changed.
        """
        ...


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A command, and how to read its answer."""

    argv: tuple[str, ...]
    parse: Callable[[str], tuple[T, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The four questions of a snapshot, in one of the two forms Slurm prints."""

    nodes: Question[Node]
    jobs: Question[JobRecord]
    reservations: Question[Reservation]
    partitions: Question[Partition]


TEXT = Dialect(
    nodes=Question(NODES_ARGV, parse_nodes),
    jobs=Question(tuple(squeue_argv()), parse_squeue),
    reservations=Question(RESERVATIONS_ARGV, parse_reservations),
    partitions=Question(PARTITIONS_ARGV, parse_partitions),
)
"""Quick, small, and shows planned nodes on every release."""

SNAPSHOT_REQUESTS = 8
"""Commands of one snapshot where jobs wait, at the most; two fewer where none does."""

_PER_COMMAND = 100  # a command line has room for more, a site's patience may not


_ACCOUNTING_TIMEOUT_S = 10.0
"""A slurmdbd that is away must not hold up what needs none."""


class CommandLine:
    """A ``slurm.backend.SlurmBackend`` that runs Slurm's programs.

    Args:
        runner: Runs one command to its end, in a scrubbed environment.
        timeout_s: How long each command may take.
        max_requests: Requests after which no more are made, None for no cap.
        dialect: How a snapshot is asked for.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        timeout_s: float = 30.0,
        max_requests: int | None = None,
        dialect: Dialect = TEXT,
    ) -> None:
        self._runner = runner
        self._timeout_s = timeout_s
        self._max_requests = max_requests
        self._dialect = dialect
        self._requests = 0
        self._release: Release | None = None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "command line"

    @property
    def requests(self) -> int:
        """Requests made so far, those that failed included."""
        return self._requests

    def count_request(self, command: str) -> None:
        """Count one request of *command*, just before it is made.

        Raises:
            RequestsSpentError: No more are allowed; it must not be made.
        """
        if self._max_requests is not None and self._requests >= self._max_requests:
            raise RequestsSpentError(
                f"`{command}` was not run: {self._requests} requests were made, and no "
                f"more are allowed at a time. It is tried again next time."
            )
        self._requests += 1

    def release(self) -> Release:
        """Return the release of the installed programs."""
        return parse_version(self._run(VERSION_ARGV))

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        return parse_config(self._run(CONFIG_ARGV))

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below."""
        return parse_topology(self._run(TOPOLOGY_ARGV))

    def sees_all_jobs(self, user: str) -> bool:
        """Tell whether slurmctld knows *user* as an operator or administrator."""
        try:
            argv = user_argv(user)
        except ValueError:
            return False
        return self._known(False, argv, partial(is_operator, user=user))  # noqa: FBT003

    def limits(self, user: str, *, cluster: str) -> AccountingLimits:
        """Return limits, by slurmctld and what slurmdbd tells beyond."""
        found = self._known(UNKNOWN_LIMITS, assoc_mgr_argv(user), parse_assoc_mgr)
        if not found.has_accounts:
            own, argv = found.associations, associations_argv(cluster)
            known = self._known(own, argv, partial(parse_associations, user=user))
            found = replace(found, associations=known or own)
        argv = default_qos_argv(user, cluster)
        qos_of = self._known(dict[tuple[str, str], str](), argv, parse_default_qos)
        associations = tuple(
            replace(each, default_qos=qos_of.get((each.account, each.partition), ""))
            if each.user == user
            else each
            for each in found.associations
        )
        found = replace(found, associations=associations)
        return replace(found, qos=self._known((), QOS_ARGV, parse_qos) or found.qos)

    def _known(self, unknown: T, argv: Sequence[str], parse: Callable[[str], T]) -> T:
        """Return what *argv* tells; *unknown* where it tells nothing."""
        timeout_s = min(self._timeout_s, _ACCOUNTING_TIMEOUT_S)
        try:
            self.count_request(argv[0])
            return parse(self._runner.run(argv, timeout_s=timeout_s))
        except SlurmError:
            return unknown

    def snapshot(self) -> Snapshot:
        """Return one snapshot, in six commands, and two more where jobs wait.

        Nodes come before jobs: a job that starts in between is then seen on its node.
        """
        before = self.statistics()
        return Snapshot(
            before=before,
            nodes=self._ask(self._dialect.nodes),
            jobs=self._jobs_in_full(),
            reservations=self.reservations(),
            partitions=self._ask(self._dialect.partitions),
            after=self.statistics(),
        )

    def statistics(self) -> Sdiag:
        """Return slurmctld's statistics."""
        return parse_sdiag(self._run(SDIAG_ARGV))

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes."""
        return self._ask(self._dialect.jobs)

    def _jobs_in_full(self) -> tuple[JobRecord, ...]:
        jobs = self.jobs()
        if self._dialect is not TEXT or not any(job.is_pending for job in jobs):
            return jobs
        # slurmctld, whose release ``config`` tells, may be newer than squeue.
        self._release = self._release or self.release()
        waiting = parse_waiting(self._run(waiting_argv(self._release)))
        return tuple(
            replace(
                job,
                oversubscribe=waiting[job.job_id][0],
                excluded_nodes=waiting[job.job_id][1],
            )
            if job.is_pending and job.job_id in waiting
            else job
            for job in jobs
        )

    def reservations(self) -> tuple[Reservation, ...]:
        """Return every reservation."""
        return self._ask(self._dialect.reservations)

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, each task by itself."""
        if not names:
            raise ValueError("no name to look for; squeue would show everybody's jobs")
        found = parse_squeue(self._run(squeue_argv(names=names, all_states=True)))
        return tuple(job for job in found if job.name in names)

    def submit(self, request: LeaseRequest) -> SubmittedJob:
        """Submit one job, or one array of jobs."""
        return parse_sbatch(self._run(sbatch_argv(request)))

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*, one command for each hundred."""
        self._scancel(jobs)

    def signal(self, jobs: Sequence[JobKey], signal: str) -> None:
        """Send *signal* to the steps of *jobs*."""
        if not signal:
            raise ValueError("no signal named: scancel would end the jobs")
        self._scancel(jobs, signal)

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replace the comment of a job or a whole array, in one command."""
        try:
            self._run(comment_argv(job_id, comment))
        except SlurmRefusedError as error:
            if not only_gone(error.said):
                raise

    def end_by(self, jobs: Sequence[JobKey], end_s: float) -> None:
        """Let *jobs* end sooner, by one command for each hundred."""
        ids = [job.display_id for job in jobs]
        end_time_argv(ids, end_s)  # refuses before any was changed
        self._for_each_hundred(ids, lambda some: end_time_argv(some, end_s))

    def _scancel(self, jobs: Sequence[JobKey], signal: str = "") -> None:
        ids = [job.display_id for job in jobs]
        scancel_argv(ids, signal=signal)  # refuses before any was sent
        self._for_each_hundred(ids, lambda some: scancel_argv(some, signal=signal))

    def _for_each_hundred(
        self, ids: Sequence[str], argv: Callable[[Sequence[str]], Sequence[str]]
    ) -> None:
        for first in range(0, len(ids), _PER_COMMAND):
            try:
                self._run(argv(ids[first : first + _PER_COMMAND]))
            except SlurmRefusedError as error:
                if not only_gone(error.said):
                    raise

    def _ask(self, question: Question[T]) -> tuple[T, ...]:
        return question.parse(self._run(question.argv))

    def _run(self, argv: Sequence[str]) -> str:
        self.count_request(argv[0])
        return self._runner.run(argv, timeout_s=self._timeout_s)


def connect(
    runner: Runner,
    *,
    max_requests: int | None = None,
    allow_pyslurm: bool = True,
) -> SlurmBackend:
    """Return pyslurm where one matches this Slurm, else the command line.

    Where any pyslurm is installed this asks Slurm's programs for their release, which
    counts as the first request.

    Args:
        runner: Runs Slurm's programs.
        max_requests: Requests after which no more are made, None for no cap.
        allow_pyslurm: False for the command line whatever there is.

    Raises:
        SlurmError: A pyslurm is installed, and Slurm did not say its release.
    """
    programs = CommandLine(runner, max_requests=max_requests)
    if not allow_pyslurm or importlib.util.find_spec("pyslurm") is None:
        return programs
    # By name: that module builds on this one, and few sites have a pyslurm.
    backend: SlurmBackend | None = importlib.import_module(
        "slurm.pyslurm"
    ).matching_backend(programs)
    return backend or programs
