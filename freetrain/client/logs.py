"""What worlds and agents printed, in the order of generations, read on as it grows."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.progress import GrowingFile, log_files
from freetrain.state.files import (
    UnreadableFileError,
    generations,
    lease_name,
    read_assigned,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from freetrain.state.files import Assigned, StateDir, TrainerDir

_PIECE_BYTES = 1 << 16
_FOLLOWED = 8
"""A follower reads its last files again; older ones are complete."""


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A file that a world or an agent prints to, and its title for people."""

    generation: int
    title: str
    path: Path


class _Feed:
    """One file, read on from where reading stopped; characters are never cut in two."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self) -> Iterator[str]:
        while piece := self._file.grow(_PIECE_BYTES)[0]:
            yield self._decode(piece)
            if len(piece) < _PIECE_BYTES:
                break


class Follower:
    """Reads what was added to files; new files are found as they appear."""

    def __init__(self, sources: Callable[[], Iterable[Source]]) -> None:
        """Take the function that lists the files; it is called before each reading."""
        self._sources = sources
        self._feeds: dict[Source, _Feed] = {}
        self._is_first = True

    def read(self) -> Iterator[tuple[Source, str]]:
        """Yield the new text, file by file, the older generations first."""
        found = sorted(self._sources())
        for source in found if self._is_first else found[-_FOLLOWED:]:
            feed = self._feeds.setdefault(source, _Feed(source.path))
            for text in feed.read():
                yield source, text
        self._is_first = False


class WorldLogs:
    """Lists the files that the worlds of a trainer print to."""

    def __init__(
        self, folder: TrainerDir, logs: Path, *, generation: int | None = None
    ) -> None:
        """Take the trainer's folder and where its worlds print.

        Args:
            folder: The trainer's.
            logs: Where its worlds print.
            generation: Only that of this generation; None for all.
        """
        self._folder = folder
        self._logs = logs
        self._generation = generation
        self._titles: dict[int, str] = {}

    def __call__(self) -> list[Source]:
        """Return the files that there are now."""
        wanted = self._generation
        return [
            Source(number, self._title(number), path)
            for number, path in log_files(self._logs)
            if wanted is None or number == wanted
        ]

    def _title(self, generation: int) -> str:
        """Return the title of a world; kept, so that pieces of one log match."""
        if generation not in self._titles:
            self._titles[generation] = _world_title(self._folder, generation)
        return self._titles[generation]


def agent_sources(
    state: StateDir, folder: TrainerDir, *, generation: int | None = None
) -> list[Source]:
    """Return the logs of the agents of one generation.

    Args:
        state: The state directory.
        folder: The trainer's.
        generation: None for the newest that runs, or ran, somewhere.
    """
    assigned = _assigned(folder, generation)
    if assigned is None:
        return []
    return [
        Source(
            assigned.generation,
            f"agent on {member.node} ({lease_name(member.key)})",
            state.lease(member.key).log,
        )
        for member in assigned.members
    ]


def check_generation(folder: TrainerDir, generation: int) -> None:
    """Refuse a generation that a trainer never had.

    Raises:
        UsageError: It had none of that number.
        OSError: The folder cannot be read.
    """
    known = generations(folder.assignments)
    if generation not in known:
        newest = f"the newest is {known[-1]}" if known else "there is none so far"
        raise UsageError(
            f"{folder.path.name} has no generation {generation}; {newest}. Nothing "
            f"was shown."
        )


def _world_title(folder: TrainerDir, generation: int) -> str:
    try:
        members = read_assigned(folder, generation).members
    except (OSError, UnreadableFileError):
        members = ()
    where = ", ".join(member.node for member in members)
    named = f"{folder.path.name}, generation {generation}"
    return f"{named} on {where}" if where else named


def _assigned(folder: TrainerDir, generation: int | None) -> Assigned | None:
    if generation is not None:
        return read_assigned(folder, generation)
    for number in reversed(generations(folder.assignments)):
        found = read_assigned(folder, number)
        if found.members:
            return found
    return None
