"""Worlds that are packs: several small trainers, which share the node of one lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.launch.request import WorldRequest


def pack_argv(request: WorldRequest) -> tuple[str, ...]:
    """Return the command that runs the pack of a job file.

    It is FreeTrain's own program, so its Python is the agent's, whatever the
    submitter's variables (``-E``) and the job's directory (``-P``) hold for members.
    """
    pack = str(request.job.launch.pack)
    return (request.head.python, "-E", "-P", "-m", "freetrain.pack", pack)
