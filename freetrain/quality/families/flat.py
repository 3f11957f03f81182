"""No further gain: the level of the last values is all there will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Flat:
    """``c``, which follows the last values; what every other family has to beat."""

    name = "no further gain"
    parameters = 1

    @property
    def shapes(self) -> NDArray[np.float64]:
        """One shape, without numbers."""
        return np.zeros((1, 0))

    def basis(
        self, work: NDArray[np.float64], shapes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return zeros."""
        return np.zeros((len(shapes), work.size))
