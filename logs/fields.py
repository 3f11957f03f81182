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
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_NUMBERS = re.compile(rf"{_NUMBER.pattern}(?: {_NUMBER.pattern})*", re.ASCII)
_TOO_LARGE = 1e15
"""Above it a double no longer tells one tenth of a second from the next."""


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


def read_numbers(words: Sequence[str], fields: Sequence[str]) -> list[float]:
    """Return the numbers that *words* say, one for each of *fields*.

    The same as `read_number` word by word, in a third of the time.
    """
    if _NUMBERS.fullmatch(" ".join(words)):
        values = [float(word) for word in words]
        if max(values) < _TOO_LARGE and min(values) > -_TOO_LARGE:
            return values
    return [read_number(word, field) for word, field in zip(words, fields, strict=True)]


def known_or_none(value: float, field: str) -> float | None:
    """Return *value*, or None where it is -1, the mark for unknown.

    Raises:
        BadLineError: It is negative otherwise.
    """
    if value >= 0:
        return value
    if value == NO_VALUE:
        return None
    found = write_number(value)
    raise BadLineError(field, f"found {found}; expected 0 or more, or -1 for unknown")


def not_negative(value: float, field: str) -> float:
    """Return *value*.

    Raises:
        BadLineError: It is negative.
    """
    if value < 0:
        raise BadLineError(field, f"found {write_number(value)}; expected 0 or more")
    return value


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
