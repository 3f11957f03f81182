"""By how much values scatter round whatever curve they follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_POINTS = 3

QUANTILE = 0.75
"""Not the median: metrics that come in steps stay the same more often than not."""

QUANTILE_OF_NORMAL = 1.1503
"""Three of four normal values are within so many standard deviations."""

MEDIAN_OF_MEAN = 1.5708
"""A median of many normal values has so many times the variance of their mean."""


def noise_of(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the standard deviation of single values round a smooth curve.

    From the differences between each point and its two neighbours, which a slope
    does not enter; from a quantile of them, which a few spikes and steps do not.

    Args:
        values: In order, shape (n,).
        weights: How many told values each is the middle of, shape (n,).

    Returns:
        In the unit of *values*; 0 for fewer than three.
    """
    if values.size < FEWEST_POINTS:
        return 0.0
    bends = values[:-2] - 2 * values[1:-1] + values[2:]
    per_value = np.where(weights > FEWEST_POINTS, MEDIAN_OF_MEAN, 1.0) / weights
    scales = np.sqrt(per_value[:-2] + 4 * per_value[1:-1] + per_value[2:])
    # 40 times as fast as np.quantile, which took a fifth of the time of an outlook.
    ordered = np.sort(np.abs(bends) / scales)
    return float(ordered[int(QUANTILE * ordered.size)] / QUANTILE_OF_NORMAL)
