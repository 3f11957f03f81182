"""Opening files in folders where other users may have put something.

A name in such a folder may be a link to a file of the user's own, a pipe on which
opening waits for ever, or a file of another user. ``open_plain`` opens plain files
alone, and never waits. ``why_unsafe`` says whether other users could change what lies
in a folder at any time; such a folder is refused whole (``check_own``), since a file
that is checked can be exchanged after.

Links: FreeTrain makes none, so it follows none where it names the file itself. A path
that the user named may lead over links, as to scratch. Those are followed that the
kernel follows with ``fs.protected_symlinks``: a link in a folder that all may write to
must belong to the user or to root, and the folder must be sticky (``lead_of``).

Folders that a group may write to are let through: projects of several people share
them, and members of a group trust each other. FreeTrain's own subfolders
are for their owner alone.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import NoReturn

MOST_JSON_BYTES = 1 << 24
"""Largest file of JSON that is read; those of 1,000 leases have 0.5 MB."""


class UnsafeFolderError(OSError):
    """Other users could change what lies in a folder."""


class NotPlainError(OSError):
    """A pipe, device, folder or link is where a plain file was expected."""


class PlantedLinkError(OSError):
    """A link is on the way that another user could have made."""


def open_plain(
    path: Path, flags: int = os.O_RDONLY, *, mode: int = 0o600, follows: bool = False
) -> int:
    """Open the plain file at *path*, and return its descriptor.

    Args:
        path: The file.
        flags: As for ``os.open``.
        mode: Of a file that is created.
        follows: Whether *path* may lead over links: where its user named it.

    Raises:
        PlantedLinkError: Another user could have made a link on the way.
        OSError: It cannot be opened, or is no plain file.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(lead_of(path) if follows else path, flags, mode)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link; a pipe or a socket
            raise NotPlainError(error.errno, "not a plain file", str(path)) from error
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        why = os.strerror(errno.EISDIR) if kind == stat.S_IFDIR else "not a plain file"
        raise NotPlainError(errno.EINVAL, why, str(path))
    return descriptor


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return the content of the plain file at *path*.

    Raises:
        ValueError: It is larger than *most_bytes*.
        OSError: It cannot be read, or is no plain file.
    """
    content, _ = read_with_status(path, most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    return content


def read_with_status(
    path: Path, most_bytes: int, *, follows: bool = False
) -> tuple[bytes, os.stat_result]:
    """Return up to *most_bytes* of a plain file, and whose it is and who may write it.

    Both are of the same file, whatever lies at *path* by then.

    Args:
        path: The file.
        most_bytes: The most that is read.
        follows: As for ``open_plain``.

    Raises:
        OSError: It cannot be read, or is no plain file.
    """
    with os.fdopen(open_plain(path, follows=follows), "rb") as file:
        return file.read(most_bytes), os.fstat(file.fileno())


def is_own(status: os.stat_result) -> bool:
    """Tell whether a file is of the user of this process."""
    return status.st_uid == os.geteuid()


def read_json(path: Path, *, most_bytes: int = MOST_JSON_BYTES) -> object:
    """Return the JSON in the plain file at *path*.

    Raises:
        ValueError: It is too large, or no JSON: NaN is none, and a value within a
            thousand others is taken for none.
        OSError: It cannot be read, or is no plain file.
    """
    return parse_json(read_plain(path, most_bytes))


def parse_json(content: bytes | str) -> object:
    """Return the JSON in *content*.

    Raises:
        ValueError: It is none, see ``read_json``.
    """
    try:
        found: object = json.loads(content, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("its values lie too deep in each other") from None
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


# ----------------------------------------------------------------------
# Links

_MOST_LINKS = 40
"""On the way to one file; the kernel follows as many."""


def lead_of(path: Path, *, uid: int | None = None) -> Path:
    """Return where *path* leads, over links that no other user could have made.

    Parts that are missing, and those below them, stay as they are.

    Args:
        path: Absolute, or from the working directory.
        uid: Our own number; None for this process's.

    Raises:
        PlantedLinkError: Another user could have made a link on the way.
        OSError: A part cannot be looked at, or there are too many links.
    """
    own = owners_trusted_by(os.geteuid() if uid is None else uid)
    place, links = Path("/"), 0
    left = [*reversed(path.absolute().parts[1:])]
    while left:
        name = left.pop()
        if name == "..":  # of a link's text, behind links that were followed
            place = place.parent
            continue
        step = place / name
        try:
            target = Path(os.readlink(step))  # noqa: PTH115 -- half the time
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            place = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if why := _why_planted(step, own):
            raise PlantedLinkError(errno.EPERM, why, str(path))
        place = Path("/") if target.is_absolute() else place
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return place


_NO_LINK = {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}
"""Of readlink: it is something else than a link, or missing."""


def _why_planted(link: Path, own: frozenset[int]) -> str:
    folder, owner = link.parent.stat(), link.lstat().st_uid
    if not folder.st_mode & stat.S_IWOTH:
        return ""
    if not folder.st_mode & stat.S_ISVTX:
        return f"{link} is a link, and {_open_to_all(link.parent, folder.st_mode)}"
    if owner in own:
        return ""
    return (
        f"{link} is a link of user {owner} in a folder that anybody may write to; name "
        f"the place that it should lead to"
    )


# ----------------------------------------------------------------------
# Folders


def check_own(folder: Path) -> None:
    """Check that no other user can change what lies in *folder*; it may be missing.

    Args:
        folder: Absolute.

    Raises:
        UnsafeFolderError: One can.
        OSError: It cannot be looked at.
    """
    why = why_unsafe(folder, uid=os.geteuid())
    if why:
        raise UnsafeFolderError(errno.EPERM, why, str(folder))


def why_unsafe(folder: Path, *, uid: int) -> str:
    """Return how another user could change what lies in *folder*; empty for not at all.

    The folder must be the user's own or root's. Folders above it may be anybody's, as
    its user chose to work below them, but not open to all: unless its sticky bit is
    set, anybody could put another folder in place of this one. Links on the way are
    judged as ``lead_of`` does.

    Raises:
        OSError: It cannot be looked at.
    """
    try:
        place = lead_of(folder, uid=uid)
    except PlantedLinkError as error:
        return str(error.strerror)
    try:
        found = place.stat()
    except FileNotFoundError:
        pass
    else:
        if found.st_uid not in owners_trusted_by(uid):
            return f"it belongs to user {found.st_uid}; name a folder of your own"
        if found.st_mode & stat.S_IWOTH:
            return _open_to_all(place, found.st_mode)
    return next(filter(None, map(_why_open, place.parents)), "")


def owners_trusted_by(uid: int) -> frozenset[int]:
    """Return whose files the user *uid* may rely on: the user's own, and root's.

    In a container root's files may show another number, which "/" has too.
    """
    return frozenset({uid, 0, Path("/").stat().st_uid})


def why_changeable(file: Path, *, uid: int) -> str:
    """Return how others could put another file at *file*; empty for not at all.

    Stricter than ``why_unsafe``: all folders above must be the user's or root's, too.

    Raises:
        OSError: A folder cannot be looked at.
    """
    trusted = owners_trusted_by(uid)
    for folder in file.resolve().parents:
        owner = folder.stat().st_uid
        if owner not in trusted:
            return f"{folder} belongs to user {owner}"
        if why := _why_open(folder):
            return why
    return ""


def _why_open(folder: Path) -> str:
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        return ""
    is_open = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
    return _open_to_all(folder, mode) if is_open else ""


def _open_to_all(folder: Path, mode: int) -> str:
    return (
        f"anybody may write to {folder} (mode {stat.S_IMODE(mode):04o}); run "
        f"`chmod o-w` on it, or name another folder"
    )
