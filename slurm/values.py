"""How Slurm writes times, durations, sizes and "nothing" in text.

Times are read as UTC: every command runs with ``TZ=UTC`` (slurm.environment).
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "Unknown", "NONE", "NOT_SET"})
"""What Slurm writes where it has no value."""

_UNBOUNDED = frozenset({"UNLIMITED", "INFINITE", "Infinity"})
_CLOCK = re.compile(
    r"(?:(?P<days>\d+)-)?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)", re.ASCII
)
_COUNTED = re.compile(r"(\d+)(?:\s*(usec|sec|min|s))?", re.ASCII)
_UNIT_S = {"usec": 1e-6, "sec": 1.0, "s": 1.0, "min": 60.0}


def text_or_empty(text: str) -> str:
    """Return *text*, empty where Slurm wrote one of its words for nothing."""
    return "" if text in NOTHING else text


def words(text: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list, none where there is no value."""
    return tuple(text.split(",")) if text not in NOTHING else ()


def unix_time(text: str) -> float | None:
    """Return Unix time of ``2026-11-21T08:22:20`` (UTC), None for no value.

    Raises:
        ValueError: Neither.
    """
    if text in NOTHING:
        return None
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return when.timestamp()


def duration_s(text: str, *, unit_s: float = 1.0) -> float | None:
    """Return seconds of ``1-02:03:04``, ``10:00``, ``30 sec``, ``UNLIMITED``, ….

    Args:
        text: As Slurm writes it; unlimited is ``math.inf``, no value is None.
        unit_s: What a bare number counts, in seconds.

    Raises:
        ValueError: No duration.
    """
    if text in NOTHING:
        return None
    if text.upper() in _UNBOUNDED or text in _UNBOUNDED:
        return math.inf
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    counted = _COUNTED.fullmatch(text)
    if counted:
        return int(counted[1]) * (_UNIT_S[counted[2]] if counted[2] else unit_s)
    raise ValueError(f"{text!r} is not a duration")


def whole_number(text: str) -> int | None:
    """Return a whole number, None for no value.

    Raises:
        ValueError: Neither.
    """
    return None if text in NOTHING else int(text)


def count(text: str) -> int:
    """Return a count such as ``128``, ``4K`` or ``2-4`` (the least), 0 for none.

    Raises:
        ValueError: No count.
    """
    if text in NOTHING:
        return 0
    least = text.split("-", 1)[0]
    unit = "KMGT".find(least[-1:].upper()) + 1 if least[-1:].isalpha() else 0
    return int(least[:-1]) * 1024**unit if unit else int(least)
