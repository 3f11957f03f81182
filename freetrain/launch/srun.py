"""The launcher ``srun``, and the job steps that ``torchrun`` uses as well.

Ranks of both find each other by themselves, without MPI. No job step spans jobs, so a
starter on the head's node runs the launch agent once for each lease. That starts
another starter there, whose commands are the lease's ranks (srun) or one torchrun. The
head's starter is asked to stop by USR2 and passes the request on by a file in the
world's folder; the starters of the leases send the signal that the program wants.

What torchrun and PyTorch call a node is a lease here: several leases of one node, each
with its own GPUs, are so many nodes to them.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from dataclasses import replace
from signal import Signals
from typing import TYPE_CHECKING, ClassVar

from freetrain.config.job import ContainerRuntime, StopSignal
from freetrain.launch.base import (
    Launcher,
    PlannedFile,
    Tool,
    agent_files,
    assemble_plan,
    portable_variables,
    starter_argv,
)
from freetrain.launch.starter import Command, Orders, render_orders

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.launch.base import HeadNode, ToolFinder, WorldPlan, WorldRequest


_ASKS = StopSignal.USR2


class StepsLauncher(Launcher):
    """Starts each lease's part of a world by a job step of that lease."""

    meets_at_head = True
    takes_pieces = True

    signals_children: ClassVar[bool] = False
    """Whether the stop signal is for the children of a lease's commands instead."""

    @abstractmethod
    def node_commands(
        self, request: WorldRequest, tool: Tool, *, node_rank: int
    ) -> tuple[Command, ...]:
        """Return the commands of one lease's starter."""

    @abstractmethod
    def agent_files(self, request: WorldRequest, tool: Tool) -> tuple[PlannedFile, ...]:
        """Return the launch agent."""

    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the orders of the starters: the head's, and one for each lease."""
        files = []
        steps = []
        for rank, host in enumerate(request.hosts):
            path = _orders_path(request, f"node-{rank}")
            orders = self._node_orders(request, tool, node_rank=rank)
            files.append(PlannedFile(path, render_orders(orders)))
            run = shlex.join(starter_argv(request, path))
            text = f"cd {shlex.quote(str(request.job.directory))} && exec {run}"
            steps.append(Command((str(request.agent_path), host, text), name=host))
        # TERM is for the end of one step, when the starter ends all the others.
        stop = str(_stop_path(request))
        head = Orders(
            commands=tuple(steps), hears=(_ASKS,), sends=_ASKS, announces=stop
        )
        path = _orders_path(request, "all")
        files.append(PlannedFile(path, render_orders(head)))
        plan = assemble_plan(
            request,
            starter_argv(request, path),
            files=(*self.agent_files(request, tool), *files),
            stop_signal=Signals[f"SIG{_ASKS}"],
        )
        first = self.node_commands(request, tool, node_rank=0)[0]
        return replace(plan, in_lease=first.argv)

    def _node_orders(
        self, request: WorldRequest, tool: Tool, *, node_rank: int
    ) -> Orders:
        wanted = request.job.stop.signal
        return Orders(
            commands=self.node_commands(request, tool, node_rank=node_rank),
            # Slurm sends TERM to all processes of a step that it preempts.
            hears=(StopSignal.TERM,),
            sends=wanted,
            is_shielded=wanted is not StopSignal.TERM,
            to_children=self.signals_children,
            is_contained=request.job.container is not None,
            heeds="" if _has_file_only(request.job) else str(_stop_path(request)),
        )


def step_variables(request: WorldRequest) -> dict[str, str]:
    """Return the variables that a launch agent like ssh would not bring to the node."""
    return portable_variables(request) if request.head.launch_agent else {}


def _stop_path(request: WorldRequest) -> Path:
    return request.world_folder / "stop"


def _has_file_only(job: TrainerJob) -> bool:
    """Tell whether a program is asked to stop by its control file alone.

    Pyxis has each rank in a step, of which a signal reaches workers of data loaders,
    too, who would die of it.
    """
    container = job.container
    return bool(
        job.elastic and container and container.runtime is ContainerRuntime.PYXIS
    )


def _orders_path(request: WorldRequest, name: str) -> Path:
    return request.world_folder / f"{name}.json"


class SrunLauncher(StepsLauncher):
    """Gives every rank PyTorch's variables; ``options`` are those of srun."""

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
        """Return the ranks of one lease."""
        del tool
        count = request.job.launch.processes_per_node
        return tuple(
            Command(
                request.command_in(request.members[node_rank]),
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
