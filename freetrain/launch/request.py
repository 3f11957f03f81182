"""What a builder of worlds works from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic import rank
from freetrain.exchange.layout import lease_name
from freetrain.launch.errors import CannotLaunchError
from freetrain.launch.places import log_of, run_dir_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.elastic.run_dir import RunDir
    from freetrain.exchange.assigned import Assigned, Member
    from freetrain.exchange.layout import TrainerDir
    from freetrain.jobfile.job import TrainerJob

_RANK = str(Path(rank.__file__).resolve())
# As Slurm's own NodeNames are; a host file, `srun -w` and `--host` would read more
# into a comma, a colon, a bracket or a leading dash.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNode:
    """What only the node knows whose agent launches.

    Attributes:
        environment: The agent's own variables.
        srun: Slurm's program, absolute.
        python: The interpreter that has FreeTrain, absolute.
        address: A name or number under which the other nodes reach this one.
        launch_agent: The site's own (``site.launch_agent``); None for ours.
    """

    environment: Mapping[str, str]
    srun: str
    python: str
    address: str
    launch_agent: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRequest:
    """One world that is to be started.

    Attributes:
        job: The trainer.
        assigned: Its generation.
        folder: The trainer's folder.
        environment: The variables of whoever submitted it.
        head: The node that launches.
        after: The generation that it waits for before it trains; None for none.
        is_forked: Whether every node of it has a spare. Where one has none the others
            would wait for it, and MPI waits by spinning.
        port: A TCP port of the head's node that nobody listens on, where ranks
            that bring their own rendezvous may meet.
    """

    job: TrainerJob
    assigned: Assigned
    folder: TrainerDir
    environment: Mapping[str, str]
    head: HeadNode
    after: int | None = None
    is_forked: bool = False
    port: int = 0

    @property
    def members(self) -> tuple[Member, ...]:
        """The generation's leases, the head first, fit to be launched on.

        Raises:
            CannotLaunchError: There is none, a node has two, or a name that no
                launcher would take for one node.
        """
        nodes = [member.node for member in self.assigned.members]
        for node in nodes:
            if _NODE.fullmatch(node) is None:
                raise self._refusal(f"{node[:80]!r} is no name of a node")
            if nodes.count(node) > 1:
                raise self._refusal(f"two of its leases are on node {node}")
        if not nodes:
            raise self._refusal("it has no lease")
        return self.assigned.members

    @property
    def hosts(self) -> tuple[str, ...]:
        """Its nodes, the head's first."""
        return tuple(member.node for member in self.members)

    @property
    def processes(self) -> int:
        """How many ranks it has."""
        return len(self.assigned.members) * self.job.launch.processes_per_node

    @property
    def command(self) -> tuple[str, ...]:
        """What is started as a rank: the program, or what asks a spare for it."""
        if not self.is_forked:
            return self.job.command
        return (self.head.python, "-I", "-S", _RANK, *self.job.command)

    @property
    def run_dir(self) -> RunDir:
        """The run directory."""
        return run_dir_of(self.job, self.folder)

    @property
    def stop_file(self) -> Path | None:
        """The control file; None for a program that does not look for one."""
        generation = self.assigned.generation
        return self.run_dir.stop_request(generation) if self.job.elastic else None

    @property
    def log(self) -> Path:
        """What its processes print."""
        return log_of(self.job, self.folder, self.assigned.generation)

    @property
    def world_folder(self) -> Path:
        """Where its files go."""
        return self.folder.world(self.assigned.generation)

    @property
    def agent_path(self) -> Path:
        """The launch agent: called like ssh, it starts a process on a node."""
        return self.world_folder / "agent"

    @property
    def node_path(self) -> Path:
        """What every process of the launch agent begins with, on its node."""
        return self.world_folder / "node"

    def marks(self, member: Member) -> dict[str, str]:
        """Return the variables by which agents know what to sweep."""
        world = f"{self.assigned.trainer}/{self.assigned.generation}"
        return {LEASE_MARK: lease_name(member.key), WORLD_MARK: world}

    def _refusal(self, why: str) -> CannotLaunchError:
        return CannotLaunchError(
            f"generation {self.assigned.generation} of {self.assigned.trainer} cannot "
            f"be launched: {why}. Nothing of it was started; the next generation may "
            f"have other nodes."
        )


LEASE_MARK = "FREETRAIN_LEASE"
"""Names the lease that a process belongs to, ``UUID-TASK``."""

WORLD_MARK = "FREETRAIN_WORLD"
"""Names the generation that a process belongs to, ``TRAINER/G``."""
