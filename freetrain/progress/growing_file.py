"""The bytes that a file grew by, however its owner treats it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Grown:
    """What was read.

    Attributes:
        piece: The new bytes; empty for none.
        is_new_file: Whether the file is another one than before, or was cut, so
            that *piece* begins at its start.
    """

    piece: bytes
    is_new_file: bool = False


@dataclass(slots=True)
class GrowingFile:
    """Reads on where it stopped. Nothing is held open between two reads.

    Anything that is no plain file has no bytes: opening a pipe could wait for ever.

    Attributes:
        path: Where it is.
        inode: Its number in its file system, None before the first read. Devices
            have other numbers on other hosts, so they do not count.
        offset: Where the next read begins.
    """

    path: Path
    inode: int | None = None
    offset: int = 0

    def grow(self, most_bytes: int) -> Grown:
        """Return what is there beyond the last read, *most_bytes* at the most.

        A file that is missing or cannot be read has nothing new.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return Grown(b"")
        try:
            return self._read(descriptor, most_bytes)
        except OSError:
            return Grown(b"")
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, most_bytes: int) -> Grown:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return Grown(b"")
        is_new = found.st_ino != self.inode or found.st_size < self.offset
        if is_new:
            self.inode, self.offset = found.st_ino, 0
        piece = os.pread(descriptor, most_bytes, self.offset)
        self.offset += len(piece)
        return Grown(piece, is_new)


def read_tail(path: Path, most_bytes: int) -> bytes:
    """Return the last *most_bytes* of a plain file, and b"" where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        start = max(0, found.st_size - most_bytes)
        return os.pread(descriptor, most_bytes, start)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
