"""From what is wanted to what is run, for every launcher."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from freetrain.config.job import Launcher
from freetrain.launch.mpirun import plan_mpirun
from freetrain.launch.request import (
    PlannedFile,
    WorldPlan,
    agent_files,
    launcher_environment,
)
from freetrain.launch.steps import steps_argv, steps_files, steps_signal

if TYPE_CHECKING:
    from freetrain.launch.request import Tool, WorldRequest


# ----------------------------------------------------------------------
# Worlds that a command of the user's starts.


def custom_argv(request: WorldRequest) -> tuple[str, ...]:
    """Return the command of the job file with its placeholders filled in."""
    values = {
        "hostfile": str(custom_hostfile(request).path),
        "hosts": ",".join(request.hosts),
        "nodes": str(len(request.hosts)),
        "processes": str(request.processes),
        "agent": str(request.agent_path),
    }
    words = (word.format_map(values) for word in request.job.launch.command)
    return (*words, *request.command)


def custom_hostfile(request: WorldRequest) -> PlannedFile:
    """Return the file with a host a line."""
    lines = "".join(f"{host}\n" for host in request.hosts)
    return PlannedFile(request.world_folder / "hosts", lines)


def custom_signal(request: WorldRequest) -> Signals | None:
    """Return what asks the command; nobody knows what it would make of it.

    So a program that looks for its control file is asked by that alone.
    """
    return None if request.job.elastic else Signals[f"SIG{request.job.stop.signal}"]


# ----------------------------------------------------------------------
# Worlds that are packs: several small trainers, which share the node of one lease.


def pack_argv(request: WorldRequest) -> tuple[str, ...]:
    """Return the command that runs the pack of a job file.

    It is FreeTrain's own program, so its Python is the agent's, whatever the
    submitter's variables (``-E``) and the job's directory (``-P``) hold for members.
    """
    pack = str(request.job.launch.pack)
    return (request.head.python, "-E", "-P", "-m", "freetrain.pack", pack)


# ----------------------------------------------------------------------
# From what is wanted to what is run, for every launcher.


def plan_world(request: WorldRequest, tool: Tool) -> WorldPlan:
    """Return how the world of *request* is started by *tool*.

    Raises:
        CannotLaunchError: The generation's nodes are not fit for it.
    """
    files: tuple[PlannedFile, ...]
    signal: Signals | None
    match request.job.launch.launcher:
        case Launcher.MPIRUN:
            return plan_mpirun(request, tool)
        case Launcher.SRUN | Launcher.TORCHRUN:
            argv, files = steps_argv(request), tuple(steps_files(request, tool))
            signal = steps_signal()
        case Launcher.CUSTOM:
            argv, files = custom_argv(request), (custom_hostfile(request),)
            signal = custom_signal(request)
        case Launcher.PACK:
            # Python takes a moment until it hears signals, and dies of them till then.
            argv, files, signal = pack_argv(request), (), None
    return WorldPlan(
        argv=argv,
        environment=launcher_environment(request),
        directory=request.job.directory,
        log=request.log,
        files=(*agent_files(request), *files),
        stop_signal=signal,
        stop_file=request.stop_file,
    )
