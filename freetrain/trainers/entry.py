"""One table of a trainers file, read key by key; each mistake named in one line."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from freetrain.errors import BadConfigurationError
from freetrain.trainers.duration import EXPECTED, parse_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LONGEST_SHOWN = 60


def closest(word: str, known: Collection[str]) -> str:
    """Return `` Did you mean 'grow'?`` where a known word is near, else nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """Return *value* roughly as TOML writes it, on one line, cut where long."""
    text = json.dumps(value, default=str, ensure_ascii=True)
    cut = len(text) > LONGEST_SHOWN
    return text[: LONGEST_SHOWN - 3] + "..." if cut else text


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of key = value pairs and where it stands, for messages.

    Attributes:
        path: The file, as the user named it.
        where: The table within the file, such as ``trainer 'bert' (number 2)``.
        values: The pairs, as tomllib read them.
    """

    path: str
    where: str
    values: Mapping[str, object]

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error for *problem*: what was found and what is expected."""
        stop = "" if problem.endswith(("?", ".")) else "."
        raise BadConfigurationError(
            f"{self.path}: {self.where}: {problem}{stop} "
            f"No trainer of this file was used."
        )

    def refuse_value(self, key: str, expected: str) -> NoReturn:
        """Raise the error for a value that is not what *key* expects."""
        self.refuse(f"{key} = {shown(self.values[key])}, expected {expected}")

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse the first key that is not *known*, with the nearest one that is."""
        for key in self.values:
            if key not in known:
                hint = closest(key, known) or f" Known keys: {', '.join(known)}"
                self.refuse(f"unknown key {shown(key)}.{hint}")

    def has(self, key: str) -> bool:
        """Tell whether the table says anything about *key*."""
        return key in self.values

    def require(self, key: str) -> None:
        """Refuse a table without *key*."""
        if key not in self.values:
            self.refuse(f"{key} is missing")

    def whole(self, key: str, *, default: int, most: int) -> int:
        """Return a whole number from 1 to *most*."""
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse_value(key, f"a whole number from 1 to {most}")
        if not 1 <= value <= most:
            self.refuse_value(key, f"a whole number from 1 to {most}")
        return value

    def positive(self, key: str, *, default: float) -> float:
        """Return a finite number above 0."""
        value = positive_or_none(self.values.get(key, default))
        if value is None:
            self.refuse_value(key, "a number above 0")
        return value

    def seconds(self, key: str, *, default: float) -> float:
        """Return a duration, written with its unit, in seconds."""
        if key not in self.values:
            return default
        value = self.values[key]
        if not isinstance(value, str):
            self.refuse_value(key, EXPECTED)
        try:
            return parse_duration(value)
        except ValueError:
            self.refuse_value(key, EXPECTED)


def positive_or_none(value: object) -> float | None:
    """Return *value* as a float where it is a finite number above 0, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None
