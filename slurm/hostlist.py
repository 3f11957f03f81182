"""Slurm's hostlist expressions, both ways: ``n[1-3,07],m05`` and the names it means.

A name may hold several brackets (``r[1-2]c[01-04]``) and text after the last one;
the width of a range's first number is kept (``[08-11]`` is 08, 09, 10, 11).

Source: scontrol(1), "show hostlist" and "show hostnames".
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NAMES = 200_000
"""Names that one expression may mean; the largest machines have 160,000 nodes."""

_NOTHING = frozenset({"", "(null)", "None assigned"})
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)
_TERM = re.compile(r"(?:[^\[\],\s]+|\[[^\[\]\s]*\])+")
_PART = re.compile(r"[^\[\]]+|\[([^\[\]]*)\]")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})([^0-9]*)", re.ASCII | re.DOTALL)


def expand(expression: str, *, limit: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the names that *expression* means, in its order, repeats included.

    Args:
        expression: For example ``n[1-3,7],m05``; empty and ``(null)`` mean none.
        limit: Names to give at most; counted before any is made, so that a
            hostile range costs nothing.

    Raises:
        UnreadableOutputError: Not a hostlist expression, or above *limit*.
    """
    text = expression.strip()
    if text in _NOTHING:
        return ()
    if not any(mark in text for mark in "[], \t\n"):
        return (text,)
    names: list[str] = []
    for term in _terms(text):
        names.extend(_expand_term(term, text, limit - len(names)))
    return tuple(names)


def collapse(names: Iterable[str]) -> str:
    """Return one expression for *names*, each once, runs of numbers as ranges.

    Raises:
        ValueError: A name is empty or holds a character that hostlists use.
    """
    terms: list[str] = []
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set(names)):
        _check_name(name)
        found = _NUMBERED.fullmatch(name)
        if found:
            groups.setdefault((found[1], found[3]), []).append(found[2])
        else:
            terms.append(name)
    terms += (
        before + _ranges(group) + after for (before, after), group in groups.items()
    )
    return ",".join(terms)


def _terms(text: str) -> Iterator[str]:
    """Cut *text* at the commas outside of brackets."""
    at = 0
    while True:
        found = _TERM.match(text, at)
        if found is None:
            raise _unreadable(text, f"no host name at character {at + 1}")
        yield found.group()
        at = found.end()
        if at == len(text):
            return
        if text[at] != ",":
            raise _unreadable(text, f"unexpected character at {at + 1}")
        at += 1


def _expand_term(term: str, text: str, limit: int) -> Iterator[str]:
    """Return the names of one comma-free term, of which *limit* are allowed."""
    if "[" not in term:
        parts = [[(term, term)]]
    else:
        parts = [_bounds(found, text) for found in _PART.finditer(term)]
    count = prod(sum(_length(bound) for bound in part) for part in parts)
    if count > limit:
        raise _unreadable(text, f"more than {MAX_NAMES} names are not believed")
    choices = [[word for bound in part for word in _words(bound)] for part in parts]
    return ("".join(words) for words in product(*choices))


def _bounds(found: re.Match[str], text: str) -> list[tuple[str, str]]:
    """Return the ranges, first and last number as written, of one part."""
    inside = found.group(1)
    if inside is None:
        return [(found.group(), found.group())]
    bounds = []
    for item in inside.split(","):
        numbers = _RANGE.fullmatch(item)
        if numbers is None:
            raise _unreadable(text, f"[{item}] is not a number or a range")
        first, last = numbers.group(1), numbers.group(2) or numbers.group(1)
        if int(last) < int(first):
            raise _unreadable(text, f"[{item}] counts down")
        bounds.append((first, last))
    return bounds


def _length(bound: tuple[str, str]) -> int:
    first, last = bound
    return 1 if first == last else int(last) - int(first) + 1


def _words(bound: tuple[str, str]) -> Iterator[str]:
    first, last = bound
    if first == last:
        return iter((first,))
    width = len(first)
    return (f"{number:0{width}d}" for number in range(int(first), int(last) + 1))


def _check_name(name: str) -> None:
    if not name or name in _NOTHING or any(c in "[]," or c.isspace() for c in name):
        raise ValueError(f"{name!r} is not a host name")


def _ranges(numbers: list[str]) -> str:
    """Write *numbers*, digits each, as ``[1-3,7]``; a single one stays as it is."""
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda text: (int(text), len(text))):
        if runs and _follows(runs[-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    if len(numbers) == 1:
        return numbers[0]
    return (
        "["
        + ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        + "]"
    )


def _follows(run: list[str], number: str) -> bool:
    """Tell whether a range that starts as *run* does would write *number* next."""
    return number == f"{int(run[-1]) + 1:0{len(run[0])}d}"


def _unreadable(text: str, why: str) -> UnreadableOutputError:
    return UnreadableOutputError("hostlist", 1, text, why)
