"""The power law that began some work ago, or after a start of another kind."""

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
    alpha, late = shapes.T[:, :, None]
    return np.asarray((work + late) ** -alpha)


SHIFTED_POWER = Family(
    "shifted power law",
    4,
    grid(np.geomspace(0.05, 6, 16), np.geomspace(0.01, 1, 6)),
    _basis,
)
"""``c + a * (k + s) ** -alpha``; Optimus is its alpha of 1."""
