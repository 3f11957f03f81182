"""SLAQ: what is left falls as one over a square of the work."""

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
    late, bend = shapes.T[:, :, None]
    return np.asarray(late / (late + (1 - bend) * work + bend * work**2))


INVERSE_QUADRATIC = Family(
    "inverse quadratic",
    4,
    grid(np.geomspace(0.003, 5, 16), np.linspace(0, 1, 5)),
    _basis,
)
"""``1 / (a * k ** 2 + b * k + c) + d`` of SLAQ (SoCC 2017), all 0 or more."""
