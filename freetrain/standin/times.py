"""Times and durations as Slurm writes and reads them with ``TZ=UTC``."""

from __future__ import annotations

import calendar
import time

_FORM = "%Y-%m-%dT%H:%M:%S"


def iso(time_s: float | None) -> str:
    """Write a time, to the second."""
    return "N/A" if time_s is None else time.strftime(_FORM, time.gmtime(time_s))


def read_iso(text: str) -> float:
    """Read a time.

    Raises:
        ValueError: It is none.
    """
    return float(calendar.timegm(time.strptime(text, _FORM)))


def told(time_s: float) -> str:
    """Write a time as sdiag does."""
    shown = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(time_s))
    return f"{shown} ({int(time_s)})"


def clock(duration_s: float) -> str:
    """Write a duration: ``[[D-]H:]MM:SS``."""
    minutes, seconds = divmod(int(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"
