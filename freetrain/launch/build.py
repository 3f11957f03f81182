"""From what is wanted to what is run, for every launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.jobfile.job import Launcher
from freetrain.launch.errors import CannotLaunchError
from freetrain.launch.mpirun import plan_mpirun

if TYPE_CHECKING:
    from freetrain.launch.plan import WorldPlan
    from freetrain.launch.request import WorldRequest
    from freetrain.launch.tool import Tool


def plan_world(request: WorldRequest, tool: Tool) -> WorldPlan:
    """Return how the world of *request* is started by *tool*.

    Raises:
        CannotLaunchError: The generation's nodes are not fit for it.
    """
    match request.job.launch.launcher:
        case Launcher.MPIRUN:
            return plan_mpirun(request, tool)
        case other:
            raise CannotLaunchError(f"launcher {other} is not there yet")
