"""Node lists as Slurm writes them: ``n[1-3,07],m05``."""

from __future__ import annotations

import itertools
import re

MAX_NODES = 1_000_000
"""Largest list that is expanded: ``n[0-999999999]`` is 16 characters long."""

_PART = re.compile(r"([^\[\],\s]+)|\[([\d,\-]+)\]", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


def expand_hostlist(text: str) -> tuple[str, ...]:
    """Return the node names that *text* stands for, in its order.

    Brackets may stand anywhere and more than once; the last one counts fastest.
    Numbers keep the width that the range's first number has.

    Raises:
        ValueError: It is no such list, or one of more than a million nodes.
    """
    names: list[str] = []
    at = 0
    while at < len(text):
        parts: list[list[str]] = []
        while found := _PART.match(text, at):
            parts.append([found[1]] if found[1] else _numbers(found[2]))
            at = found.end()
        if not parts or (at < len(text) and text[at] != ","):
            raise ValueError(f"no node name at character {at + 1}")
        names += _names(parts, room=MAX_NODES - len(names))
        at += 1
    if text.endswith(","):
        raise ValueError("nothing after the last comma")
    return tuple(names)


def _names(parts: list[list[str]], *, room: int) -> list[str]:
    count = 1
    for part in parts:
        count *= len(part)
    if count > room:
        raise ValueError(f"more than {MAX_NODES} nodes")
    return ["".join(name) for name in itertools.product(*parts)]


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text)
        if not found:
            raise ValueError(f"{text!r} is no range of numbers")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"the range {text!r} runs backwards")
        if last - first >= MAX_NODES - len(numbers):
            raise ValueError(f"more than {MAX_NODES} nodes")
        width = len(found[1])
        numbers += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return numbers
