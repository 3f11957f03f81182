"""pyslurm as a back end: nodes, jobs and partitions without starting a program.

Never required (it is built against one site's Slurm, and under the GPL): found by
``slurm.choose``, handed in as a module. What it lacks or does in another way goes
through Slurm's programs: see docs/adr/0035-pyslurm.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm.batch import Submitted, sbatch_argv, scancel_argv
from slurm.command_line import CommandLine
from slurm.errors import SlurmRefusedError, SlurmUnavailableError
from slurm.pyslurm_records import each_task, read_job, read_node, read_partition
from slurm.pyslurm_requests import CountedRunner, Requests
from slurm.pyslurm_submission import can_express, description
from slurm.reservations import parse_reservations, reservations_argv
from slurm.sdiag import parse_sdiag, sdiag_argv
from slurm.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from slurm.batch import LeaseRequest
    from slurm.config import ClusterConfig, Release
    from slurm.pyslurm_records import JobLike
    from slurm.records import JobKey, JobRecord, Sdiag
    from slurm.runner import Runner
    from slurm.topology import Leaf

_GONE = frozenset({2017, 2021})
"""Slurm's numbers for a job that it does not know, and one that has ended."""

_OURS = range(2000, 5000)
"""Slurm's own answers; below and above are the system's and the network's."""


class Pyslurm:
    """A ``slurm.backend.SlurmBackend`` over pyslurm 22.5.2 or later."""

    def __init__(
        self,
        module: ModuleType,
        runner: Runner,
        *,
        user: str,
        timeout_s: float = 30.0,
        requests: Requests | None = None,
    ) -> None:
        """Take the *module* that matches this Slurm, and a runner for the rest.

        pyslurm has read SLURM_CONF when it was imported; the runner's environment
        must lead to the same cluster.

        Args:
            module: What ``slurm.choose`` chose.
            runner: Runs Slurm's programs.
            user: Our own user name.
            timeout_s: How long each command may take. Calls of pyslurm end by
                Slurm's own MessageTimeout instead.
            requests: Counts requests, and may allow no more; by default there is no
                cap.
        """
        self._pyslurm: Any = module
        self._requests = requests or Requests(None)
        self._runner = CountedRunner(runner, self._requests)
        self._programs = CommandLine(self._runner, user=user, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._users: dict[int, str] = {}

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "pyslurm"

    @property
    def requests(self) -> int:
        """Requests made so far, pyslurm's and commands."""
        return self._requests.made

    def release(self) -> Release:
        """Return the release of the installed programs."""
        return self._programs.release()

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        return self._programs.config()

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below; a command."""
        return self._programs.topology()

    def snapshot(self) -> Snapshot:
        """Return one look, in six requests: three of pyslurm, three commands."""
        before = self._statistics()
        nodes = self._ask("nodes", self._pyslurm.Nodes.load)
        jobs = self.jobs()
        return Snapshot(
            before=before,
            nodes=tuple(read_node(node) for node in nodes.values()),
            jobs=jobs,
            reservations=parse_reservations(self._run(reservations_argv())),
            partitions=tuple(
                read_partition(partition)
                for partition in self._ask(
                    "partitions", self._pyslurm.Partitions.load
                ).values()
            ),
            after=self._statistics(),
        )

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes."""
        return tuple(job for job in self._jobs() if not job.has_ended)

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, each task by itself."""
        if not names or any(not name or "\0" in name for name in names):
            raise ValueError("no name to look for")
        found = (job for job in self._jobs() if job.name in names)
        return tuple(task for job in found for task in each_task(job))

    def submit(self, request: LeaseRequest) -> Submitted:
        """Submit one job, or one array of jobs.

        What pyslurm cannot say goes through sbatch: whole nodes with all their
        memory, above all (it takes a memory of 0 for none given).
        """
        sbatch_argv(request)  # refuses what Slurm would misread
        if not can_express(request):
            return self._programs.submit(request)
        submission = self._pyslurm.JobSubmitDescription(**description(request))
        return Submitted(job_id=int(self._ask("submit", submission.submit)), cluster="")

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*, through scancel.

        pyslurm sends SIGKILL at once, where a lease may still commit; and it knows
        jobs by their raw numbers only, of which one ends a whole array.
        """
        self._programs.cancel(jobs)

    def cancel_waiting(self, name: str) -> None:
        """End those of our jobs named *name* that still wait, through scancel."""
        self._programs.cancel_waiting(name)

    def signal(self, jobs: Sequence[JobKey], signal: str) -> None:
        """Send *signal* to the steps of *jobs*, as scancel does; not to batch scripts.

        Tasks of arrays get theirs through scancel: see ``cancel``.
        """
        if not signal:
            raise ValueError("no signal named: scancel would end the jobs")
        scancel_argv([job.display_id for job in jobs], signal=signal)  # refuses
        tasks = [job for job in jobs if job.display_id != str(job.job_id)]
        for job in jobs:
            if job not in tasks:
                self._signal_one(job, signal)
        if tasks:
            self._programs.signal(tasks, signal)

    def _signal_one(self, job: JobKey, signal: str) -> None:
        target = self._pyslurm.Job(job.job_id)
        self._requests.make("signal")
        try:
            target.send_signal(f"SIG{signal}", steps="children")
        except self._pyslurm.RPCError as error:
            if error.errno not in _GONE:
                raise _failed("signal", error.errno, str(error)) from error

    def _jobs(self) -> list[JobRecord]:
        loaded = self._ask("jobs", self._pyslurm.Jobs.load)
        return [read_job(job, user_of=self._user_of) for job in loaded.values()]

    def _user_of(self, job: JobLike) -> str:
        uid = job.user_id or 0
        if uid not in self._users:
            self._users[uid] = job.user_name or str(uid)
        return self._users[uid]

    def _statistics(self) -> Sdiag:
        return parse_sdiag(self._run(sdiag_argv()))

    def _run(self, argv: Sequence[str]) -> str:
        return self._runner.run(argv, timeout_s=self._timeout_s)

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 -- untyped
        self._requests.make(what)
        try:
            return call()
        except self._pyslurm.RPCError as error:
            raise _failed(what, error.errno, str(error)) from error


def _failed(
    what: str, number: int, said: str
) -> SlurmRefusedError | SlurmUnavailableError:
    """Return the error for Slurm's *number*, by what to do next."""
    message = f"pyslurm ({what}): {said} ({number})"
    if number in _OURS:
        lower = said[:1].lower() + said[1:]
        return SlurmRefusedError(f"{message}. Nothing else was tried.", said=lower)
    return SlurmUnavailableError(
        f"{message}; whether it had an effect is unknown. Try again later."
    )
