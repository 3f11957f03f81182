"""The interface of launchers: a request for a world, and the plan that starts it.

A world is the set of processes that train together in one generation of a trainer.
``freetrain.plugins`` finds the launcher's class by the name in the job file. It
answers a ``WorldRequest`` with a ``WorldPlan`` and looks at nothing and starts nothing
itself, so that ``freetrain submit --dry-run`` can show the plan:
``freetrain.launch.local`` runs it.

Launchers reach nodes by the launch agent, a shell script per generation. It is called
like ssh, ``agent HOST COMMAND...``, finds the lease on HOST and becomes
``srun --jobid=LEASE --overlap``: no ssh, and processes stay under Slurm's accounting.
A site may name a program of its own to be called instead of srun. Of several leases on
one node, which take pieces of it, each has a host name of its own for the agent.
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from freetrain.elastic import contract, rank
from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError
from freetrain.launch.container import (
    IMPORTS,
    SEPARATORS,
    Inside,
    in_container,
    shield_of,
)
from freetrain.plugins import UnusablePluginError, find_launcher
from freetrain.state.files import MPI_TUNING, generation_name, lease_name
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from signal import Signals

    from freetrain.config.job import LaunchSettings, TrainerJob
    from freetrain.state.files import AssignedLease, AssignmentFile, TrainerDir

LEASE_MARK = "FREETRAIN_LEASE"
"""The variable that names the lease that a process belongs to, ``UUID-TASK``."""

WORLD_MARK = "FREETRAIN_WORLD"
"""The variable that names the generation of a process, ``TRAINER/G``."""


class CannotLaunchError(BadConfigurationError):
    """A world cannot be started as things are; no process of it was."""


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


_RANK = str(Path(rank.__file__).resolve())
# As Slurm's own NodeNames are; a host file, `srun -w` and `--host` would read more
# into a comma, a colon, a bracket or a leading dash.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNode:
    """The node that launches: that of the generation's first lease.

    Attributes:
        environment: The agent's own variables.
        srun, python: Absolute paths; the interpreter has FreeTrain.
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
        environment: The submitter's variables.
        after: The generation that it waits for before it trains; None for none.
        is_forked: Whether every node of it has a spare. Where one node has none the
            others would wait for it, and MPI waits by spinning.
        port: A TCP port of the head's node that is held for ranks that bring their
            own rendezvous; 0 for launchers whose ranks do not.
    """

    job: TrainerJob
    assigned: AssignmentFile
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
            CannotLaunchError: There is none, a name that no launcher would take for
                one node, or several on one node, which the launcher or the site's own
                launch agent cannot tell apart.
        """
        nodes = [member.node for member in self.assigned.members]
        tells_apart = (
            launcher_of(self.job).takes_pieces and self.head.launch_agent is None
        )
        for node in nodes:
            if _NODE.fullmatch(node) is None:
                raise self._refusal(f"{node[:80]!r} is no name of a node")
            if nodes.count(node) > 1 and not tells_apart:
                raise self._refusal(f"two of its leases are on node {node}")
        if not nodes:
            raise self._refusal("it has no lease")
        return self.assigned.members

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each lease for the launch agent, the head's first.

        That is its node; where several leases are on one, ``NODE/1``, ``NODE/2`` and
        so on, which are no names of nodes.
        """
        nodes = [member.node for member in self.members]
        return tuple(
            f"{node}/{nodes[: place + 1].count(node)}"
            if nodes.count(node) > 1
            else node
            for place, node in enumerate(nodes)
        )

    @property
    def processes(self) -> int:
        """The number of its ranks."""
        return len(self.assigned.members) * self.job.launch.processes_per_node

    @property
    def command(self) -> tuple[str, ...]:
        """The command of a rank, whichever lease it is in."""
        return self.command_in(self.members[0])

    def command_in(self, member: AssignedLease) -> tuple[str, ...]:
        """Return the command of a rank in the lease *member*.

        It is the program, in its container if it has one, or a request for its fork to
        a spare.
        """
        if not self.is_forked:
            return self.contained(self.job.command, member)
        return (self.head.python, "-I", "-S", _RANK, *self.job.command)

    def contained(
        self, command: tuple[str, ...], member: AssignedLease
    ) -> tuple[str, ...]:
        """Return the words that run *command* in the container, if there is one.

        Raises:
            CannotLaunchError: The path of a folder that it needs has separators.
        """
        if self.job.container is None:
            return command
        inside = Inside(
            directory=self.job.directory,
            folders=folders_inside(self.job, self.run_dir),
            imports_us=self.job.elastic,
            variables=tuple(
                dict.fromkeys((*job_variables(self.job), *DEVICE_VARIABLES))
            ),
            step=(
                *(self.head.srun, f"--jobid={member.job_id}"),
                *(f"--nodelist={member.node}", *_STEP.split()),
            ),
        )
        if unfit := [path for path in inside.seen if SEPARATORS & set(str(path))]:
            raise self._refusal(
                f"no container can see {str(unfit[0])!r}, whose commas and colons its "
                f"runtime takes for separators"
            )
        shield = shield_of(self.job, is_torchrun=launcher_of(self.job).is_inside)
        return in_container(self.job.container, inside, (*shield, *command))

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
        """The file for the output of its processes."""
        return log_of(self.job, self.folder, self.assigned.generation)

    @property
    def world_folder(self) -> Path:
        """The folder of its files."""
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
        """Return the variables by which agents find its processes."""
        world = f"{self.assigned.trainer}/{self.assigned.generation}"
        return {LEASE_MARK: lease_name(member.key), WORLD_MARK: world}

    def _refusal(self, why: str) -> CannotLaunchError:
        return CannotLaunchError(
            f"generation {self.assigned.generation} of {self.assigned.trainer} cannot "
            f"be launched: {why}. Nothing of it was started; the next generation may "
            f"have other nodes."
        )


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that the launcher needs."""

    path: Path
    content: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """Everything that the start of one world needs, so that it can be shown before.

    Attributes:
        argv: The launcher and its words; no shell sees them.
        environment: All variables of the launcher; nothing is inherited.
        directory: Where it starts.
        log: The file to which all its output is appended.
        files: Files to write before.
        stop_signal: The signal that asks it to stop; None where the launcher would
            take the signal for itself, and end the world.
        stop_file: The file whose existence asks it to stop; None where the program
            does not look for one.
        stop_note: What its log says of the signal, as the program ends by it; empty
            where the program commits and ends in silence.
        has_group: Whether the signal is for all processes that it starts, too, and
            not only for the launcher: a program may be a script around another.
        in_lease: The first command that a starter runs in the head's lease; empty
            where *argv* shows the program.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    log: Path
    files: tuple[PlannedFile, ...] = ()
    stop_signal: Signals | None = None
    stop_file: Path | None = None
    stop_note: str = ""
    has_group: bool = False
    in_lease: tuple[str, ...] = ()


# Keys of [launch] that only some launchers understand, and the one they are made for.
_KEYS_FOR = {"pack": "pack", "command": "custom"}


@dataclass(frozen=True, slots=True)
class Tool:
    """The program that launches, as it was found on the head node.

    Attributes:
        path: The program, absolute; empty where the launcher needs none.
        flavour: Which of several programs of that name it is, where that matters.
    """

    path: str
    flavour: str = ""


class ToolFinder(Protocol):
    """Looks for programs where a world would find them."""

    def find(self, name: str, *, advice: str) -> str:
        """Return the absolute path of the program *name*.

        Args:
            name: A name to look for on the PATH, or a path.
            advice: How to get the program, for the message; ``install ...``.

        Raises:
            CannotLaunchError: It is not there.
        """
        ...

    def version(self, path: str) -> str:
        """Return the output of ``path --version``.

        Raises:
            CannotLaunchError: It cannot be run.
        """
        ...


class Launcher(ABC):
    """One way to start the processes of a world on its nodes.

    Subclasses must be importable quickly: every agent and tick imports them.
    """

    usual_program: ClassVar[str] = ""
    """The program that is run where ``[launch] executable`` names none."""

    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of ``[launch]`` that it understands and most launchers do not."""

    has_mpi: ClassVar[bool] = False
    """Whether its ranks connect by MPI."""

    meets_at_head: ClassVar[bool] = False
    """Whether its ranks meet at a port of the head's node, which is held for them."""

    takes_pieces: ClassVar[bool] = False
    """Whether it can start a world on several leases of one node."""

    is_inside: ClassVar[bool] = False
    """Whether the program that launches runs in the container, if there is one."""

    needs_command: ClassVar[bool] = True
    """Whether a job file must say ``command``, the program of the user's."""

    def problems(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield the problems of a job file, the table before each.

        The table is ``""`` for the keys above all tables. A problem says what was
        found and what is expected, without the final full stop.
        """
        for key, owner in _KEYS_FOR.items():
            if getattr(job.launch, key) and key not in self.keys:
                name = job.launch.launcher
                yield "launch", f'{key} is for launcher = "{owner}", and it is {name}'
        if job.nodes.gpus_per_lease is not None:
            yield from self._problems_of_pieces(job)

    def _problems_of_pieces(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield what does not go together with leases that are pieces of nodes."""
        if not self.takes_pieces and job.nodes.sizes != (1,):
            problem = (
                f"gpus_per_lease puts several leases on one node, which launcher = "
                f'"{job.launch.launcher}" cannot tell apart; choose launcher = "srun" '
                f'or "torchrun", max = 1, or leases of whole nodes (no gpus_per_lease)'
            )
            yield "nodes", problem
        for name, _ in job.environment:
            if name in DEVICE_VARIABLES:
                problem = (
                    f"environment sets {name}, and with gpus_per_lease Slurm says for "
                    f"each lease which GPUs it has; leave it out"
                )
                yield "", problem

    def program(self, launch: LaunchSettings) -> str:
        """Return the program that nodes need; ``submit`` looks for it. May be empty."""
        return launch.executable or self.usual_program

    def find_tool(self, job: TrainerJob, head: HeadNode, finder: ToolFinder) -> Tool:
        """Return the program that launches, on the node that launches.

        Args:
            job: The trainer.
            head: That node.
            finder: Looks for programs on it.

        Raises:
            CannotLaunchError: There is none, or none that can be used.
        """
        del job, head, finder
        return Tool("")

    @abstractmethod
    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the plan by which *tool* starts the world of *request*.

        Raises:
            CannotLaunchError: The generation's nodes are not fit for it.
        """


def launcher_of(job: TrainerJob) -> Launcher:
    """Return the launcher that *job* names.

    Raises:
        CannotLaunchError: It is not installed here, or cannot be used.
    """
    name = job.launch.launcher
    try:
        launcher: Launcher = find_launcher(name)
    except (LookupError, UnusablePluginError) as error:
        raise CannotLaunchError(
            f"{job.name} needs the launcher {name!r}, which cannot be used here: "
            f"{error}. Nothing was started. Install the package that has it beside "
            f"FreeTrain."
        ) from error
    return launcher


def plan_world(request: WorldRequest, tool: Tool) -> WorldPlan:
    """Return the plan by which *tool* starts the world of *request*.

    Raises:
        CannotLaunchError: The generation's nodes are not fit for it.
    """
    return launcher_of(request.job).plan(request, tool)


# Variables of an outer job, step, launcher or world, which an inner one would believe.
_SCRUBBED = ("SLURM_", "SLURMD_", "SRUN_", "PMI", "OMPI_", "PRTE_", "FREETRAIN_")

# Sites tune MPI by OMPI_MCA_* in their modules, but not these components of it.
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

    The submitter's without those of outer jobs and launchers, the
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
    said = dict(job.environment)
    if job.container is not None and job.elastic:
        path = said.get("PYTHONPATH")
        own["PYTHONPATH"] = ":".join(filter(None, (str(IMPORTS), path)))
    return said | own


def folders_inside(job: TrainerJob, run: RunDir) -> tuple[Path, ...]:
    """Return the folders that *job* sees in a container, beside its own."""
    if job.elastic:
        return (run.path,)
    place = job.checkpoint.path
    return () if place is None else (place.parent,)


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


def assemble_plan(
    request: WorldRequest,
    argv: tuple[str, ...],
    *,
    files: tuple[PlannedFile, ...],
    stop_signal: Signals | None,
) -> WorldPlan:
    """Return the plan that runs *argv*, with all that launchers have in common."""
    job = request.job
    name = f"SIG{job.stop.signal}"
    note = f"It gets {name}; what is printed of that below is no failure."
    return WorldPlan(
        argv=argv,
        environment=launcher_environment(request),
        directory=job.directory,
        log=request.log,
        files=files,
        stop_signal=stop_signal,
        stop_file=request.stop_file,
        stop_note="" if job.elastic else note,
    )


_STARTER = Path(__file__).resolve().with_name("starter.py")


def starter_argv(request: WorldRequest, orders: Path) -> tuple[str, ...]:
    """Return the command that carries out *orders*, whatever Python's paths are."""
    return (request.head.python, "-I", "-S", str(_STARTER), str(orders))


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
    request: WorldRequest,
    *,
    is_shielded: bool = False,
    srun: str = "",
    srun_options: Sequence[str] = (),
) -> tuple[PlannedFile, ...]:
    """Return the launch agent of *request* and the script that it runs on the node.

    Args:
        request: The world.
        is_shielded: Whether TERM is kept from the processes on the nodes: Slurm
            sends it to every process of a step that it preempts, and MPI's daemons
            would end the world before it has committed. They give it to the ranks.
        srun: The srun to use; empty for the head's own.
        srun_options: Further options for it.
    """
    start = _start(request, srun or request.head.srun, srun_options)
    return (
        PlannedFile(request.agent_path, _agent(request, start), _RUNNABLE),
        PlannedFile(
            request.node_path, _node(request, is_shielded=is_shielded), _RUNNABLE
        ),
    )


