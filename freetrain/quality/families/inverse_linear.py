"""Optimus: what is left falls as one over the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.grid import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = grid(np.geomspace(0.003, 5, 32))


class InverseLinear:
    """``c + gain * s / (k + s)``: ``1 / (a * k + b) + c`` of Optimus (EuroSys 2018)."""

    name = "inverse linear"
    parameters = 3

    @property
    def shapes(self) -> NDArray[np.float64]:
        """Shapes to try."""
        return _SHAPES

    def basis(
        self, work: NDArray[np.float64], shapes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the basis of each shape, as the interface says."""
        (late,) = shapes.T[:, :, None]
        return np.asarray(late / (work + late))
