"""Single values that have nothing to do with those beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.noise import noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_POINTS = 5
"""Among fewer, nobody can say which value is the odd one."""

SPIKE_OF_SPAN = 0.5
SPIKE_OF_NOISE = 6.0

FIRST_OF_SPAN = 10.0
"""A first value may be far from the second: curves are steepest there."""


def running_median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each value and its two neighbours, shape (n,).

    The first and the last take that of the first and last three.
    """
    if values.size < 3:  # noqa: PLR2004 - of three values
        return values
    inner = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    return np.concatenate((inner[:1], inner, inner[-1:]))


def find_spikes(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Tell which of *values* are spikes, shape (n,).

    A spike is further from its neighbours than half of what all others span, and
    than the noise explains.
    """
    if values.size < FEWEST_POINTS:
        return np.zeros(values.size, dtype=np.bool_)
    calm = running_median(values)
    limit = np.full(values.size, SPIKE_OF_SPAN * np.ptp(calm))
    limit[0] *= FIRST_OF_SPAN / SPIKE_OF_SPAN
    limit = np.maximum(limit, SPIKE_OF_NOISE * noise_of(values, weights))
    return np.asarray(np.abs(values - calm) > limit)
