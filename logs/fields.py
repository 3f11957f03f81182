"""Numbers in the fields of a log line, read strictly and written back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logs.content import snippet
from logs.lines import BadLineError
from logs.trace import NO_VALUE

if TYPE_CHECKING:
    from collections.abc import Sequence

# float() alone would also take "nan", "1_000", "infinity" and Arabic digits.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[-.\d ]*", re.ASCII)
_UNKNOWN = str(NO_VALUE)
_TOO_LARGE = 1e15
"""Above it a double no longer tells one tenth of a second from the next."""

_SURELY_SMALL_CHARS = 15


def read_number(text: str, field: str, expected: str = "a number") -> float:
    """Return the finite number that *text* says.

    Raises:
        BadLineError: It is none, or 1e15 and more.
    """
    if _NUMBER.fullmatch(text) is None:
        raise BadLineError(field, f"found {snippet(text)}; expected {expected}")
    value = float(text)
    if abs(value) >= _TOO_LARGE:
        why = f"found {snippet(text)}; expected a number below 1e15"
        raise BadLineError(field, why)
    return value


def read_known(words: Sequence[str], fields: Sequence[str]) -> list[float | None]:
    """Return the numbers that *words* say, one for each of *fields*.

    Returns:
        Numbers of 0 or more; None where a word is -1, the mark for unknown.

    Raises:
        BadLineError: A word is no number, 1e15 and more, or negative otherwise.
    """
    line = " ".join(words)
    # Nine lines in ten are plain, and this takes a third of the time.
    if (
        _PLAIN.fullmatch(line)
        and line.count("-") == words.count(_UNKNOWN)
        and max(map(len, words)) <= _SURELY_SMALL_CHARS
    ):
        try:
            return [None if word == _UNKNOWN else float(word) for word in words]
        except ValueError:
            pass
    return [
        _known_or_none(read_number(word, field), field)
        for word, field in zip(words, fields, strict=True)
    ]


def not_negative(value: float, field: str) -> float:
    """Return *value*.

    Raises:
        BadLineError: It is negative.
    """
    if value < 0:
        raise BadLineError(field, f"found {write_number(value)}; expected 0 or more")
    return value


def _known_or_none(value: float, field: str) -> float | None:
    if value >= 0:
        return value
    if value == NO_VALUE:
        return None
    found = write_number(value)
    raise BadLineError(field, f"found {found}; expected 0 or more, or -1 for unknown")


def whole(value: float, field: str) -> int:
    """Return *value* as a whole number.

    Raises:
        BadLineError: It is not whole.
    """
    if not value.is_integer():
        why = f"found {write_number(value)}; expected a whole number"
        raise BadLineError(field, why)
    return int(value)


def write_number(value: float) -> str:
    """Return the shortest text that reads as *value*, whole where it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
