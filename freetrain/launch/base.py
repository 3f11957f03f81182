"""The interface of launchers, and what their plans are put together from.

A world is the set of processes that train together in one generation of a trainer.
``freetrain.plugins`` finds the launcher's class by the name in the job file. A
launcher decides what is run, and starts nothing itself: ``freetrain.launch.local``
does.

Launchers reach nodes by the launch agent, a shell script per generation. It is called
like ssh, ``agent HOST COMMAND...``, finds the lease on HOST and becomes
``srun --jobid=LEASE --overlap``: no ssh, and processes stay under Slurm's accounting.
A site may name a program of its own to be called instead of srun.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from freetrain.launch import starter
from freetrain.launch.request import (
    LEASE_MARK,
    WORLD_MARK,
    CannotLaunchError,
    PlannedFile,
    WorldPlan,
    launcher_environment,
)
from freetrain.plugins import UnusablePluginError, find_launcher
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from signal import Signals

    from freetrain.config.job import LaunchSettings, TrainerJob
    from freetrain.launch.request import HeadNode, WorldRequest
    from freetrain.state.files import AssignedLease


_STARTER = Path(starter.__file__).resolve()
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

    needs_command: ClassVar[bool] = True
    """Whether a job file must say ``command``, the program of the user's."""

    def problems(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with a job file, the table before each problem.

        The table is ``""`` for the keys above all tables. A problem says what was
        found and what is expected, without the final full stop.
        """
        for key, owner in _KEYS_FOR.items():
            if getattr(job.launch, key) and key not in self.keys:
                name = job.launch.launcher
                yield "launch", f'{key} is for launcher = "{owner}", and it is {name}'

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
        """Return how *tool* starts the world of *request*.

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
    """Return how the world of *request* is started by *tool*.

    Raises:
        CannotLaunchError: The generation's nodes are not fit for it.
    """
    return launcher_of(request.job).plan(request, tool)


def assemble_plan(
    request: WorldRequest,
    argv: tuple[str, ...],
    *,
    files: tuple[PlannedFile, ...],
    stop_signal: Signals | None,
) -> WorldPlan:
    """Return the plan that runs *argv* with what all launchers have alike."""
    return WorldPlan(
        argv=argv,
        environment=launcher_environment(request),
        directory=request.job.directory,
        log=request.log,
        files=files,
        stop_signal=stop_signal,
        stop_file=request.stop_file,
    )


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
    """Return the launch agent of *request* and what it runs on the node.

    Args:
        request: The world.
        is_shielded: Whether TERM is kept from what is started on the nodes: Slurm
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
{_UNSET}{start}
"""


def _case(member: AssignedLease) -> str:
    lease = shlex.quote(f"{member.key.uuid}-{member.key.task}")
    return f"""\
{shlex.quote(member.node)})
    {LEASE_MARK}={lease}
    job={int(member.job_id)}
    ;;
"""


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
