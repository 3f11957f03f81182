"""The power law: every further gain takes a multiple of the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.grid import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = grid(np.geomspace(0.05, 4, 32))


class Power:
    """``c + a * k ** -alpha``, as learning curves of many kinds are found to go."""

    name = "power law"
    parameters = 3

    @property
    def shapes(self) -> NDArray[np.float64]:
        """Shapes to try."""
        return _SHAPES

    def basis(
        self, work: NDArray[np.float64], shapes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the basis of each shape, as the interface says."""
        (alpha,) = shapes.T[:, :, None]
        return np.asarray(work**-alpha)
