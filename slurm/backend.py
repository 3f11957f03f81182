"""What FreeTrain asks of Slurm: one protocol, two back ends, and the choice of one.

``slurm.command_line`` runs Slurm's programs and is always there; ``slurm.pyslurm``
calls libslurm where an installed pyslurm matches this Slurm. Both return the same
records.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from slurm.command_line import CommandLine
from slurm.pyslurm import Pyslurm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from slurm.batch import LeaseRequest, SubmittedJob
    from slurm.config import ClusterConfig, Leaf, Release
    from slurm.records import JobKey, JobRecord
    from slurm.runner import Runner
    from slurm.snapshot import Snapshot


class SlurmBackend(Protocol):
    """Asks Slurm, and acts on our own jobs.

    Contract, checked for every implementation by one suite: each method does all
    it says or raises. Any of them may raise

    * ``SlurmUnavailableError``: no answer; what was asked may have happened;
    * ``RequestsSpentError``: nothing was asked, the allowed requests are used up;
    * ``SlurmRefusedError``: Slurm said no, and will say so again;
    * ``UnreadableOutputError``: the answer cannot be read. After ``submit`` jobs may
      have been submitted all the same: look them up by name.
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

        An empty answer means that the site names none, or that Slurm could not
        load them: Slurm answers both alike (``slurm.config.must_have_leaves`` tells
        them apart).
        """
        ...

    def snapshot(self) -> Snapshot:
        """Return one snapshot, without plans carried from an earlier one.

        It may be torn by backfill (``Snapshot.is_torn``), which is no error.
        """
        ...

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes; one request."""
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


def connect(
    runner: Runner,
    *,
    user: str,
    max_requests: int | None = None,
    allow_pyslurm: bool = True,
) -> SlurmBackend:
    """Return pyslurm where one matches this Slurm, else the command line.

    Where any pyslurm is installed this asks Slurm's programs for their release, which
    counts as the first request.

    Args:
        runner: Runs Slurm's programs.
        user: Our own user name.
        max_requests: Requests after which no more are made, None for no cap.
        allow_pyslurm: False for the command line whatever there is.

    Raises:
        SlurmError: A pyslurm is installed, and Slurm did not say its release.
    """
    programs = CommandLine(runner, user=user, max_requests=max_requests)
    if not allow_pyslurm or importlib.util.find_spec("pyslurm") is None:
        return programs
    choice = choose(programs.release())
    return programs if choice.pyslurm is None else Pyslurm(choice.pyslurm, programs)


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """Which back end to use, and why.

    Attributes:
        pyslurm: The module to use; None for the command line.
        reason: Why, for people.
    """

    pyslurm: ModuleType | None
    reason: str

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "command line" if self.pyslurm is None else "pyslurm"


def choose(release: Release, *, is_allowed: bool = True) -> BackendChoice:
    """Return which back end suits a Slurm of *release*.

    Args:
        release: Slurm's own release.
        is_allowed: False where the user wants the command line whatever there is.
    """
    if not is_allowed:
        return BackendChoice(None, "pyslurm is switched off")
    if importlib.util.find_spec("pyslurm") is None:
        return BackendChoice(None, "pyslurm is not installed, and not needed")
    try:
        module = importlib.import_module("pyslurm")
    except Exception as error:  # noqa: BLE001 -- a broken build raises anything
        return BackendChoice(None, f"pyslurm cannot be imported: {error}")
    return fitting(module, release)


_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_OLDEST = (22, 5, 2)
"""Before it there were no Jobs, Nodes and JobSubmitDescription."""


def fitting(module: ModuleType, release: Release) -> BackendChoice:
    """Return whether *module*, an imported pyslurm, fits *release*."""
    version = str(getattr(module, "__version__", ""))
    found = _VERSION.match(version)
    if found is None:
        return BackendChoice(
            None, f"pyslurm does not tell a version ({version[:20]!r})"
        )
    built = tuple(map(int, found.groups()))
    if built[:2] != release.series:
        why = f"pyslurm {version} is not for Slurm {release}: both must agree in X.Y"
        return BackendChoice(None, why)
    if built < _OLDEST:
        return BackendChoice(None, f"pyslurm {version} is older than 22.5.2")
    return BackendChoice(module, f"pyslurm {version} matches Slurm {release}")
