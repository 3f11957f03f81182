"""The files by which the kernel is told about control groups."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

_REMOVED_WITHIN_S = 2.0
_AGAIN_S = 0.02


class Folders(Protocol):
    """A tree of control groups. All methods raise OSError where the kernel would."""

    def make(self, path: Path) -> None:
        """Make a group."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a group without processes; waits a moment for the last to be gone."""
        ...

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names of the groups in a group."""
        ...

    def read(self, path: Path) -> str:
        """Return what a file says."""
        ...

    def write(self, path: Path, text: str) -> None:
        """Tell a file something."""
        ...


class KernelFolders:
    """The kernel's own."""

    def make(self, path: Path) -> None:
        """Make a group."""
        path.mkdir()

    def remove(self, path: Path) -> None:
        """Remove a group."""
        until_s = time.monotonic() + _REMOVED_WITHIN_S
        while True:
            try:
                path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                # A process that was killed is in its group until it is reaped.
                if time.monotonic() > until_s:
                    raise
                time.sleep(_AGAIN_S)
            else:
                return

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names of the groups in a group."""
        with os.scandir(path) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir()))

    def read(self, path: Path) -> str:
        """Return what a file says."""
        return path.read_text("utf-8")

    def write(self, path: Path, text: str) -> None:
        """Tell a file something, in one write."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def pids_in(folders: Folders, group: Path) -> tuple[int, ...]:
    """Return the processes of *group*; none where it is not there."""
    with suppress(OSError):
        return tuple(map(int, folders.read(group / "cgroup.procs").split()))
    return ()
