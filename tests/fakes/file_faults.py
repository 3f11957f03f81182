"""File calls that fail: the n-th call of this process on files below a folder.

Calls are those that Python makes for files: opening, reading, writing, listing,
looking, renaming, removing. SQLite's own are not among them.
"""

from __future__ import annotations

import builtins
import io
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_BY_PATH = (
    *("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rmdir", "unlink"),
    *("remove", "rename", "replace", "link", "chmod", "access", "readlink"),
)

_BY_DESCRIPTOR = ("read", "write", "pread", "fsync", "fstat", "ftruncate")

_OF_FILES = ("read", "readline", "readlines", "write", "flush", "truncate")


@dataclass(slots=True)
class FileFaults:
    """What was called, and which call fails.

    Attributes:
        folder: Only calls on files below it count.
        number: Which of these calls fails, the first is 0; None for none.
        code: With which errno.
        calls: Name and path of each call so far.
    """

    folder: Path
    number: int | None
    code: int
    calls: list[tuple[str, str]] = field(default_factory=list)

    def check(self, name: str, path: object) -> None:
        """Count a call, and fail if it is the one."""
        try:
            text = os.fsdecode(os.fspath(path))  # type: ignore[call-overload]
        except TypeError:
            return
        if not text.startswith(str(self.folder)):
            return
        self.calls.append((name, text))
        if self.number == len(self.calls) - 1:
            raise OSError(self.code, os.strerror(self.code), text)

    @property
    def failed(self) -> str:
        """The path of the call that failed; empty where none did."""
        has_failed = self.number is not None and self.number < len(self.calls)
        return self.calls[self.number or 0][1] if has_failed else ""


class _File:
    """A file whose calls are counted."""

    def __init__(self, file: Any, path: object, faults: FileFaults) -> None:  # noqa: ANN401
        self._file, self._path, self._faults = file, path, faults

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._file, name)
        if name not in _OF_FILES:
            return found

        def counted(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            self._faults.check(name, self._path)
            return found(*args, **named)

        return counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


@contextmanager
def failing_files(
    folder: Path, *, number: int | None = None, code: int = 0
) -> Iterator[FileFaults]:
    """Let one call on files below *folder* fail, while the block runs."""
    faults = FileFaults(folder, number, code)
    opened, real = io.open, {n: getattr(os, n) for n in (*_BY_PATH, *_BY_DESCRIPTOR)}

    def open_file(file: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        faults.check("open", file)
        made = opened(file, *args, **named)
        return made if isinstance(file, int) else _File(made, file, faults)

    def by_path(name: str) -> Callable[..., Any]:
        def call(path: Any = ".", *args: Any, **named: Any) -> Any:  # noqa: ANN401
            faults.check(name, path)
            return real[name](path, *args, **named)

        return call

    def by_descriptor(name: str) -> Callable[..., Any]:
        def call(descriptor: int, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            place = f"/proc/self/fd/{descriptor}"
            faults.check(name, real["readlink"](place))
            return real[name](descriptor, *args, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module in (io, builtins):
            patch.setattr(module, "open", open_file)
        for name in _BY_PATH:
            patch.setattr(os, name, by_path(name))
        for name in _BY_DESCRIPTOR:
            patch.setattr(os, name, by_descriptor(name))
        yield faults
