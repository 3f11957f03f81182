"""What a launcher works from and what it answers: a request, and a plan to run.

Pure: nothing here or in the launchers looks at the machine or starts anything, so that
``freetrain submit --dry-run`` can show what would be run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic import contract, rank
from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError
from freetrain.state.files import MPI_TUNING, generation_name, lease_name
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from signal import Signals

    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned, AssignedLease, TrainerDir

LEASE_MARK = "FREETRAIN_LEASE"
"""The variable that names the lease that a process belongs to, ``UUID-TASK``."""

WORLD_MARK = "FREETRAIN_WORLD"
"""The variable that names the generation of a process, ``TRAINER/G``."""


class CannotLaunchError(BadConfigurationError):
    """A world cannot be started as things are; no process of it was."""


# ----------------------------------------------------------------------
# Where the programs of a trainer keep and print things


def run_dir_of(job: TrainerJob, folder: TrainerDir) -> RunDir:
    """Return the run directory of a trainer.

    ``checkpoint.path`` is the run directory of an elastic program; for another it is
    what the program writes, and the run directory is FreeTrain's own.
    """
    path = job.checkpoint.path
    return RunDir(path) if job.elastic and path is not None else folder.run


def logs_of(job: TrainerJob, folder: TrainerDir) -> Path:
    """Return the folder of the logs of a trainer's worlds."""
    return job.logs or folder.logs


def log_of(job: TrainerJob, folder: TrainerDir, generation: int) -> Path:
    """Return the log of the world of *generation*."""
    return logs_of(job, folder) / f"{generation_name(generation)}.log"


# ----------------------------------------------------------------------
# The request

_RANK = str(Path(rank.__file__).resolve())
# As Slurm's own NodeNames are; a host file, `srun -w` and `--host` would read more
# into a comma, a colon, a bracket or a leading dash.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNode:
    """The node that launches: that of the generation's first lease.

    Attributes:
        environment: The agent's own variables.
        srun: Slurm's program, absolute.
        python: The interpreter that has FreeTrain, absolute.
        address: A name or number under which the other nodes reach this one.
        launch_agent: The site's own (``site.launch_agent``); None for ours.
    """

    environment: Mapping[str, str]
    srun: str
    python: str
    address: str
    launch_agent: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRequest:
    """A world that is to be started.

    Attributes:
        job: The trainer.
        assigned: Its generation.
        folder: The trainer's folder.
        environment: The submitter's variables.
        head: The node that launches.
        after: The generation that it waits for before it trains; None for none.
        is_forked: Whether every node of it has a spare. Where one node has none the
            others would wait for it, and MPI waits by spinning.
        port: A TCP port of the head's node that nothing listens on, where ranks
            that bring their own rendezvous may meet.
    """

    job: TrainerJob
    assigned: Assigned
    folder: TrainerDir
    environment: Mapping[str, str]
    head: HeadNode
    after: int | None = None
    is_forked: bool = False
    port: int = 0

    @property
    def members(self) -> tuple[AssignedLease, ...]:
        """The generation's leases, the head first, fit to be launched on.

        Raises:
            CannotLaunchError: There is none, a node has two, or a name that no
                launcher would take for one node.
        """
        nodes = [member.node for member in self.assigned.members]
        for node in nodes:
            if _NODE.fullmatch(node) is None:
                raise self._refusal(f"{node[:80]!r} is no name of a node")
            if nodes.count(node) > 1:
                raise self._refusal(f"two of its leases are on node {node}")
        if not nodes:
            raise self._refusal("it has no lease")
        return self.assigned.members

    @property
    def hosts(self) -> tuple[str, ...]:
        """Its nodes, the head's first."""
        return tuple(member.node for member in self.members)

    @property
    def processes(self) -> int:
        """How many ranks it has."""
        return len(self.assigned.members) * self.job.launch.processes_per_node

    @property
    def command(self) -> tuple[str, ...]:
        """The command of a rank: the program, or what asks a spare for a fork of it."""
        if not self.is_forked:
            return self.job.command
        return (self.head.python, "-I", "-S", _RANK, *self.job.command)

    @property
    def run_dir(self) -> RunDir:
        """The run directory."""
        return run_dir_of(self.job, self.folder)

    @property
    def stop_file(self) -> Path | None:
        """The control file; None for a program that does not look for one."""
        generation = self.assigned.generation
        return self.run_dir.stop_request(generation) if self.job.elastic else None

    @property
    def log(self) -> Path:
        """What its processes print."""
        return log_of(self.job, self.folder, self.assigned.generation)

    @property
    def world_folder(self) -> Path:
        """Where its files go."""
        return self.folder.world(self.assigned.generation)

    @property
    def agent_path(self) -> Path:
        """The launch agent: called like ssh, it starts a process on a node."""
        return self.world_folder / "agent"

    @property
    def node_path(self) -> Path:
        """The script with which every process of the launch agent begins."""
        return self.world_folder / "node"

    @property
    def hostfile(self) -> Path:
        """The file that names the nodes to the launcher."""
        return self.world_folder / "hosts"

    def marks(self, member: AssignedLease) -> dict[str, str]:
        """Return the variables by which agents know what to sweep."""
        world = f"{self.assigned.trainer}/{self.assigned.generation}"
        return {LEASE_MARK: lease_name(member.key), WORLD_MARK: world}

    def _refusal(self, why: str) -> CannotLaunchError:
        return CannotLaunchError(
            f"generation {self.assigned.generation} of {self.assigned.trainer} cannot "
            f"be launched: {why}. Nothing of it was started; the next generation may "
            f"have other nodes."
        )


