"""Shapes to try, as a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def grid(*axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every combination of the *axes*' entries, one a row, read-only."""
    columns = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    shapes = np.stack(columns, axis=1)
    shapes.flags.writeable = False
    return shapes
