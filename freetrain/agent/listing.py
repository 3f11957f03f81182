"""Names in folders, listed again only when a folder has changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class _Listed:
    names: frozenset[str]
    stamp: tuple[int, int, int]
    listed_s: float
    is_settled: bool


class Listing:
    """Lists folders.

    A folder is opened each time, which makes NFS ask the server, but read only if
    its time of change is a new one. Times are coarse, so a folder is read twice
    after a change, and once a second whatever its time says.
    """

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        """Take a clock that never goes back."""
        self._elapsed_s = elapsed_s
        self._known: dict[Path, _Listed] = {}

    def names(self, folder: Path) -> frozenset[str]:
        """Return the names in *folder*; none where it is missing.

        Raises:
            OSError: It cannot be listed.
        """
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._known.pop(folder, None)
            return frozenset()
        try:
            return self._names(folder, handle)
        finally:
            os.close(handle)

    def identity(self, folder: Path) -> int:
        """Return what tells the folder listed last from another of that name."""
        known = self._known.get(folder)
        return known.stamp[0] if known else 0

    def forget(self, folder: Path) -> None:
        """List *folder* anew next time: something was just created there."""
        self._known.pop(folder, None)

    def _names(self, folder: Path, handle: int) -> frozenset[str]:
        status = os.fstat(handle)
        stamp = (status.st_ino, status.st_mtime_ns, status.st_dev)
        now_s = self._elapsed_s()
        known = self._known.get(folder)
        is_same = known is not None and known.stamp == stamp
        if known and is_same and known.is_settled and now_s < known.listed_s + _AGAIN_S:
            return known.names
        names = frozenset(os.listdir(handle))
        self._known[folder] = _Listed(names, stamp, now_s, is_settled=is_same)
        return names
