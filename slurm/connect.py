"""Connecting to Slurm in the best way that is here."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm.command_line import CommandLine
from slurm.pyslurm import Pyslurm, Requests

if TYPE_CHECKING:
    from types import ModuleType

    from slurm.backend import SlurmBackend
    from slurm.command_line import Runner
    from slurm.config import Release


# ----------------------------------------------------------------------
# Which back end answers: pyslurm where one matches this Slurm, else its programs.

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_OLDEST = (22, 5, 2)
"""Before it there were no Jobs, Nodes and JobSubmitDescription."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which back end to use, and why.

    Attributes:
        pyslurm: The module to use; None for the command line.
        reason: Why, for people.
    """

    pyslurm: ModuleType | None
    reason: str

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "command line" if self.pyslurm is None else "pyslurm"


def choose(release: Release, *, is_allowed: bool = True) -> Choice:
    """Return what to ask a Slurm of *release* with.

    Args:
        release: Slurm's own release.
        is_allowed: False where the user wants the command line whatever there is.
    """
    if not is_allowed:
        return Choice(None, "pyslurm is switched off")
    if importlib.util.find_spec("pyslurm") is None:
        return Choice(None, "pyslurm is not installed, and not needed")
    try:
        module = importlib.import_module("pyslurm")
    except Exception as error:  # noqa: BLE001 -- a broken build raises anything
        return Choice(None, f"pyslurm cannot be imported: {error}")
    return fitting(module, release)


def fitting(module: ModuleType, release: Release) -> Choice:
    """Return whether *module*, an imported pyslurm, fits *release*."""
    version = str(getattr(module, "__version__", ""))
    found = _VERSION.match(version)
    if found is None:
        return Choice(None, f"pyslurm does not tell a version ({version[:20]!r})")
    built = tuple(map(int, found.groups()))
    if built[:2] != release.series:
        why = f"pyslurm {version} is not for Slurm {release}: both must agree in X.Y"
        return Choice(None, why)
    if built < _OLDEST:
        return Choice(None, f"pyslurm {version} is older than 22.5.2")
    return Choice(module, f"pyslurm {version} matches Slurm {release}")


# ----------------------------------------------------------------------
# Connecting to Slurm in the best way that is here.


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
