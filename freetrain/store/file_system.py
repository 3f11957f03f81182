"""Whether a folder is on a file system of this machine alone."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

_LOCAL = frozenset(
    {
        *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay"),
        *("ramfs", "reiserfs", "tmpfs", "xfs", "zfs"),
    }
)
"""What is known to be local; all others might be shared, or lie about locks."""

_ESCAPE = re.compile(r"\\([0-7]{3})", re.ASCII)


def is_local(folder: Path, *, mounts: str) -> bool:
    """Tell whether *folder* is certainly on a local file system.

    Args:
        folder: An absolute path without links, there or not.
        mounts: What ``/proc/self/mountinfo`` says, empty for nothing.
    """
    kinds = dict(_mounted(mounts))  # of two mounts on one place the later counts
    for place in (folder, *folder.parents):
        if str(place) in kinds:
            return kinds[str(place)] in _LOCAL
    return False


def read_mounts(path: Path = MOUNTS) -> str:
    """Return what the kernel says is mounted; nothing where it does not say."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _mounted(mounts: str) -> list[tuple[str, str]]:
    """Return mount points and kinds, as proc(5) describes the lines."""
    found = []
    for line in mounts.splitlines():
        before, mark, after = line.partition(" - ")
        words, kind = before.split(" "), after.split(" ")[0]
        if mark and len(words) > _POINT:
            found.append((_ESCAPE.sub(_character, words[_POINT]), kind))
    return found


_POINT = 4
"""Place of the mount point in a line."""


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 8))
