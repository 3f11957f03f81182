"""What the broker asks of Slurm: one protocol, whoever answers.

The command line (``slurm.command_line``) is always there; others, such as pyslurm,
stand beside it in a module of their own, and return the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm.batch import LeaseRequest, Submitted
    from slurm.config import ClusterConfig, Leaf, Release
    from slurm.records import JobKey, JobRecord
    from slurm.snapshot import Snapshot


class SlurmBackend(Protocol):
    """Asks Slurm, and acts on our own jobs.

    Contract, checked for every implementation by one suite: each method does all
    it says or raises. Any of them may raise

    * ``SlurmUnavailableError``: no answer; what was asked may have happened;
    * ``RequestsSpentError``: nothing was asked, the allowed requests are used up;
    * ``SlurmRefusedError``: Slurm said no, and will say so again;
    * ``UnreadableOutputError``: the answer is no such answer. Of ``submit`` this,
      too, means that jobs may have been submitted: look them up by name.
    """

    @property
    def name(self) -> str:
        """What to call it in messages, for example ``command line``."""
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

        None means that the site names none, or that Slurm did not get to tell them:
        it answers both alike (``slurm.topology.must_have_leaves`` tells them apart).
        """
        ...

    def snapshot(self) -> Snapshot:
        """Return one look, without plans carried from an earlier one.

        It may be torn by backfill (``Snapshot.is_torn``), which is no error.
        """
        ...

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes, as a look does; one request."""
        ...

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, ended ones included.

        However many names there are, this is one request. Each array task is a
        record of its own, whether it runs or waits. None means that Slurm knows none
        now: it forgets jobs some minutes after they ended, and a submission that
        timed out may still be under way.

        Raises:
            ValueError: No name, or one that jobs cannot be looked up by.
        """
        ...

    def submit(self, request: LeaseRequest) -> Submitted:
        """Submit one job, or one array of jobs.

        Raises:
            ValueError: A value that Slurm would misread; nothing was submitted.
        """
        ...

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*; those that have ended already are none the worse for it.

        The keys must come from a look just taken, in which user and name were ours.
        Look again afterwards: Slurm needs a while, and may do nothing and say
        nothing.

        Raises:
            ValueError: No job, or a key that stands for several waiting tasks
                (``18_[1-3]``; ``find_by_name`` tells each by itself).
        """
        ...

    def cancel_waiting(self, name: str) -> None:
        """End those of our jobs named *name* that still wait, none that run.

        Raises:
            ValueError: Not a name that jobs can be looked up by.
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
