"""Durations as people write them: a number and its unit."""

from __future__ import annotations

import math
import re

SECONDS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
EXPECTED = 'a duration with its unit (s, min, h, d), such as "18s", "10min" or "2h"'

FEW = 100
"""From this amount of a unit on, fractions are not shown."""

_WRITTEN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s?([a-zA-Z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds that *text*, such as ``"1.5h"``, stands for.

    Raises:
        ValueError: *text* is not a number with one of the units s, min, h, d;
            the message says what is expected.
    """
    written = _WRITTEN.fullmatch(text.strip())
    if written is None or written[2] not in SECONDS:
        raise ValueError(f"expected {EXPECTED}")
    return float(written[1]) * SECONDS[written[2]]


def render_duration(seconds: float) -> str:
    """Return *seconds* with the unit people would choose, such as ``1.5 h``."""
    if not math.isfinite(seconds):
        return "-"
    fitting = [unit for unit, size in SECONDS.items() if seconds >= size]
    unit = fitting[-1] if fitting else "s"
    amount = seconds / SECONDS[unit]
    return f"{amount:.0f} {unit}" if amount >= FEW else f"{amount:.3g} {unit}"


def exact_duration(seconds: float) -> str:
    """Return *seconds* so that ``parse_duration`` gives back the same number.

    Exact for whole microseconds up to 10**9 s; in the largest unit that divides it.
    """
    for unit, size in reversed(SECONDS.items()):
        if seconds and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"
