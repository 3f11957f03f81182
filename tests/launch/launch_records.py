"""Trainers, generations and nodes for tests of launchers; the end of their worlds."""

import time
from pathlib import Path
from typing import Any

from freetrain.broker.lease import LeaseKey
from freetrain.config.job import LaunchSettings, NodeSettings, StopSettings, TrainerJob
from freetrain.launch.base import HeadNode, WorldRequest
from freetrain.launch.local import Session
from freetrain.state.files import TrainerDir
from tests.state.endings import a_lease, an_assignment

FOLDER = Path("/state/trainers/digits")
PACK = Path("/home/ada/$(touch x); *")


def job(launcher: str = "mpirun", **changes: Any) -> TrainerJob:  # noqa: ANN401
    """A job file with *changes*: its keys, those of [launch], ``via``, ``signal``."""
    if "via" in changes:
        changes["command_"] = changes.pop("via")
    if "signal" in changes:
        changes["stop"] = StopSettings(signal=changes.pop("signal"))
    if launcher == "pack":
        small = {"command": (), "nodes": NodeSettings(max_nodes=1), "pack": PACK}
        changes = small | changes
    keys = (
        "processes_per_node",
        "threads",
        "executable",
        "options",
        "pack",
        "command_",
    )
    of_launch = {k.rstrip("_"): changes.pop(k) for k in keys if k in changes}
    fields: dict[str, Any] = {
        "name": "digits",
        "command": ("python", "train.py", "$(touch x); *"),
        "directory": Path("/home/ada/a b"),
        "nodes": NodeSettings(max_nodes=8),
        "launch": LaunchSettings(launcher=launcher, **of_launch),
    }
    return TrainerJob(**(fields | changes))


def request(  # noqa: PLR0913  # all of them have defaults
    a_job: TrainerJob | None = None,
    *,
    nodes: tuple[str, ...] = ("n1", "n2", "n3"),
    environment: dict[str, str] | None = None,
    folder: Path = FOLDER,
    after: int | None = None,
    is_forked: bool = False,
    environment_: dict[str, str] | None = None,
    **head: Any,  # noqa: ANN401
) -> WorldRequest:
    members = (
        a_lease(LeaseKey(f"uuid-{node}", nodes[:place].count(node)), node, 41 + place)
        for place, node in enumerate(nodes)
    )
    of_head: dict[str, Any] = {
        "environment": environment_ or {"PATH": "/bin"},
        "srun": "/opt/slurm/bin/srun",
        "python": "/venv/bin/python",
        "address": "10.0.0.1",
    }
    return WorldRequest(
        job=a_job or job(),
        assigned=an_assignment(3, *members, trainer="digits"),
        folder=TrainerDir(folder),
        environment=environment if environment is not None else {"PATH": "/usr/bin"},
        head=HeadNode(**(of_head | head)),
        after=after,
        is_forked=is_forked,
        port=20_123,
    )


PATIENCE_S = 60.0


def wait(world: Session) -> int:
    """Return how *world* ended, once it has."""
    end_s = time.monotonic() + PATIENCE_S
    while (status := world.poll()) is None:
        assert time.monotonic() < end_s
        time.sleep(0.005)
    return status
