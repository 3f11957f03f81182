"""Worlds whose ranks find each other by themselves: launchers srun and torchrun.

No job step spans jobs, so a starter on the head's node runs the launch agent once a
node, and what it starts there is a starter again, whose commands are the node's ranks
(srun) or one torchrun. The head's starter is asked to stop by USR2 and tells the
nodes' by a file in the world's folder; they send the signal that the program wants.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

from freetrain.config.job import Launcher, StopSignal
from freetrain.launch import starter
from freetrain.launch.request import PlannedFile, carried
from freetrain.launch.starter import Command, Orders, render_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.launch.request import Tool, WorldRequest

_STARTER = Path(starter.__file__).resolve()
_ASKS = StopSignal.USR2


def starter_argv(request: WorldRequest, orders: Path) -> tuple[str, ...]:
    """Return the command that carries out *orders*, whatever Python's paths are."""
    return (request.head.python, "-I", "-S", str(_STARTER), str(orders))


def steps_argv(request: WorldRequest) -> tuple[str, ...]:
    """Return the command that starts all nodes."""
    return starter_argv(request, _orders_path(request, "all"))


def steps_files(request: WorldRequest, tool: Tool) -> Iterator[PlannedFile]:
    """Yield the orders of the starters: the head's, and one for each node."""
    nodes = []
    for rank, host in enumerate(request.hosts):
        path = _orders_path(request, f"node-{rank}")
        yield PlannedFile(path, render_orders(_node(request, tool, node_rank=rank)))
        run = shlex.join(starter_argv(request, path))
        text = f"cd {shlex.quote(str(request.job.directory))} && exec {run}"
        nodes.append(Command((str(request.agent_path), host, text), name=host))
    # TERM is for when this one ends all others.
    stop = str(_stop_path(request))
    orders = Orders(commands=tuple(nodes), hears=(_ASKS,), sends=_ASKS, announces=stop)
    yield PlannedFile(_orders_path(request, "all"), render_orders(orders))


def steps_signal() -> Signals:
    """Return what asks the head's starter."""
    return Signals[f"SIG{_ASKS}"]


def _node(request: WorldRequest, tool: Tool, *, node_rank: int) -> Orders:
    is_torchrun = request.job.launch.launcher is Launcher.TORCHRUN
    own = request.job.stop.signal
    ranks = _torchrun if is_torchrun else _ranks
    return Orders(
        commands=tuple(ranks(request, tool, node_rank)),
        # TERM is what Slurm sends to all of a step that it preempts.
        hears=(StopSignal.TERM,),
        sends=own,
        is_shielded=own is not StopSignal.TERM,
        # torchrun itself would end its workers, and exit with an error.
        to_children=is_torchrun,
        heeds=str(_stop_path(request)),
    )


def _torchrun(request: WorldRequest, tool: Tool, node_rank: int) -> Iterator[Command]:
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
    argv = (tool.path, *words, *launch.options, "--no-python", *request.command)
    yield Command(argv, tuple(_brought(request).items()))


def _ranks(request: WorldRequest, tool: Tool, node_rank: int) -> Iterator[Command]:
    del tool  # the launch agent's srun is the one that is used
    count = request.job.launch.processes_per_node
    for local in range(count):
        rank = node_rank * count + local
        said = {
            "MASTER_ADDR": request.head.address,
            "MASTER_PORT": request.port,
            "RANK": rank,
            "LOCAL_RANK": local,
            "NODE_RANK": node_rank,
            "GROUP_RANK": node_rank,
            "WORLD_SIZE": request.processes,
            "LOCAL_WORLD_SIZE": count,
        }
        variables = _brought(request) | {k: str(v) for k, v in said.items()}
        yield Command(request.command, tuple(variables.items()), f"rank {rank}")


def _brought(request: WorldRequest) -> dict[str, str]:
    """Return the variables that an agent like ssh would not bring along."""
    return carried(request) if request.head.launch_agent else {}


def _stop_path(request: WorldRequest) -> Path:
    return request.world_folder / "stop"


def _orders_path(request: WorldRequest, name: str) -> Path:
    return request.world_folder / f"{name}.json"
