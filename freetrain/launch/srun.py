"""The launcher ``srun``: one job step a node, one process a rank, no MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.launch.agent_script import agent_files
from freetrain.launch.base import Tool
from freetrain.launch.starter import Command
from freetrain.launch.steps import StepsLauncher, step_variables

if TYPE_CHECKING:
    from freetrain.config.job import TrainerJob
    from freetrain.launch.base import ToolFinder
    from freetrain.launch.request import HeadNode, PlannedFile, WorldRequest


class SrunLauncher(StepsLauncher):
    """Gives every rank what PyTorch looks for; ``options`` are those of srun."""

    usual_program = "srun"

    def find_tool(self, job: TrainerJob, head: HeadNode, finder: ToolFinder) -> Tool:
        """Return the srun that the launch agent uses."""
        del finder
        return Tool(job.launch.executable or head.srun)

    def agent_files(self, request: WorldRequest, tool: Tool) -> tuple[PlannedFile, ...]:
        """Return the launch agent, with the job file's options for srun."""
        options = request.job.launch.options
        return agent_files(request, srun=tool.path, srun_options=options)

    def node_commands(
        self, request: WorldRequest, tool: Tool, *, node_rank: int
    ) -> tuple[Command, ...]:
        """Return the ranks of one node."""
        del tool
        count = request.job.launch.processes_per_node
        return tuple(
            Command(
                request.command,
                tuple(_rank_variables(request, node_rank, local).items()),
                f"rank {node_rank * count + local}",
            )
            for local in range(count)
        )


def _rank_variables(
    request: WorldRequest, node_rank: int, local: int
) -> dict[str, str]:
    count = request.job.launch.processes_per_node
    variables = {
        "MASTER_ADDR": request.head.address,
        "MASTER_PORT": request.port,
        "RANK": node_rank * count + local,
        "LOCAL_RANK": local,
        "NODE_RANK": node_rank,
        "GROUP_RANK": node_rank,
        "WORLD_SIZE": request.processes,
        "LOCAL_WORLD_SIZE": count,
    }
    texts = {name: str(value) for name, value in variables.items()}
    return step_variables(request) | texts
