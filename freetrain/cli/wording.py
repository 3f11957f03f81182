"""Times, nodes, packs and reasons in words that several screens share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from freetrain.state.files import BROKER, USER
from freetrain.text import counted, one_line
from slurm.records import collapse

if TYPE_CHECKING:
    from collections.abc import Iterable


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


_FEW = 10
"""Below so many of a unit the next smaller one is shown as well."""


def age_text(seconds: float) -> str:
    """Return *seconds* roughly, such as ``45 s``, ``2 min 5 s`` or ``13 h``."""
    left = max(0, int(seconds))
    for number, (size, unit) in enumerate(_UNITS):
        if left >= size:
            count, rest = divmod(left, size)
            smaller = _UNITS[number + 1 :][:1] if count < _FEW else ()
            extra = [f"{rest // s} {u}" for s, u in smaller if rest >= s]
            return " ".join([f"{count} {unit}", *extra])
    return "0 s"


def short_age(seconds: float) -> str:
    """Return *seconds* in one unit, such as ``45 s`` or ``2 min``."""
    count, unit, *_ = age_text(seconds).split(" ")
    return f"{count} {unit}"


def ago(time_s: float, now_s: float) -> str:
    """Return how long before *now_s* *time_s* was."""
    return f"{age_text(now_s - time_s)} ago"


def clock_text(time_s: float) -> str:
    """Return *time_s* as a date and time of the day in UTC, to the second.

    Times outside of the calendar are shown as a number.
    """
    try:
        return f"{datetime.fromtimestamp(time_s, tz=UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g}"


def nodes_text(nodes: int) -> str:
    """Return ``1 node``, ``3 nodes`` or ``no node``."""
    return counted(nodes, "node") if nodes else "no node"


def nodes_named(names: Iterable[str]) -> str:
    """Return ``n[1-3]``; one by one where a name is none; empty for no names."""
    names = tuple(names)
    try:
        return one_line(collapse(names))
    except ValueError:
        return one_line(", ".join(names))


def maker_text(author: str) -> str:
    """Return who *author* is: a lease's name, two lines long, tells nobody anything."""
    return author if author in {BROKER, USER} else "its agents"
