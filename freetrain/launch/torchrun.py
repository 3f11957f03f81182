"""The launcher ``torchrun``: PyTorch's own, one in each lease."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.launch.base import Tool, agent_files
from freetrain.launch.srun import StepsLauncher, step_variables
from freetrain.launch.starter import Command

if TYPE_CHECKING:
    from freetrain.config.job import TrainerJob
    from freetrain.launch.base import (
        HeadNode,
        PlannedFile,
        ToolFinder,
        WorldPlan,
        WorldRequest,
    )

_NOTE = "It commits, and ends; what torchrun prints of that below is no failure."


class TorchrunLauncher(StepsLauncher):
    """Has the leases' torchruns meet at the head, by a static rendezvous."""

    usual_program = "torchrun"
    # torchrun itself would end its workers, and exit with an error.
    signals_children = True
    is_inside = True

    def find_tool(self, job: TrainerJob, head: HeadNode, finder: ToolFinder) -> Tool:
        """Return the torchrun that the program would get."""
        del head
        name = self.program(job.launch)
        if job.container is not None:
            return Tool(name)
        advice = "activate an environment with PyTorch"
        return Tool(finder.find(name, advice=advice))

    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the orders of the starters.

        A torchrun whose node leaves prints a traceback, also once all is committed.
        """
        plan = super().plan(request, tool)
        return replace(plan, stop_note=_NOTE) if request.job.elastic else plan

    def agent_files(self, request: WorldRequest, tool: Tool) -> tuple[PlannedFile, ...]:
        """Return the launch agent."""
        del tool
        return agent_files(request)

    def node_commands(
        self, request: WorldRequest, tool: Tool, *, node_rank: int
    ) -> tuple[Command, ...]:
        """Return one lease's torchrun."""
        launch = request.job.launch
        settings = {
            "nnodes": len(request.hosts),
            "node-rank": node_rank,
            "nproc-per-node": launch.processes_per_node,
            "master-addr": request.head.address,
            "master-port": request.port,
            "max-restarts": 0,
        }
        words = [f"--{name}={value}" for name, value in settings.items()]
        words += [*launch.options, "--no-python"]
        if request.is_forked:
            argv = (tool.path, *words, *request.command)
        else:
            torchrun = (tool.path, *words, *request.job.command)
            argv = request.contained(torchrun, request.members[node_rank])
        return (Command(argv, tuple(step_variables(request).items())),)
