"""Whose command or Python program it is: clocks, folder, user, variables."""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from freetrain.errors import MissingInputError, UsageError
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from freetrain.config.site import Site


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class UserContext:
    """The clocks, folder and user of a command or a Python program.

    Attributes:
        clock: Seconds from any moment on; only differences mean something.
        peak_rss_bytes: The most memory this process and its solvers have held.
        cwd: Relative paths start there.
        now_s: Unix time.
    """

    clock: Callable[[], float]
    peak_rss_bytes: Callable[[], int]
    cwd: Path
    environ: Mapping[str, str]
    uid: int
    now_s: Callable[[], float]
    sleep: Callable[[float], None]

    @classmethod
    def of_process(cls, **more: Any) -> Self:  # noqa: ANN401 - fields
        """Return the context of this process, with *more* or other fields."""
        own: dict[str, Any] = {
            "clock": time.perf_counter,
            "peak_rss_bytes": peak_rss_bytes,
            "cwd": Path(),
            "environ": os.environ,
            "uid": os.getuid(),
            "now_s": time.time,  # noqa: TID251 - this is the clock
            "sleep": time.sleep,
        }
        return cls(**own | more)

    @property
    def folder(self) -> Path:
        """The current folder, absolute.

        Raises:
            MissingInputError: It was removed.
        """
        try:
            return self.cwd.absolute()
        except FileNotFoundError as error:
            raise MissingInputError(
                "the current folder was removed. Nothing was done. Change to one that "
                "is there."
            ) from error

    @property
    def home(self) -> Path | None:
        """The user's home, None where HOME is not an absolute path."""
        named = self.environ.get("HOME", "")
        return Path(named) if named.startswith("/") else None

    def site(self, config: Path | None) -> Site:
        """Return the site that *config*, or the first file found, describes.

        Raises:
            MissingInputError: The file asked for is not there, or one cannot be read.
            BadConfigurationError: It does not describe a site, or is not to be trusted.
        """
        from freetrain.config.site import (  # noqa: PLC0415 - `--version` reads none
            SiteSearch,
            find_site,
        )

        around = SiteSearch(self.environ, self.folder, self.uid)
        return find_site(around, asked=config)

    def progress(
        self, what: str
    ) -> AbstractContextManager[Callable[[float], None] | None]:
        """Give a function that takes the fraction of *what* done; None for nobody."""
        del what
        return nullcontext()


_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``: getrusage(2) counts KiB, on macOS bytes."""


def peak_rss_bytes() -> int:
    """Return the peak of this process plus that of its largest child, in bytes.

    Their peaks need not coincide, so with an external solver this is an upper
    bound; without one it is exact.
    """
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    solvers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + solvers) * _MAXRSS_BYTES


def missing(named: str, error: OSError, *, undone: str) -> MissingInputError:
    """Return the error for an input file, *named* as the user named it.

    *undone* is what was not done because of that, such as ``replayed``.
    """
    return MissingInputError(
        f"cannot read {named}: {error.strerror or error}. Nothing was {undone}. Check "
        f"the name and its permissions."
    )


E = TypeVar("E", bound=StrEnum)


def member_named(kind: type[E], value: str, option: str) -> E:
    """Return the member of *kind* with this *value* of *option*.

    Raises:
        UsageError: There is none.
    """
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(kind)
        raise UsageError(
            f"{option} {one_line(str(value))}: expected one of {known}. Nothing was "
            f"done."
        ) from error
