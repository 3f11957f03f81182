"""Cut what a file grows by into lines; pure, and the same for every chunking."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_LINE_BYTES = 1 << 18
# A progress bar ends its lines with a carriage return.
_END = re.compile(rb"[\r\n]")
# A crash on a network file system leaves NULs where data never arrived.
_AROUND = b"\0 \t\v\f"
# What spreadsheets put before the first column's name.
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(slots=True)
class Lines:
    """Joins pieces of a file and yields its whole lines.

    Attributes:
        too_long: Lines left out because they exceed ``LONGEST_LINE_BYTES``.
        is_skipping: Whether the present line is such a one.
    """

    too_long: int = 0
    is_skipping: bool = False
    _rest: bytes = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes at the end of what was fed that wait for the rest of their line."""
        return len(self._rest)

    def feed(self, piece: bytes) -> tuple[str, ...]:
        """Return the lines that *piece* completes, without blank ones.

        Args:
            piece: The bytes after those of the last call.
        """
        *whole, self._rest = _END.split(self._rest + piece)
        lines = [line for line in map(self._checked, whole) if line]
        if len(self._rest) > LONGEST_LINE_BYTES:
            self._rest, self.is_skipping = b"", True
        return tuple(lines)

    def _checked(self, line: bytes) -> str:
        if self.is_skipping or len(line) > LONGEST_LINE_BYTES:
            self.is_skipping = False
            self.too_long += 1
            return ""
        text = line.strip(_AROUND).decode("utf-8", errors="replace")
        return text.removeprefix(_BYTE_ORDER_MARK)
