"""Exponential decay: every step takes away the same share of what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.grid import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = grid(np.geomspace(0.02, 5, 32))


class Exponential:
    """``c + a * exp(-k / tau)``; the same curves as SLAQ's ``mu ** (k - b) + c``."""

    name = "exponential"
    parameters = 3

    @property
    def shapes(self) -> NDArray[np.float64]:
        """Shapes to try."""
        return _SHAPES

    def basis(
        self, work: NDArray[np.float64], shapes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the basis of each shape, as the interface says."""
        (tau,) = shapes.T[:, :, None]
        return np.asarray(np.exp(-work / tau))
