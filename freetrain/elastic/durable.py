"""Files that are there whole after a crash, or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replaced(target: Path, *, temporary: Path) -> Iterator[IO[bytes]]:
    """Open *temporary* for writing; on a clean end it becomes *target*.

    The order is write, fsync, rename, fsync of the folder, so that a crash at
    any instruction leaves either the old content or the new.

    Raises:
        OSError: Nothing was kept: *temporary* is removed, *target* untouched.
    """
    try:
        with temporary.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(target.parent)


def create_once(target: Path, content: bytes) -> bool:
    """Create *target* with *content*, whole, unless it is there already.

    By ``link``, which is atomic on NFS too: of several writers one wins.

    Returns:
        Whether this call created it.

    Raises:
        OSError: It could not be written.
    """
    temporary = target.with_name(f".{target.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            temporary.unlink()
    sync_folder(target.parent)
    return True


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
