"""Numbers as programs print them; pure."""

from __future__ import annotations

import math
import re

_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?", re.ASCII)
# What \S+ in a pattern takes along: "Loss 0.52, accuracy (93%)".
_AROUND = " \t\"'()[]{},;:%"
_LONGEST = 64
# Above this a float does not tell one step from the next.
_LARGEST_COUNT = 2.0**53


class AbsurdError(ValueError):
    """A number that no training can have told."""


def number(told: object) -> float | None:
    """Return *told* as a number, nan and infinities included; None for no number."""
    if isinstance(told, bool):
        return None
    if isinstance(told, int | float):
        try:
            return float(told)
        except OverflowError:
            return math.inf if told > 0 else -math.inf
    return _number_in(told) if isinstance(told, str) else None


def _number_in(text: str) -> float | None:
    text = text.strip(_AROUND)
    if len(text) > _LONGEST or "_" in text or not text.isascii():
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def amount(told: object) -> float:
    """Return *told* as an amount of work: finite, at least 0.

    Raises:
        AbsurdError: It is not.
    """
    value = number(told)
    if value is None or not 0 <= value <= _LARGEST_COUNT:
        raise AbsurdError(f"{str(told)[:_LONGEST]!r} is no amount of work")
    return value


def count(told: object) -> int:
    """Return *told* as a whole number, at least 0; ``1e3`` is one.

    Raises:
        AbsurdError: It is not.
    """
    value = amount(told)
    if value != int(value):
        raise AbsurdError(f"{str(told)[:_LONGEST]!r} is no whole number")
    return int(value)


def moment(told: object) -> float:
    """Return *told* as a Unix time.

    Raises:
        AbsurdError: It is not.
    """
    return amount(told)
