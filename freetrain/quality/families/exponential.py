"""Exponential decay: every step takes away the same share of what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.grid import grid
from freetrain.quality.families.interface import Family

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _basis(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (tau,) = shapes.T[:, :, None]
    return np.asarray(np.exp(-work / tau))


EXPONENTIAL = Family("exponential", 3, grid(np.geomspace(0.02, 5, 32)), _basis)
"""``c + a * exp(-k / tau)``; the same curves as SLAQ's ``mu ** (k - b) + c``."""
