"""From what is wanted to what is run, for every launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.jobfile.job import Launcher
from freetrain.launch.custom import custom_argv, custom_hostfile, custom_signal
from freetrain.launch.environment import launcher_environment
from freetrain.launch.mpirun import plan_mpirun
from freetrain.launch.pack import pack_argv
from freetrain.launch.plan import WorldPlan
from freetrain.launch.scripts import agent_files
from freetrain.launch.steps import steps_argv, steps_files, steps_signal

if TYPE_CHECKING:
    from signal import Signals

    from freetrain.launch.plan import PlannedFile
    from freetrain.launch.request import WorldRequest
    from freetrain.launch.tool import Tool


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
