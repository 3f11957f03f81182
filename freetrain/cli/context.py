"""Everything outside of a command that it reads or writes, as one object."""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from freetrain.errors import MissingInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from freetrain.config.site import Site


_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``: getrusage(2) counts KiB, on macOS bytes."""

LEAST_COLUMNS = 80
"""What tables are made for."""


@dataclass(frozen=True, slots=True, eq=False)
class CliContext:
    """What a command reads its time from and writes to.

    Attributes:
        clock: Seconds from any moment on; only differences mean something.
        peak_rss_bytes: The most memory this process and its solvers have held.
        stdout: Where results go.
        stderr: Where errors and progress go.
        is_terminal: Whether somebody watches ``stderr``: progress is shown.
        cwd: Folder that relative paths start from.
        environ: Environment variables.
        uid: The user's number.
        now_s: Unix time.
        sleep: Waits for so many seconds.
    """

    clock: Callable[[], float]
    peak_rss_bytes: Callable[[], int]
    stdout: TextIO
    stderr: TextIO
    is_terminal: bool
    cwd: Path
    environ: Mapping[str, str]
    uid: int
    now_s: Callable[[], float]
    sleep: Callable[[float], None]

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

    @property
    def is_out_terminal(self) -> bool:
        """Whether somebody watches ``stdout``: it is kept free of control codes."""
        return self.stdout.isatty()

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

    def out(self) -> Console:
        """Return a console for results, of 80 columns or more.

        A narrower terminal wraps their lines: tables that were made to fit would
        lose figures, and who they are of.
        """
        console = self.watched()
        console.width = max(console.width, LEAST_COLUMNS)
        return console

    def watched(self) -> Console:
        """Return a console for what is shown anew in place; as wide as it is."""
        return _console(self.stdout, is_terminal=None)

    def err(self) -> Console:
        """Return a console for errors and progress."""
        return _console(self.stderr, is_terminal=self.is_terminal)


def process_context() -> CliContext:
    """Return the context of this process; a closed stream swallows what it gets."""
    stdout = sys.stdout or _nowhere()
    stderr = sys.stderr or _nowhere()
    return CliContext(
        clock=time.perf_counter,
        peak_rss_bytes=peak_rss_bytes,
        stdout=stdout,
        stderr=stderr,
        is_terminal=stderr.isatty(),
        cwd=Path(),
        environ=os.environ,
        uid=os.getuid(),
        now_s=time.time,  # noqa: TID251 - this is the clock
        sleep=time.sleep,
    )


def peak_rss_bytes() -> int:
    """Return the peak of this process plus that of its largest child, in bytes.

    Their peaks need not coincide, so with an external solver this is an upper
    bound; without one it is exact.
    """
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    solvers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + solvers) * _MAXRSS_BYTES


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _console(stream: TextIO, *, is_terminal: bool | None) -> Console:
    from rich.console import Console  # noqa: PLC0415 - `--version` must be cheap

    # Colour only where a terminal shows it.
    return Console(
        file=stream,
        force_terminal=is_terminal,
        highlight=False,
        markup=False,
        emoji=False,
    )
