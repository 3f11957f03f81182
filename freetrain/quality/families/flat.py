"""No further gain: the level of the last values is all there will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.interface import Family

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPES = np.zeros((1, 0))
_SHAPES.flags.writeable = False


def _basis(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.zeros((len(shapes), work.size))


FLAT = Family("no further gain", 1, _SHAPES, _basis)
"""``c``, which follows the last values; what every other family has to beat."""