def _agent(request: WorldRequest, start: str) -> str:
    generation = request.assigned.generation
    cases = "".join(map(_case, request.hosts, request.members))
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
{_UNSET}{_unset_devices(request.job)}{start}
"""


def _case(host: str, member: AssignedLease) -> str:
    lease = shlex.quote(f"{member.key.uuid}-{member.key.task}")
    return f"""\
{shlex.quote(host)})
    {LEASE_MARK}={lease}
    job={int(member.job_id)}
    host={shlex.quote(member.node)}
    ;;
"""


def _unset_devices(job: TrainerJob) -> str:
    """Return the line that keeps the head's devices from the ranks of other leases.

    Slurm sets the variables for each step, but for GPUs that it only counts.
    """
    own = dict(job.environment)
    names = " ".join(name for name in DEVICE_VARIABLES if name not in own)
    return f"unset {names}\n" if names else ""


def _start(request: WorldRequest, srun: str, srun_options: Sequence[str]) -> str:
    node = shlex.quote(str(request.node_path))
    own = request.head.launch_agent
    if own is None:
        return (
            f'exec {shlex.quote(srun)} --jobid="$job" --nodelist="$host" \\\n'
            f'    {_STEP} {shlex.join(srun_options)} /bin/sh {node} "$*"'
        )
    # Like ssh it may not take variables along; names of ours hold no quotes.
    marks = " ".join(f"{name}='${name}'" for name in (LEASE_MARK, WORLD_MARK))
    names = f"{LEASE_MARK} {WORLD_MARK}"
    return f'exec {shlex.quote(str(own))} "$host" "{marks}; export {names}; $*"'


def _node(request: WorldRequest, *, is_shielded: bool) -> str:
    start = "exec /bin/sh -c"
    if is_shielded:  # a shell can ignore signals, and only others can block them
        python = shlex.quote(request.head.python)
        start = f"exec {python} -I -S -c {shlex.quote(_SHIELD)}"
    return f"""\
#!/bin/sh
# What a process of the launch agent begins with on its node; written by FreeTrain.
{_UNSET}{start} "$1"
"""
