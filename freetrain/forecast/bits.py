"""Sets of nodes as a bit a node, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bits = NDArray[np.uint8]


def packed(nodes: Sequence[int] | NDArray[np.intp], count: int) -> Bits:
    """Return the bits of *count* nodes by number, set for *nodes*."""
    bits = np.zeros(count, dtype=np.uint8)
    bits[nodes] = 1
    return np.packbits(bits)


def bits_of(table: Bits, nodes: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the bits of *nodes* in packed rows, shape (rows, nodes)."""
    shifts = (7 - nodes % 8).astype(np.uint8)
    return ((table[:, nodes // 8] >> shifts) & 1).astype(np.float32)