# ----------------------------------------------------------------------
# The variables of the launcher, which the program inherits

# What an outer job, step, launcher or world left behind: an inner one would believe it.
_SCRUBBED = ("SLURM_", "SLURMD_", "SRUN_", "PMI", "OMPI_", "PRTE_", "FREETRAIN_")

# Sites tune MPI by OMPI_MCA_* in their modules; these it is not for them to say.
_NO_TUNING = ("ess", "orte", "plm", "prte", "ras", "pmix", "routed", "rmaps_ppr")

DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""Slurm says for each job which devices it has; the submitter's say nothing of them."""


def launcher_environment(request: WorldRequest) -> dict[str, str]:
    """Return all variables of the launcher of *request*.

    The submitter's without what outer jobs and launchers left in them, the
    allocation's devices and the way to Slurm from the agent's, then those of the job
    file, then the contract of docs/reference/run-directory.md.
    """
    job = request.job
    ours = request.head.environment
    variables = {k: v for k, v in request.environment.items() if is_passed_on(k)}
    variables |= {k: v for k, v in ours.items() if k in KEPT or k in DEVICE_VARIABLES}
    fragment = contract_variables(
        job,
        request.run_dir,
        request.assigned.generation,
        processes=request.processes,
    )
    if request.after is not None and job.elastic:
        fragment[contract.AFTER] = str(request.after)
    marks = request.marks(request.members[0])
    return variables | job_variables(job) | fragment | marks


def portable_variables(request: WorldRequest) -> dict[str, str]:
    """Return the variables of the launcher that are right on every node."""
    of_node = {LEASE_MARK, WORLD_MARK, *DEVICE_VARIABLES, *KEPT}
    variables = launcher_environment(request)
    return {name: text for name, text in variables.items() if name not in of_node}


def is_passed_on(name: str) -> bool:
    """Tell whether a world gets the variable *name* as its submitter has it."""
    for prefix in MPI_TUNING:
        if name.startswith(prefix):
            return not name.removeprefix(prefix).startswith(_NO_TUNING)
    return not name.startswith(_SCRUBBED) and name not in DEVICE_VARIABLES


def job_variables(job: TrainerJob) -> dict[str, str]:
    """Return the variables that a job file asks for."""
    threads = job.launch.threads
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return dict(job.environment) | own


def contract_variables(
    job: TrainerJob, run: RunDir, generation: int, *, processes: int
) -> dict[str, str]:
    """Return the variables that docs/reference/run-directory.md promises to a program.

    Args:
        job: The trainer.
        run: Its run directory.
        generation: The number of the fragment.
        processes: How many processes the fragment has.
    """
    stop_signals = dict.fromkeys(("TERM", str(job.stop.signal)))
    return {
        contract.RUN_DIR: str(run.path),
        contract.GENERATION: str(generation),
        contract.WORLD_SIZE: str(processes),
        contract.STOP_SIGNALS: ",".join(stop_signals),
        contract.COMMIT_EVERY_S: f"{job.checkpoint.every_s:.3f}",
    }


# ----------------------------------------------------------------------
# The plan


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that the launcher needs."""

    path: Path
    content: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """How one world is started: everything, so that it can be shown before.

    Attributes:
        argv: The launcher and its words; no shell sees them.
        environment: All variables of the launcher; nothing is inherited.
        directory: Where it starts.
        log: The file to which all its output is appended.
        files: Files that must be there before.
        stop_signal: The signal that asks it to stop; None where the launcher would
            take the signal for itself, and end the world.
        stop_file: The file whose existence asks it to stop; None where the program
            does not look for one.
        has_group: Whether the signal is for all processes that it starts, too, and
            not only for the launcher: a program may be a script around another.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    log: Path
    files: tuple[PlannedFile, ...] = ()
    stop_signal: Signals | None = None
    stop_file: Path | None = None
    has_group: bool = False
