"""Our block in somebody's table: found by its marks, everything else left alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from freetrain.cron.errors import CronUnreadableError

_WORDS = "freetrain cron install"


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one state directory, between two comments.

    Attributes:
        mark: What tells it from the blocks of other state directories.
        lines: What stands between, without line ends.
    """

    mark: str
    lines: tuple[str, ...] = ()

    @property
    def first(self) -> bytes:
        """The comment before."""
        return f"# >>> freetrain {self.mark}: from `{_WORDS}` >>>".encode()

    @property
    def last(self) -> bytes:
        """The comment after."""
        return f"# <<< freetrain {self.mark} <<<".encode()

    def __bytes__(self) -> bytes:
        """Write it whole, with line ends."""
        inside = (line.encode("utf-8", "surrogateescape") for line in self.lines)
        return b"".join(line + b"\n" for line in (self.first, *inside, self.last))


def put(table: bytes, block: Block) -> bytes:
    """Return *table* with *block* in place of an earlier one, or at its end.

    Raises:
        CronUnreadableError: Its marks are torn.
    """
    found = _spans(table, block)
    if not found:
        joint = b"" if not table or table.endswith(b"\n") else b"\n"
        return table + joint + bytes(block)
    start, end = found[0]
    rest = without(table[end:], block)
    return table[:start] + bytes(block) + rest


def without(table: bytes, block: Block) -> bytes:
    """Return *table* without any block of the same mark.

    Raises:
        CronUnreadableError: Its marks are torn.
    """
    kept, at = [], 0
    for start, end in _spans(table, block):
        kept.append(table[at:start])
        at = end
    return b"".join((*kept, table[at:]))


def lines_between(table: bytes, mark: str) -> tuple[str, ...]:
    """Return the lines of the block *mark*, none where there is no such block.

    Raises:
        CronUnreadableError: Its marks are torn.
    """
    for start, end in _spans(table, Block(mark)):
        inside = table[start:end].decode("utf-8", "surrogateescape").splitlines()
        return tuple(inside[1:-1])
    return ()


def _spans(table: bytes, block: Block) -> list[tuple[int, int]]:
    """Return from where to where the block stands; twice only if somebody copied."""
    marks = re.compile(
        rb"^(?:(%s)|%s)(?:\n|\Z)" % (re.escape(block.first), re.escape(block.last)),
        re.MULTILINE,
    )
    spans, start = [], None
    for found in marks.finditer(table):
        if (found[1] is not None) != (start is None):
            break
        if start is None:
            start = found.start()
        else:
            spans.append((start, found.end()))
            start = None
    else:
        if start is None:
            return spans
    raise CronUnreadableError(
        f"the lines of FreeTrain in your table begin or end without their other mark "
        f"({block.last.decode()}). Nothing was changed; remove them by hand (for "
        f"example with `crontab -e`), then ask again."
    )
