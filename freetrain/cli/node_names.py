"""Names of nodes as Slurm's users read them, whatever files call a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.text import one_line
from slurm.hostlist import collapse

if TYPE_CHECKING:
    from collections.abc import Iterable


def nodes_named(names: Iterable[str]) -> str:
    """Return ``n[1-3]``; one by one where a name is none; empty for no names."""
    names = tuple(names)
    try:
        return one_line(collapse(names))
    except ValueError:
        return one_line(", ".join(names))
