"""How the process is started of which the next ranks of a node are forked."""

from __future__ import annotations

from signal import SIGTERM
from typing import TYPE_CHECKING

from freetrain.elastic.launch import SPARE
from freetrain.exchange.layout import lease_name
from freetrain.launch.environment import launcher_environment
from freetrain.launch.plan import WorldPlan
from freetrain.launch.request import LEASE_MARK, WORLD_MARK

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey
    from freetrain.launch.request import WorldRequest

# Of no generation itself; those of its ranks are written over it, and need the room.
_NO_GENERATION = "0000000000"


def plan_spare(request: WorldRequest, lease: LeaseKey, *, log: Path) -> WorldPlan:
    """Return how a spare is started: the program itself, which waits where it joins.

    Args:
        request: A world of the trainer.
        lease: That of the node.
        log: What it prints before it joins is appended to.
    """
    own = {
        LEASE_MARK: lease_name(lease),
        WORLD_MARK: f"{request.assigned.trainer}/{_NO_GENERATION}",
        SPARE: "1",
    }
    return WorldPlan(
        argv=request.job.command,
        environment=launcher_environment(request) | own,
        directory=request.job.directory,
        log=log,
        stop_signal=SIGTERM,
        has_group=True,
    )
