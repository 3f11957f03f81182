"""How messages, files and command lines write durations, shares and what was found."""

from __future__ import annotations

import difflib
import json
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


# ----------------------------------------------------------------------
# Durations: a number and its unit

MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0
SECONDS = {"s": 1.0, "min": MINUTE_S, "h": HOUR_S, "d": DAY_S}
EXPECTED = 'a duration with its unit (s, min, h, d), such as "18s", "10min" or "2h"'

_WHOLE_FROM = 100
"""From this amount of a unit on, fractions are not shown."""

_WRITTEN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s?([a-zA-Z]+)", re.ASCII)
WRITTEN_DURATION = rf"[0-9]{{1,12}}(\.[0-9]{{1,12}})?\s?({'|'.join(SECONDS)})"
"""Regular expression of what ``parse_duration`` reads, but for blanks around it."""


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
    """Return *seconds* in the largest unit that it reaches, such as ``1.5 h``."""
    if not math.isfinite(seconds):
        return "-"
    fitting = [unit for unit, size in SECONDS.items() if seconds >= size]
    unit = fitting[-1] if fitting else "s"
    amount = seconds / SECONDS[unit]
    return f"{amount:.0f} {unit}" if amount >= _WHOLE_FROM else f"{amount:.3g} {unit}"


def exact_duration(seconds: float) -> str:
    """Return *seconds* so that ``parse_duration`` gives back the same number.

    Exact for whole microseconds up to 10**9 s; in the largest unit that divides them.
    """
    for unit, size in reversed(SECONDS.items()):
        if seconds and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


# ----------------------------------------------------------------------
# Messages: what was found, and the nearest word

LONGEST_SHOWN = 60


def closest(word: str, known: Collection[str]) -> str:
    """Return `` Did you mean 'grow'?`` where a known word is near, else nothing."""
    # Comparing takes time with the square of the length: 1 MB would take for ever.
    near = difflib.get_close_matches(word[:LONGEST_SHOWN], known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """Return *value* roughly as TOML writes it, on one line, cut where long."""
    short = value[: LONGEST_SHOWN + 1] if isinstance(value, str | list) else value
    try:
        text = json.dumps(short, default=str, ensure_ascii=True)
    except (ValueError, RecursionError):  # a number of 5,000 digits; nested too deep
        return f"a {type(value).__name__} too long to show"
    cut = len(text) > LONGEST_SHOWN
    return text[: LONGEST_SHOWN - 3] + "..." if cut else text


def option_words(given: Mapping[str, object]) -> Iterator[str]:
    """Yield the words by which a command line gives options, by their names.

    Values of a tuple are given one by one; True is an option without a value; None and
    False are left out.
    """
    for name, values in given.items():
        for value in values if isinstance(values, tuple) else (values,):
            if value is None or value is False:
                continue
            yield f"--{name}"
            if value is not True:
                yield f"{value:.15g}" if isinstance(value, float) else str(value)


def counted(number: int, noun: str) -> str:
    """Return ``1 hole``, ``1,234 holes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def per_cent(share: float, form: str = ".0f") -> str:
    """Return 0.28 as ``28 %``; *form* is the number's format specification."""
    return f"{100 * share:{form}} %"


LEAST_GAP = 1e-4
"""Two digits of a percentage: plans on Summit are within a few hundredths."""


def gap_percent(gap: float) -> str:
    """Return *gap* as a percentage; ``< 0.01 %`` where it would read as 0."""
    if 0.0 < gap < LEAST_GAP:
        return f"< {per_cent(LEAST_GAP, '.2f')}"
    return per_cent(gap, ".2f")


UNKNOWN = "-"
"""Stands in tables for what is not known."""

SCALES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MANY = 1e6
"""From here on only the first digits are shown, so that a table keeps its width."""


def scaled(value: float, *, scales: Sequence[tuple[float, str]] = SCALES) -> str:
    """Return *value* with three or more digits and its scale, as in ``89.58 G``."""
    if abs(value) >= MANY * scales[0][0]:
        return f"{value:.2e}"
    for size, scale in scales:
        if abs(value) >= size:
            return f"{value / size:,.2f} {scale}"
    return f"{value:,.0f}"


def utc(time_s: float) -> str:
    """Return a Unix time as people and programs read it."""
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def one_line(text: str) -> str:
    """Return *text* on one line, without characters that move a terminal's cursor."""
    folded = " ".join(text.split())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in folded
    )
