"""Made-up words for real ones: the same for the same, and no way back.

Words are numbered as they come. Nothing is derived from what they stand for, so
there is nothing to guess, and which stood for what is kept in one object only, for
as long as one recording is made.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

from slurm.values import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

_LETTERS = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[\w.+-]*[^\W\d][\w.+-]*")
_NUMERIC = re.compile(r"[0-9TKMG.,:%_\[\]+/ -]*")
_FIRST_UID = 1000
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_SAID = NOTHING | {"UNLIMITED", "INFINITE", "Infinity", "YES", "NO", "none", "ALL"}
_KNOWN_GRES = frozenset({"gres", "gpu", "mps", "shard", "S"})


class Disguise:
    """A mapping that is made as it goes."""

    def __init__(self) -> None:
        """Begin with nothing mapped."""
        self._words: dict[tuple[str, str], str] = {}
        self._counts: dict[str, count[int]] = {}

    def word(self, kind: str, original: str) -> str:
        """Return the word for *original* among those of one *kind*; nothing stays.

        Args:
            kind: What the made-up words begin with, for example ``user``.
            original: Any text.
        """
        if original in NOTHING:
            return original
        return self._number(kind, original, lambda n: f"{kind}{n}")

    def words(self, kind: str, listed: str) -> str:
        """Return a comma-separated list, each of its items mapped."""
        if listed in NOTHING:
            return listed
        return ",".join(self.word(kind, one) for one in listed.split(","))

    def uid(self, original: str) -> str:
        """Return the number for a user's or group's number."""
        return self._number("uid", original, lambda n: str(_FIRST_UID + n))

    def hosts(self, expression: str) -> str:
        """Return a host name or hostlist whose letters are others.

        Digits, brackets and signs stay, so that ranges stay ranges and two names
        are equal afterwards if they were before.
        """
        if expression in NOTHING:
            return expression
        return _LETTERS.sub(lambda found: self._letters(found[0]), expression)

    def features(self, expression: str) -> str:
        """Return a feature expression with each name mapped, operators kept."""
        if expression in NOTHING:
            return expression
        return _WORD.sub(lambda found: self.word("feature", found[0]), expression)

    def gres(self, text: str) -> str:
        """Return generic resources with names and types mapped, but for usual ones."""
        if text in NOTHING:
            return text
        return _WORD.sub(lambda found: self._resource(found[0]), text)

    def plain(self, text: str) -> str:
        """Return numbers, times and Slurm's words for nothing as they are."""
        is_plain = text in _SAID or _NUMERIC.fullmatch(text) is not None
        return text if is_plain else self.word("text", text)

    def _resource(self, name: str) -> str:
        return name if name in _KNOWN_GRES else self.word("res", name)

    def _letters(self, letters: str) -> str:
        return self._number("host", letters, lambda n: f"h{_in_letters(n)}")

    def _number(self, kind: str, original: str, make: Callable[[int], str]) -> str:
        key = (kind, original)
        if key not in self._words:
            number = next(self._counts.setdefault(kind, count(1)))
            self._words[key] = make(number)
        return self._words[key]


def _in_letters(number: int) -> str:
    """Write *number* without digits, which would join those of a host's name."""
    letters = ""
    while number:
        number, last = divmod(number - 1, len(_ALPHABET))
        letters = _ALPHABET[last] + letters
    return letters
