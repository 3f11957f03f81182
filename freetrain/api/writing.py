"""Files and folders of results: written whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.errors import CannotWriteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Put a file with *content* at *path*, whole or not at all.

    A file that has this very content already is left as it is.

    Raises:
        CannotWriteError: Another file is there and *force* is not given, or the
            place cannot be written.
    """
    try:
        if path.exists() and _stays(path, content, force=force):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path.absolute().parent, path) as temporary:
            made = temporary / path.name
            made.write_bytes(content)
            made.replace(path)
    except OSError as error:
        raise _refusal(path, error) from error


def _stays(path: Path, content: bytes, *, force: bool) -> bool:
    """Return whether *path* has *content* already; refuse to replace other content."""
    if not path.is_file():
        raise CannotWriteError(
            f"{path} is not an ordinary file; nothing was written. Name another."
        )
    if path.read_bytes() == content:
        return True
    if not force:
        raise CannotWriteError(
            f"{path} exists and differs; nothing was written. Name another file, "
            f"or replace this one with --force."
        )
    return False


_NOTHING_RUN = "nothing was run. Name another place with --out."


def check_folder(path: Path, *, force: bool) -> None:
    """Refuse a folder that could not be written later, before any work is done.

    Raises:
        CannotWriteError: It is no folder, or holds something and *force* is not
            given, or cannot be written.
    """
    try:
        if path.exists() and not path.is_dir():
            raise CannotWriteError(f"{path} is not a folder; {_NOTHING_RUN}")
        if path.is_dir() and any(path.iterdir()) and not force:
            raise CannotWriteError(
                f"{path} is not empty; {_NOTHING_RUN} Add --force to replace the "
                f"files of an earlier run."
            )
        nearest = next(p for p in (path, *path.absolute().parents) if p.is_dir())
    except OSError as error:
        raise _refusal(path, error) from error
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise CannotWriteError(f"{nearest} cannot be written; {_NOTHING_RUN}")


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Put *files* into the folder *path*, each whole or not at all.

    A new folder appears with all of its files at once; in one that is there,
    files of the same name are replaced and others are left alone.

    Raises:
        CannotWriteError: The place cannot be written.
    """
    try:
        there = path.is_dir()
        path.parent.mkdir(parents=True, exist_ok=True)
        # In a folder that is there: it may be a file system of its own.
        with _temporary(path if there else path.absolute().parent, path) as temporary:
            made = temporary / "made"
            made.mkdir()
            for name, content in files.items():
                (made / name).write_bytes(content)
            if there:
                for name in files:
                    (made / name).replace(path / name)
            else:
                made.replace(path)
    except OSError as error:
        raise _refusal(path, error) from error


@contextmanager
def _temporary(folder: Path, path: Path) -> Iterator[Path]:
    """Give a temporary folder in *folder*, from where renaming to *path* is atomic."""
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=f".{path.name[:40]}."
    ) as temporary:
        yield Path(temporary)


def _refusal(path: Path, error: OSError) -> CannotWriteError:
    return CannotWriteError(
        f"cannot write {path}: {error.strerror or error}. Nothing was written. "
        f"Make room there, or choose another place."
    )
