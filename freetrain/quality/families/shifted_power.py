"""The power law that began some work ago, or after a start of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.grid import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = grid(np.geomspace(0.05, 6, 16), np.geomspace(0.01, 1, 6))


class ShiftedPower:
    """``c + a * (k + s) ** -alpha``; Optimus is its alpha of 1."""

    name = "shifted power law"
    parameters = 4

    @property
    def shapes(self) -> NDArray[np.float64]:
        """Shapes to try."""
        return _SHAPES

    def basis(
        self, work: NDArray[np.float64], shapes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the basis of each shape, as the interface says."""
        alpha, late = shapes.T[:, :, None]
        return np.asarray((work + late) ** -alpha)
