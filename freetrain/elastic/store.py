"""The committed states of a run: the two newest, fenced by generation.

A checkpoint's name is its generation and its step, and is never used twice. So a
stale world, whose successor runs already, can at worst add a file that sorts below
every one of its successor's; it can replace and remove none of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.elastic.checkpoint import read_checkpoint, write_checkpoint
from freetrain.elastic.durable import create_once, replaced
from freetrain.elastic.errors import (
    CheckpointError,
    GenerationTakenError,
    LaunchError,
)
from freetrain.elastic.notice import warn

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic.checkpoint import Checkpoint
    from freetrain.elastic.run_dir import RunDir

_KEPT = 2


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint file that was read and found whole.

    Attributes:
        content: The file's bytes.
        checkpoint: What is in them.
    """

    content: bytes
    checkpoint: Checkpoint


class CheckpointStore:
    """Reads and commits the checkpoints of one run; used by rank 0 alone."""

    def __init__(self, run_dir: RunDir, *, generation: int) -> None:
        self._run_dir = run_dir
        self._generation = generation
        self._claimed = False
        self._unusable: set[Path] = set()

    def claim(self) -> None:
        """Start this generation: nobody else may, and no earlier one may commit.

        Raises:
            GenerationTakenError: It was started or has ended, or a later one exists.
            OSError: The run directory cannot be written; a commit will try again.
        """
        if self.is_superseded():
            raise self._taken("a later generation exists")
        if self._run_dir.outcome(self._generation).exists():
            raise self._taken("it has ended already")
        self._run_dir.create()
        claim = self._run_dir.claim(self._generation)
        if not create_once(claim, b""):
            raise self._taken("it was started before")
        self._claimed = True
        self._remove_left_overs()

    def is_superseded(self) -> bool:
        """Tell whether a later generation exists, so that this one may not commit.

        Raises:
            OSError: The folder of generations cannot be read.
        """
        return self._run_dir.newest_generation() > self._generation

    def commit(self, checkpoint: Checkpoint) -> bool:
        """Keep *checkpoint*, whole and durable, and remove all but the two newest.

        Returns:
            False where a later generation exists; nothing was written then.

        Raises:
            OSError: It could not be written; the older ones are untouched.
            StateError: The state cannot be kept.
            GenerationTakenError: The generation could not be claimed before now,
                and meanwhile another world has started it.
        """
        if self.is_superseded():
            return False
        if not self._claimed:
            self.claim()
        step = checkpoint.position.step
        path = self._run_dir.checkpoint(checkpoint.generation, step)
        with replaced(path, temporary=path.with_name(f".{path.name}.partial")) as file:
            write_checkpoint(checkpoint, file)
        self._prune()
        return True

    def newest(self) -> Restored | None:
        """The newest checkpoint that is whole; None where nothing was committed.

        A torn or corrupt one is reported and passed over.

        Raises:
            LaunchError: There are checkpoints, and not one of them can be used.
            OSError: The folder of checkpoints cannot be listed.
        """
        paths = self._list()
        for path in reversed(paths):
            try:
                content = path.read_bytes()
                return Restored(content, read_checkpoint(content))
            except (OSError, CheckpointError) as error:
                self._unusable.add(path)
                warn(
                    f"the checkpoint {path} is not used: {error}. The one before it "
                    f"is tried. Keep the file if you want to know why."
                )
        if paths:
            raise LaunchError(
                f"none of the {len(paths)} checkpoints in {self._run_dir.checkpoints} "
                f"can be used. Nothing was trained. Restore one from a backup, or move "
                f"them away to begin from the start."
            )
        return None

    def _list(self) -> list[Path]:
        return [one.path for one in self._run_dir.committed()]

    def _prune(self) -> None:
        # Files that could not be read do not count as kept, or they would push
        # out the only good one.
        good = [path for path in self._list() if path not in self._unusable]
        for path in good[:-_KEPT]:
            with suppress(OSError):
                path.unlink()

    def _remove_left_overs(self) -> None:
        """Remove what earlier generations left: half files and claims.

        The newest claim fences all earlier ones, so it is enough.
        """
        mine = f"{self._generation:010d}"
        half = self._run_dir.checkpoints.glob(".*.partial")
        claims = self._run_dir.generations.glob("*.started")
        for path in (*half, *claims):
            if path.name.lstrip(".") < mine:
                with suppress(OSError):
                    path.unlink()

    def _taken(self, why: str) -> GenerationTakenError:
        return GenerationTakenError(
            f"generation {self._generation} of {self._run_dir.path} cannot start: "
            f"{why}. Nothing was trained. Number every launch anew, or let the "
            f"program number itself by leaving FREETRAIN_GENERATION unset."
        )
