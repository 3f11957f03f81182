"""Worlds of MPI ranks, started by the mpirun of whichever MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.config.job import StopSignal
from freetrain.launch.request import (
    CannotLaunchError,
    Flavour,
    PlannedFile,
    WorldPlan,
    agent_files,
    around_rank,
    asked_by,
    launcher_environment,
    must_translate,
)
from freetrain.launch.steps import starter_argv

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.launch.request import Tool, WorldRequest

# Every mpirun takes what follows such a word for another program.
_SEPARATOR = ":"
# What each passes on to its ranks; see stopping.py for what was seen.
_PASSED_ON = {
    Flavour.OPEN_MPI_4: (StopSignal.USR2,),
    Flavour.OPEN_MPI_5: (StopSignal.USR2,),
    Flavour.MPICH: (StopSignal.TERM, StopSignal.INT, StopSignal.QUIT),
    Flavour.INTEL_MPI: (StopSignal.TERM, StopSignal.INT, StopSignal.QUIT),
}


def plan_mpirun(request: WorldRequest, tool: Tool) -> WorldPlan:
    """Return how *tool* starts the world.

    Raises:
        CannotLaunchError: The generation's nodes are not fit for it.
    """
    if tool.flavour is None:
        raise CannotLaunchError(f"{tool.path} is no mpirun; nothing was started")
    is_open_mpi = tool.flavour in {Flavour.OPEN_MPI_4, Flavour.OPEN_MPI_5}
    options = _open_mpi(request, tool) if is_open_mpi else _hydra(request, tool)
    ranks = ("-n", str(request.processes), *request.job.launch.options)
    passed_on = _PASSED_ON[tool.flavour]
    signal = asked_by(request.job, passed_on)
    command = request.command
    around: tuple[PlannedFile, ...] = ()
    if _SEPARATOR in command or must_translate(request.job, passed_on):
        path = request.world_folder / "rank.json"
        command = starter_argv(request, path)
        around = (PlannedFile(path, around_rank(request, signal)),)
    hosts = _hostfile(request, is_open_mpi=is_open_mpi)
    return WorldPlan(
        argv=(tool.path, *options, *ranks, *command),
        environment=launcher_environment(request),
        directory=request.job.directory,
        log=request.log,
        files=(*agent_files(request, is_shielded=True), hosts, *around),
        stop_signal=signal,
        stop_file=request.stop_file,
    )


def _open_mpi(request: WorldRequest, tool: Tool) -> tuple[str, ...]:
    agent = str(request.agent_path)
    if tool.flavour is Flavour.OPEN_MPI_5:
        word, plm, prefix = "--prtemca", "ssh", "plm_ssh"
    else:
        word, plm, prefix = "--mca", "rsh", "plm_rsh"
    settings = {
        "plm": plm,
        f"{prefix}_agent": agent,
        # The daemons have no launch agent of the same kind: the head starts all.
        f"{prefix}_no_tree_spawn": "1",
        "ras": "^slurm",
    }
    words = [text for pair in settings.items() for text in (word, *pair)]
    return (
        *words,
        # A daemon that puts itself into the background ends its step, and cgroups
        # then end the daemon.
        "--leave-session-attached",
        "--hostfile",
        str(_hostfile_path(request)),
        *_unless_said(request, "--map-by", _per_node(request)),
        # Two ranks or fewer would be bound to one core each, threads and all.
        *_unless_said(request, "--bind-to", "none"),
    )


def _hydra(request: WorldRequest, tool: Tool) -> tuple[str, ...]:
    is_intel = tool.flavour is Flavour.INTEL_MPI
    return (
        "-launcher",
        "ssh",
        "-launcher-exec",
        str(request.agent_path),
        "-rmk",
        "user",
        # Else the proxies look for the head under its host name.
        *(() if is_intel else ("-localhost", request.head.address)),
        # The ranks have the launch agent's variables; those of mpiexec would put
        # the head's marks and devices over their own.
        "-genvnone",
        "-machinefile" if is_intel else "-f",
        str(_hostfile_path(request)),
    )


def _per_node(request: WorldRequest) -> str:
    return f"ppr:{request.job.launch.processes_per_node}:node"


def _unless_said(request: WorldRequest, option: str, value: str) -> tuple[str, ...]:
    said = {word.partition("=")[0] for word in request.job.launch.options}
    return () if {option, option[1:]} & said else (option, value)


def _hostfile_path(request: WorldRequest) -> Path:
    return request.world_folder / "hosts"


def _hostfile(request: WorldRequest, *, is_open_mpi: bool) -> PlannedFile:
    count = request.job.launch.processes_per_node
    form = f"{{}} slots={count}" if is_open_mpi else f"{{}}:{count}"
    lines = "".join(f"{form.format(host)}\n" for host in request.hosts)
    return PlannedFile(_hostfile_path(request), lines)
