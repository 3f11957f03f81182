"""How Slurm's JSON writes numbers, times and words, in every release since 21.08.

Until 22.05 numbers are plain; from 23.02 on many are ``{"set", "infinite",
"number"}``, and which ones changes with every release. So each value is read in
any form, whatever the release says it is.
"""

from __future__ import annotations

import math

_INFINITE = frozenset({"infinity", "infinite", "unlimited"})


def number(value: object) -> float | None:
    """Return a number, ``math.inf`` for infinite, None for none.

    Infinite is tested before set: an infinite number says that it is not set.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    match value:
        case {"infinite": True}:
            return math.inf
        case {"set": False}:
            return None
        case {"number": inner}:
            return _plain(inner)
        case _:
            return _plain(value)


def _plain(value: object) -> float | None:
    match value:
        case None | "":
            return None
        case str() if value.lower() in _INFINITE:
            return math.inf
        case str() | int() | float() if not isinstance(value, bool):
            return float(value)
        case _:
            raise ValueError(f"{value!r} is not a number")


def whole(value: object) -> int | None:
    """Return a whole number, None for none or infinite.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    found = number(value)
    return None if found is None or math.isinf(found) else int(found)


def time_s(value: object) -> float | None:
    """Return Unix time; 0, which is how an unknown time is set, is None.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    found = number(value)
    return None if found is None or found <= 0 or math.isinf(found) else found


def minutes_s(value: object) -> float | None:
    """Return seconds of a number of minutes; below 0 is unlimited, as 22.05 says.

    Raises:
        ValueError: None of the forms that Slurm uses.
    """
    found = number(value)
    if found is None:
        return None
    return math.inf if found < 0 else 60.0 * found


def text(value: object) -> str:
    """Return a string, empty for none.

    Raises:
        ValueError: Something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004 -- data, not a bug
    return value


def words(value: object) -> list[str]:
    """Return a list of words from a list, or from one comma-separated string.

    Raises:
        ValueError: Something else.
    """
    if isinstance(value, list):
        return [text(word) for word in value]
    return [word for word in text(value).split(",") if word]


def at(record: object, *path: str) -> object:
    """Return what stands at *path* in nested objects, None where it is not there."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record
