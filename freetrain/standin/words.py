"""Command lines as Slurm's programs read them: options, then the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.standin.complaint import ComplaintError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def split(
    program: str,
    argv: Sequence[str],
    *,
    short: Mapping[str, str],
    flags: frozenset[str],
) -> tuple[dict[str, str], list[str]]:
    """Split *argv* into options by long name, and what stands after them.

    Args:
        program: For messages.
        argv: The words.
        short: Long name of each one-letter option, all of which take a value.
        flags: Long options that take none.

    Raises:
        ComplaintError: An option without its value.
    """
    options: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        if not word.startswith("--"):
            name, value = short.get(word[1], word[1]), word[2:]
            has_value = bool(value)
        else:
            name, equals, value = word[2:].partition("=")
            has_value = bool(equals) or name in flags
        if not has_value:
            if not words:
                raise ComplaintError(f"{program}: option requires an argument: {word}")
            value = words.pop(0)
        options[name] = value
    return options, words
