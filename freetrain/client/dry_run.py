"""What a submitted trainer would run: Slurm's command, the lease script, the world."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import Intent, LeaseKey
from freetrain.config.site import requirement_of
from freetrain.errors import BadConfigurationError
from freetrain.launch.base import plan_world
from freetrain.launch.local import find_tool
from freetrain.launch.request import CannotLaunchError, HeadNode, WorldRequest
from freetrain.state.files import USER, Assigned, Member, StateDir
from freetrain.tick.lease_job import lease_script, request_for
from slurm.batch import sbatch_argv

if TYPE_CHECKING:
    from freetrain.client.submit import Submission
    from freetrain.config.site import Site
    from freetrain.launch.request import WorldPlan
    from freetrain.tick.environment import Environment

UUID = "UUID"
"""Stands for the name that a tick gives each submission."""

DEFAULT_PARTITION = "DEFAULT-PARTITION"
"""Stands for the cluster's default partition, which only Slurm knows."""

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would be run.

    Attributes:
        sbatch: The command that would ask for a lease of the shortest length.
        script: The lease's batch script.
        world: How a world of the fewest nodes would be started; None where it
            cannot be.
        problem: Why it cannot, else empty.
    """

    sbatch: tuple[str, ...]
    script: str
    world: WorldPlan | None
    problem: str = ""


def preview_of(submission: Submission, site: Site, environment: Environment) -> Preview:
    """Return what would be run for *submission*; the launcher's version is asked.

    Raises:
        BadConfigurationError: A path or a value that no script, or Slurm, can take.
    """
    script = lease_script(environment, site)
    asked = _lease_argv(submission, site)
    try:
        world = _world(submission, site, environment)
    except CannotLaunchError as error:
        return Preview(sbatch=asked, script=script, world=None, problem=str(error))
    return Preview(sbatch=asked, script=script, world=world)


def _lease_argv(submission: Submission, site: Site) -> tuple[str, ...]:
    limit_min = math.ceil(site.lease.shortest_s / _MINUTE_S)
    intent = Intent(
        uuid=UUID,
        shape="",
        limit_min=limit_min,
        deadline_s=submission.now_s + limit_min * _MINUTE_S,
        tasks=1,
        created_s=submission.now_s,
    )
    asked = requirement_of(
        submission.job.nodes, site.lease, default_partition=DEFAULT_PARTITION
    )
    state = StateDir(site.state_directory)
    try:
        return tuple(sbatch_argv(request_for(site, state, intent, asked, grace_s=0.0)))
    except ValueError as error:
        raise BadConfigurationError(
            f"no lease could be asked for: {error}. Shorten or correct it in "
            f"freetrain.toml."
        ) from error


def _world(submission: Submission, site: Site, environment: Environment) -> WorldPlan:
    job = submission.job
    head = HeadNode(
        environment={"PATH": environment.path},
        srun="srun",
        python=environment.python,
        address="node1",
        launch_agent=site.launch_agent,
    )
    request = WorldRequest(
        job=job,
        assigned=_assigned(job.name, job.nodes.sizes[0], submission.now_s),
        folder=StateDir(site.state_directory).trainer(job.name),
        environment=submission.environment,
        head=head,
    )
    return plan_world(request, find_tool(request))


def _assigned(trainer: str, nodes: int, now_s: float) -> Assigned:
    members = tuple(
        Member(key=LeaseKey(UUID, n), job_id=n, display_id=str(n), node=f"node{n}")
        for n in range(1, nodes + 1)
    )
    return Assigned(
        trainer=trainer,
        generation=1,
        members=members,
        created_s=now_s,
        author=USER,
        reason="a dry run",
    )
