"""Names of nodes, as people and Slurm count them."""

from __future__ import annotations

import re

_RUNS_OF_DIGITS = re.compile(r"(\d+)", re.ASCII)

NaturalKey = tuple[list[tuple[int, str]], str]
"""Sorts names of nodes as Slurm has them in line."""


def natural_key(name: str) -> NaturalKey:
    """Return a key that sorts n2 before n10: runs of digits count by their value."""
    parts = _RUNS_OF_DIGITS.split(name)
    for place in range(1, len(parts), 2):
        parts[place] = parts[place].lstrip("0")
    return [(len(part) * (i % 2), part) for i, part in enumerate(parts)], name
