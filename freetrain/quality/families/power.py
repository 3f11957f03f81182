"""The power law: every further gain takes a multiple of the work."""

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
    (alpha,) = shapes.T[:, :, None]
    return np.asarray(work**-alpha)


POWER = Family("power law", 3, grid(np.geomspace(0.05, 4, 32)), _basis)
"""``c + a * k ** -alpha``, as learning curves of many kinds are found to go."""
