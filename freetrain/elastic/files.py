"""Clocks, warnings, files that survive a crash, and the paths of a run directory.

The broker, agents and launchers use it too, so it needs no NumPy.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from freetrain.opening import NotPlainError, check_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks that the runtime reads, and its sleep.

    Attributes:
        unix_s: Seconds since 1970, for people and other machines.
        elapsed_s: Seconds that never run backwards, for intervals.
        sleep: Does nothing for so many seconds.
    """

    # A training program lives in real time: replay never runs this package.
    unix_s: Callable[[], float] = time.time  # noqa: TID251
    elapsed_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def warn(message: str) -> None:
    """Log a warning: what is wrong, and what follows from it.

    Without a handler of the program's own, logging writes warnings to stderr.
    """
    logging.getLogger("freetrain.elastic").warning("freetrain: %s", message)


@contextmanager
def replaced(
    target: Path, *, temporary: Path, mode: int = 0o666
) -> Iterator[IO[bytes]]:
    """Create *temporary* for writing; on a clean end it becomes *target*.

    The order is write, fsync, rename, fsync of the folder, so that a crash at
    any instruction leaves either the old content or the new. A file that a crash left
    at *temporary*, or that another user put there, is removed first.

    Args:
        target: The file.
        temporary: A name beside it that no other process uses.
        mode: Of the file, less what the umask takes away.

    Raises:
        OSError: Nothing was kept: *temporary* is removed, *target* untouched.
    """
    try:
        with os.fdopen(_created(temporary, mode), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(target.parent)


def _created(path: Path, mode: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
    return os.open(path, flags, mode)


def create_once(target: Path, content: bytes, *, mode: int = 0o666) -> bool:
    """Create *target* with *content*, whole, unless it is there already.

    Its *mode* is less what the umask takes away.

    By ``link``, which is atomic on NFS too: of several writers one wins. Where the
    answer to a link was lost and the client asked again, the server refuses it, as the
    name is there: then the number of links tells who made it.

    Returns:
        Whether this call created it.

    Raises:
        OSError: It could not be written.
    """
    # A name of its own: a killed writer's file may be a link to a target by now.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(8).hex()}")
    try:
        with os.fdopen(_created(temporary, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except OSError as error:
            if _count_links(temporary) == 1:
                if isinstance(error, FileExistsError):
                    return False
                raise
    finally:
        with suppress(OSError):
            temporary.unlink()
    sync_folder(target.parent)
    return True


def _count_links(path: Path) -> int:
    """Return how many names a file has; opened, so that NFS asks the server."""
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_nlink


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* survive a crash.

    Raises:
        OSError: The folder cannot be opened or synced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The run directory; docs/reference/run-directory.md describes it.

_NUMBER = re.compile(r"[0-9]{10}", re.ASCII)


def numbers_in(folder: Path) -> list[int]:
    """Return the generations that names in *folder* begin with; none where it misses.

    Raises:
        OSError: The folder cannot be listed.
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [int(found[0]) for name in names if (found := _NUMBER.match(name))]


_COMMITTED = re.compile(r"([0-9]{10})-([0-9]{15})\.npz", re.ASCII)


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint's file, which may be torn; its name is its generation and step."""

    path: Path
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class RunDir:
    """The folder that launcher and program share, on a file system all ranks see."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of committed states."""
        return self.path / "checkpoints"

    @property
    def generations(self) -> Path:
        """The folder whose file names are the generations that exist."""
        return self.path / "generations"

    @property
    def control(self) -> Path:
        """The folder of the launcher's requests, and of worlds that are ready."""
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
        """The file that is there once *generation* was started."""
        return self.generations / f"{generation:010d}.started"

    def stop_request(self, generation: int) -> Path:
        """The file that asks *generation* to commit and stop."""
        return self.control / f"{generation:010d}.stop"

    def ready(self, generation: int) -> Path:
        """The file that is there once *generation*, launched ahead, waits to begin."""
        return self.control / f"{generation:010d}.ready"

    def over(self, generation: int) -> Path:
        """The file that is there once *generation* is over, even without an outcome."""
        return self.control / f"{generation:010d}.over"

    def outcome(self, generation: int) -> Path:
        """The file that tells how *generation* ended."""
        return self.outcomes / f"{generation:010d}.json"

    def checkpoint(self, generation: int, step: int) -> Path:
        """The checkpoint that *generation* committed after *step* steps."""
        return self.checkpoints / f"{generation:010d}-{step:015d}.npz"

    def committed(self) -> tuple[Committed, ...]:
        """The checkpoints by generation and step, newest last.

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
        """Create the missing folders, open to their owner only.

        Raises:
            UnsafeFolderError: Another user could change what lies there.
            OSError: They cannot be created.
        """
        check_own(self.path)
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        folders = (self.checkpoints, self.generations, self.control, self.outcomes)
        for folder in folders:
            folder.mkdir(exist_ok=True, mode=0o700)
            if folder.is_symlink():
                raise NotPlainError(errno.ELOOP, "a link, and no folder", str(folder))

    def newest_generation(self) -> int:
        """The highest generation that exists; every earlier one is fenced. 0 for none.

        Raises:
            OSError: The folder cannot be listed, so that it is unknown.
        """
        return max(numbers_in(self.generations), default=0)

    def last_used(self) -> int:
        """The highest generation that any file names; 0 for none.

        A launch gets a higher number. Outcomes and checkpoints count too: a world that
        was launched ahead and failed leaves an outcome, and fences no other.

        Raises:
            OSError: A folder cannot be listed, so that it is unknown.
        """
        found = [self.newest_generation()]
        for folder in (self.outcomes, self.checkpoints):
            # A program that is not elastic may have a file of that name.
            with suppress(NotADirectoryError):
                found += numbers_in(folder)
        return max(found)
