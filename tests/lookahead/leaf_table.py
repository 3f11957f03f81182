"""How neighbours leave on Summit, with so many nodes in the published order as a rack.

``python -m tests.lookahead.leaf_table``: over the first two days, of the times that
either of two neighbours left, how often both did: summed over pairs, and by departures.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from freetrain.lookahead.affinity import Affinity, LeafAffinity
from tests.lookahead.figures import pool_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

WIDTHS = (2, 4, 9, 18, 36, 72)
DAYS = 2.0


def departures() -> Iterator[tuple[tuple[int, ...], NDArray[np.intp]]]:
    """Yield the nodes that left, and those idle until then."""
    idle = set[int]()
    for event in pool_from(0.0, DAYS).events():
        if event.left:
            yield event.left, np.array(sorted(idle), dtype=np.intp)
        idle = (idle - set(event.left)) | set(event.joined)


def rates(width: int) -> tuple[float, float]:
    """Return the rate by sums over pairs, and that of ``LeafAffinity``."""
    learned = LeafAffinity(Affinity(), lambda node: str(node // width))
    both = either = 0.0
    for left, idle in departures():
        learned.saw(left, idle)
        there = np.bincount(idle // width).astype(float)
        gone = np.bincount(np.array(left) // width, minlength=len(there))
        stayed = there - gone
        both += float((gone * (gone - 1)).sum() / 2)
        either += float((there * (there - 1) - stayed * (stayed - 1)).sum() / 2)
    return both / either, learned.rate


def main() -> int:
    """Print both, by nodes a rack."""
    for width in WIDTHS:
        by_pairs, learned = rates(width)
        sys.stdout.write(
            f"{width:3} a rack: {by_pairs:.2f} by pairs, q {learned:.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
