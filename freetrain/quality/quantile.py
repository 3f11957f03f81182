"""Quantiles of values that stand for several each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def weighted_quantile(
    values: NDArray[np.float64], weights: NDArray[np.float64], share: float
) -> float:
    """Return the value with *share* of the *weights* below it, between neighbours."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    middles = (sums - weights[order] / 2) / sums[-1]
    return float(np.interp(share, middles, values[order]))
