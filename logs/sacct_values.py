"""Times, durations and counts as ``sacct`` prints them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from logs.content import snippet
from logs.lines import BadLineError

_UNIX = re.compile(r"\d{1,12}(\.\d+)?", re.ASCII)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_DURATION = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?P<parts>\d{1,9}(?::\d{1,9}){0,2})(?P<fraction>\.\d+)?",
    re.ASCII,
)
_COUNT = re.compile(r"(\d{1,12}(?:\.\d+)?)([KMG]?)", re.ASCII)
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_NOTHING = frozenset({"", "unknown", "none", "n/a", "none assigned", "invalid"})
_NO_LIMIT = _NOTHING | {"unlimited", "partition_limit"}


def is_nothing(text: str) -> bool:
    """Tell whether *text* is one of Slurm's words for "there is no such value"."""
    return text.lower() in _NOTHING


def read_time(text: str, field: str) -> float | None:
    """Return a point in Unix time, or None for Unknown, None and the like.

    A time without a zone is taken as UTC: sacct prints the local time of where
    it ran, and does not say where that was.

    Raises:
        BadLineError: It is no time.
    """
    if is_nothing(text):
        return None
    if _UNIX.fullmatch(text):
        return float(text)
    try:
        if _ISO.fullmatch(text):
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass
    why = (
        f"found {snippet(text)}; expected a time such as 2026-08-20T04:00:00, a Unix "
        f"time, Unknown or None"
    )
    raise BadLineError(field, why)


def read_duration(text: str, field: str, *, bare_unit_s: float) -> float | None:
    """Return seconds, or None where there is no limit or no value.

    Forms: ``D-HH:MM:SS``, ``D-HH:MM``, ``D-HH``, ``HH:MM:SS``, ``MM:SS``,
    ``MM:SS.mmm`` and a bare number.

    Args:
        text: What sacct printed.
        field: Its column, for the message.
        bare_unit_s: Seconds that a bare number counts: 60 in Timelimit, 1 in
            ElapsedRaw.

    Raises:
        BadLineError: It is no duration.
    """
    if text.lower() in _NO_LIMIT:
        return None
    found = _DURATION.fullmatch(text)
    if not found:
        why = (
            f"found {snippet(text)}; expected a duration such as 2-03:04:05 or 30:00, "
            f"UNLIMITED or Partition_Limit"
        )
        raise BadLineError(field, why)
    parts = [float(part) for part in found["parts"].split(":")]
    fraction_s = float(found["fraction"] or 0)
    if found["days"]:
        hours, minutes, seconds = [*parts, 0.0, 0.0][:3]
        return int(found["days"]) * 86400 + _clock(hours, minutes, seconds) + fraction_s
    if len(parts) == 1:
        return (parts[0] + fraction_s) * bare_unit_s
    hours, minutes, seconds = [0.0, *parts][-3:]
    return _clock(hours, minutes, seconds) + fraction_s


def read_count(text: str, field: str) -> int | None:
    """Return a count such as 1536 or ``1.5K`` (1,024 each), None for no value.

    Raises:
        BadLineError: It is no whole count.
    """
    if is_nothing(text):
        return None
    found = _COUNT.fullmatch(text)
    count = float(found[1]) * _FACTORS[found[2]] if found else 0.5
    if not count.is_integer():
        why = f"found {snippet(text)}; expected a whole number, or one such as 1.5K"
        raise BadLineError(field, why)
    return int(count)


def _clock(hours: float, minutes: float, seconds: float) -> float:
    return hours * 3600 + minutes * 60 + seconds
