"""What is going to be run for a world: the answer of every builder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from signal import Signals


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
        log: What all it prints is appended to.
        files: What must be there before.
        stop_signal: What asks it to stop; None where the launcher would take the
            signal for itself, and end the world.
        stop_file: Whose being there asks it to stop; None where nobody looks.
        has_group: Whether the signal is for all that it starts, too, and not only for
            the launcher: a program may be a script around another.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    log: Path
    files: tuple[PlannedFile, ...] = ()
    stop_signal: Signals | None = None
    stop_file: Path | None = None
    has_group: bool = False
