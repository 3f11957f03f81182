"""Slurm's own programs as a back end: squeue, scontrol, sdiag, sbatch and scancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from slurm.batch import (
    only_gone,
    parse_sbatch,
    sbatch_argv,
    scancel_argv,
    scancel_waiting_argv,
)
from slurm.config import (
    CONFIG_ARGV,
    TOPOLOGY_ARGV,
    VERSION_ARGV,
    parse_config,
    parse_topology,
    parse_version,
)
from slurm.errors import RequestsSpentError, SlurmRefusedError
from slurm.json import (
    parse_jobs_json,
    parse_nodes_json,
    parse_partitions_json,
    parse_reservations_json,
)
from slurm.snapshot import Snapshot
from slurm.text import (
    NODES_ARGV,
    PARTITIONS_ARGV,
    RESERVATIONS_ARGV,
    SDIAG_ARGV,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
    squeue_argv,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm.batch import LeaseRequest, SubmittedJob
    from slurm.config import ClusterConfig, Leaf, Release
    from slurm.records import JobKey, JobRecord, Node, Partition, Reservation, Sdiag
    from slurm.runner import Runner


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

JSON = Dialect(
    nodes=Question(("scontrol", "--all", "--json", "show", "nodes"), parse_nodes_json),
    jobs=Question(("squeue", "--all", "--local", "--json"), parse_jobs_json),
    reservations=Question(
        ("scontrol", "--all", "--json", "show", "reservations"),
        parse_reservations_json,
    ),
    partitions=Question(
        ("scontrol", "--all", "--json", "show", "partitions"), parse_partitions_json
    ),
)
"""Large and slow; from 23.02 on, before which scontrol knows no ``--json``."""

SNAPSHOT_REQUESTS = 6
"""Commands of one snapshot."""

_PER_CANCEL = 100  # a command line has room for more, a site's patience may not


class CommandLine:
    """A ``slurm.backend.SlurmBackend`` that runs Slurm's programs.

    Args:
        runner: Runs one command to its end, in a scrubbed environment.
        user: Our own user name, which cancelling by name is held to.
        timeout_s: How long each command may take.
        max_requests: Requests after which no more are made, None for no cap.
        dialect: How a snapshot is asked for.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        user: str,
        timeout_s: float = 30.0,
        max_requests: int | None = None,
        dialect: Dialect = TEXT,
    ) -> None:
        self._runner = runner
        self._user = user
        self._timeout_s = timeout_s
        self._max_requests = max_requests
        self._dialect = dialect
        self._requests = 0

    @property
    def name(self) -> str:
        """What to call it in messages."""
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

    def snapshot(self) -> Snapshot:
        """Return one snapshot, in six commands.

        Nodes come before jobs: a job that starts in between is then seen on its node.
        """
        before = self.statistics()
        return Snapshot(
            before=before,
            nodes=self._ask(self._dialect.nodes),
            jobs=self.jobs(),
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

    def cancel_waiting(self, name: str) -> None:
        """End those of our jobs named *name* that still wait."""
        self._run(scancel_waiting_argv(user=self._user, name=name))

    def signal(self, jobs: Sequence[JobKey], signal: str) -> None:
        """Send *signal* to the steps of *jobs*."""
        if not signal:
            raise ValueError("no signal named: scancel would end the jobs")
        self._scancel(jobs, signal)

    def _scancel(self, jobs: Sequence[JobKey], signal: str = "") -> None:
        ids = [job.display_id for job in jobs]
        scancel_argv(ids, signal=signal)  # refuses before any was sent
        for first in range(0, len(ids), _PER_CANCEL):
            some = ids[first : first + _PER_CANCEL]
            try:
                self._run(scancel_argv(some, signal=signal))
            except SlurmRefusedError as error:
                if not only_gone(error.said):
                    raise

    def _ask(self, question: Question[T]) -> tuple[T, ...]:
        return question.parse(self._run(question.argv))

    def _run(self, argv: Sequence[str]) -> str:
        self.count_request(argv[0])
        return self._runner.run(argv, timeout_s=self._timeout_s)
