"""Samples of what is read, changed in bytes, fields, numbers, lines and sizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_BYTES = 1 << 17
"""Of a changed sample: readers have bounds of their own for files, not for texts."""

TOKENS = (
    *(b"", b"\0", b"\n", b"\r", b" ", b"|", b",", b";", b"=", b".", b":", b"#", b'"'),
    *(b"'", b"\\", b"[", b"]", b"{", b"}", b"(", b")", b"-", b"%", b"\t", b"\xff\xfe"),
    *("é".encode(), "\u202e".encode(), "٣".encode(), b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"NaN", b"nan", b"Infinity", b"-inf", b"null", b"true", b"(null)", b"N/A"),
    *(b"-1", b"0", b"1e400", b"-1e400", b"1e-400", b"4294967294", b"1_0", b"+1"),
    *(b"9" * 19, b"9" * 400, b"9" * 5_000, b"0x" + b"f" * 4_000),
    *(b"n[0-999999]", b"n[0-9][0-9][0-9][0-9][0-9][0-9]", b"[1-0]", b"n[1,,2]"),
    *(b"UNLIMITED", b"2026-13-45T99:99:99", b"0001-01-01T00:00:00+23:59", b"9-9:9:9"),
    *(b"[" * 3_000, b'{"a":' * 3_000, b"a." * 3_000, b'"""', b"'''", b"../" * 50),
    *(b"/dev/zero", b"~root", b"$(reboot)", b"../../etc/passwd", b"\x1b[2J"),
    *(b'{"set": true, "infinite": false, "number": NaN}', b'{"infinite": true}'),
)

_NUMBER = re.compile(rb"[0-9]+")
_FIELD = re.compile(rb"[^\s=,|:;\"'\[\]{}()]+")
_COUNTS = (0, 1, 2, 3, 7, 60, 5_000)

Draw = tuple[int, int, int]


def _splice(content: bytes, at: int, length: int, token: bytes) -> bytes:
    start = at % (len(content) + 1)
    return content[:start] + token + content[start + length :]


def _bytes(content: bytes, draw: Draw) -> bytes:
    at, length, which = draw
    return _splice(content, at, length % 8, TOKENS[which % len(TOKENS)])


def _at_match(pattern: re.Pattern[bytes], content: bytes, draw: Draw) -> bytes:
    places = list(pattern.finditer(content))
    if not places:
        return _bytes(content, draw)
    found = places[draw[0] % len(places)]
    token = TOKENS[draw[2] % len(TOKENS)]
    return content[: found.start()] + token + content[found.end() :]


def _number(content: bytes, draw: Draw) -> bytes:
    return _at_match(_NUMBER, content, draw)


def _field(content: bytes, draw: Draw) -> bytes:
    return _at_match(_FIELD, content, draw)


def _line(content: bytes, draw: Draw) -> bytes:
    """Take a line out, or put it somewhere else, or put it there many times."""
    at, times, to = draw
    lines = content.split(b"\n")
    line = lines.pop(at % len(lines))
    count = _COUNTS[times % len(_COUNTS)]
    count = min(count, MOST_BYTES // (len(line) + 1))
    place = to % (len(lines) + 1)
    return b"\n".join([*lines[:place], *[line] * count, *lines[place:]])


def _repeat(content: bytes, draw: Draw) -> bytes:
    """Write a token or a piece of the content many times in a row."""
    at, times, which = draw
    piece = TOKENS[which % len(TOKENS)] if which % 2 else content[at % 97 : at % 97 + 9]
    count = min(_COUNTS[times % len(_COUNTS)], MOST_BYTES // (len(piece) + 1))
    return _splice(content, at, 0, piece * count)


def _cut(content: bytes, draw: Draw) -> bytes:
    return content[: draw[0] % (len(content) + 1)]


CHANGES: tuple[Callable[[bytes, Draw], bytes], ...] = (
    *(_number, _field, _bytes, _line, _repeat, _cut),
    *(_number, _field),
)

_DRAWS = st.tuples(*[st.integers(0, 1 << 20)] * 3)
_STEPS = st.lists(
    st.tuples(st.integers(0, len(CHANGES) - 1), _DRAWS), min_size=1, max_size=4
)


def changed(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return *samples*, each changed one to four times."""
    return st.builds(_changed, st.sampled_from(list(samples)), _STEPS)


def _changed(content: bytes, steps: list[tuple[int, Draw]]) -> bytes:
    for which, draw in steps:
        content = CHANGES[which](content, draw)[:MOST_BYTES]
    return content
