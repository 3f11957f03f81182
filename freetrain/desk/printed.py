"""What worlds and agents printed, read on as it grows, in the order of generations."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.exchange.assigned import generations, read_assigned
from freetrain.exchange.errors import UnreadableFileError
from freetrain.exchange.layout import lease_name
from freetrain.progress.growing_file import GrowingFile
from freetrain.progress.source import log_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.layout import StateDir, TrainerDir

_PIECE_BYTES = 1 << 16
_FOLLOWED = 8
"""Files of a follower that are looked at again; older ones have had their say."""


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A file that somebody prints to.

    Attributes:
        generation: Whose it is.
        title: What people call it.
        path: Where it is.
    """

    generation: int
    title: str
    path: Path


class _Feed:
    """One file, read on where it stopped; characters are never cut in two."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self) -> Iterator[str]:
        while piece := self._file.grow(_PIECE_BYTES).piece:
            yield self._decode(piece)
            if len(piece) < _PIECE_BYTES:
                break


class Follower:
    """Reads what files grew by; new ones are found as they appear."""

    def __init__(self, sources: Callable[[], Iterable[Source]]) -> None:
        """Take what lists the files; it is asked before each reading."""
        self._sources = sources
        self._feeds: dict[Source, _Feed] = {}
        self._is_first = True

    def read(self) -> Iterator[tuple[Source, str]]:
        """Yield what is new, file by file, the older generations first."""
        found = sorted(self._sources())
        for source in found if self._is_first else found[-_FOLLOWED:]:
            feed = self._feeds.setdefault(source, _Feed(source.path))
            for text in feed.read():
                yield source, text
        self._is_first = False


class WorldLogs:
    """Lists what the worlds of a trainer print to."""

    def __init__(
        self, folder: TrainerDir, logs: Path, *, generation: int | None = None
    ) -> None:
        """Take the trainer's folder and where its worlds print.

        Args:
            folder: The trainer's.
            logs: Where its worlds print.
            generation: Only this one's; None for all.
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
        """Return what people call it; said once, or pieces of it would not match."""
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
        generation: Which; None for the newest that runs, or ran, somewhere.
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
