"""Where a pack's members come from: a list, and a folder that is looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from freetrain.errors import BadConfigurationError, FreeTrainError
from freetrain.jobfile.file import read_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob
    from freetrain.pack.pack import Pack


class Intake(Protocol):
    """Says who wants to be a member."""

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return those that came since the last call, each name once and for all."""
        ...


class Files:
    """Job files: those that the pack names, and what appears in its inbox."""

    def __init__(
        self, pack: Pack, *, home: Path | None, say: Callable[[str], None]
    ) -> None:
        """Read the job files that the pack names.

        Args:
            pack: The pack.
            home: What ``~`` stands for.
            say: Where to complain about files of the inbox.

        Raises:
            FreeTrainError: One of them is no job file, or no trainer for a pack.
        """
        self._home = home
        self._say = say
        self._inbox = pack.inbox
        self._known: dict[str, Path] = {}
        self._taken: dict[Path, str] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._first = tuple(self._read(path) for path in pack.members)

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return those that the pack names, once, and what is new in the inbox."""
        first, self._first = self._first, ()
        return (*first, *self._new())

    def _new(self) -> Iterator[TrainerJob]:
        for path in self._listed():
            try:
                found = path.stat()
                version = (found.st_mtime_ns, found.st_size)
                if self._seen.get(path) == version:
                    continue
                self._seen[path] = version
                if path not in self._known.values():
                    yield self._read(path)
            except (FreeTrainError, OSError) as error:
                # A file that is still being written is looked at again.
                self._say(str(error))

    def _listed(self) -> list[Path]:
        if self._inbox is None:
            return []
        try:
            return sorted(p for p in self._inbox.iterdir() if p.suffix == ".toml")
        except OSError:
            return []

    def _read(self, path: Path) -> TrainerJob:
        job = read_job(path, home=self._home)
        why = _unfit(job)
        if not why and job.name in self._known:
            why = f"{self._known[job.name]} has a trainer {job.name!r} already"
        why = why or self._where_shared(job)
        if why:
            raise BadConfigurationError(
                f"{path}: {why}. It was not started; give the pack another job file."
            )
        self._known[job.name] = path
        self._taken |= dict.fromkeys(_places(job), job.name)
        return job

    def _where_shared(self, job: TrainerJob) -> str:
        """Return what *job* would share with another member, empty for nothing."""
        for place in _places(job):
            if place in self._taken:
                return f"the trainer {self._taken[place]!r} has {place} already"
        return ""


def _places(job: TrainerJob) -> tuple[Path, ...]:
    named = (job.checkpoint.path, job.logs)
    return tuple(path.resolve() for path in named if path is not None)


def _unfit(job: TrainerJob) -> str:
    if job.launch.pack is not None:
        return "this is a pack, and packs are no members of packs"
    if job.nodes.min_nodes > 1:
        return f"the trainer needs {job.nodes.min_nodes} nodes, and a pack has one"
    if job.launch.processes_per_node > 1:
        return "members of a pack are one process each, and processes_per_node is more"
    return ""
