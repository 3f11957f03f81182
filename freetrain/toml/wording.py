"""How messages show what was found, and guess at what was meant."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

LONGEST_SHOWN = 60


def closest(word: str, known: Collection[str]) -> str:
    """Return `` Did you mean 'grow'?`` where a known word is near, else nothing."""
    # Comparing takes the square of the length: 1 MB would take for ever.
    near = difflib.get_close_matches(word[:LONGEST_SHOWN], known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """Return *value* roughly as TOML writes it, on one line, cut where long."""
    short = value[: LONGEST_SHOWN + 1] if isinstance(value, str | list) else value
    text = json.dumps(short, default=str, ensure_ascii=True)
    cut = len(text) > LONGEST_SHOWN
    return text[: LONGEST_SHOWN - 3] + "..." if cut else text


def counted(number: int, noun: str) -> str:
    """Return ``1 hole``, ``1,234 holes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def per_cent(share: float, form: str = ".0f") -> str:
    """Return 0.28 as ``28 %``; *form* says how many digits, and whether with a sign."""
    return f"{100 * share:{form}} %"


def one_line(text: str) -> str:
    """Return *text* on one line, with nothing in it that moves a terminal's cursor."""
    folded = " ".join(text.split())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in folded
    )
