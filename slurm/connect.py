"""Connecting to Slurm in the best way that is here."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from slurm.choose import choose
from slurm.command_line import CommandLine
from slurm.pyslurm_backend import Pyslurm
from slurm.pyslurm_requests import Requests

if TYPE_CHECKING:
    from slurm.backend import SlurmBackend
    from slurm.runner import Runner


def connect(
    runner: Runner,
    *,
    user: str,
    max_requests: int | None = None,
    allow_pyslurm: bool = True,
) -> SlurmBackend:
    """Return pyslurm where one matches this Slurm, else the command line.

    Where any pyslurm is installed this asks Slurm's programs for their release, which
    counts as the first request.

    Args:
        runner: Runs Slurm's programs.
        user: Our own user name.
        max_requests: Requests after which no more are made, None for no cap.
        allow_pyslurm: False for the command line whatever there is.

    Raises:
        SlurmError: A pyslurm is installed, and the release was not told.
    """
    programs = CommandLine(runner, user=user, max_requests=max_requests)
    if not allow_pyslurm or importlib.util.find_spec("pyslurm") is None:
        return programs
    choice = choose(programs.release())
    if choice.pyslurm is None:
        return programs
    requests = Requests(max_requests, made=programs.requests)
    return Pyslurm(choice.pyslurm, runner, user=user, requests=requests)
