"""Worlds that a command of the user's starts."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from freetrain.launch.plan import PlannedFile

if TYPE_CHECKING:
    from freetrain.launch.request import WorldRequest


def custom_argv(request: WorldRequest) -> tuple[str, ...]:
    """Return the command of the job file with its placeholders filled in."""
    values = {
        "hostfile": str(custom_hostfile(request).path),
        "hosts": ",".join(request.hosts),
        "nodes": str(len(request.hosts)),
        "processes": str(request.processes),
        "agent": str(request.agent_path),
    }
    words = (word.format_map(values) for word in request.job.launch.command)
    return (*words, *request.command)


def custom_hostfile(request: WorldRequest) -> PlannedFile:
    """Return the file with a host a line."""
    lines = "".join(f"{host}\n" for host in request.hosts)
    return PlannedFile(request.world_folder / "hosts", lines)


def custom_signal(request: WorldRequest) -> Signals | None:
    """Return what asks the command; nobody knows what it would make of it.

    So a program that looks for its control file is asked by that alone.
    """
    return None if request.job.elastic else Signals[f"SIG{request.job.stop.signal}"]
