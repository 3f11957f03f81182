"""Optimus: what is left falls as one over the work."""

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
    (late,) = shapes.T[:, :, None]
    return np.asarray(late / (work + late))


INVERSE_LINEAR = Family("inverse linear", 3, grid(np.geomspace(0.003, 5, 32)), _basis)
"""``c + gain * s / (k + s)``: ``1 / (a * k + b) + c`` of Optimus (EuroSys 2018)."""
