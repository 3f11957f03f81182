"""Slurm's own commands as a back end: squeue, scontrol, sdiag, sbatch and scancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm.batch import (
    only_gone,
    parse_sbatch,
    sbatch_argv,
    scancel_argv,
    scancel_waiting_argv,
)
from slurm.config import config_argv, parse_config, parse_version, version_argv
from slurm.dialects import TEXT, Dialect, Question
from slurm.errors import RequestsSpentError, SlurmRefusedError
from slurm.sdiag import parse_sdiag, sdiag_argv
from slurm.snapshot import Snapshot
from slurm.squeue import parse_squeue, squeue_argv
from slurm.topology import parse_topology, topology_argv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    from slurm.batch import LeaseRequest, Submitted
    from slurm.config import ClusterConfig, Release
    from slurm.records import JobKey, JobRecord, Sdiag
    from slurm.runner import Runner
    from slurm.topology import Leaf

    T = TypeVar("T")

SNAPSHOT_REQUESTS = 6
"""Commands of one look."""

_PER_CANCEL = 100  # a command line has room for more, a site's patience may not


class CommandLine:
    """A ``slurm.backend.SlurmBackend`` that runs Slurm's programs."""

    def __init__(
        self,
        runner: Runner,
        *,
        user: str,
        timeout_s: float = 30.0,
        max_requests: int | None = None,
        dialect: Dialect = TEXT,
    ) -> None:
        """Take the *runner* that runs commands, in a scrubbed environment.

        Args:
            runner: Runs one command to its end.
            user: Our own user name, which cancelling by name is held to.
            timeout_s: How long each command may take.
            max_requests: Commands after which no more are sent, None for no cap.
            dialect: How a look is asked for.
        """
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
        """Commands run so far, those that failed included."""
        return self._requests

    def release(self) -> Release:
        """Return the release of the installed programs."""
        return parse_version(self._ask(version_argv()))

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        return parse_config(self._ask(config_argv()))

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below."""
        return parse_topology(self._ask(topology_argv()))

    def snapshot(self) -> Snapshot:
        """Return one look, in six commands.

        Nodes come before jobs: one that starts in between is then seen on its node.
        """
        before = self._statistics()
        return Snapshot(
            before=before,
            nodes=self._put(self._dialect.nodes),
            jobs=self.jobs(),
            reservations=self._put(self._dialect.reservations),
            partitions=self._put(self._dialect.partitions),
            after=self._statistics(),
        )

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes."""
        return self._put(self._dialect.jobs)

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, each task by itself."""
        if not names:
            raise ValueError("no name to look for; squeue would show everybody's jobs")
        found = parse_squeue(self._ask(squeue_argv(names=names, all_states=True)))
        return tuple(job for job in found if job.name in names)

    def submit(self, request: LeaseRequest) -> Submitted:
        """Submit one job, or one array of jobs."""
        return parse_sbatch(self._ask(sbatch_argv(request)))

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*, one command for each hundred."""
        self._scancel(jobs)

    def cancel_waiting(self, name: str) -> None:
        """End those of our jobs named *name* that still wait."""
        self._ask(scancel_waiting_argv(user=self._user, name=name))

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
                self._ask(scancel_argv(some, signal=signal))
            except SlurmRefusedError as error:
                if not only_gone(error.said):
                    raise

    def _statistics(self) -> Sdiag:
        return parse_sdiag(self._ask(sdiag_argv()))

    def _put(self, question: Question[T]) -> tuple[T, ...]:
        return question.parse(self._ask(question.argv))

    def _ask(self, argv: Sequence[str]) -> str:
        if self._max_requests is not None and self._requests >= self._max_requests:
            raise RequestsSpentError(
                f"`{argv[0]}` was not run: {self._requests} commands were, and no "
                f"more are allowed at a time. It is tried again next time."
            )
        self._requests += 1
        return self._runner.run(argv, timeout_s=self._timeout_s)
