"""The state directory: ours, and nobody else's."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from freetrain.store.errors import StoreUnsafeError, StoreUnwritableError

if TYPE_CHECKING:
    from pathlib import Path

DATABASE = "state.sqlite"
LOCK = "tick.lock"


def prepare_directory(path: Path, *, uid: int) -> None:
    """Create *path*, or check that it and all in it is safe to use.

    Args:
        path: The state directory.
        uid: Our own user number.

    Raises:
        StoreUnsafeError: It, or a file in it, belongs to another user, is open to
            others, or is a link.
        StoreUnwritableError: It cannot be created or read.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise StoreUnsafeError(
            f"{path} is not a directory. Nothing was changed; name another place "
            f"for the state."
        ) from error
    except OSError as error:
        raise _unusable(path, error) from error
    check_directory(path, uid=uid)


def check_directory(path: Path, *, uid: int) -> None:
    """Check that *path*, which is there, and all in it is safe to use.

    Raises:
        StoreError: As ``prepare_directory``.
    """
    try:
        _check_directory(path, uid)
        for entry in path.iterdir():
            _check_owner(entry, uid)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> StoreUnwritableError:
    return StoreUnwritableError(
        f"cannot use the state directory {path}: {error.strerror}. Nothing was "
        f"changed; make it readable and writable for you, or name another."
    )


def _check_directory(path: Path, uid: int) -> None:
    _check_owner(path, uid)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise StoreUnsafeError(
            f"others can reach into the state directory {path} (mode {mode:04o}). "
            f"Nothing was read or changed; run `chmod 700` on it."
        )


def _check_owner(path: Path, uid: int) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:  # SQLite removes its side files when it closes
        return
    if found.st_uid != uid or stat.S_ISLNK(found.st_mode):
        what = "is a link" if stat.S_ISLNK(found.st_mode) else "is another user's"
        raise StoreUnsafeError(
            f"{path} {what}. Nothing was read or changed; remove it, or name another "
            f"state directory."
        )


def create_private(path: Path) -> None:
    """Create *path* empty and closed to others, if it is not there.

    Raises:
        StoreUnwritableError: It cannot be created.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError as error:
        raise StoreUnwritableError(
            f"cannot write {path}: {error.strerror}. Nothing was changed; make room, "
            f"or make the state directory writable."
        ) from error
