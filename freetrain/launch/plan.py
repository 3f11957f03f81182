"""What is going to be run for a world: the answer of every builder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that the launcher needs.

    Attributes:
        path: Where.
        content: What is in it.
        mode: Its permissions.
    """

    path: Path
    content: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """How one world is started: everything, so that it can be shown before.

    Attributes:
        argv: The launcher and its words; no shell sees them.
        environment: All variables of the launcher; nothing is inherited.
        directory: Where it starts.
        files: What must be there before.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    files: tuple[PlannedFile, ...] = ()
