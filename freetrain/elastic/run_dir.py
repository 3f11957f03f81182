"""Where things are in a run directory; docs/training-program.md is the contract."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_COMMITTED = re.compile(r"([0-9]{10})-([0-9]{15})\.npz", re.ASCII)


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint's file, which may be torn.

    Attributes:
        path: Where it is; its name is its generation and its step.
        generation: The generation that committed it.
        step: Steps done when it was committed.
    """

    path: Path
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class RunDir:
    """The folder that launcher and program share, on a file system all ranks see.

    Attributes:
        path: The folder itself.
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of committed states."""
        return self.path / "checkpoints"

    @property
    def generations(self) -> Path:
        """The folder whose file names say which generations exist."""
        return self.path / "generations"

    @property
    def control(self) -> Path:
        """The folder in which the launcher asks for things."""
        return self.path / "control"

    @property
    def outcomes(self) -> Path:
        """The folder with one outcome file per generation."""
        return self.path / "outcomes"

    @property
    def progress(self) -> Path:
        """The file of progress lines."""
        return self.path / "progress.jsonl"

    def claim(self, generation: int) -> Path:
        """The file that says that *generation* was started."""
        return self.generations / f"{generation:010d}.started"

    def stop_request(self, generation: int) -> Path:
        """The file whose being there asks *generation* to commit and stop."""
        return self.control / f"{generation:010d}.stop"

    def ready(self, generation: int) -> Path:
        """The file that says that *generation*, launched ahead, waits to begin."""
        return self.control / f"{generation:010d}.ready"

    def over(self, generation: int) -> Path:
        """The file that says that *generation* is over, word left of it or not."""
        return self.control / f"{generation:010d}.over"

    def outcome(self, generation: int) -> Path:
        """The file that says how *generation* ended."""
        return self.outcomes / f"{generation:010d}.json"

    def checkpoint(self, generation: int, step: int) -> Path:
        """The file of what *generation* committed after *step* steps."""
        return self.checkpoints / f"{generation:010d}-{step:015d}.npz"

    def committed(self) -> tuple[Committed, ...]:
        """The checkpoints that there are, by generation and step, newest last.

        Raises:
            OSError: The folder cannot be listed.
        """
        try:
            paths = sorted(self.checkpoints.iterdir())
        except FileNotFoundError:
            return ()
        named = ((path, _COMMITTED.fullmatch(path.name)) for path in paths)
        return tuple(
            Committed(path, int(name[1]), int(name[2])) for path, name in named if name
        )

    def create(self) -> None:
        """Create what is missing of the folders, open to their owner only.

        Raises:
            OSError: They cannot be created.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        folders = (self.checkpoints, self.generations, self.control, self.outcomes)
        for folder in folders:
            folder.mkdir(exist_ok=True, mode=0o700)

    def newest_generation(self) -> int:
        """The highest generation that any file names; 0 where there is none.

        Raises:
            OSError: The folder cannot be listed, so nobody knows.
        """
        try:
            names = [entry.name for entry in self.generations.iterdir()]
        except FileNotFoundError:
            return 0
        found = (re.match(r"[0-9]{10}", name) for name in names)
        return max((int(match[0]) for match in found if match), default=0)
