"""Starts worlds from this node, for real; a ``freetrain.launch.world.Launcher``."""

from __future__ import annotations

import shutil
import socket
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.exchange.environment import read_environment
from freetrain.launch.build import plan_world
from freetrain.launch.environment import launcher_environment
from freetrain.launch.find_tool import find_tool
from freetrain.launch.port import free_port
from freetrain.launch.request import WORLD_MARK, HeadNode, WorldRequest
from freetrain.launch.session import start
from freetrain.launch.spare import plan_spare

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.layout import StateDir, TrainerDir
    from freetrain.jobfile.job import TrainerJob
    from freetrain.launch.session import Session

# How srun, which runs on the lease's own node, was reached from there: an address
# that every node of the cluster can use, whatever resolves names.
_ADDRESS = "SLURM_LAUNCH_NODE_IPADDR"


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts worlds whose head is this node.

    Attributes:
        state: The state directory.
        head: This node.
        rng: What ports are drawn with.
    """

    state: StateDir
    head: HeadNode
    rng: Random

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None = None,
        is_forked: bool = False,
    ) -> Session:
        """Start the world of *assigned*; returns as soon as its launcher runs.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            UnreadableFileError: The submitter's variables cannot be read.
            OSError: A file of it could not be written.
        """
        request = self._request(job, assigned)
        port = free_port(self.rng)
        request = replace(request, after=after, is_forked=is_forked, port=port)
        tool = find_tool(job, launcher_environment(request), head=self.head)
        mark = request.marks(request.members[0])[WORLD_MARK]
        return start(plan_world(request, tool), mark=f"{WORLD_MARK}={mark}")

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> Session:
        """Start a spare on this node, that of *lease*.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            UnreadableFileError: The submitter's variables cannot be read.
            OSError: A file of it could not be written.
        """
        plan = plan_spare(
            self._request(job, assigned), lease, log=self.state.lease(lease).spare_log
        )
        return start(plan, mark=f"{WORLD_MARK}={plan.environment[WORLD_MARK]}")

    def _request(self, job: TrainerJob, assigned: Assigned) -> WorldRequest:
        folder = self.state.trainer(assigned.trainer)
        return WorldRequest(
            job=job,
            assigned=assigned,
            folder=folder,
            environment=_submitters(folder, self.head.environment),
            head=self.head,
        )


def this_node(
    environment: Mapping[str, str], *, launch_agent: Path | None = None
) -> HeadNode:
    """Return what this node has, for an agent with the variables *environment*."""
    return HeadNode(
        environment=dict(environment),
        srun=shutil.which("srun", path=environment.get("PATH")) or "",
        python=sys.executable,
        address=environment.get(_ADDRESS) or socket.gethostname(),
        launch_agent=launch_agent,
    )


def _submitters(folder: TrainerDir, otherwise: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return read_environment(folder)
    except FileNotFoundError:
        return otherwise
