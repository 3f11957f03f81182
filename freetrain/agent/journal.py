"""The agent's log: a line each, never a flood, and never a reason to stop."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_AGAIN_S = 60.0
_LONGEST = 1_000
_REMEMBERED = 1_000


class Journal:
    """Appends lines; the same one again only after a minute."""

    def __init__(
        self,
        path: Path,
        *,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the file and two clocks."""
        self._path = path
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        self._said_s: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        """Append *text*; where that fails, it goes to standard error."""
        now_s = self._elapsed_s()
        said_s = self._said_s.get(text)
        if said_s is not None and now_s - said_s < _AGAIN_S:
            return
        if len(self._said_s) >= _REMEMBERED:
            self._said_s.clear()
        self._said_s[text] = now_s
        when = datetime.fromtimestamp(self._unix_s(), UTC)
        stamp = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"{stamp} {one_line(text)[:_LONGEST]}\n"
        try:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(line)
        except OSError:
            with suppress(OSError, ValueError):
                sys.stderr.write(line)
